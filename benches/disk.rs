//! The seam under the embedded home, counted.

use std::{
    ffi::OsString,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use deedbook_journal::embedded::{Disk, DiskFile, RealDisk};

/// What went through a disk.
#[derive(Debug, Default)]
pub struct Counts {
    syncs: AtomicU64,
    commits: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    resizes: AtomicU64,
    read_bytes: AtomicU64,
}

/// [`Counts`] at one moment, or between two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Calls of [`DiskFile::sync`].
    pub syncs: u64,
    /// Those of a file of the write-ahead log: one for each commit, and now and then one more
    /// where it is filled ahead or marked.
    pub commits: u64,
    /// Calls of [`DiskFile::write_at`].
    pub writes: u64,
    /// Bytes in those calls.
    pub bytes: u64,
    /// Calls of [`DiskFile::set_len`].
    pub resizes: u64,
    /// Bytes in calls of [`DiskFile::read_at`].
    pub read_bytes: u64,
}

impl Counts {
    /// What went through so far.
    #[must_use]
    pub fn now(&self) -> Traffic {
        Traffic {
            syncs: self.syncs.load(Relaxed),
            commits: self.commits.load(Relaxed),
            writes: self.writes.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            resizes: self.resizes.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
        }
    }
}

impl Traffic {
    /// What went through since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            syncs: self.syncs - before.syncs,
            commits: self.commits - before.commits,
            writes: self.writes - before.writes,
            bytes: self.bytes - before.bytes,
            resizes: self.resizes - before.resizes,
            read_bytes: self.read_bytes - before.read_bytes,
        }
    }
}

/// The system's files, counted.
#[derive(Debug, Clone)]
pub struct CountingDisk {
    counts: Arc<Counts>,
    durable: bool,
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn DiskFile>,
    counts: Arc<Counts>,
    durable: bool,
    is_log: bool,
}

impl CountingDisk {
    /// A disk that does what it is asked for.
    #[must_use]
    pub fn durable() -> Self {
        Self { counts: Arc::default(), durable: true }
    }

    /// A disk that counts syncs and does not carry them out: to make large journals fast that
    /// are measured later. What it writes is the same.
    #[must_use]
    pub fn hasty() -> Self {
        Self { counts: Arc::default(), durable: false }
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    fn around(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let (counts, durable) = (Arc::clone(&self.counts), self.durable);
        let is_log = path.to_string_lossy().contains("-log");
        Arc::new(CountingFile { file, counts, durable, is_log })
    }
}

impl Disk for CountingDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.around(path, RealDisk.create_new(path)?))
    }

    fn open(&self, path: &Path, write: bool, follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.around(path, RealDisk.open(path, write, follow)?))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.link(from, to)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.replace(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
}

impl DiskFile for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.counts.read_bytes.fetch_add(out.len() as u64, Relaxed);
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.counts.writes.fetch_add(1, Relaxed);
        self.counts.bytes.fetch_add(data.len() as u64, Relaxed);
        self.file.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.counts.resizes.fetch_add(1, Relaxed);
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.counts.syncs.fetch_add(1, Relaxed);
        self.counts.commits.fetch_add(u64::from(self.is_log), Relaxed);
        if self.durable { self.file.sync() } else { Ok(()) }
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
