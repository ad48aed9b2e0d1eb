//! The simulated disk, watched: what of it is durable, and what is written when.
//!
//! Every operation on a file of the log, on the anchor and on names is a point at which another
//! thread may go on. Those on the tables are none: redb asks for them with locks of its own in
//! hand, which the model does not know of.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use deedbook_journal::embedded::{Disk, DiskFile};
use shuttle::thread;

use crate::sim_disk::SimDisk;

/// What every payload begins with; four bytes that name it follow.
pub(crate) const MARK: [u8; 4] = [0xfe, b'M', b'K', 0xfe];
/// What a frame of the log begins with.
const FRAME: &[u8] = b"DBWF";

#[derive(Debug, Default)]
struct Seen {
    /// Payloads that were written to a file and not synced yet.
    pending: HashMap<PathBuf, Vec<u32>>,
    durable: HashSet<u32>,
    /// Files whose frames are not synced, or whose sync has failed.
    unsynced: HashSet<PathBuf>,
    failed: Option<String>,
    /// After how many syncs of files of the log one fails.
    fails_behind: Option<u32>,
    /// What must not be, and was.
    wrong: Option<String>,
}

/// A disk that knows which payloads are durable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    pub(crate) disk: SimDisk,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    pub(crate) fn new(disk: SimDisk) -> Self {
        Self { disk, seen: Arc::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a sync of a file of the log fail, behind so many.
    pub(crate) fn fail_log_sync(&self, behind: u32) {
        self.seen().fails_behind = Some(behind);
    }

    /// A file of the log is about to be synced.
    fn before_sync(&self) {
        let behind = &mut self.seen().fails_behind;
        if *behind == Some(0) {
            self.disk.fail_sync(self.disk.tried().len(), 5);
        }
        *behind = behind.and_then(|behind| behind.checked_sub(1));
    }

    pub(crate) fn is_durable(&self, payload: u32) -> bool {
        self.seen().durable.contains(&payload)
    }

    /// What was done and must not be, if anything was.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.seen().wrong.clone()
    }

    fn wrote(&self, path: &Path, data: &[u8], done: &io::Result<()>) {
        if !data.starts_with(FRAME) {
            return;
        }
        let mut seen = self.seen();
        if let Some(failed) = &seen.failed {
            let why = format!("a frame was written behind a failure: {failed}");
            seen.wrong.get_or_insert(why);
        }
        match done {
            Ok(()) => {
                seen.unsynced.insert(path.into());
                let found = payloads(data);
                seen.pending.entry(path.into()).or_default().extend(found);
            }
            Err(error) => seen.failed = Some(format!("the write of a frame: {error}")),
        }
    }

    fn synced(&self, path: &Path, done: &io::Result<()>) {
        let mut seen = self.seen();
        let pending = seen.pending.remove(path).unwrap_or_default();
        let had_frame = seen.unsynced.remove(path);
        match done {
            Ok(()) => seen.durable.extend(pending),
            // What was written before it counts as clean from now on, and is not durable.
            Err(error) if had_frame => {
                seen.failed = Some(format!("the sync of a frame: {error}"));
            }
            Err(_) => {}
        }
    }
}

/// The payloads in a frame.
fn payloads(data: &[u8]) -> Vec<u32> {
    let marks = data.windows(MARK.len() + 4).filter(|bytes| bytes.starts_with(&MARK));
    marks.filter_map(|bytes| Some(u32::from_le_bytes(bytes[4..].try_into().ok()?))).collect()
}

/// Another thread may go on here.
fn point() {
    thread::yield_now();
}

fn is_ours(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.contains("-log") || name.ends_with("-anchor")
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    watched: Watched,
}

impl File {
    fn point(&self) {
        if is_ours(&self.path) {
            point();
        }
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.point();
        let done = self.file.write_at(offset, data);
        if is_ours(&self.path) {
            self.watched.wrote(&self.path, data, &done);
        }
        done
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.point();
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.point();
        if is_ours(&self.path) {
            self.watched.before_sync();
        }
        let done = self.file.sync();
        if is_ours(&self.path) {
            self.watched.synced(&self.path, &done);
        }
        // What it says may be heard later.
        self.point();
        done
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }

    fn names(&self) -> io::Result<u64> {
        self.file.names()
    }

    fn device_and_inode(&self) -> io::Result<(u64, u64)> {
        self.file.device_and_inode()
    }
}

impl Watched {
    fn file(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(File { path: path.into(), file, watched: self.clone() })
    }
}

impl Disk for Watched {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        point();
        Ok(self.file(path, self.disk.create_new(path)?))
    }

    fn open(&self, path: &Path, write: bool, follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, self.disk.open(path, write, follow)?))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.replace(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        point();
        self.disk.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.disk.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        point();
        self.disk.sync_dir(path)
    }
}
