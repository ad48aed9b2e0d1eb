//! A disk that loses power.
//!
//! The model: a write, a length and a name go to the system's memory and are seen by every read
//! at once. A sync makes durable what was written to that file before it, a sync of the directory
//! the names that were made and removed before it, and nothing else is. When power is lost, each
//! write that was not synced is there in full, not at all, or in pieces of `tear` bytes, each
//! piece by itself, whatever became of earlier and later writes; a length is there or not; of the
//! names some first ones are there. A piece that is written again is the old one or the new one.
//! Not in the model: syncs that lie, and pieces that change by themselves (that is what the damage
//! tests do).

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use deedbook_journal::embedded::{Disk, DiskFile};

use crate::random::Random;

type Id = usize;

/// One operation that changes something.
#[derive(Debug, Clone)]
enum Op {
    Write(Id, u64, Arc<[u8]>),
    SetLen(Id, u64),
    Sync(Id),
    Name(PathBuf, Option<Id>),
    SyncNames,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Vec<u8>>,
    names: BTreeMap<PathBuf, Id>,
    locked: HashMap<Id, bool>,
    /// What is durable from the beginning.
    base: (Vec<Vec<u8>>, BTreeMap<PathBuf, Id>),
    ops: Vec<Op>,
}

/// A disk in memory whose every operation is remembered.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

/// What becomes of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All of it is lost.
    Everything,
    /// All of it is there.
    Nothing,
    /// Each piece of so many bytes is there or is not.
    Pieces(usize),
}

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process that had locks is gone.
    pub fn unlock(&self) {
        self.state().locked.clear();
    }

    /// Flips a bit of a file.
    pub fn flip(&self, path: &Path, at: usize) {
        let mut state = self.state();
        let id = state.names[path];
        state.files[id][at] ^= 1;
        state.base.0[id][at] ^= 1;
    }

    /// Removes a file as an accident would.
    pub fn lose(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.base.1.remove(path);
    }

    /// How many operations there were.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.state().ops.len()
    }

    /// The bytes of a file as they are seen now, if there is one.
    #[must_use]
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).and_then(|id| state.files.get(*id)).cloned()
    }

    /// The names that are there now.
    #[must_use]
    pub fn names(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// What is found after power was lost behind the first `at` operations.
    #[must_use]
    pub fn after_power_loss(&self, at: usize, loss: Loss, random: &mut Random) -> Self {
        let state = self.state();
        let (mut files, mut names) = state.base.clone();
        files.resize(state.files.len(), Vec::new());
        let done = state.ops.get(..at).unwrap_or(&state.ops);
        let mut synced = vec![0; files.len()];
        let mut names_synced = 0;
        for (k, op) in done.iter().enumerate() {
            match op {
                Op::Sync(id) => synced[*id] = k,
                Op::SyncNames => names_synced = k,
                _ => {}
            }
        }
        let pending =
            done.iter().skip(names_synced).filter(|op| matches!(op, Op::Name(..))).count();
        let mut kept = match loss {
            Loss::Everything => 0,
            Loss::Nothing => pending,
            Loss::Pieces(_) => random.below(pending as u64 + 1) as usize,
        };
        for (k, op) in done.iter().enumerate() {
            match op {
                Op::Write(id, offset, data) if k < synced[*id] => {
                    put(&mut files[*id], *offset, data)
                }
                Op::SetLen(id, len) if k < synced[*id] => files[*id].resize(*len as usize, 0),
                Op::Write(id, offset, data) => keep(&mut files[*id], *offset, data, loss, random),
                Op::SetLen(id, len) => {
                    if loss == Loss::Nothing || (loss != Loss::Everything && random.below(2) == 0) {
                        files[*id].resize(*len as usize, 0);
                    }
                }
                Op::Name(path, id) => {
                    if k >= names_synced {
                        if kept == 0 {
                            continue;
                        }
                        kept -= 1;
                    }
                    match id {
                        Some(id) => names.insert(path.clone(), *id),
                        None => names.remove(path),
                    };
                }
                Op::Sync(_) | Op::SyncNames => {}
            }
        }
        let base = (files.clone(), names.clone());
        Self(Arc::new(Mutex::new(State { files, names, base, ..State::default() })))
    }
}

fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let at = offset as usize;
    if file.len() < at + data.len() {
        file.resize(at + data.len(), 0);
    }
    file[at..at + data.len()].copy_from_slice(data);
}

/// Keeps of a write what the loss of power leaves of it.
fn keep(file: &mut Vec<u8>, offset: u64, data: &[u8], loss: Loss, random: &mut Random) {
    let tear = match loss {
        Loss::Everything => return,
        Loss::Nothing => return put(file, offset, data),
        Loss::Pieces(tear) => tear as u64,
    };
    // Of some writes nothing is there, of some all.
    let mood = random.below(4);
    let mut at = offset;
    let end = offset + data.len() as u64;
    while at < end {
        let next = ((at / tear + 1) * tear).min(end);
        if mood == 3 || (mood > 0 && random.below(2) == 0) {
            put(file, at, &data[(at - offset) as usize..(next - offset) as usize]);
        }
        at = next;
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    id: Id,
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl SimDisk {
    fn name(&self, path: &Path, id: Option<Id>) {
        let mut state = self.state();
        match id {
            Some(id) => state.names.insert(path.into(), id),
            None => state.names.remove(path),
        };
        state.ops.push(Op::Name(path.into(), id));
    }
}

impl Disk for SimDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let id = {
            let mut state = self.state();
            if state.names.contains_key(path) {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists));
            }
            state.files.push(Vec::new());
            state.files.len() - 1
        };
        self.name(path, Some(id));
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn open(&self, path: &Path, _write: bool, _follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        let id = self.state().names.get(path).copied().ok_or_else(not_found)?;
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let id = self.state().names.get(from).copied().ok_or_else(not_found)?;
        if self.state().names.contains_key(to) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        self.name(to, Some(id));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !self.state().names.contains_key(path) {
            return Err(not_found());
        }
        self.name(path, None);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        let inside = state.names.keys().filter(|name| name.parent() == Some(path));
        Ok(inside.filter_map(|name| Some(name.file_name()?.to_owned())).collect())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        self.state().ops.push(Op::SyncNames);
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.id].len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = at.checked_add(out.len());
        let there = end.and_then(|end| state.files[self.id].get(at..end));
        out.copy_from_slice(there.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        put(&mut state.files[self.id], offset, data);
        state.ops.push(Op::Write(self.id, offset, data.into()));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.files[self.id].resize(len as usize, 0);
        state.ops.push(Op::SetLen(self.id, len));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.ops.push(Op::Sync(self.id));
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(!self.disk.state().locked.insert(self.id, true).unwrap_or(false))
    }

    fn names(&self) -> io::Result<u64> {
        let state = self.disk.state();
        Ok(state.names.values().filter(|id| **id == self.id).count() as u64)
    }

    fn device_and_inode(&self) -> io::Result<(u64, u64)> {
        Ok((0, self.id as u64))
    }
}
