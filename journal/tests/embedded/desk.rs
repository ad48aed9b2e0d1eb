//! Short words for the tests: a folder, a book, a pen.

use std::{
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, Message, StoreError},
    embedded::{CountingDisk, CreateOptions, Disk, DiskFile, Embedded, OpenOptions, RealDisk},
    id::{Epoch, MessageId, Position, StoreTime, ThreadId},
    record::{Header, Kind, Payload, Record, RecordHash, Records, Role},
    row::{Row, Status},
};

pub(crate) const LONG: Duration = Duration::from_secs(3600);

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// In memory where the system has such a place: for tests that bring their own faults, to
    /// which a real sync adds time and nothing else.
    pub(crate) fn fast() -> Self {
        let memory = Path::new("/dev/shm");
        Self(tempfile::tempdir_in(memory).unwrap_or_else(|_| tempfile::tempdir().unwrap()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn book(&self) -> PathBuf {
        self.path().join("book.redb")
    }

    /// The names in the folder, but for anchors: nothing that a journal holds stands there.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.ends_with("-anchor"));
        names.sort();
        names
    }
}

pub(crate) fn counting() -> Arc<CountingDisk> {
    Arc::new(CountingDisk::new(Arc::new(RealDisk)))
}

pub(crate) fn create(path: &Path) -> Embedded {
    Embedded::create(path, CreateOptions::new().log_id([3; 16])).unwrap()
}

pub(crate) fn open(path: &Path) -> Embedded {
    // A child that another test has just forked holds the lock until it begins its program.
    Embedded::open(path, OpenOptions::new().wait(Duration::from_secs(10))).unwrap()
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

pub(crate) fn row(status: Status) -> Row {
    Row::new("refund", status, StoreTime(1))
}

pub(crate) fn message(id: u8) -> Message {
    Message {
        id: MessageId([id; 16]),
        kind: 1,
        name: "approval".into(),
        by: "user:alice".into(),
        body: vec![id; 300].into(),
    }
}

#[derive(Clone)]
pub(crate) struct Pen {
    pub(crate) log_id: [u8; 16],
    pub(crate) thread: ThreadId,
    pub(crate) epoch: Epoch,
    pub(crate) next: Position,
    pub(crate) head: RecordHash,
    pub(crate) row: Row,
}

impl Pen {
    pub(crate) async fn claim(home: &dyn Checkpointer, id: &str) -> Result<Self, StoreError> {
        let id = ThreadId::new(id).unwrap();
        let create = Some(row(Status::Running));
        let mut leases = home.claim(Claim::Thread { id, create }, "test", LONG).await?;
        let lease = leases.pop().unwrap();
        Ok(Self {
            log_id: home.identity().log_id,
            thread: lease.thread,
            epoch: lease.epoch,
            next: lease.next,
            head: lease.head,
            row: lease.row,
        })
    }

    pub(crate) fn write(&mut self, count: u64, bytes: &[u8]) -> Append {
        let (at, mut records) = (self.next, Records::default());
        for _ in 0..count {
            let (thread, epoch) = (self.thread.clone(), self.epoch);
            let header = Header::new(thread, self.next, epoch, Kind::Marker, StoreTime(1), 0);
            let payload = Payload { role: Role::Value, salt: [7; 32], bytes: bytes.into() };
            let record = Record::seal(&self.log_id, &self.head, header, vec![payload]).1;
            self.next += 1;
            self.head = record.hash;
            records.push(record);
        }
        Append {
            thread: self.thread.clone(),
            epoch: self.epoch,
            at,
            records,
            consumes: Vec::new(),
            row: self.row.clone(),
        }
    }
}

pub(crate) async fn put(home: &dyn Checkpointer, append: Append) -> Result<Position, StoreError> {
    home.append(vec![append]).await.pop().unwrap()
}

pub(crate) async fn read_all(
    home: &dyn Checkpointer,
    id: &ThreadId,
) -> Result<Vec<Record>, StoreError> {
    let (mut records, mut from) = (Vec::new(), 0);
    loop {
        let page = home.read(id, from, 100_000).await?;
        records.extend(page.items.into_iter().map(|(_, record)| record));
        match page.next {
            Some(next) => from = next,
            None => return Ok(records),
        }
    }
}

/// The payload bytes of every record of a thread, having checked the chain once more.
pub(crate) async fn payloads(
    home: &dyn Checkpointer,
    id: &ThreadId,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut prev = RecordHash::ZERO;
    let mut found = Vec::new();
    for record in read_all(home, id).await? {
        record.verify(&home.identity().log_id, &prev).unwrap();
        prev = record.hash;
        found.push(record.payloads.first().map(|p| p.bytes.to_vec()).unwrap_or_default());
    }
    Ok(found)
}

/// What is done to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Write,
    Sync,
}

type Hook = Arc<dyn Fn(Touch, &str) + Send + Sync>;

/// The real disk, which calls `hook` before a file is written to or synced.
pub(crate) fn touched(hook: impl Fn(Touch, &str) + Send + Sync + 'static) -> Arc<dyn Disk> {
    Arc::new(Touched(Arc::new(hook)))
}

struct Touched(Hook);

struct TouchedFile {
    path: String,
    file: Arc<dyn DiskFile>,
    hook: Hook,
}

impl Touched {
    fn file(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let (path, hook) = (path.to_string_lossy().into_owned(), Arc::clone(&self.0));
        Arc::new(TouchedFile { path, file, hook })
    }
}

impl fmt::Debug for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Touched")
    }
}

impl fmt::Debug for TouchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl Disk for Touched {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, RealDisk.create_new(path)?))
    }
    fn open(&self, path: &Path, write: bool, follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, RealDisk.open(path, write, follow)?))
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

impl DiskFile for TouchedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (self.hook)(Touch::Write, &self.path);
        self.file.write_at(offset, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        (self.hook)(Touch::Sync, &self.path);
        self.file.sync()
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
