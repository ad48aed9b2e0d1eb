//! The anchor: a small file beside the journal that remembers how far it had come.
//!
//! The log says what is in it, and nothing in it says that there was more. Whoever puts back an
//! older copy of a journal, or cuts its log, leaves something that looks whole. The anchor is
//! written when the log is marked and when the journal is closed, never by a commit, so it says
//! less than there is and never more: a journal that is behind it has lost something.
//!
//! Two slots, each in a page of its own, are written in turn; of those that can be read the later
//! one counts. So a torn write leaves the one before.
//!
//! ```text
//! 0 magic 8, the journal's log id 16, number 8, place 12, hash of the last record 32, checksum 16
//! ```

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    aside,
    code::{self, In, Out, SUM_BYTES, Torn},
    disk::{Disk, DiskFile},
    entry::Place,
};
use crate::{id::LogIndex, record::RecordHash};

const MAGIC: [u8; 8] = *b"deedanc\x01";
/// Where the slots stand.
const SLOTS: [u64; 2] = [0, 4096];
const SLOT_BYTES: usize = MAGIC.len() + 16 + 8 + 12 + 32 + SUM_BYTES;

/// Where the anchor of a journal is.
pub(super) fn beside(journal: &Path) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push("-anchor");
    path.into()
}

/// What an anchor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    /// Counts what was ever written to the file.
    number: u64,
    /// The journal had everything before this place.
    pub(super) upto: Place,
    /// The hash of the last record; zero if there was none, or it was not known.
    pub(super) head: RecordHash,
}

impl Said {
    /// How many records the journal had.
    pub(super) fn records(&self) -> LogIndex {
        self.upto.leaf
    }
}

/// What stands at the name of an anchor.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing, or a file that was made and never written.
    Nothing,
    /// An anchor of this journal.
    Said(Said),
    /// An anchor of another journal that had this name: it says nothing of this one.
    Foreign,
    /// An anchor that cannot be read.
    Damaged,
    /// Something else, which is left alone.
    Other,
}

/// Looks at the anchor of a journal.
pub(super) fn look(disk: &dyn Disk, journal: &Path, log_id: &[u8; 16]) -> io::Result<Found> {
    match disk.open(&beside(journal), false, false) {
        Ok(file) => read(&*file, log_id),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Ok(Found::Nothing),
            io::ErrorKind::InvalidInput => Ok(Found::Other),
            _ => Err(error),
        },
    }
}

fn read(file: &dyn DiskFile, log_id: &[u8; 16]) -> io::Result<Found> {
    let length = file.len()?;
    let (mut said, mut ours, mut foreign, mut zero) = (None::<Said>, false, false, true);
    for at in SLOTS {
        let mut slot = [0; SLOT_BYTES];
        let there = usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX);
        let (front, _) = slot.split_at_mut(there.min(SLOT_BYTES));
        file.read_at(at, front)?;
        zero &= slot.iter().all(|byte| *byte == 0);
        // Where power was lost while it was written, parts of it are zero.
        let begins = slot.iter().zip(MAGIC).all(|(have, want)| *have == want || *have == 0);
        ours |= begins && slot.iter().any(|byte| *byte != 0);
        match decode(at, &slot) {
            Ok((of, found)) if of == *log_id => {
                said = said.filter(|said| said.number > found.number).or(Some(found));
            }
            Ok(_) => foreign = true,
            Err(_) => {}
        }
    }
    Ok(match said {
        Some(said) => Found::Said(said),
        None if foreign => Found::Foreign,
        None if zero => Found::Nothing,
        None if ours => Found::Damaged,
        None => Found::Other,
    })
}

fn encode(at: u64, log_id: &[u8; 16], said: &Said) -> Vec<u8> {
    let mut out = Out::default();
    out.fixed(&MAGIC).fixed(log_id).fixed(&said.number.to_le_bytes());
    out.fixed(&said.upto.bound()).fixed(&said.head.0);
    code::seal("anchor", &at.to_le_bytes(), out.0)
}

fn decode(at: u64, slot: &[u8]) -> Result<([u8; 16], Said), Torn> {
    let mut input = In(code::unseal("anchor", &at.to_le_bytes(), slot)?);
    if input.fixed()? != MAGIC {
        return Err("it is no anchor");
    }
    let log_id = input.fixed()?;
    let number = u64::from_le_bytes(input.fixed()?);
    let leaf = u64::from_le_bytes(input.fixed()?);
    let sub = u32::from_le_bytes(input.fixed()?);
    let said = Said { number, upto: Place { leaf, sub }, head: RecordHash(input.fixed()?) };
    input.end()?;
    Ok((log_id, said))
}

/// Reads a slot whose checksum is put right, and writes again what was read.
#[cfg(feature = "planted-faults")]
pub(super) fn again(bytes: &[u8]) -> Result<Vec<u8>, Torn> {
    let at = SLOTS[0];
    let slot = code::seal("anchor", &at.to_le_bytes(), bytes.to_vec());
    let (log_id, said) = decode(at, &slot)?;
    Ok(encode(at, &log_id, &said))
}

/// The anchor of a journal that is open.
#[derive(Debug)]
pub(super) struct Anchor {
    disk: Arc<dyn Disk>,
    journal: PathBuf,
    log_id: [u8; 16],
    file: Option<Arc<dyn DiskFile>>,
    /// What it says, if it says anything.
    said: Option<Said>,
    /// It cannot be written: that was said once.
    off: bool,
}

impl Anchor {
    /// The anchor that says what was found.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        journal: &Path,
        log_id: [u8; 16],
        found: &Found,
    ) -> Self {
        let said = match found {
            Found::Said(said) => Some(*said),
            _ => None,
        };
        let off = matches!(found, Found::Other);
        Self { disk, journal: journal.into(), log_id, file: None, said, off }
    }

    /// Says durably that the journal has everything before a place. It must have it durably.
    ///
    /// What goes wrong here is no harm to the journal: the anchor is left as it is, and a warning
    /// says so.
    pub(super) fn say(&mut self, upto: Place, head: Option<RecordHash>) {
        if self.off || self.said.is_some_and(|said| said.upto == upto) {
            return;
        }
        let same = self.said.filter(|said| said.upto.leaf == upto.leaf).map(|said| said.head);
        let head = head.or(same).unwrap_or(RecordHash::ZERO);
        let number = self.said.map_or(0, |said| said.number).saturating_add(1);
        let said = Said { number, upto, head };
        match self.write(&said) {
            Ok(()) => self.said = Some(said),
            Err(error) => {
                self.off = true;
                let anchor = beside(&self.journal);
                tracing::warn!(
                    anchor = %anchor.display(), %error,
                    "the anchor could not be written: an older copy of the journal may go unnoticed"
                );
            }
        }
    }

    fn write(&mut self, said: &Said) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(self.file.insert(self.open()?)),
        };
        let at = if said.number.is_multiple_of(2) { SLOTS[0] } else { SLOTS[1] };
        file.write_at(at, &encode(at, &self.log_id, said))?;
        file.sync()
    }

    fn open(&self) -> io::Result<Arc<dyn DiskFile>> {
        let path = beside(&self.journal);
        match self.disk.open(&path, true, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = self.disk.create_new(&path)?;
                self.disk.sync_dir(aside::folder(&self.journal))?;
                Ok(file)
            }
            opened => opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::disk::RealDisk;

    const LOG: [u8; 16] = [3; 16];

    fn place(leaf: u64) -> Place {
        Place { leaf, sub: 0 }
    }

    fn found(journal: &Path) -> Found {
        look(&RealDisk, journal, &LOG).unwrap()
    }

    fn anchor(journal: &Path) -> Anchor {
        Anchor::new(Arc::new(RealDisk), journal, LOG, &found(journal))
    }

    fn records(journal: &Path) -> u64 {
        match found(journal) {
            Found::Said(said) => said.records(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_later_slot_counts_and_a_torn_one_leaves_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("book.redb");
        assert!(matches!(found(&journal), Found::Nothing));
        for leaf in [5, 9, 12] {
            anchor(&journal).say(place(leaf), Some(RecordHash([leaf as u8; 32])));
            assert_eq!(records(&journal), leaf);
        }
        // An accepted rollback says less, later.
        anchor(&journal).say(place(7), None);
        assert_eq!(records(&journal), 7);
        let path = beside(&journal);
        let bytes = std::fs::read(&path).unwrap();
        for torn in 0..SLOT_BYTES {
            let mut torn_bytes = bytes.clone();
            torn_bytes[torn] ^= 1;
            std::fs::write(&path, &torn_bytes).unwrap();
            // The fourth write went to the first slot.
            assert_eq!(records(&journal), 12, "byte {torn}");
        }
        let mut both = bytes.clone();
        both[40] ^= 1;
        both[4096 + 40] ^= 1;
        std::fs::write(&path, &both).unwrap();
        assert!(matches!(found(&journal), Found::Damaged));
    }

    #[test]
    fn what_is_none_of_this_journals_says_nothing_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("book.redb");
        let path = beside(&journal);
        std::fs::write(&path, "").unwrap();
        assert!(matches!(found(&journal), Found::Nothing));
        std::fs::write(&path, "my notes").unwrap();
        assert!(matches!(found(&journal), Found::Other));
        anchor(&journal).say(place(7), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"my notes");
        std::fs::remove_file(&path).unwrap();
        Anchor::new(Arc::new(RealDisk), &journal, [4; 16], &Found::Nothing).say(place(7), None);
        assert!(matches!(found(&journal), Found::Foreign));
        // A journal that takes over a name takes over its anchor.
        anchor(&journal).say(place(2), None);
        assert_eq!(records(&journal), 2);
        anchor(&journal).say(place(3), None);
        assert!(matches!(look(&RealDisk, &journal, &[4; 16]).unwrap(), Found::Foreign));
    }
}
