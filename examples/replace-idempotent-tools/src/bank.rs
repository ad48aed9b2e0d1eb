//! The world outside: a bank whose books are a file beside the journal.

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::{Error, Result, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use crate::{Anyhow, tell::say};

/// What the bank answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) number: usize,
    pub(crate) of: String,
}

/// A bank that honours keys: the same key is the same charge.
#[derive(Debug)]
pub(crate) struct Bank {
    path: Option<PathBuf>,
    /// A key and what was charged under it, in order.
    books: Mutex<Vec<(String, String)>>,
    /// How often this process has asked it.
    asked: AtomicUsize,
}

impl Bank {
    /// The bank beside a journal.
    pub(crate) fn open(journal: &Path) -> Result<Self> {
        let bank = Self { path: Some(journal.with_extension("bank")), ..Self::in_memory() };
        bank.read_again()?;
        Ok(bank)
    }

    /// A bank for a journal in memory.
    pub(crate) fn in_memory() -> Self {
        Self { path: None, books: Mutex::default(), asked: AtomicUsize::new(0) }
    }

    /// Another process may have been at the same bank.
    pub(crate) fn read_again(&self) -> Result<()> {
        let Some(path) = self.path.as_ref().filter(|path| path.exists()) else { return Ok(()) };
        let text = std::fs::read_to_string(path)?;
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        *self.books() = lines.map(|(key, of)| (key.to_owned(), of.to_owned())).collect();
        Ok(())
    }

    /// Charges, once for a key.
    pub(crate) fn charge(&self, of: &str, cents: u64, key: &str) -> Result<Receipt> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let of = format!("{of}: {cents}");
        let mut books = self.books();
        if let Some(at) = books.iter().position(|(known, _)| known == key) {
            let charged = books.get(at).map(|(_, of)| of.clone()).unwrap_or_default();
            return Ok(Receipt { number: at + 1, of: charged });
        }
        if let Some(path) = &self.path {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(format!("{key}\t{of}\n").as_bytes())?;
            file.sync_data()?;
        }
        books.push((key.to_owned(), of.clone()));
        Ok(Receipt { number: books.len(), of })
    }

    /// How often it charged.
    pub(crate) fn count(&self) -> usize {
        self.books().len()
    }

    /// How often this process has asked it.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether everything that was charged was charged once: by its words, not by its keys.
    pub(crate) fn audit(&self) -> Anyhow {
        self.read_again()?;
        let books = self.books();
        let distinct: BTreeSet<&str> = books.iter().map(|(_, of)| of.as_str()).collect();
        say(format!("\nThe bank's books: {} charges, {} distinct", books.len(), distinct.len()));
        match books.len() == distinct.len() {
            true => Ok(()),
            false => Err(Error::other("something was charged twice").into()),
        }
    }

    fn books(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
