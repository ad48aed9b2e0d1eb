//! Examining through the owner, and asking it to leave.

use std::{
    ffi::OsString,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use deedbook_control::{Remote, serve, serve_at};
use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, StoreError},
    embedded::{Disk, DiskFile, Embedded, OpenOptions, RealDisk, Verdict},
    id::{StoreTime, ThreadId},
    pen::{Draft, Pen},
    record::{Kind, Role},
    row::{Row, Status},
};
use serde_json::json;

use super::client::{Served, served};

/// Begins a thread with one record.
async fn begin(home: &dyn Checkpointer, name: &str) {
    let thread = ThreadId::new(name).unwrap();
    let row = Row::new("refund", Status::Running, StoreTime(7));
    let which = Claim::Thread { id: thread.clone(), create: Some(row.clone()) };
    let lease = home.claim(which, "test", Duration::from_secs(60)).await.unwrap().remove(0);
    let log_id = home.identity().log_id;
    let mut pen = Pen::new(log_id, thread.clone(), lease.epoch, lease.next, lease.head);
    let start = Draft::new(&thread, Kind::ThreadStart)
        .with(|h| h.workflow = Some("refund".into()))
        .payload(Role::Input, [&[0xc5, 0x10, 0][..], &[1; 4096]].concat());
    let record = pen.write(start, StoreTime(7), &mut || [3; 32]).1;
    let (at, epoch) = (lease.next, lease.epoch);
    let append =
        Append { thread, epoch, at, records: vec![record].into(), consumes: Vec::new(), row };
    home.append(vec![append]).await.remove(0).unwrap();
}

#[tokio::test]
async fn the_owner_examines_the_journal_and_says_the_same() {
    let book = served();
    for n in 0..5 {
        begin(&*book.home, &format!("t{n}")).await;
    }
    let remote = Remote::connect(book.journal()).await.unwrap();
    let there = remote.examine(|_| {}).await.unwrap();
    let here = book.home.examine_open(|_| {}).await.unwrap();
    assert_eq!((there.records, there.worst()), (5, Verdict::Note));
    assert_eq!(there, here);
    // As lines, and what is asked for wrongly.
    let mut client = book.client();
    client.say(&json!({"id": 7, "op": "examine", "args": {"to": "x"}}).to_string());
    assert_eq!(client.hear()["error"]["kind"], "bad_request");
    client.say(&json!({"id": 8, "op": "examine"}).to_string());
    let answer = loop {
        let line = client.hear();
        assert_eq!(line["id"], 8);
        match line.get("progress") {
            Some(progress) => assert_eq!(progress["stage"], "verify"),
            None => break line,
        }
    };
    assert_eq!(answer["ok"]["findings"][0]["about"], "file", "{answer}");
}

#[tokio::test]
async fn a_home_without_a_file_is_not_examined() {
    let folder = tempfile::tempdir().unwrap();
    let home: Arc<dyn Checkpointer> =
        Arc::new(deedbook_memory::MemoryHome::new(deedbook_memory::MemoryOptions::new()));
    let _serving = serve_at(home, folder.path().join("socket")).unwrap();
    let remote = Remote::connect_to(folder.path().join("socket")).await.unwrap();
    let refused = remote.examine(|_| {}).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Refused { why } if why.contains("no file of its own")),
        "{refused}"
    );
}

#[tokio::test]
async fn only_who_may_be_asked_leaves_and_only_if_nobody_else_is_there() {
    let Served { mut serving, home: _home, folder } = served();
    let mut serving = serving.take().unwrap();
    let journal = folder.path().join("book.redb");
    let remote = Remote::connect(&journal).await.unwrap();
    let refused = remote.ask_to_leave().await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    serving.may_be_asked_to_leave();
    let other = Remote::connect(&journal).await.unwrap();
    assert_eq!(remote.ask_to_leave().await, Ok(false));
    assert!(!serving.was_asked_to_leave());
    drop(other);
    let since = Instant::now();
    while remote.ask_to_leave().await != Ok(true) {
        assert!(since.elapsed() < Duration::from_secs(20), "the other one counts for ever");
        tokio::task::yield_now().await;
    }
    assert!(serving.was_asked_to_leave());
    assert!(!serving.was_asked_to_leave(), "it is said once");
    assert!(!serving.leave_if_quiet().await, "who asked is there still");
    remote.now().await.unwrap();
}

/// Files that are read slowly once that is wanted.
#[derive(Debug, Clone, Default)]
struct Slow(Arc<(AtomicBool, AtomicU64)>);

#[derive(Debug)]
struct SlowFile(Arc<dyn DiskFile>, Slow);

impl Slow {
    fn reads(&self) -> u64 {
        self.0.1.load(Ordering::SeqCst)
    }

    fn file(&self, file: io::Result<Arc<dyn DiskFile>>) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SlowFile(file?, self.clone())))
    }
}

impl Disk for Slow {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.file(RealDisk.create_new(path))
    }
    fn open(&self, path: &Path, write: bool, follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.file(RealDisk.open(path, write, follow))
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

impl DiskFile for SlowFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (slow, reads) = &*self.1.0;
        if slow.load(Ordering::SeqCst) {
            reads.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(25));
        }
        self.0.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.0.try_lock()
    }
    fn names(&self) -> io::Result<u64> {
        self.0.names()
    }
    fn device_and_inode(&self) -> io::Result<(u64, u64)> {
        self.0.device_and_inode()
    }
}

#[tokio::test]
async fn a_client_that_goes_stops_its_examination() {
    const THREADS: u64 = 400;
    let Served { mut serving, home, folder } = served();
    for n in 0..THREADS {
        begin(&*home, &format!("t{n:04}")).await;
    }
    drop(serving.take());
    home.close().await.unwrap();
    drop(home);
    let journal = folder.path().join("book.redb");
    // The last drain, with which the anchor is compared first, is a small one.
    let home = Embedded::open(&journal, OpenOptions::new()).unwrap();
    begin(&home, "t9999").await;
    home.close().await.unwrap();
    drop(home);
    let disk = Slow::default();
    let options = OpenOptions::new().disk(Arc::new(disk.clone())).cache_bytes(64 << 10);
    let options = options.wait(Duration::from_secs(10));
    let home = Arc::new(Embedded::open(&journal, options).unwrap());
    let _serving = serve(Arc::clone(&home)).unwrap();
    disk.0.0.store(true, Ordering::SeqCst);
    // Each thread takes some reads, and all of them half a minute.
    let remote = Remote::connect(&journal).await.unwrap();
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let asking = tokio::spawn(async move {
        let tell = move |_| said.send(()).unwrap_or_default();
        drop(remote.examine(tell).await);
    });
    heard.recv().await.unwrap();
    asking.abort();
    drop(asking.await);
    // What was asked is answered for two seconds.
    let since = Instant::now();
    while home.info().file_bytes > 0 && is_at_it() {
        assert!(since.elapsed() < Duration::from_secs(8), "it goes on for nobody");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(disk.reads() < THREADS, "{} reads, of everything", disk.reads());
}

/// Whether a thread of this process is examining a journal.
fn is_at_it() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim_end() == "deedbook-doctor")
}
