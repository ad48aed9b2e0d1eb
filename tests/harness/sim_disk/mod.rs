//! A disk that loses power, and whose operations fail.
//!
//! **While there is power.** A write, a length and a name go to the system's memory and are seen
//! by every read at once. A sync makes durable what was written to that file before it, a sync of
//! the directory the names that were made and removed before it, and nothing else is.
//!
//! **When power is lost**, of what was not synced any part may be there ([`Loss`]): each write in
//! full, not at all, or in pieces, each piece by itself, whatever became of earlier and later
//! writes; a length is there or not; of the names some first ones are there. A piece that is
//! written again is the old one or the new one.
//!
//! **When an operation fails** ([`Fault`]), it fails as on Linux:
//!
//! - A write, a length, a link or a name that fails with `EIO` has not happened. A write may also
//!   stop in the middle ([`Fault::Short`]), and does so when the disk is full.
//! - A sync that fails has made some pieces durable and others not, and *all of them count as
//!   clean from then on*: they are read back as they were written, and a later sync succeeds and
//!   does not write them. Only a new write to the same page of 4,096 bytes makes that page, with
//!   everything in it, a matter of the next sync. [`SimDisk::evict`] is the system that drops
//!   clean pages from memory: from then on reads give what the disk really has. A length that was
//!   set is no page: it stays on its way to the next sync.
//! - A sync of the directory that fails is the same for names: some first ones are durable, the
//!   others are seen and clean, until another name in the directory changes.
//! - A fault strikes once, or strikes everything from then on ([`SimDisk::fail`]); the next
//!   process finds a disk that works again.
//!
//! Not in the model: syncs that lie, pieces that change by themselves (that is what
//! [`SimDisk::edit`] is for), reads that fail, and more than one directory.

mod files;
mod platter;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use self::platter::{Id, Op, Platter};
use crate::random::Random;

/// What is written to memory as one.
const PAGE: u64 = 4096;

/// What becomes of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All of it is lost.
    Everything,
    /// All of it is there.
    Nothing,
    /// Each piece of so many bytes is there or is not.
    Pieces(u64),
    /// Some first writes are there, and of the next one some pieces of so many bytes.
    Prefix(u64),
    /// Only what lies in the first page of a file is there.
    Header,
    /// Everything but what lies in the first page of a file is there.
    AllButHeader,
    /// One write is lost.
    AllButOne,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// `EIO`.
    Device,
    /// `EIO`, after half of a write. Everything but a write fails as with [`Fault::Device`].
    Short,
    /// `ENOSPC`, after half of a write.
    Full,
}

/// What kind of operation one is, as far as faults go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// Bytes of a file.
    Write,
    /// A file's length.
    Length,
    /// A sync of a file.
    Sync,
    /// A name that is made, linked or removed.
    Name,
    /// A sync of the directory.
    SyncNames,
}

#[derive(Debug)]
struct Armed {
    /// The operation, counted as in [`SimDisk::tried`].
    at: usize,
    fault: Fault,
    and_later: bool,
    /// Only the first one of this kind, from there on.
    only: Option<Change>,
    random: Random,
}

#[derive(Debug, Default)]
struct State {
    /// What reads see.
    files: Vec<Arc<Vec<u8>>>,
    names: BTreeMap<PathBuf, Id>,
    locked: HashMap<Id, bool>,
    /// What was durable in the beginning, and what is now.
    base: Platter,
    platter: Platter,
    ops: Vec<Op>,
    /// The kinds of all operations, failed ones included.
    tried: Vec<Change>,
    armed: Option<Armed>,
    struck: usize,
}

/// A disk in memory whose every operation is remembered.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process that had locks is gone.
    pub fn unlock(&self) {
        self.state().locked.clear();
    }

    /// Makes the operation with this number fail ([`SimDisk::tried`] has the number of the next
    /// one), and with `and_later` every one behind it. `seed` decides what a failed sync leaves.
    pub fn fail(&self, at: usize, fault: Fault, and_later: bool, seed: u64) {
        let random = Random::new(seed);
        self.state().armed = Some(Armed { at, fault, and_later, only: None, random });
    }

    /// Makes the first sync of a file fail that is this operation or comes behind it.
    pub fn fail_sync(&self, at: usize, seed: u64) {
        let (fault, random) = (Fault::Device, Random::new(seed));
        let only = Some(Change::Sync);
        self.state().armed = Some(Armed { at, fault, and_later: false, only, random });
    }

    /// From now on everything works again. How many operations have failed so far.
    pub fn mend(&self) -> usize {
        let mut state = self.state();
        state.armed = None;
        state.struck
    }

    /// The system drops from memory what counts as clean.
    pub fn evict(&self) {
        let state = &mut *self.state();
        for (id, file) in state.files.iter_mut().enumerate() {
            if state.platter.is_doubtful(id) {
                *file = Arc::new(state.platter.with_pending(id));
            }
        }
        state.names = state.platter.names_with_pending();
        state.platter.take(&Op::Evict);
        state.ops.push(Op::Evict);
    }

    /// Changes a file that nobody has open, as an accident would: durably.
    pub fn edit(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let state = &mut *self.state();
        let id = state.names[path];
        change(Arc::make_mut(&mut state.files[id]));
        for platter in [&mut state.base, &mut state.platter] {
            platter.replace(id, &state.files[id]);
        }
    }

    /// Removes a file as an accident would.
    pub fn lose(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.base.forget(path);
        state.platter.forget(path);
    }

    /// Puts a file there, as somebody else would.
    pub fn place(&self, path: &Path, bytes: Vec<u8>) {
        let state = &mut *self.state();
        let bytes = Arc::new(bytes);
        let id = state.files.len();
        state.files.push(Arc::clone(&bytes));
        state.names.insert(path.into(), id);
        for platter in [&mut state.base, &mut state.platter] {
            platter.place(path, id, &bytes);
        }
    }

    /// How many operations were done.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.state().ops.len()
    }

    /// The kinds of all operations that were tried, failed ones included.
    #[must_use]
    pub fn tried(&self) -> Vec<Change> {
        self.state().tried.clone()
    }

    /// One line for each operation: two runs of one seed have the same.
    #[must_use]
    pub fn journal(&self) -> Vec<String> {
        self.state().ops.iter().map(Op::line).collect()
    }

    /// The bytes of a file as they are seen now, if there is one.
    #[must_use]
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).and_then(|id| state.files.get(*id)).map(|file| file.to_vec())
    }

    /// The names that are there now.
    #[must_use]
    pub fn names(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// What is found after power was lost behind the first `at` operations.
    #[must_use]
    pub fn after_power_loss(&self, at: usize, loss: Loss, random: &mut Random) -> Self {
        let mut tape = self.tape();
        tape.forward(at);
        tape.image(loss, random).0
    }

    /// All operations so far, to go through from the first one on.
    #[must_use]
    pub fn tape(&self) -> Tape {
        let state = self.state();
        Tape { platter: state.base.clone(), ops: state.ops.clone(), at: 0 }
    }
}

/// The operations of a disk, gone through one after the other.
#[derive(Debug, Clone)]
pub struct Tape {
    platter: Platter,
    ops: Vec<Op>,
    at: usize,
}

impl Tape {
    /// Goes on until this many operations were done.
    pub fn forward(&mut self, to: usize) {
        let behind = self.ops.get(self.at..to.min(self.ops.len())).unwrap_or_default();
        for op in behind {
            self.platter.take(op);
        }
        self.at = self.at.max(to);
    }

    /// What is found when power is lost here. The number tells equal losses: it stands for the
    /// pieces that are there.
    #[must_use]
    pub fn image(&self, loss: Loss, random: &mut Random) -> (SimDisk, u64) {
        let mut platter = self.platter.clone();
        let kept = platter.lose_power(loss, random);
        let (files, names) = platter.seen();
        let (base, locked) = (platter.clone(), HashMap::new());
        let state = State { files, names, locked, base, platter, ..State::default() };
        (SimDisk(Arc::new(Mutex::new(state))), kept)
    }
}

#[cfg(test)]
mod tests;
