//! What the ledger's lines add up to.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::Entry;
use crate::bank::wire::{Instruction, Problem, Receipt};

/// How an instruction ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::bank) enum Settlement {
    Refunded(Receipt),
    Rejected(Problem),
}

/// What a key stands for from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::bank) struct Settled {
    pub(in crate::bank) instruction: Instruction,
    pub(in crate::bank) settlement: Settlement,
}

/// The totals of a ledger.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Refunds that were executed: every one moved money.
    pub executed: u64,
    /// Different client references among them.
    pub references: u64,
    /// Executions beyond the first of their reference: money that was paid twice.
    pub duplicates: u64,
    /// Instructions that were refused and remembered under their key.
    pub rejected: u64,
    /// What was paid, by currency.
    pub by_currency: BTreeMap<String, Total>,
}

/// What was paid in one currency.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Total {
    /// Executed refunds.
    pub refunds: u64,
    /// Their sum in minor units.
    pub amount_minor: u128,
}

impl Summary {
    /// Adds up the lines of a ledger.
    #[must_use]
    pub fn of(entries: &[Entry]) -> Self {
        let mut index = Index::default();
        for entry in entries {
            index.add(entry);
        }
        index.summary
    }
}

/// Everything the bank asks its ledger, without reading the file.
#[derive(Default, Debug)]
pub(super) struct Index {
    by_key: HashMap<String, Settled>,
    by_reference: HashMap<String, Vec<Receipt>>,
    summary: Summary,
}

impl Index {
    pub(super) fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::Refund { key, instruction, .. } => {
                let Some(receipt) = entry.receipt() else {
                    return;
                };
                self.count(&receipt);
                let refunded = Settlement::Refunded(receipt);
                if let Some(key) = key {
                    self.settle(key, instruction, refunded);
                }
            }
            Entry::Rejection { key, instruction, problem, .. } => {
                self.summary.rejected = self.summary.rejected.saturating_add(1);
                self.settle(key, instruction, Settlement::Rejected(problem.clone()));
            }
        }
    }

    fn settle(&mut self, key: &str, instruction: &Instruction, settlement: Settlement) {
        let settled = Settled { instruction: instruction.clone(), settlement };
        self.by_key.insert(key.to_owned(), settled);
    }

    fn count(&mut self, receipt: &Receipt) {
        let summary = &mut self.summary;
        summary.executed = summary.executed.saturating_add(1);
        let same = self.by_reference.entry(receipt.reference.clone()).or_default();
        if same.is_empty() {
            summary.references = summary.references.saturating_add(1);
        } else {
            summary.duplicates = summary.duplicates.saturating_add(1);
        }
        same.push(receipt.clone());
        let total = summary.by_currency.entry(receipt.currency.clone()).or_default();
        total.refunds = total.refunds.saturating_add(1);
        total.amount_minor = total.amount_minor.saturating_add(u128::from(receipt.amount_minor));
    }

    pub(super) fn settled(&self, key: &str) -> Option<&Settled> {
        self.by_key.get(key)
    }

    pub(super) fn with_reference(&self, reference: &str) -> &[Receipt] {
        self.by_reference.get(reference).map_or(&[], Vec::as_slice)
    }

    pub(super) fn summary(&self) -> &Summary {
        &self.summary
    }
}
