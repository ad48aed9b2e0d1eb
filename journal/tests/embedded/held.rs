//! A drain whose disk takes its time keeps nobody waiting.

use std::{
    ffi::OsString,
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CreateOptions, Disk, DiskFile, Embedded, OpenOptions, RealDisk},
};

use crate::desk::{Folder, Pen, payloads, put, wait};

/// Whether the tables' file may be written to.
#[derive(Debug, Default)]
struct Hold {
    held: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Hold {
    fn set(&self, held: bool) {
        self.held.lock().unwrap().0 = held;
        self.changed.notify_all();
    }

    /// Waits while it is held.
    fn pass(&self) {
        let mut state = self.held.lock().unwrap();
        while state.0 {
            state.1 = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Waits until somebody waits.
    fn met(&self) {
        let state = self.held.lock().unwrap();
        let minute = Duration::from_secs(60);
        let (state, late) =
            self.changed.wait_timeout_while(state, minute, |(_, met)| !*met).unwrap();
        drop(state);
        assert!(!late.timed_out(), "no drain began");
    }
}

/// The real disk, on which the tables' file can be held.
#[derive(Debug)]
struct HeldDisk(Arc<Hold>);

impl HeldDisk {
    fn file(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let path = path.to_string_lossy();
        let is_beside = path.contains("-log") || path.ends_with("-anchor");
        if is_beside { file } else { Arc::new(HeldFile(file, Arc::clone(&self.0))) }
    }
}

impl Disk for HeldDisk {
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

#[derive(Debug)]
struct HeldFile(Arc<dyn DiskFile>, Arc<Hold>);

impl DiskFile for HeldFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.1.pass();
        self.0.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.pass();
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

#[test]
fn commits_and_reads_go_on_beside_a_drain() {
    let folder = Folder::new();
    let hold = Arc::new(Hold::default());
    let disk = Arc::new(HeldDisk(Arc::clone(&hold)));
    let open = OpenOptions::new().disk(disk).log_bytes(1 << 20);
    let book = Embedded::create(folder.book(), CreateOptions::new().open(open)).unwrap();
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        put(&book, pen.write(1, b"first")).await.unwrap();
        hold.set(true);
        // A quarter of a file of the log is worth a drain.
        for _ in 0..30 {
            put(&book, pen.write(1, &[7; 10_000])).await.unwrap();
        }
        hold.met();
        let undrained = book.info().undrained_bytes;
        for _ in 0..20 {
            put(&book, pen.write(1, b"beside a drain")).await.unwrap();
        }
        assert!(book.info().undrained_bytes > undrained);
        // What the drain has in hand, and what came behind it.
        assert_eq!(payloads(&book, &pen.thread).await.unwrap().len(), 51);
        assert_eq!(book.log(0, 1000).await.unwrap().items.len(), 51);
        assert_eq!(book.log(25, 10).await.unwrap().items[9].index, 34);
        hold.set(false);
        assert_eq!(payloads(&book, &pen.thread).await.unwrap().len(), 51);
        book.close().await.unwrap();
    });
}
