//! What is done to the bytes of a journal.

use std::path::Path;

use harness::{Loss, Random, SimDisk};

use super::{Fixture, is_log};

const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// A bit is flipped in every so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride(pub usize);

/// One accident. A file is named by its number in the fixture, a place by its byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Harm {
    /// A bit is another one.
    Bit { file: usize, at: usize },
    /// A sector is zero.
    Zero { file: usize, at: usize },
    /// A sector holds noise.
    Noise { file: usize, at: usize },
    /// So many bytes are what they were after a part of the work: a write was lost.
    Stale { file: usize, at: usize, len: usize, part: usize },
    /// Two pages have changed places.
    Swap { file: usize, a: usize, b: usize },
    /// A page was written to the place of another one.
    Misplaced { file: usize, from: usize, to: usize },
    /// The file ends early.
    Cut { file: usize, len: usize },
    /// There is more behind its end.
    Longer { file: usize, by: usize },
    /// One file is what it was after a part of the work.
    OldFile { file: usize, part: usize },
    /// All files are.
    OldJournal { part: usize },
    /// A file is not there.
    Lost { file: usize },
    /// No file of the log is there.
    LostLog,
    /// A file of the log is that of another journal.
    Foreign { file: usize },
    /// Everything in a file is zero.
    Blank { file: usize },
}

/// Every harm to a fixture.
pub(super) fn harms(fixture: &Fixture, stride: Stride) -> Vec<Harm> {
    let mut all = vec![Harm::LostLog];
    all.extend((0..fixture.older.len()).map(|part| Harm::OldJournal { part }));
    for file in 0..fixture.files.len() {
        all.extend([Harm::Lost { file }, Harm::Blank { file }]);
        if fixture.is_log(file) {
            all.push(Harm::Foreign { file });
        }
        all.extend((0..fixture.older.len()).map(|part| Harm::OldFile { file, part }));
    }
    for file in 0..fixture.files.len() {
        let bytes = fixture.disk.read(&fixture.files[file]).unwrap_or_default();
        // What was filled ahead of use is not looked at but once.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let used = used.next_multiple_of(PAGE).min(bytes.len());
        all.extend((0..used).step_by(stride.0).map(|at| Harm::Bit { file, at }));
        let sectors = || (0..used).step_by(SECTOR);
        all.extend(sectors().map(|at| Harm::Zero { file, at }));
        all.extend(sectors().map(|at| Harm::Noise { file, at }));
        for part in 0..fixture.older.len() {
            if (part + 1).is_multiple_of(stride.0 / 4 + 1) {
                let stale = |at, len| Harm::Stale { file, at, len, part };
                all.extend(sectors().map(|at| stale(at, SECTOR)));
                all.extend((0..used).step_by(PAGE).map(|at| stale(at, PAGE)));
            }
        }
        let pages = || 0..used / PAGE;
        for a in pages() {
            let some = move |b: &usize| *b != a && (31 * a + *b).is_multiple_of(stride.0 / 8 + 1);
            let others = pages().filter(some);
            all.extend(others.clone().map(|to| Harm::Misplaced { file, from: a, to }));
            all.extend(others.filter(|b| *b > a).map(|b| Harm::Swap { file, a, b }));
        }
        all.extend((0..bytes.len()).step_by(SECTOR).map(|len| Harm::Cut { file, len }));
        all.extend([1, SECTOR, PAGE, 16 * PAGE].map(|by| Harm::Longer { file, by }));
    }
    all
}

impl Harm {
    /// The bytes that it changes, where it is about bytes: file, begin, end.
    pub(super) fn reach(&self) -> Option<(usize, usize, usize)> {
        Some(match *self {
            Self::Bit { file, at } => (file, at, at + 1),
            Self::Zero { file, at } | Self::Noise { file, at } => (file, at, at + SECTOR),
            Self::Stale { file, at, len, .. } => (file, at, at + len),
            Self::Swap { file, a, b } => (file, a.min(b) * PAGE, (a.max(b) + 1) * PAGE),
            Self::Misplaced { file, to, .. } => (file, to * PAGE, (to + 1) * PAGE),
            _ => return None,
        })
    }

    /// The journal behind the accident; `None` if nothing is different.
    pub(super) fn done(&self, fixture: &Fixture) -> Option<SimDisk> {
        let mut random = Random::new(7);
        let image = fixture.disk.after_power_loss(0, Loss::Nothing, &mut random);
        let name = |file: usize| &*fixture.files[file];
        match *self {
            Self::OldJournal { part } => {
                for file in &fixture.files {
                    image.lose(file);
                }
                for file in fixture.older[part].names() {
                    let bytes = fixture.older[part].read(&file)?;
                    image.place(&file, bytes);
                }
            }
            Self::OldFile { file, part } => {
                let bytes = fixture.older[part].read(name(file))?;
                image.lose(name(file));
                image.place(name(file), bytes);
            }
            Self::Lost { file } => image.lose(name(file)),
            Self::LostLog => {
                let logs = fixture.files.iter().filter(|file| is_log(file));
                logs.for_each(|log| image.lose(log));
            }
            Self::Foreign { file } => {
                image.lose(name(file));
                image.place(name(file), fixture.foreign.clone());
            }
            _ => {
                let (Self::Bit { file, .. }
                | Self::Zero { file, .. }
                | Self::Noise { file, .. }
                | Self::Stale { file, .. }
                | Self::Swap { file, .. }
                | Self::Misplaced { file, .. }
                | Self::Cut { file, .. }
                | Self::Longer { file, .. }
                | Self::Blank { file }) = *self
                else {
                    return None;
                };
                image.edit(name(file), |bytes| self.change(fixture, name(file), bytes));
            }
        }
        let same = fixture.files.iter().all(|file| image.read(file) == fixture.disk.read(file));
        (!same || image.names() != fixture.disk.names()).then_some(image)
    }

    fn change(&self, fixture: &Fixture, name: &Path, bytes: &mut Vec<u8>) {
        let cut = |at: usize, len: usize, bytes: &[u8]| at..bytes.len().min(at + len);
        match *self {
            Self::Bit { at, .. } => bytes[at] ^= 1 << (at % 8),
            Self::Zero { at, .. } => {
                let sector = cut(at, SECTOR, bytes);
                bytes[sector].fill(0);
            }
            Self::Noise { at, .. } => {
                let mut random = Random::new(at as u64);
                let sector = cut(at, SECTOR, bytes);
                bytes[sector].fill_with(|| random.draw() as u8);
            }
            Self::Stale { at, len, part, .. } => {
                let old = fixture.older[part].read(name).unwrap_or_default();
                let here = cut(at, len, bytes);
                // Where the file was shorter there was nothing.
                let old = here.clone().map(|at| old.get(at).copied().unwrap_or(0));
                let old: Vec<u8> = old.collect();
                bytes[here].copy_from_slice(&old);
            }
            Self::Swap { a, b, .. } => {
                let (first, second) = bytes.split_at_mut(a.max(b) * PAGE);
                let page = a.min(b) * PAGE;
                first[page..page + PAGE].swap_with_slice(&mut second[..PAGE]);
            }
            Self::Misplaced { from, to, .. } => {
                bytes.copy_within(from * PAGE..(from + 1) * PAGE, to * PAGE);
            }
            Self::Cut { len, .. } => bytes.truncate(len),
            Self::Longer { by, .. } => bytes.resize(bytes.len() + by, 0),
            Self::Blank { .. } => bytes.fill(0),
            _ => {}
        }
    }
}
