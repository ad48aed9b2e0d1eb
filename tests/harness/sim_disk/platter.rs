//! What is durable, and what is on its way to the disk.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Loss, PAGE};
use crate::random::Random;

pub(super) type Id = usize;

/// One operation that changed something.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Write(Id, u64, Arc<[u8]>),
    SetLen(Id, u64),
    Sync(Id),
    /// A sync that failed: what of what was on its way is durable all the same.
    FailedSync(Id, Vec<Piece>),
    Name(PathBuf, Option<Id>),
    SyncNames,
    /// A sync of the names that failed: how many first ones are durable all the same.
    FailedSyncNames(usize),
    /// The system dropped from memory what counts as clean.
    Evict,
}

impl Op {
    pub(super) fn line(&self) -> String {
        match self {
            Self::Write(id, at, data) => format!("write {id} {at} {}", data.len()),
            Self::SetLen(id, len) => format!("length {id} {len}"),
            Self::Sync(id) => format!("sync {id}"),
            Self::FailedSync(id, kept) => format!("failed sync {id} {}", kept.len()),
            // Names aside are random.
            Self::Name(_, id) => format!("name {id:?}"),
            Self::SyncNames => "sync names".into(),
            Self::FailedSyncNames(kept) => format!("failed sync names {kept}"),
            Self::Evict => "evict".into(),
        }
    }
}

/// Something that changes a file's bytes or its length.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Write(u64, Arc<[u8]>),
    Len(u64),
}

#[derive(Debug, Clone, Default)]
struct File {
    durable: Arc<Vec<u8>>,
    pending: Vec<Piece>,
    /// Whether a sync of it has failed: reads may see what is not on the disk.
    doubtful: bool,
}

/// A disk, without the memory of the system above it.
#[derive(Debug, Clone, Default)]
pub(super) struct Platter {
    files: Vec<File>,
    names: BTreeMap<PathBuf, Id>,
    pending: Vec<(PathBuf, Option<Id>)>,
    /// Names that are seen, whose sync has failed.
    clean: Vec<(PathBuf, Option<Id>)>,
}

impl Platter {
    fn file(&mut self, id: Id) -> &mut File {
        if self.files.len() <= id {
            self.files.resize(id + 1, File::default());
        }
        &mut self.files[id]
    }

    pub(super) fn take(&mut self, op: &Op) {
        match op {
            Op::Write(id, at, data) => {
                self.file(*id).pending.push(Piece::Write(*at, Arc::clone(data)));
            }
            Op::SetLen(id, len) => self.file(*id).pending.push(Piece::Len(*len)),
            Op::Sync(id) => self.file(*id).settle(),
            Op::FailedSync(id, kept) => {
                let file = self.file(*id);
                file.doubtful = true;
                let had_length = file.pending.iter().any(|piece| matches!(piece, Piece::Len(_)));
                let length = file.arrived().len() as u64;
                file.pending.clone_from(kept);
                file.settle();
                if had_length {
                    file.pending.push(Piece::Len(length));
                }
            }
            Op::Name(path, id) => {
                if let Some(id) = id {
                    self.file(*id);
                }
                // The directory is written as a whole.
                self.pending.append(&mut self.clean);
                self.pending.push((path.clone(), *id));
            }
            Op::SyncNames => self.settle_names(usize::MAX),
            Op::FailedSyncNames(kept) => {
                self.settle_names(*kept);
                self.clean.append(&mut self.pending);
            }
            // Who writes the directory now does not know of them.
            Op::Evict => self.clean.clear(),
        }
    }

    fn settle_names(&mut self, most: usize) {
        let most = most.min(self.pending.len());
        for (path, id) in self.pending.drain(..most) {
            set(&mut self.names, path, id);
        }
    }

    /// What a sync of this file leaves that fails.
    pub(super) fn failed_sync(&mut self, id: Id, random: &mut Random) -> Op {
        const LEFT: [Loss; 6] = [
            Loss::Everything,
            Loss::Everything,
            Loss::Pieces(PAGE),
            Loss::Pieces(512),
            Loss::Prefix(512),
            Loss::Nothing,
        ];
        let loss = LEFT[random.index(LEFT.len())];
        let mut kept = Vec::new();
        self.file(id).part(loss, random, |piece| kept.push(piece));
        Op::FailedSync(id, kept)
    }

    /// What a sync of the names leaves that fails.
    pub(super) fn failed_sync_names(&self, random: &mut Random) -> Op {
        Op::FailedSyncNames(random.index(self.pending.len() + 1))
    }

    pub(super) fn is_doubtful(&self, id: Id) -> bool {
        self.files.get(id).is_some_and(|file| file.doubtful)
    }

    /// The file without what is seen and is not on its way.
    pub(super) fn with_pending(&self, id: Id) -> Vec<u8> {
        self.files[id].arrived()
    }

    /// The names without those that are seen and are not on their way.
    pub(super) fn names_with_pending(&self) -> BTreeMap<PathBuf, Id> {
        let mut names = self.names.clone();
        for (path, id) in &self.pending {
            set(&mut names, path.clone(), *id);
        }
        names
    }

    /// Loses what is on its way, but for some of it. The number stands for what is kept.
    pub(super) fn lose_power(&mut self, loss: Loss, random: &mut Random) -> u64 {
        let mut kept = DefaultHasher::new();
        let names = match loss {
            Loss::Everything => 0,
            Loss::Nothing | Loss::AllButHeader => self.pending.len(),
            _ => random.index(self.pending.len() + 1),
        };
        names.hash(&mut kept);
        self.settle_names(names);
        self.pending.clear();
        self.clean.clear();
        for (id, file) in self.files.iter_mut().enumerate() {
            let mut pieces = Vec::new();
            file.part(loss, random, |piece| {
                match &piece {
                    Piece::Write(at, data) => (id, *at, data.len()).hash(&mut kept),
                    Piece::Len(len) => (id, *len).hash(&mut kept),
                }
                pieces.push(piece);
            });
            file.pending = pieces;
            file.settle();
            file.doubtful = false;
        }
        kept.finish()
    }

    /// What a system sees that has just been started.
    pub(super) fn seen(&self) -> (Vec<Arc<Vec<u8>>>, BTreeMap<PathBuf, Id>) {
        let files = self.files.iter().map(|file| Arc::clone(&file.durable)).collect();
        (files, self.names.clone())
    }

    pub(super) fn replace(&mut self, id: Id, bytes: &Arc<Vec<u8>>) {
        self.file(id).durable = Arc::clone(bytes);
    }

    pub(super) fn forget(&mut self, path: &Path) {
        self.names.remove(path);
    }

    pub(super) fn place(&mut self, path: &Path, id: Id, bytes: &Arc<Vec<u8>>) {
        self.replace(id, bytes);
        self.names.insert(path.into(), id);
    }
}

fn set(names: &mut BTreeMap<PathBuf, Id>, path: PathBuf, id: Option<Id>) {
    match id {
        Some(id) => names.insert(path, id),
        None => names.remove(&path),
    };
}

impl File {
    /// What it is when everything on its way has arrived.
    fn arrived(&self) -> Vec<u8> {
        let mut file = self.clone();
        file.settle();
        file.durable.to_vec()
    }

    /// Everything on its way arrives.
    fn settle(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        for piece in self.pending.drain(..) {
            match piece {
                Piece::Write(at, data) => put(durable, at, &data),
                Piece::Len(len) => durable.resize(len as usize, 0),
            }
        }
    }

    /// Gives what a loss leaves of what is on its way, in its order.
    fn part(&self, loss: Loss, random: &mut Random, mut keep: impl FnMut(Piece)) {
        let count = self.pending.len();
        let (one, first) = (random.index(count), random.index(count + 1));
        for (k, piece) in self.pending.iter().enumerate() {
            let whole = match loss {
                Loss::Everything => Some(false),
                Loss::Nothing => Some(true),
                Loss::AllButOne => Some(k != one),
                Loss::Prefix(_) if k != first => Some(k < first),
                Loss::Header | Loss::AllButHeader => match piece {
                    Piece::Write(at, _) => Some((*at < PAGE) == (loss == Loss::Header)),
                    Piece::Len(_) => Some(loss == Loss::AllButHeader),
                },
                Loss::Pieces(_) | Loss::Prefix(_) => None,
            };
            match (whole, piece, loss) {
                (Some(false), ..) => {}
                (Some(true), piece, _) => keep(piece.clone()),
                (None, Piece::Write(at, data), Loss::Pieces(tear) | Loss::Prefix(tear)) => {
                    torn(*at, data, tear, random, &mut keep);
                }
                (None, piece, _) => {
                    if random.once_in(2) {
                        keep(piece.clone());
                    }
                }
            }
        }
    }
}

/// Keeps some pieces of a write.
fn torn(
    offset: u64,
    data: &Arc<[u8]>,
    tear: u64,
    random: &mut Random,
    keep: &mut impl FnMut(Piece),
) {
    // Of some writes nothing is there, of some all.
    let mood = random.below(4);
    let end = offset + data.len() as u64;
    let mut at = offset;
    while at < end {
        let next = ((at / tear + 1) * tear).min(end);
        if mood == 3 || (mood > 0 && random.once_in(2)) {
            let piece = &data[(at - offset) as usize..(next - offset) as usize];
            keep(Piece::Write(at, piece.into()));
        }
        at = next;
    }
}

pub(super) fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let at = offset as usize;
    if file.len() < at + data.len() {
        file.resize(at + data.len(), 0);
    }
    file[at..at + data.len()].copy_from_slice(data);
}
