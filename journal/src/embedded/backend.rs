//! redb's storage over a [`DiskFile`], with a quarantine.
//!
//! redb marks and repairs a file as soon as it opens it. A file that turns out not to be ours, or
//! that nobody writes to, must stay byte for byte as it was. So writes are kept in memory, in
//! their order, until [`Gate::release`] lets them through; what is never released never happened.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::StorageBackend;

use super::disk::DiskFile;

/// One change that redb asked for.
#[derive(Debug)]
enum Change {
    Write(u64, Box<[u8]>),
    SetLen(u64),
    Sync,
}

/// Changes that were not let through yet.
#[derive(Debug, Default)]
struct Held {
    changes: Vec<Change>,
    /// The length that redb sees.
    len: Option<u64>,
}

/// The gate between redb and the file.
#[derive(Debug)]
pub(super) struct Gate {
    file: Arc<dyn DiskFile>,
    released: AtomicBool,
    held: Mutex<Held>,
}

/// The half of the gate that redb has.
#[derive(Debug)]
pub(super) struct Backend(pub(super) Arc<Gate>);

impl Gate {
    /// A closed gate before `file`.
    pub(super) fn new(file: Arc<dyn DiskFile>) -> Arc<Self> {
        Arc::new(Self { file, released: AtomicBool::new(false), held: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out what was held, in its order, and lets everything through from now on.
    pub(super) fn release(&self) -> io::Result<()> {
        let mut held = self.held();
        if self.released.load(Ordering::Acquire) {
            return Ok(());
        }
        for change in held.changes.drain(..) {
            match change {
                Change::Write(offset, data) => self.file.write_at(offset, &data)?,
                Change::SetLen(len) => self.file.set_len(len)?,
                Change::Sync => self.file.sync()?,
            }
        }
        self.released.store(true, Ordering::Release);
        Ok(())
    }

    /// The file itself.
    pub(super) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// The length of the file itself.
    pub(super) fn file_len(&self) -> io::Result<u64> {
        self.file.len()
    }

    /// Runs `through` on the file or keeps `change`.
    fn change(
        &self,
        through: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
        change: impl FnOnce(&mut Held) -> Change,
    ) -> io::Result<()> {
        if !self.released.load(Ordering::Acquire) {
            let mut held = self.held();
            if !self.released.load(Ordering::Acquire) {
                let change = change(&mut held);
                held.changes.push(change);
                return Ok(());
            }
        }
        through(&*self.file)
    }

    fn len(&self) -> io::Result<u64> {
        if !self.released.load(Ordering::Acquire)
            && let Some(len) = self.held().len
        {
            return Ok(len);
        }
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.released.load(Ordering::Acquire) {
            return self.file.read_at(offset, out);
        }
        let held = self.held();
        if held.changes.is_empty() {
            return self.file.read_at(offset, out);
        }
        let file_len = self.file.len()?;
        // Bytes beyond the file's own end are zero until something held was written there.
        let there = usize::try_from(file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (front, behind) = out.split_at_mut(there.min(out.len()));
        if !front.is_empty() {
            self.file.read_at(offset, front)?;
        }
        behind.fill(0);
        for change in &held.changes {
            match change {
                Change::Write(at, data) => overlay(offset, out, *at, data),
                Change::SetLen(len) => {
                    let keep = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
                    if let Some(cut) = out.get_mut(keep..) {
                        cut.fill(0);
                    }
                }
                Change::Sync => {}
            }
        }
        Ok(())
    }
}

/// Puts the part of `data` (at `at`) that lies in `out` (at `offset`) there.
fn overlay(offset: u64, out: &mut [u8], at: u64, data: &[u8]) {
    let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let from_out = place(at.saturating_sub(offset));
    let from_data = place(offset.saturating_sub(at));
    if let (Some(out), Some(data)) = (out.get_mut(from_out..), data.get(from_data..)) {
        for (out, byte) in out.iter_mut().zip(data) {
            *out = *byte;
        }
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.change(
            |file| file.set_len(len),
            |held| {
                held.len = Some(len);
                Change::SetLen(len)
            },
        )
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.change(|file| file.sync(), |_| Change::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.change(|file| file.write_at(offset, data), |_| Change::Write(offset, data.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::embedded::disk::{Disk, RealDisk};

    fn file(dir: &Path) -> Arc<dyn DiskFile> {
        let file = RealDisk.create_new(&dir.join("f")).unwrap();
        file.write_at(0, b"0123456789").unwrap();
        file
    }

    #[test]
    fn held_changes_are_seen_and_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        let gate = Gate::new(Arc::clone(&file));
        let backend = Backend(Arc::clone(&gate));
        backend.write(8, b"abcd").unwrap();
        backend.set_len(16).unwrap();
        backend.write(2, b"X").unwrap();
        backend.sync_data().unwrap();
        let mut seen = [9; 16];
        backend.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"01X34567abcd\0\0\0\0");
        let mut part = [9; 3];
        backend.read(9, &mut part).unwrap();
        assert_eq!(&part, b"bcd");
        assert_eq!((backend.len().unwrap(), file.len().unwrap()), (16, 10));
        gate.release().unwrap();
        let mut made = [9; 16];
        file.read_at(0, &mut made).unwrap();
        assert_eq!(made, seen);
        backend.write(0, b"!").unwrap();
        file.read_at(0, &mut made).unwrap();
        assert_eq!(made[0], b'!');
    }

    #[test]
    fn shrinking_forgets_what_was_behind() {
        let dir = tempfile::tempdir().unwrap();
        let gate = Gate::new(file(dir.path()));
        let backend = Backend(Arc::clone(&gate));
        backend.set_len(4).unwrap();
        backend.set_len(8).unwrap();
        let mut seen = [9; 8];
        backend.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"0123\0\0\0\0");
    }
}
