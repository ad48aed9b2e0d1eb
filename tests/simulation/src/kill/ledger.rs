//! What lives in one folder leave outside of the journal, line by line in one file: what was
//! stored and acknowledged, which bodies ran, and the effects that a downstream had, each synced
//! before it is acknowledged.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use deedbook::PolicyKind;
use deedbook_journal::{
    checkpointer::Append,
    record::{Header, Record},
};

/// The thread that lives and dies.
pub(super) const THREAD: &str = "order-1";

/// Something that was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// A process begins.
    Life,
    /// A record is about to be stored: its position, and its mark.
    Stores(u64, u64),
    /// Everything before this position was acknowledged.
    Stored(u64),
    /// A body runs: its step, its attempt and its operation key.
    Runs(String, u32, String),
    /// A downstream has an effect: its step, its operation key and its receipt.
    Effect(String, String, String),
    /// The steps that the book said were in doubt, ascending.
    Doubts(Vec<String>),
    /// A caller was given the answer: receipts by step.
    Answer(Vec<(String, String)>),
}

/// The file.
#[derive(Debug, Clone)]
pub(super) struct Ledger(PathBuf);

impl Ledger {
    /// That of a folder.
    #[must_use]
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self(folder.join("ledger"))
    }

    /// Writes a line down.
    pub(super) fn note(&self, line: &Line) {
        self.notes(std::slice::from_ref(line));
    }

    fn notes(&self, lines: &[Line]) -> File {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0).unwrap();
        let text: String = lines.iter().map(|line| line.text() + "\n").collect();
        // One write, so that no line is cut short by a kill.
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    /// A group is about to be stored.
    pub(super) fn stores(&self, group: &[Append]) {
        let records = own(group).flat_map(|append| (append.at..).zip(&append.records));
        let lines: Vec<_> = records.map(|(n, record)| Line::Stores(n, mark_of(record))).collect();
        self.notes(&lines);
    }

    /// A group was acknowledged.
    pub(super) fn stored(&self, group: &[Append]) {
        for append in own(group) {
            self.note(&Line::Stored(append.at + append.records.len() as u64));
        }
    }

    /// Has an effect, and gives a receipt. Who honours keys has it once for each.
    #[must_use]
    pub(super) fn effect(&self, step: &str, key: &str, policy: PolicyKind) -> String {
        if policy == PolicyKind::Idempotent
            && let Some(receipt) = self.receipt(key)
        {
            return receipt;
        }
        let receipt = format!("{step}.{}.{}", std::process::id(), self.lines().len());
        let line = Line::Effect(step.to_owned(), key.to_owned(), receipt.clone());
        self.notes(&[line]).sync_data().unwrap();
        receipt
    }

    /// The receipt of an effect under this key.
    #[must_use]
    pub(super) fn receipt(&self, key: &str) -> Option<String> {
        self.lines().into_iter().find_map(|line| match line {
            Line::Effect(_, under, receipt) if under == key => Some(receipt),
            _ => None,
        })
    }

    /// Everything in it.
    ///
    /// # Panics
    /// Something else was written into it.
    #[must_use]
    pub(super) fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(|line| Line::read(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }
}

/// Of a group, what is of the thread that is judged, and not of the system's.
fn own(group: &[Append]) -> impl Iterator<Item = &Append> {
    let own = |append: &&Append| append.thread.as_str() == THREAD && !append.records.is_empty();
    group.iter().filter(own)
}

/// By which a record is known again: a part of its hash.
#[must_use]
pub(super) fn mark_of(record: &Record) -> u64 {
    record.hash.0.into_iter().take(8).fold(0, |mark, byte| mark << 8 | u64::from(byte))
}

/// The header of a record that this process has written, or that was checked.
#[must_use]
pub(super) fn header_of(record: &Record) -> Header {
    Header::parse(&record.header).unwrap()
}

impl Line {
    fn text(&self) -> String {
        match self {
            Self::Life => "life".to_owned(),
            Self::Stores(n, mark) => format!("stores {n} {mark}"),
            Self::Stored(n) => format!("stored {n}"),
            Self::Runs(step, attempt, key) => format!("runs {step} {attempt} {key}"),
            Self::Effect(step, key, receipt) => format!("effect {step} {key} {receipt}"),
            Self::Doubts(steps) => format!("doubts {}", steps.join(" ")),
            Self::Answer(receipts) => {
                let words = receipts.iter().map(|(step, receipt)| format!("{step} {receipt}"));
                format!("answer {}", words.collect::<Vec<_>>().join(" "))
            }
        }
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        let mut word = || words.next().map(str::to_owned);
        let line = match word()?.as_str() {
            "life" => Self::Life,
            "stores" => Self::Stores(word()?.parse().ok()?, word()?.parse().ok()?),
            "stored" => Self::Stored(word()?.parse().ok()?),
            "runs" => Self::Runs(word()?, word()?.parse().ok()?, word()?),
            "effect" => Self::Effect(word()?, word()?, word()?),
            "doubts" => Self::Doubts(words.map(str::to_owned).collect()),
            "answer" => {
                let words: Vec<_> = words.map(str::to_owned).collect();
                let pairs = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                Self::Answer(pairs.collect())
            }
            _ => return None,
        };
        Some(line)
    }
}
