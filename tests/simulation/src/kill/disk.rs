//! The files of the system, with a marked point before and after everything that changes one, and
//! in the middle of every write.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use deedbook_journal::embedded::{Disk, DiskFile, RealDisk};

use super::marks::Marks;

/// Such a disk.
#[derive(Debug)]
pub(super) struct MarkedDisk {
    marks: Arc<Marks>,
    /// What open files are, by the names under which they were opened.
    parts: Mutex<HashMap<PathBuf, Arc<Part>>>,
}

/// What a file is. One that was made aside becomes what it is given the name of.
type Part = Mutex<&'static str>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct MarkedFile {
    file: Arc<dyn DiskFile>,
    part: Arc<Part>,
    marks: Arc<Marks>,
}

/// Which part of the home a file is, by its name.
fn part(path: &Path) -> &'static str {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".redb") {
        "tables"
    } else if name.ends_with("-anchor") {
        "anchor"
    } else if name.contains("-log") && !name.ends_with(".new") {
        "log"
    } else {
        // Made under another name, and given its own when it is complete.
        "aside"
    }
}

fn around<T>(marks: &Marks, what: &str, part: &str, done: impl FnOnce() -> T) -> T {
    marks.at(&format!("before {what} {part}"));
    let result = done();
    marks.at(&format!("after {what} {part}"));
    result
}

impl MarkedDisk {
    pub(super) fn new(marks: &Arc<Marks>) -> Self {
        Self { marks: Arc::clone(marks), parts: Mutex::default() }
    }

    fn file(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let part = Arc::new(Mutex::new(part(path)));
        lock(&self.parts).insert(path.to_owned(), Arc::clone(&part));
        Arc::new(MarkedFile { file, part, marks: Arc::clone(&self.marks) })
    }

    fn named(&self, from: &Path, to: &Path) {
        if let Some(file) = lock(&self.parts).get(from) {
            *lock(file) = part(to);
        }
    }
}

impl MarkedFile {
    fn around<T>(&self, what: &str, done: impl FnOnce() -> T) -> T {
        around(&self.marks, what, self.part(), done)
    }

    fn part(&self) -> &'static str {
        *lock(&self.part)
    }
}

impl Disk for MarkedDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = around(&self.marks, "make", part(path), || RealDisk.create_new(path))?;
        Ok(self.file(path, file))
    }

    fn open(&self, path: &Path, write: bool, follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, RealDisk.open(path, write, follow)?))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let linked = around(&self.marks, "link", part(to), || RealDisk.link(from, to));
        self.named(from, to);
        linked
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let replaced = around(&self.marks, "replace", part(to), || RealDisk.replace(from, to));
        self.named(from, to);
        replaced
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        around(&self.marks, "remove", part(path), || RealDisk.remove(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        around(&self.marks, "sync", "folder", || RealDisk.sync_dir(path))
    }
}

impl DiskFile for MarkedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (first, rest) = data.split_at(data.len() / 2);
        self.around("write", || {
            self.file.write_at(offset, first)?;
            self.marks.at(&format!("within write {}", self.part()));
            self.file.write_at(offset + first.len() as u64, rest)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.around("length", || self.file.set_len(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.around("sync", || self.file.sync())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.around("lock", || self.file.try_lock())
    }

    fn names(&self) -> io::Result<u64> {
        self.file.names()
    }

    fn mode(&self) -> io::Result<Option<u32>> {
        self.file.mode()
    }

    fn device_and_inode(&self) -> io::Result<(u64, u64)> {
        self.file.device_and_inode()
    }
}
