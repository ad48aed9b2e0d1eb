//! Journals to damage.

use std::{ops::Range, path::PathBuf};

use deedbook_journal::embedded::planted::draw_from;
use harness::{Loss, Random, SimDisk};

use super::is_log;
use crate::{
    book::{BOOK, Model, Thread, create_as, one_more, wait},
    work::{Interrupted, Work},
};

/// Parts before something becomes of the journal.
const PARTS: usize = 40;
const SEED: u64 = 6;
/// What a frame begins with.
const FRAME: &[u8] = b"DBWF";
/// Before its body.
const FRAME_HEADER: usize = 104;
/// Where a frame says how long its body is.
const FRAME_LENGTH: Range<usize> = 8..12;
/// Where a frame has its generation, and where a file has it.
const FRAME_GENERATION: Range<usize> = 16..24;
const GENERATION: Range<usize> = 40..48;

/// What became of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// It was closed.
    Closed,
    /// Its process ended when its log had been marked.
    Marked,
    /// Its process ended at once.
    Unmarked,
}

impl Which {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Marked, Self::Unmarked];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Marked => "marked",
            Self::Unmarked => "unmarked",
        }
    }
}

/// A journal, and what it was before.
#[derive(Debug)]
pub struct Fixture {
    /// What became of it.
    pub which: Which,
    /// Its files.
    pub disk: SimDisk,
    /// What it holds.
    pub model: Model,
    /// What it held before, after each part.
    pub(super) earlier: Vec<Model>,
    /// Its files then.
    pub(super) older: Vec<SimDisk>,
    /// The names of its files, its own first.
    pub(super) files: Vec<PathBuf>,
    /// A log of another journal.
    pub(super) foreign: Vec<u8>,
    /// The file that the last frame is in, and where.
    pub(super) last_frame: Option<(usize, Range<usize>)>,
}

impl Fixture {
    /// Makes it.
    ///
    /// # Errors
    /// The work failed: a rule is broken.
    pub fn new(which: Which) -> Result<Self, String> {
        draw_from(Some(SEED));
        let made = Self::made(which);
        draw_from(None);
        made
    }

    fn made(which: Which) -> Result<Self, String> {
        let told = |broken: Interrupted| format!("the work itself fails: {}", broken.trouble);
        let disk = SimDisk::default();
        let mut work = Work::begin(&disk, SEED).map_err(|error| error.to_string())?;
        work.run(PARTS).map_err(told)?;
        match which {
            Which::Closed => work.close().map_err(told)?,
            Which::Marked => work.rest().map_err(told)?,
            Which::Unmarked => {}
        }
        let mut random = Random::new(1);
        let mut tape = disk.tape();
        let mut older = Vec::new();
        for part in &work.parts {
            tape.forward(part.done);
            older.push(tape.image(Loss::Nothing, &mut random).0);
        }
        tape.forward(disk.operations());
        let image = tape.image(Loss::Nothing, &mut random).0;
        let mut files = image.names();
        // Backups are journals of their own.
        files.retain(|file| file.to_string_lossy().starts_with(BOOK));
        files.sort_by_key(|file| is_log(file));
        let last_frame = last_frame(&image, &files);
        let earlier = work.parts.iter().map(|part| part.model.clone()).collect();
        let model = work.model.clone();
        work.stop();
        let foreign = foreign()?;
        Ok(Self { which, disk: image, model, earlier, older, files, foreign, last_frame })
    }

    pub(super) fn is_log(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|file| is_log(file))
    }

    /// Whether a thread was like this once.
    pub(super) fn has_had(&self, id: &str, found: &Thread) -> bool {
        let like =
            |thread: &Thread| (&thread.payloads, &thread.inbox) == (&found.payloads, &found.inbox);
        self.earlier.iter().any(|model| model.0.get(id).is_some_and(like))
    }
}

/// In the file of the latest generation that has one; the generation stands in its title.
fn last_frame(image: &SimDisk, files: &[PathBuf]) -> Option<(usize, Range<usize>)> {
    let number =
        |bytes: &[u8], at: Range<usize>| Some(u64::from_le_bytes(bytes.get(at)?.try_into().ok()?));
    let frame = |(at, file): (usize, &PathBuf)| {
        let log = image.read(file).filter(|_| is_log(file))?;
        let generation = number(&log, GENERATION)?;
        // What stands behind may be of a generation before, when the file was used already.
        let ours = |start: &usize| {
            let frame = &log[*start..];
            frame.starts_with(FRAME) && number(frame, FRAME_GENERATION) == Some(generation)
        };
        let start = (0..log.len()).rfind(ours)?;
        let length = log.get(start..)?.get(FRAME_LENGTH)?.try_into().ok()?;
        let length = u32::from_le_bytes(length) as usize;
        Some((generation, at, start..start + FRAME_HEADER + length))
    };
    let frames = files.iter().enumerate().filter_map(frame);
    frames.max_by_key(|(generation, ..)| *generation).map(|(_, at, frame)| (at, frame))
}

/// The log of another journal, with a record in it.
fn foreign() -> Result<Vec<u8>, String> {
    let disk = SimDisk::default();
    let book = create_as(&disk, [9; 16]).map_err(|error| error.to_string())?;
    wait(one_more(&book, &mut Model::default())).map_err(|error| error.to_string())?;
    let names = disk.names();
    let log = names.iter().find(|name| is_log(name)).and_then(|name| disk.read(name));
    log.ok_or_else(|| "it has no log".into())
}
