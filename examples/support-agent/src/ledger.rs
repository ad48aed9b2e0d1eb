//! The other side: a file stands for a bank, a pager and a desk of cases. It counts what was done.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// One effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Of which kind: `refund`, `page`, `case`.
    pub kind: String,
    /// The operation key that came with it.
    pub key: String,
    /// What was done.
    pub what: String,
}

/// The ledger.
#[derive(Debug, Clone)]
pub struct Ledger(PathBuf);

impl Ledger {
    /// The ledger in this file.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Everything that was done, in order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        match fs::read_to_string(&self.0) {
            Ok(text) => Ok(text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The number of what was done under this key.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn find(&self, key: &str) -> io::Result<Option<usize>> {
        Ok(self.entries()?.iter().position(|entry| entry.key == key).map(|at| at + 1))
    }

    /// Does something, whatever was done before, and returns its number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn execute(&self, kind: &str, key: &str, what: &str) -> io::Result<usize> {
        let entry = Entry { kind: kind.into(), key: key.into(), what: what.into() };
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        let line = serde_json::to_string(&entry)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()?;
        Ok(self.entries()?.len())
    }

    /// Does something unless it was done under this key, as a bank does that honours keys.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn execute_once(&self, kind: &str, key: &str, what: &str) -> io::Result<usize> {
        match self.find(key)? {
            Some(number) => Ok(number),
            None => self.execute(kind, key, what),
        }
    }
}
