//! A disk that counts and fails: for tests of whatever stands on the embedded home.

use std::{
    ffi::OsString,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::disk::{Disk, DiskFile};

/// What an operation that is made to fail says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The device failed (`EIO`). A write that fails so has happened for its first half.
    Device,
    /// The disk is full (`ENOSPC`).
    Full,
}

impl FaultKind {
    fn error(self) -> io::Error {
        match self {
            Self::Device => io::Error::from_raw_os_error(5),
            Self::Full => io::Error::from_raw_os_error(28),
        }
    }
}

/// How often files were touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoCounts {
    /// Operations that change something: writes, lengths, syncs, and names made and removed.
    pub operations: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes in those writes.
    pub bytes_written: u64,
    /// Syncs, those of directories included.
    pub syncs: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes in those reads.
    pub bytes_read: u64,
}

/// A [`Disk`] over another one that counts every operation and can make one fail.
///
/// ```
/// use std::sync::Arc;
/// use deedbook_journal::embedded::{CountingDisk, CreateOptions, Embedded, OpenOptions, RealDisk};
/// let folder = std::env::temp_dir().join(format!("deedbook-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let disk = Arc::new(CountingDisk::new(Arc::new(RealDisk)));
/// let options = CreateOptions::new().open(OpenOptions::new().disk(disk.clone()));
/// let book = Embedded::create(folder.join("book.redb"), options)?;
/// assert!(disk.counts().syncs > 0);
/// # drop(book); std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CountingDisk {
    inner: Arc<dyn Disk>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    operations: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
    reads: AtomicU64,
    bytes_read: AtomicU64,
    /// The number of the operation that fails, counted as in [`IoCounts::operations`] from 0.
    fail_at: AtomicU64,
    /// Whether every later one fails as well.
    fail_on: std::sync::atomic::AtomicBool,
    full: std::sync::atomic::AtomicBool,
}

/// What a changing operation is to do.
enum Verdict {
    Go,
    Fail(FaultKind),
}

impl Shared {
    fn change(&self) -> Verdict {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        let at = self.fail_at.load(Ordering::SeqCst);
        let fails = number == at || (number > at && self.fail_on.load(Ordering::SeqCst));
        if !fails {
            return Verdict::Go;
        }
        Verdict::Fail(if self.full.load(Ordering::SeqCst) {
            FaultKind::Full
        } else {
            FaultKind::Device
        })
    }

    fn plain<T>(&self, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.change() {
            Verdict::Go => run(),
            Verdict::Fail(kind) => Err(kind.error()),
        }
    }

    fn sync(&self, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.plain(run)
    }
}

impl CountingDisk {
    /// Counts what happens on `inner`; fails nothing.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            inner,
            shared: Arc::new(Shared {
                operations: zero(),
                writes: zero(),
                bytes_written: zero(),
                syncs: zero(),
                reads: zero(),
                bytes_read: zero(),
                fail_at: AtomicU64::new(u64::MAX),
                fail_on: false.into(),
                full: false.into(),
            }),
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> IoCounts {
        let get = |n: &AtomicU64| n.load(Ordering::SeqCst);
        IoCounts {
            operations: get(&self.shared.operations),
            writes: get(&self.shared.writes),
            bytes_written: get(&self.shared.bytes_written),
            syncs: get(&self.shared.syncs),
            reads: get(&self.shared.reads),
            bytes_read: get(&self.shared.bytes_read),
        }
    }

    /// Makes the changing operation with this number fail ([`IoCounts::operations`] is the number
    /// of the next one), and with `and_later` every one after it.
    pub fn fail_at(&self, operation: u64, kind: FaultKind, and_later: bool) {
        self.shared.full.store(kind == FaultKind::Full, Ordering::SeqCst);
        self.shared.fail_on.store(and_later, Ordering::SeqCst);
        self.shared.fail_at.store(operation, Ordering::SeqCst);
    }

    fn file(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(CountingFile { inner, shared: Arc::clone(&self.shared) })
    }
}

impl Disk for CountingDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.shared.plain(|| self.inner.create_new(path))?;
        Ok(self.file(file))
    }

    fn open(&self, path: &Path, write: bool, follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.inner.open(path, write, follow)?))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.plain(|| self.inner.link(from, to))
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.plain(|| self.inner.replace(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.shared.plain(|| self.inner.remove(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.sync(|| self.inner.sync_dir(path))
    }
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn DiskFile>,
    shared: Arc<Shared>,
}

impl DiskFile for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.shared.reads.fetch_add(1, Ordering::SeqCst);
        self.shared.bytes_read.fetch_add(out.len() as u64, Ordering::SeqCst);
        self.inner.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.shared.writes.fetch_add(1, Ordering::SeqCst);
        self.shared.bytes_written.fetch_add(data.len() as u64, Ordering::SeqCst);
        match self.shared.change() {
            Verdict::Go => self.inner.write_at(offset, data),
            Verdict::Fail(kind) => {
                if let (FaultKind::Device, Some((half, _))) =
                    (kind, data.split_at_checked(data.len() / 2))
                {
                    self.inner.write_at(offset, half)?;
                }
                Err(kind.error())
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.plain(|| self.inner.set_len(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.sync(|| self.inner.sync())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.inner.try_lock()
    }

    fn names(&self) -> io::Result<u64> {
        self.inner.names()
    }

    fn mode(&self) -> io::Result<Option<u32>> {
        self.inner.mode()
    }

    fn device_and_inode(&self) -> io::Result<(u64, u64)> {
        self.inner.device_and_inode()
    }
}
