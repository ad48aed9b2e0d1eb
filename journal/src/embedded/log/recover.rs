//! What the log has beyond the tables, after a process that did not close the journal.

use std::{io, path::PathBuf, sync::Arc};

use super::{
    MARK_ALIGN,
    frame::{self, ALIGN, Frame, FrameHash, Kind},
    segment::{FRAMES_AT, Found, Segments},
};
use crate::{
    embedded::{
        disk::DiskFile,
        entry::{Entry, Place},
        planted::{Broken, planted},
        tables::Settled,
    },
    limits::EMBEDDED_LOG_FIRST_BYTES,
};

/// What was found.
#[derive(Debug, Default)]
pub(in super::super) struct Recovered {
    /// Entries that the tables do not have, each with its place.
    pub(in super::super) entries: Vec<(Place, Entry)>,
    /// The last frame.
    pub(in super::super) last: FrameHash,
    /// The newest generation that has a file.
    pub(in super::super) generation: u64,
    /// The last frame, if the tables lack it.
    pub(in super::super) tail: Option<Tail>,
}

/// The last frame that was found, where it stands.
#[derive(Debug)]
pub(in super::super) struct Tail {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) generation: u64,
    at: u64,
    pub(super) end: u64,
}

impl Tail {
    /// Writes the frame again where it stands, and makes it durable: it may never have been
    /// acknowledged, and after a sync that failed the system shows what the disk does not have.
    /// Everything before it was acknowledged.
    pub(in super::super) fn secure(&self) -> io::Result<()> {
        if planted(Broken::TrustFoundFrames) || planted(Broken::AppendBehindFrames) {
            return Ok(());
        }
        let length = self.end.saturating_sub(self.at);
        let mut frame = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file.read_at(self.at, &mut frame)?;
        self.file.write_at(self.at, &frame)?;
        self.file.sync()
    }
}

/// Why the log cannot be used.
#[derive(Debug)]
pub(in super::super) enum Problem {
    /// The tables know of a generation that has no file.
    Missing(PathBuf),
    /// It is not what it was when it was written.
    Damaged(String),
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads what is behind the settled mark.
pub(in super::super) fn recover(
    segments: &Segments,
    settled: &Settled,
) -> Result<Recovered, Problem> {
    let files = segments.find(settled.generation, Some(settled.log))?;
    let mut reading = Reading {
        log: settled.log,
        last: None,
        settled: *settled,
        met: false,
        place: settled.upto,
        entries: Vec::new(),
        tail: None,
    };
    let mut wanted = Some(settled.generation);
    let mut newest = settled.generation;
    for file in &files {
        newest = newest.max(file.generation);
        match wanted {
            Some(generation) if generation == file.generation => {
                // No file is used before it is this long.
                if (file.bytes.len() as u64) < EMBEDDED_LOG_FIRST_BYTES {
                    let why = format!("{} was cut short", file.path.display());
                    return Err(Problem::Damaged(why));
                }
                wanted = reading.file(file)?.then(|| generation + 1);
            }
            Some(_) => break,
            // Made ready ahead of use, or the frame that leads here was lost.
            None if reading.begins(file) => {
                let path = file.path.display();
                let why = format!("{path} follows a file of the log whose end is damaged");
                return Err(Problem::Damaged(why));
            }
            // It holds nothing, and its name is needed.
            None => segments.forget(file.generation),
        }
    }
    if wanted.is_some_and(|generation| files.iter().all(|f| f.generation != generation)) {
        return Err(Problem::Missing(segments.path("-log")));
    }
    if !reading.met {
        let why = "the log ends before what the tables have of it".into();
        return Err(Problem::Damaged(why));
    }
    let last = reading.last.unwrap_or(settled.frame);
    let Reading { entries, tail, .. } = reading;
    let tail = tail.and_then(|(generation, at, end)| {
        let found = files.iter().find(|found| found.generation == generation)?;
        let file = Arc::clone(&found.file);
        Some(Tail { file, generation, at: at as u64, end: end as u64 })
    });
    Ok(Recovered { entries, last, generation: newest, tail })
}

/// A file of this journal with frames of a later generation than its tables know of, although they
/// say that everything was drained: then they are an older copy.
pub(in super::super) fn newer(segments: &Segments, generation: u64) -> io::Result<Option<PathBuf>> {
    let files = segments.find(generation.saturating_add(1), None)?;
    let begun = |file: &Found| {
        let first = file.bytes.get(FRAMES_AT as usize..);
        first.is_some_and(|bytes| frame::read(&file.log, file.generation, bytes).is_some())
    };
    let newer = files.iter().find(|file| begun(file)).map(|file| file.path.clone());
    // Nothing in them is needed where nothing is newer.
    files.iter().for_each(|file| segments.forget(file.generation));
    Ok(newer)
}

struct Reading {
    log: [u8; 16],
    /// The frame before; `None` before the first.
    last: Option<FrameHash>,
    settled: Settled,
    /// Whether the frame up to which the tables have everything was met.
    met: bool,
    place: Place,
    entries: Vec<(Place, Entry)>,
    /// The generation, the begin and the end of the last frame, if it is a group.
    tail: Option<(u64, usize, usize)>,
}

impl Reading {
    fn frame_at<'f>(&self, file: &'f Found, at: usize) -> Option<Frame<'f>> {
        frame::read(&self.log, file.generation, file.bytes.get(at..)?)
    }

    /// The frame that follows at a place: there, or the mark that stands in the next page.
    fn frame_or_mark_at<'f>(&self, file: &'f Found, at: usize) -> Option<(Frame<'f>, usize)> {
        let follows = self.frame_at(file, at).map(|frame| (frame, at));
        follows.or_else(|| {
            let at = at.next_multiple_of(MARK_ALIGN as usize);
            let mark = self.frame_at(file, at)?;
            let is_next = mark.title.kind == Kind::Mark && Some(mark.title.prev) == self.last;
            is_next.then_some((mark, at))
        })
    }

    /// Whether a file has a frame at its beginning.
    fn begins(&self, file: &Found) -> bool {
        self.frame_at(file, FRAMES_AT as usize).is_some()
    }

    /// Reads a file to its end; whether the next generation goes on.
    fn file(&mut self, file: &Found) -> Result<bool, Problem> {
        let mut at = FRAMES_AT as usize;
        while let Some((frame, begin)) = self.frame_or_mark_at(file, at) {
            at = begin;
            self.take(&frame).map_err(|why| {
                Problem::Damaged(format!("{} at byte {at}: {why}", file.path.display()))
            })?;
            at = at.saturating_add(frame.length);
            let lacked = frame.title.kind == Kind::Group && !self.entries.is_empty();
            self.tail = lacked.then_some((file.generation, begin, at));
            if frame.title.kind == Kind::Next {
                return Ok(true);
            }
        }
        // A frame that cannot be read is the last one, torn and never acknowledged, unless a
        // later one stands behind it.
        let mut behind = at.saturating_add(ALIGN);
        while behind < file.bytes.len() {
            if self.frame_at(file, behind).is_some() && !planted(Broken::IgnoreDamagedFrame) {
                let path = file.path.display();
                let why = format!("{path} at byte {at}: a frame before others cannot be read");
                return Err(Problem::Damaged(why));
            }
            behind = behind.saturating_add(ALIGN);
        }
        if self.last.is_none() {
            // No frame at all: the generation had only begun.
            self.met = true;
        }
        Ok(false)
    }

    fn take(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let title = &frame.title;
        match self.last {
            Some(last) if title.prev != last => return Err("it does not follow".into()),
            Some(_) => {}
            None => self.met = title.prev == self.settled.frame,
        }
        self.last = Some(frame.hash);
        if self.met {
            if title.first != self.place {
                return Err("its entries do not follow".into());
            }
            for (place, entry) in frame.entries()? {
                self.place = place.after(entry.count());
                self.entries.push((place, entry));
            }
        }
        self.met |= frame.hash == self.settled.frame;
        Ok(())
    }
}
