//! The files of the log, beside the journal: `NAME-log0`, `NAME-log1` and `NAME-log2`.
//!
//! One is written to, one is made ready ahead of use, and after a crash the others may hold what
//! recovery needs; so there are three names and most of the time two files. A file begins with a
//! page that says whose it is and of which generation; frames follow. It is used again only under
//! a new generation, once the tables have everything that it held.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use crate::{
    embedded::{
        anchor, aside,
        code::{self, In, Out},
        disk::{Disk, DiskFile},
        planted::{Broken, planted},
        sync::{
            Mutex, MutexGuard,
            atomic::{AtomicU64, Ordering},
        },
    },
    limits::{EMBEDDED_LOG_FILL_BYTES, EMBEDDED_LOG_FIRST_BYTES},
};

/// Where the first frame stands.
pub(super) const FRAMES_AT: u64 = 4096;
const MAGIC: [u8; 8] = *b"deedlog\x01";
/// The length of a title: what it is, the journal's log id, the log's own id, the generation.
const TITLE_BYTES: usize = MAGIC.len() + 16 + 16 + 8 + code::SUM_BYTES;
const NAMES: [&str; 3] = ["-log0", "-log1", "-log2"];

/// The file of the log with one of its names.
fn beside(journal: &Path, name: &str) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push(name);
    path.into()
}

/// Every file that a journal at this path may have, its own first: one that was closed is whole in
/// that, one that is open or was not closed is all of them together. The last one is the anchor,
/// which holds no records and remembers how many there were.
///
/// ```
/// let files = deedbook_journal::embedded::files_of("refunds.redb");
/// assert_eq!(files.len(), 5);
/// assert!(files[1].ends_with("refunds.redb-log0"));
/// ```
pub fn files_of(journal: impl AsRef<Path>) -> Vec<PathBuf> {
    let journal = journal.as_ref();
    let log = NAMES.iter().map(|name| beside(journal, name));
    let anchor = anchor::beside(journal);
    std::iter::once(journal.into()).chain(log).chain([anchor]).collect()
}

/// A file that frames are written to.
#[derive(Debug)]
pub(in super::super) struct Segment {
    file: Arc<dyn DiskFile>,
    pub(super) generation: u64,
    /// Up to where the file has been filled with zeros: writing there changes no length and
    /// allocates nothing, which makes a sync as cheap as it gets. Below it belongs to frames; what
    /// is done at it and beyond, to frames or to zeros, is done under `filling`.
    filled: AtomicU64,
    filling: Mutex<()>,
    /// Whether a sync of zeros has failed; held while one is under way. A frame that was written
    /// before it counts as clean from then on, so that its own sync says nothing of it.
    zeros_failed: Mutex<bool>,
}

impl Segment {
    fn new(file: Arc<dyn DiskFile>, generation: u64, filled: u64) -> Arc<Self> {
        let (filled, filling) = (AtomicU64::new(filled), Mutex::new(()));
        Arc::new(Self { file, generation, filled, filling, zeros_failed: Mutex::new(false) })
    }

    fn zeros_failed(&self) -> MutexGuard<'_, bool> {
        self.zeros_failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a frame and makes it durable.
    pub(super) fn write(&self, at: u64, frame: &[u8]) -> io::Result<()> {
        let end = at.saturating_add(frame.len() as u64);
        if end <= self.filled.load(Ordering::Acquire) {
            self.file.write_at(at, frame)?;
        } else {
            let _filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
            self.file.write_at(at, frame)?;
            self.filled.fetch_max(end, Ordering::AcqRel);
        }
        if planted(Broken::SkipSync) || planted(Broken::DrainUnsynced) {
            return Ok(());
        }
        match self.file.sync() {
            Err(_) if planted(Broken::TrySyncAgain) => self.file.sync()?,
            synced => synced?,
        }
        // Asked behind the frame's own sync: one of zeros may have failed on its way.
        if *self.zeros_failed() {
            return Err(io::Error::other("a sync of the zeros ahead of it has failed"));
        }
        Ok(())
    }

    /// A file that was found, to be written to again: no rule of the log allows this.
    pub(super) fn again(file: &Arc<dyn DiskFile>, generation: u64) -> io::Result<Arc<Self>> {
        Ok(Self::new(Arc::clone(file), generation, file.len()?))
    }

    /// Fills one slice ahead of `at` if that runs short; blocks for a sync.
    pub(in super::super) fn fill(&self, at: u64, most: u64) -> io::Result<()> {
        if !self.is_short(at, most) {
            return Ok(());
        }
        let filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = self.filled.load(Ordering::Acquire);
        let to = filled.saturating_add(ahead(at)).min(most);
        match zeros(&*self.file, filled, to) {
            // It only makes commits cheaper: what space is left is for them.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            zeroed => zeroed?,
        }
        self.filled.fetch_max(to, Ordering::AcqRel);
        drop(filling);
        let mut failed = self.zeros_failed();
        let synced = self.file.sync();
        *failed |= synced.is_err();
        synced
    }

    /// Whether what is filled ahead of `at` runs short.
    pub(in super::super) fn is_short(&self, at: u64, most: u64) -> bool {
        let filled = self.filled.load(Ordering::Acquire);
        filled < most && filled.saturating_sub(at) < ahead(at) / 2
    }
}

/// How much is filled ahead of a place: little for a process that writes little.
fn ahead(at: u64) -> u64 {
    at.clamp(EMBEDDED_LOG_FIRST_BYTES, EMBEDDED_LOG_FILL_BYTES)
}

/// One of the three names.
#[derive(Debug)]
enum Slot {
    /// Whatever an earlier process left there, or nothing.
    Left,
    /// A file of ours that may be used again.
    Free(Arc<dyn DiskFile>),
    /// A file of ours that may hold what the tables do not have.
    Used(u64, Arc<dyn DiskFile>),
    /// One that an earlier process left, and that may hold what the tables do not have. It is not
    /// used again: nobody knows what of it is durable beside its frames.
    Found(u64),
    /// Somebody else's: left alone.
    Taken,
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// The log that it is a part of.
    pub(super) log: [u8; 16],
    pub(super) generation: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) file: Arc<dyn DiskFile>,
}

/// The files beside one journal.
#[derive(Debug)]
pub(in super::super) struct Segments {
    disk: Arc<dyn Disk>,
    journal: PathBuf,
    log_id: [u8; 16],
    /// Whether files may be written to.
    writes: bool,
    slots: Mutex<[Slot; NAMES.len()]>,
    /// The file that was made ready ahead of use.
    ready: Mutex<Option<Arc<Segment>>>,
}

impl Segments {
    pub(in super::super) fn beside(
        journal: &Path,
        disk: Arc<dyn Disk>,
        log_id: [u8; 16],
        writes: bool,
    ) -> Self {
        let slots = Mutex::new([Slot::Left, Slot::Left, Slot::Left]);
        Self { disk, journal: journal.into(), log_id, writes, slots, ready: Mutex::new(None) }
    }

    /// The disk that they are on.
    pub(in super::super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    fn slots(&self) -> MutexGuard<'_, [Slot; NAMES.len()]> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self) -> MutexGuard<'_, Option<Arc<Segment>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        beside(&self.journal, name)
    }

    /// Reads the files that are there, are of this journal, of `generation` or later, and of the
    /// log `only` if one is given: they count as used from now on.
    pub(super) fn find(&self, generation: u64, only: Option<[u8; 16]>) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        let mut slots = self.slots();
        for (slot, name) in slots.iter_mut().zip(NAMES) {
            let path = self.path(name);
            let file = match self.disk.open(&path, self.writes, false) {
                Ok(file) => file,
                Err(error) if is_no_file(&error) => continue,
                Err(error) => return Err(error),
            };
            // The title first: a file of somebody else may have any length.
            let length = usize::try_from(file.len()?).unwrap_or(usize::MAX);
            let mut title = vec![0; length.min(TITLE_BYTES)];
            file.read_at(0, &mut title)?;
            let Some((log, of)) = read_title(&self.log_id, &title) else {
                continue;
            };
            if of >= generation && only.is_none_or(|only| only == log) {
                let mut bytes = vec![0; length];
                file.read_at(0, &mut bytes)?;
                *slot = Slot::Found(of);
                found.push(Found { path, log, generation: of, bytes, file });
            }
        }
        found.sort_by_key(|f| f.generation);
        Ok(found)
    }

    /// What lies at the names of the log: each file that is there, and whether it is a log of this
    /// journal.
    pub(in super::super) fn lying(&self) -> io::Result<Vec<(PathBuf, bool)>> {
        // A file that is being made has no title yet.
        let _slots = self.slots();
        let mut lying = Vec::new();
        for path in NAMES.map(|name| self.path(name)) {
            match self.disk.open(&path, false, false) {
                Ok(file) => {
                    let mut title = [0; TITLE_BYTES];
                    let ours = file.len()? >= TITLE_BYTES as u64
                        && file.read_at(0, &mut title).is_ok()
                        && read_title(&self.log_id, &title).is_some();
                    lying.push((path, ours));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => lying.push((path, false)),
            }
        }
        Ok(lying)
    }

    /// Makes a file for a generation of a log, durable with its name and partly filled with zeros.
    pub(in super::super) fn make(
        &self,
        generation: u64,
        log: [u8; 16],
    ) -> io::Result<Arc<Segment>> {
        let mut slots = self.slots();
        let free = slots.iter_mut().find(|slot| matches!(slot, Slot::Free(_)));
        if let Some(slot) = free
            && let Slot::Free(file) = &*slot
        {
            let segment = self.prepare(Arc::clone(file), generation, log)?;
            *slot = Slot::Used(generation, Arc::clone(&segment.file));
            return Ok(segment);
        }
        let mut refused = None;
        let left = slots.iter_mut().zip(NAMES).filter(|(slot, _)| matches!(slot, Slot::Left));
        for (slot, name) in left {
            match self.anew(&self.path(name)) {
                Ok(file) => {
                    let segment = self.prepare(file, generation, log)?;
                    if !planted(Broken::SkipFolderSync) {
                        self.sync_names()?;
                    }
                    *slot = Slot::Used(generation, Arc::clone(&segment.file));
                    return Ok(segment);
                }
                // Another name will do.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    *slot = Slot::Taken;
                    refused = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::other("all files of the log are in use")))
    }

    /// Writes the title, and zeros for the first frames, and makes them durable.
    fn prepare(
        &self,
        file: Arc<dyn DiskFile>,
        generation: u64,
        log: [u8; 16],
    ) -> io::Result<Arc<Segment>> {
        file.write_at(0, &write_title(&self.log_id, log, generation))?;
        let mut filled = file.len()?;
        if filled < EMBEDDED_LOG_FIRST_BYTES {
            zeros(&*file, filled.max(FRAMES_AT), EMBEDDED_LOG_FIRST_BYTES)?;
            filled = EMBEDDED_LOG_FIRST_BYTES;
        }
        if !planted(Broken::SkipTitleSync) {
            file.sync()?;
        }
        Ok(Segment::new(file, generation, filled))
    }

    /// Whether there is no file ready ahead of use and a name is free for one.
    pub(in super::super) fn may_make_ready(&self) -> bool {
        let free = self.slots().iter().any(|s| matches!(s, Slot::Free(_) | Slot::Left));
        free && self.ready().is_none()
    }

    /// Makes the next file ready ahead of use, if there is none and a name is free for it.
    pub(in super::super) fn make_ready(&self, generation: u64, log: [u8; 16]) -> io::Result<()> {
        // Whoever asks may have looked before a writer went on in that very file: a second one of
        // its generation would never be used, and recovery would not know which to read.
        let made = |slot: &Slot| matches!(slot, Slot::Used(of, _) if *of >= generation);
        let is_made = self.slots().iter().any(made);
        if !is_made && self.may_make_ready() {
            match self.make(generation, log) {
                Ok(made) => *self.ready() = Some(made),
                // The file in use gets longer instead.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The file that was made ready, if it is of this generation, and if the tables have all of
    /// the files before the one that is left: no more than two hold what they lack, so that
    /// recovery finds a name for a file of its own.
    pub(super) fn take_ready(&self, generation: u64) -> Option<Arc<Segment>> {
        let lacking = |slot: &Slot| matches!(slot, Slot::Used(of, _) if *of + 1 < generation);
        if self.slots().iter().any(lacking) {
            return None;
        }
        self.ready().take_if(|s| s.generation == generation)
    }

    /// A new file at a name where an earlier process may have left one.
    fn anew(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        match self.disk.create_new(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove_left(path)?;
                self.disk.create_new(path)
            }
            made => made,
        }
    }

    /// Removes a file that is a log of this journal, or the beginning of one; nothing else.
    fn remove_left(&self, path: &Path) -> io::Result<()> {
        let in_the_way = || {
            let what = format!(
                "{} is in the way of the journal's log and is none of it; move it away",
                path.display()
            );
            io::Error::new(io::ErrorKind::AlreadyExists, what)
        };
        let file = match self.disk.open(path, false, false) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(in_the_way()),
            opened => opened?,
        };
        let mut front = [0; FRAMES_AT as usize];
        let there = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(front.len());
        let (page, _) = front.split_at_mut(there);
        file.read_at(0, page)?;
        // Where power was lost while the title was written, parts of it are zero, and so is all
        // that is behind it.
        let expected = MAGIC.iter().chain(&self.log_id);
        let begins = front.iter().zip(expected).all(|(have, want)| have == want || *have == 0);
        let zero_behind = front.iter().skip(TITLE_BYTES).all(|byte| *byte == 0);
        if begins && zero_behind { self.disk.remove(path) } else { Err(in_the_way()) }
    }

    /// A file that was found holds nothing: it may go.
    pub(super) fn forget(&self, empty: u64) {
        for slot in &mut *self.slots() {
            if matches!(slot, Slot::Found(generation) if *generation == empty) {
                *slot = Slot::Left;
            }
        }
    }

    /// The tables have everything of the generations before this one: their files are free.
    pub(in super::super) fn release(&self, before: u64) {
        // One that was made ready for a generation that is skipped is of no use.
        drop(self.ready().take_if(|s| s.generation < before));
        for slot in &mut *self.slots() {
            match slot {
                Slot::Used(generation, file) if *generation < before => {
                    *slot = Slot::Free(Arc::clone(file));
                }
                Slot::Found(generation) if *generation < before => *slot = Slot::Left,
                _ => {}
            }
        }
    }

    /// Removes every file but those of `keep` and later generations: the tables have everything.
    pub(in super::super) fn remove_before(&self, keep: u64) -> io::Result<()> {
        let mut removed = false;
        for (slot, name) in self.slots().iter_mut().zip(NAMES) {
            let kept = match slot {
                Slot::Used(generation, _) | Slot::Found(generation) => *generation >= keep,
                Slot::Taken => true,
                Slot::Left | Slot::Free(_) => false,
            };
            if kept {
                continue;
            }
            let path = self.path(name);
            let gone = match slot {
                Slot::Left | Slot::Found(_) => self.remove_left(&path),
                _ => self.disk.remove(&path),
            };
            match gone {
                Ok(()) => removed = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Not ours: it stays, and harms nothing.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            *slot = Slot::Left;
        }
        if removed { self.sync_names() } else { Ok(()) }
    }

    /// Makes the names in the journal's folder durable.
    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_dir(aside::folder(&self.journal))
    }
}

fn zeros(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let block = vec![0; 64 << 10];
    let mut at = from;
    while at < to {
        let length = usize::try_from(to - at).unwrap_or(usize::MAX).min(block.len());
        file.write_at(at, block.get(..length).unwrap_or_default())?;
        at = at.saturating_add(length as u64);
    }
    Ok(())
}

fn write_title(journal: &[u8; 16], log: [u8; 16], generation: u64) -> Vec<u8> {
    let mut out = Out::default();
    out.fixed(&MAGIC).fixed(journal).fixed(&log).fixed(&generation.to_le_bytes());
    code::seal("log file", b"", out.0)
}

/// The log and the generation of a file of this journal; `None` if it is another file, or was not
/// finished.
pub(super) fn read_title(journal: &[u8; 16], bytes: &[u8]) -> Option<([u8; 16], u64)> {
    let mut input = In(code::unseal("log file", b"", bytes.get(..TITLE_BYTES)?).ok()?);
    let ours = input.fixed().ok()? == MAGIC && input.fixed().ok()? == *journal;
    let log = input.fixed().ok()?;
    let generation = u64::from_le_bytes(input.fixed().ok()?);
    ours.then_some((log, generation))
}

/// Whether there is nothing at a name, or something that is no file.
fn is_no_file(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::disk::RealDisk;

    const LOG: [u8; 16] = [7; 16];

    /// A file on which somebody fills ahead, in vain, while a frame is on its way.
    #[derive(Debug, Default)]
    struct Meddled {
        segment: std::sync::OnceLock<Arc<Segment>>,
        syncs: std::sync::atomic::AtomicUsize,
    }

    impl DiskFile for Meddled {
        fn len(&self) -> io::Result<u64> {
            Ok(EMBEDDED_LOG_FIRST_BYTES)
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }

        fn write_at(&self, at: u64, data: &[u8]) -> io::Result<()> {
            let is_frame = data == b"frame";
            if let (true, Some(segment)) = (is_frame, self.segment.get()) {
                segment.fill(at, 1 << 20).unwrap_err();
            }
            Ok(())
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        /// The first one is that of the zeros.
        fn sync(&self) -> io::Result<()> {
            match self.syncs.fetch_add(1, Ordering::SeqCst) {
                0 => Err(io::Error::from_raw_os_error(5)),
                _ => Ok(()),
            }
        }

        fn try_lock(&self) -> io::Result<bool> {
            Ok(true)
        }

        fn names(&self) -> io::Result<u64> {
            Ok(1)
        }

        fn device_and_inode(&self) -> io::Result<(u64, u64)> {
            Ok((0, 0))
        }
    }

    /// The keeper's sync of the zeros ahead failed while a frame was written and not synced. The
    /// system then counts the frame as clean, its own sync succeeded, and it was acknowledged.
    #[test]
    fn a_frame_is_not_believed_when_a_sync_beside_it_has_failed() {
        let file = Arc::new(Meddled::default());
        let segment = Segment::new(Arc::<Meddled>::clone(&file), 1, EMBEDDED_LOG_FIRST_BYTES);
        file.segment.set(Arc::clone(&segment)).unwrap();
        let at = EMBEDDED_LOG_FIRST_BYTES - 100;
        assert!(segment.write(at, b"frame").is_err());
        assert!(segment.write(at, b"more").is_err());
    }

    fn segments(folder: &tempfile::TempDir) -> Segments {
        Segments::beside(&folder.path().join("book.redb"), Arc::new(RealDisk), [3; 16], true)
    }

    /// The keeper looked, a writer turned, and the keeper made ready what it had seen missing.
    #[test]
    fn a_generation_has_one_file_however_late_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let segments = segments(&folder);
        segments.make(1, LOG).unwrap();
        segments.make_ready(2, LOG).unwrap();
        assert!(segments.take_ready(2).is_some());
        segments.make_ready(2, LOG).unwrap();
        let found = segments.find(1, Some(LOG)).unwrap();
        assert_eq!(found.iter().map(|f| f.generation).collect::<Vec<_>>(), [1, 2]);
        // And the next one is made as if nothing had been asked.
        segments.release(2);
        segments.make_ready(3, LOG).unwrap();
        assert!(segments.take_ready(3).is_some());
    }

    /// A process was killed with frames in three files, and no name was left for the file that
    /// recovery writes before anything else.
    #[test]
    fn no_third_file_is_written_before_the_first_is_drained() {
        let folder = tempfile::tempdir().unwrap();
        let segments = segments(&folder);
        segments.make(1, LOG).unwrap();
        segments.make_ready(2, LOG).unwrap();
        assert!(segments.take_ready(2).is_some());
        segments.make_ready(3, LOG).unwrap();
        assert!(segments.take_ready(3).is_none(), "the tables lack what is in the first");
        segments.release(2);
        assert!(segments.take_ready(3).is_some());
    }
}
