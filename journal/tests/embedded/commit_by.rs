//! Who writes to the log: callers, a thread, or whichever is faster.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CommitBy, CreateOptions, Disk, DiskFile, Embedded, OpenOptions, RealDisk},
    limits::EMBEDDED_CROWD,
    record::Role,
};

use crate::desk::{Folder, Pen, put, wait};

/// How often a thread of each name has synced a file of the log.
type Synced = Arc<Mutex<BTreeMap<String, usize>>>;

/// The real disk, which notes who waits for it.
#[derive(Debug, Default)]
struct Watched(Synced);

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    synced: Option<Synced>,
}

impl Watched {
    fn file(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let is_log = path.to_string_lossy().contains("-log");
        Arc::new(WatchedFile { file, synced: is_log.then(|| self.0.clone()) })
    }
}

impl Disk for Watched {
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

impl DiskFile for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        if let Some(synced) = &self.synced {
            let thread = std::thread::current();
            let name = thread.name().filter(|name| name.starts_with("deedbook-"));
            let name = name.unwrap_or("caller").to_owned();
            *synced.lock().unwrap().entry(name).or_default() += 1;
        }
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

const APPENDS: u64 = 50;

/// So many write at once, and one of them erases; who synced how often.
fn run(by: CommitBy, writers: usize) -> BTreeMap<String, usize> {
    let folder = Folder::new();
    let synced = Synced::default();
    let open = OpenOptions::new().commit_by(by).disk(Arc::new(Watched(synced.clone())));
    let book = Embedded::create(folder.book(), CreateOptions::new().open(open)).unwrap();
    let book = Arc::new(book);
    let write = |k: usize| {
        let book = Arc::clone(&book);
        tokio::spawn(async move {
            let mut pen = Pen::claim(&*book, &format!("t{k}")).await.unwrap();
            for n in 0..APPENDS {
                assert_eq!(put(&*book, pen.write(1, b"x")).await, Ok(n + 1));
            }
            if k == 0 {
                let note = pen.write(1, b"note");
                book.erase(&pen.thread, 3, Role::Value, note).await.unwrap();
            }
        })
    };
    wait(async {
        let tasks: Vec<_> = (0..writers).map(write).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let log = book.log(0, 10_000).await.unwrap();
        assert_eq!(log.items.len() as u64, APPENDS * writers as u64 + 1);
        book.close().await.unwrap();
    });
    let synced = synced.lock().unwrap().clone();
    println!("{by:?}, {writers} writers: {synced:?}");
    synced
}

fn of(synced: &BTreeMap<String, usize>, name: &str) -> usize {
    synced.get(name).copied().unwrap_or(0)
}

#[test]
fn a_thread_commits_where_callers_must_not_block() {
    for writers in [1, 3 * EMBEDDED_CROWD] {
        let synced = run(CommitBy::Thread, writers);
        assert_eq!(of(&synced, "caller"), 0);
        assert!(of(&synced, "deedbook-commit") > 0);
    }
}

#[test]
fn callers_commit_where_they_are_to() {
    for writers in [1, 3 * EMBEDDED_CROWD] {
        let synced = run(CommitBy::Caller, writers);
        assert_eq!(of(&synced, "deedbook-commit"), 0);
        assert!(of(&synced, "caller") > 0);
    }
}

#[test]
fn few_commit_by_themselves_and_for_a_crowd_a_thread_does() {
    let synced = run(CommitBy::Either, 3);
    assert_eq!(of(&synced, "deedbook-commit"), 0, "handed over for nothing");
    assert!(of(&synced, "caller") > 0);
    let synced = run(CommitBy::Either, 4 * EMBEDDED_CROWD);
    // How often depends on who is faster, the disk or those who write.
    assert!(of(&synced, "deedbook-commit") > 0);
}
