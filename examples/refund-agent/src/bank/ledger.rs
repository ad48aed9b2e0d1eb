//! The bank's own durable record: a file of JSON lines, appended to and never changed.
//!
//! A line is written and synced before anybody is told of it. Opening reads the file from the
//! start; a torn last line (no line end) was never told to anybody, and is cut off. Any other
//! line that cannot be read stops the bank: it would not know what it has paid.

mod file;
mod index;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(super) use file::Ledger;
pub use file::read;
pub(super) use index::Settlement;
pub use index::{Summary, Total};

use super::wire::{Instruction, Problem, Receipt};

/// One line of the ledger.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// Money moved.
    Refund {
        /// The bank's id of the refund.
        id: String,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// The key it was sent with, if the bank honours keys.
        key: Option<String>,
        /// What was executed.
        instruction: Instruction,
    },
    /// No money moved, and the same key gets the same answer from now on.
    Rejection {
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// The key it was sent with.
        key: String,
        /// What was refused.
        instruction: Instruction,
        /// Why.
        problem: Problem,
    },
}

impl Entry {
    /// The receipt, if money moved.
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        match self {
            Self::Refund { id, at_ms, instruction, .. } => Some(Receipt {
                id: id.clone(),
                reference: instruction.reference.clone(),
                order: instruction.order.clone(),
                amount_minor: instruction.amount_minor,
                currency: instruction.currency.clone(),
                at_ms: *at_ms,
            }),
            Self::Rejection { .. } => None,
        }
    }
}

/// The ledger cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The file system said no.
    #[error("ledger {}: {source}", path.display())]
    Io {
        /// The ledger's file.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// Another bank writes to it.
    #[error("ledger {}: another bank holds it: stop that one first", path.display())]
    Held {
        /// The ledger's file.
        path: PathBuf,
    },
    /// A line that is not the last cannot be read.
    #[error("ledger {}: line {line} is damaged: restore the file from a copy", path.display())]
    Damaged {
        /// The ledger's file.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
    },
    /// An earlier write failed, so the end of the file is unknown until it is read again.
    #[error("ledger {}: an earlier write failed: restart the bank", path.display())]
    Stopped {
        /// The ledger's file.
        path: PathBuf,
    },
}
