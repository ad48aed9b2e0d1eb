//! The ledger's file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::index::{Index, Settled, Summary};
use super::{Entry, LedgerError};
use crate::bank::wire::{Instruction, Problem, Receipt};

/// An open ledger. One bank holds it at a time.
#[derive(Debug)]
pub(in crate::bank) struct Ledger {
    path: PathBuf,
    /// `None` after a failed write. Held over the sync, so appends follow each other.
    file: Mutex<Option<File>>,
    /// Changed only after the sync: what is read here is durable.
    index: RwLock<Index>,
}

/// Reads the lines of a ledger, whether or not a bank holds it. A torn last line is left out.
///
/// # Errors
///
/// [`LedgerError::Io`] when the file cannot be read, [`LedgerError::Damaged`] when a line that is
/// not the last makes no sense.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Entry>, LedgerError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    Ok(read_lines(&file, path)?.0)
}

impl Ledger {
    /// Opens a ledger, creating it when there is none. Blocks on the disk.
    pub(in crate::bank) fn open(path: &Path) -> Result<Self, LedgerError> {
        let fault = |source| io_error(path, source);
        let is_new = !path.try_exists().map_err(fault)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(fault)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LedgerError::Held { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(fault(source)),
        }
        if is_new {
            sync_folder_of(path).map_err(fault)?;
        }

        let (entries, whole_bytes) = read_lines(&file, path)?;
        // Also when nothing was torn: lines that a killed bank had written but not synced must
        // be durable before anybody is told of them.
        file.set_len(whole_bytes).and_then(|()| file.sync_all()).map_err(fault)?;
        file.seek(SeekFrom::Start(whole_bytes)).map_err(fault)?;

        let mut index = Index::default();
        for entry in &entries {
            index.add(entry);
        }
        Ok(Self { path: path.to_owned(), file: Mutex::new(Some(file)), index: RwLock::new(index) })
    }

    /// Executes a refund: this line is the money. Blocks until it is durable.
    pub(in crate::bank) fn refund(
        &self,
        instruction: Instruction,
        key: Option<String>,
    ) -> Result<Receipt, LedgerError> {
        let mut file = self.lock();
        let id = format!("rf_{:06}", self.summary().executed.saturating_add(1));
        let entry = Entry::Refund { id, at_ms: now_ms(), key, instruction };
        self.append(&mut file, &entry)?;
        entry.receipt().ok_or_else(|| LedgerError::Stopped { path: self.path.clone() })
    }

    /// Remembers a refusal under its key. Blocks until it is durable.
    pub(in crate::bank) fn reject(
        &self,
        instruction: Instruction,
        key: String,
        problem: Problem,
    ) -> Result<(), LedgerError> {
        let entry = Entry::Rejection { at_ms: now_ms(), key, instruction, problem };
        self.append(&mut self.lock(), &entry)
    }

    /// What a key stands for, if its first call has ended.
    pub(in crate::bank) fn settled(&self, key: &str) -> Option<Settled> {
        self.with_index(|index| index.settled(key).cloned())
    }

    /// Every refund with this reference, first executed first.
    pub(in crate::bank) fn with_reference(&self, reference: &str) -> Vec<Receipt> {
        self.with_index(|index| index.with_reference(reference).to_vec())
    }

    /// The totals.
    pub(in crate::bank) fn summary(&self) -> Summary {
        self.with_index(|index| index.summary().clone())
    }

    fn append(&self, file: &mut Option<File>, entry: &Entry) -> Result<(), LedgerError> {
        let Some(open) = file else {
            return Err(LedgerError::Stopped { path: self.path.clone() });
        };
        let written = serde_json::to_vec(entry).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            open.write_all(&line)?;
            open.sync_data()
        });
        if let Err(source) = written {
            // After a failed sync the file may or may not hold the line; only reading it again
            // tells. The lock stays with the process, so nobody else writes meanwhile.
            *file = None;
            return Err(io_error(&self.path, source));
        }
        self.index.write().unwrap_or_else(PoisonError::into_inner).add(entry);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_index<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The whole lines of a file, and how many bytes they take.
fn read_lines(file: &File, path: &Path) -> Result<(Vec<Entry>, u64), LedgerError> {
    let mut input = BufReader::new(file);
    let (mut entries, mut whole_bytes, mut number) = (Vec::new(), 0_u64, 0_u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line).map_err(|source| io_error(path, source))?;
        if line.pop() != Some(b'\n') {
            return Ok((entries, whole_bytes));
        }
        number = number.saturating_add(1);
        let entry = serde_json::from_slice(&line)
            .map_err(|_| LedgerError::Damaged { path: path.to_owned(), line: number })?;
        entries.push(entry);
        whole_bytes = whole_bytes.saturating_add(read as u64);
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

fn io_error(path: &Path, source: io::Error) -> LedgerError {
    LedgerError::Io { path: path.to_owned(), source }
}

#[expect(clippy::disallowed_methods, reason = "the bank is another party, with a clock of its own")]
fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::ledger::Settlement;

    fn instruction(reference: &str) -> Instruction {
        Instruction {
            order: "A-1".into(),
            customer: "李 🦊".into(),
            amount_minor: 4_990,
            currency: "EUR".into(),
            reason: "broken\nzip".into(),
            reference: reference.into(),
        }
    }

    fn problem() -> Problem {
        Problem::new(422, "closed-order", "the order is closed", "no")
    }

    #[test]
    fn everything_is_there_again_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.jsonl");
        let ledger = Ledger::open(&path).unwrap();
        let first = ledger.refund(instruction("r1"), Some("k1".into())).unwrap();
        let second = ledger.refund(instruction("r1"), None).unwrap();
        ledger.reject(instruction("r2"), "k2".into(), problem()).unwrap();
        let before = ledger.summary();
        drop(ledger);

        let ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.summary(), before);
        assert_eq!((before.executed, before.references, before.duplicates), (2, 1, 1));
        assert_eq!((before.rejected, before.by_currency["EUR"].amount_minor), (1, 9_980));
        assert_eq!(ledger.with_reference("r1"), [first.clone(), second]);
        assert_eq!(ledger.settled("k1").unwrap().settlement, Settlement::Refunded(first));
        assert_eq!(ledger.settled("k2").unwrap().settlement, Settlement::Rejected(problem()));
        assert_eq!(ledger.refund(instruction("r3"), None).unwrap().id, "rf_000003");
        assert_eq!(Summary::of(&read(&path).unwrap()), ledger.summary());
    }

    #[test]
    fn a_line_torn_anywhere_is_cut_off_and_the_rest_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.jsonl");
        let ledger = Ledger::open(&path).unwrap();
        ledger.refund(instruction("r1"), None).unwrap();
        let one = std::fs::read(&path).unwrap();
        ledger.refund(instruction("r2"), None).unwrap();
        let two = std::fs::read(&path).unwrap();
        drop(ledger);

        for end in one.len()..two.len() {
            std::fs::write(&path, &two[..end]).unwrap();
            assert_eq!(read(&path).unwrap().len(), 1, "cut at {end}");
            let ledger = Ledger::open(&path).unwrap();
            assert_eq!(ledger.summary().executed, 1, "cut at {end}");
            assert_eq!(std::fs::read(&path).unwrap(), one);
            ledger.refund(instruction("r3"), None).unwrap();
            drop(ledger);
            assert_eq!(read(&path).unwrap().len(), 2);
        }
    }

    #[test]
    fn damage_before_the_end_stops_the_bank_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.jsonl");
        let ledger = Ledger::open(&path).unwrap();
        ledger.refund(instruction("r1"), None).unwrap();
        ledger.refund(instruction("r2"), None).unwrap();
        drop(ledger);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3] = b'#';
        std::fs::write(&path, &bytes).unwrap();
        let error = Ledger::open(&path).unwrap_err();
        assert!(matches!(error, LedgerError::Damaged { line: 1, .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn one_bank_holds_a_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.jsonl");
        let ledger = Ledger::open(&path).unwrap();
        assert!(matches!(Ledger::open(&path), Err(LedgerError::Held { .. })));
        drop(ledger);
        Ledger::open(&path).unwrap();
    }

    #[test]
    fn after_a_failed_write_nothing_more_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.jsonl");
        let ledger = Ledger::open(&path).unwrap();
        ledger.refund(instruction("r1"), None).unwrap();
        // A handle that cannot write stands in for a full disk.
        *ledger.lock() = Some(File::open(&path).unwrap());
        assert!(matches!(ledger.refund(instruction("r2"), None), Err(LedgerError::Io { .. })));
        let error = ledger.refund(instruction("r2"), None).unwrap_err();
        assert!(matches!(error, LedgerError::Stopped { .. }), "{error}");
        assert_eq!(ledger.summary().executed, 1);
    }
}
