//! The downstream: a file of effects, each synced before it is acknowledged.

use std::{
    collections::HashSet,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

/// The effects that a folder's children had, and the bodies that they ran.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    effects: PathBuf,
    runs: PathBuf,
}

impl Ledger {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self { effects: folder.join("effects"), runs: folder.join("runs") }
    }

    /// Notes that a body runs.
    pub(super) fn runs(&self, step: &str, attempt: u32) {
        append(&self.runs, &format!("{step} {attempt}"));
    }

    /// Has the effect. A ledger that honours keys has it once for each.
    pub(super) fn effect(&self, step: &str, key: &str, honours_keys: bool) {
        if !(honours_keys && self.has(key)) {
            append(&self.effects, &format!("{step} {key}"));
        }
    }

    /// Whether there was an effect under this key.
    pub(super) fn has(&self, key: &str) -> bool {
        lines(&self.effects).iter().any(|l| l.ends_with(key))
    }

    /// How many effects a step had.
    pub(super) fn effects(&self, step: &str) -> usize {
        let effects = lines(&self.effects);
        effects.iter().filter(|l| l.starts_with(step)).count()
    }

    /// An attempt of this step whose body ran twice.
    pub(super) fn runs_twice(&self, step: &str) -> Option<String> {
        let mut seen = HashSet::new();
        let runs = lines(&self.runs).into_iter();
        runs.filter(|l| l.starts_with(step)).find(|l| !seen.insert(l.clone()))
    }
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
    file.sync_data().unwrap();
}
