//! The check at the end: the bank's ledger, laid beside the journal.
//!
//! Neither is told what the other says, and the agent's own words count for nothing here: the
//! journal is opened once more, and the ledger and the letters are read from their files.

use std::collections::BTreeMap;

use deedbook::{Deedbook, ErrorKind, Filter, ThreadInfo};

use super::children::Places;
use super::{StoryError, thread_of};
use crate::agent::desk::threads;
use crate::agent::{Outcome, RefundAgent, outbox};
use crate::bank::ledger::{self, Summary};
use crate::bank::{Mode, Receipt};
use crate::requests::Refund;

/// A thread in doubt, and what the bank's ledger says about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InDoubt {
    pub(super) thread: String,
    /// The step, as shown (`pay#0`).
    pub(super) step: String,
    pub(super) why: String,
    pub(super) paid: Option<Receipt>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Audit {
    pub(super) threads: usize,
    pub(super) refunded: usize,
    pub(super) rejected: usize,
    pub(super) denied: usize,
    pub(super) failed: usize,
    pub(super) in_doubt: Vec<InDoubt>,
    /// The ledger's totals.
    pub(super) bank: Summary,
    pub(super) letters: usize,
    /// A thread that is worth a look.
    pub(super) example: Option<String>,
    /// Everything that does not fit together; empty if all is well.
    pub(super) complaints: Vec<String>,
}

/// How a thread stands in the journal.
#[derive(Debug)]
enum Standing {
    Ended(Outcome),
    /// Ended with an error, or cancelled.
    Failed(String),
    InDoubt {
        step: String,
        why: String,
    },
    Unfinished(String),
}

impl Audit {
    /// Reads journal, ledger and letters, and compares them. Nobody else may hold the journal.
    pub(super) async fn of(
        places: &Places,
        refunds: &[Refund],
        mode: Mode,
    ) -> Result<Self, StoryError> {
        let standings = standings(places).await?;
        let entries = ledger::read(&places.ledger)?;
        let letters = outbox::read(&places.outbox)?;
        let mut audit = Self {
            threads: standings.len(),
            bank: Summary::of(&entries),
            letters: letters.len(),
            ..Self::default()
        };
        let mut paid: BTreeMap<String, Vec<Receipt>> = BTreeMap::new();
        for receipt in entries.iter().filter_map(ledger::Entry::receipt) {
            paid.entry(receipt.reference.clone()).or_default().push(receipt);
        }
        let mut written: BTreeMap<&str, usize> = BTreeMap::new();
        for letter in &letters {
            *written.entry(&letter.thread).or_default() += 1;
        }
        audit.requests(refunds, &standings);
        for (thread, standing) in &standings {
            let paid = paid.remove(thread).unwrap_or_default();
            let written = written.remove(thread.as_str()).unwrap_or(0);
            audit.thread(thread, standing, &paid, written);
        }
        for reference in paid.keys() {
            audit.complain(reference, "the bank has paid, and the journal has no such thread");
        }
        for thread in written.keys() {
            audit.complain(thread, "a letter was written, and the journal has no such thread");
        }
        if mode != Mode::None {
            let doubts: Vec<_> = audit.in_doubt.iter().map(|d| d.thread.clone()).collect();
            for thread in doubts {
                audit.complain(&thread, "in doubt, though the bank can tell what happened");
            }
        }
        Ok(audit)
    }

    fn requests(&mut self, refunds: &[Refund], standings: &BTreeMap<String, Standing>) {
        for refund in refunds {
            // A request that can have no thread was refused by the agent.
            let Some(thread) = thread_of(refund) else {
                continue;
            };
            if !standings.contains_key(thread.as_str()) {
                self.complain(thread.as_str(), "requested, and the journal has no such thread");
            }
        }
    }

    fn thread(&mut self, thread: &str, standing: &Standing, paid: &[Receipt], letters: usize) {
        if paid.len() > 1 {
            self.complain(thread, &format!("the bank has paid {} times", paid.len()));
        }
        let mut letters_due = 0;
        match standing {
            Standing::Ended(Outcome::Refunded { receipt }) => {
                self.refunded += 1;
                letters_due = 1;
                self.example.get_or_insert_with(|| thread.to_owned());
                if paid.is_empty() {
                    self.complain(thread, "refunded, and the bank has not paid");
                } else if !paid.contains(receipt) {
                    self.complain(thread, "its receipt is not the one in the bank's ledger");
                }
            }
            Standing::Ended(Outcome::Rejected { .. }) => {
                self.rejected += 1;
                self.unpaid(thread, "rejected", paid);
            }
            Standing::Ended(Outcome::Denied { .. }) => {
                self.denied += 1;
                self.unpaid(thread, "denied", paid);
            }
            Standing::Failed(why) => {
                self.failed += 1;
                self.unpaid(thread, &format!("ended ({why})"), paid);
            }
            Standing::InDoubt { step, why } => {
                letters_due = letters.min(1);
                self.in_doubt.push(InDoubt {
                    thread: thread.to_owned(),
                    step: step.clone(),
                    why: why.clone(),
                    paid: paid.first().cloned(),
                });
            }
            Standing::Unfinished(why) => {
                letters_due = letters.min(1);
                self.complain(thread, &format!("unfinished: {why}"));
            }
        }
        if letters != letters_due {
            self.complain(thread, &format!("{letters} letters were written, not {letters_due}"));
        }
    }

    fn unpaid(&mut self, thread: &str, what: &str, paid: &[Receipt]) {
        if !paid.is_empty() {
            self.complain(thread, &format!("{what}, and the bank has paid"));
        }
    }

    fn complain(&mut self, thread: &str, what: &str) {
        self.complaints.push(format!("{thread}: {what}"));
    }

    /// Whether everything fits together.
    pub(super) fn agrees(&self) -> bool {
        self.complaints.is_empty()
    }
}

/// Every thread of the journal. Nothing is hosted, so nothing runs.
async fn standings(places: &Places) -> Result<BTreeMap<String, Standing>, StoryError> {
    let journal = |source| StoryError::Journal { path: places.journal.clone(), source };
    let book = Deedbook::open(&places.journal).start().await.map_err(journal)?;
    let listed = threads(&book, &Filter::default()).await.map_err(journal)?;
    let mut standings = BTreeMap::new();
    for info in listed {
        let standing = standing(&book, &info).await.map_err(journal)?;
        standings.insert(info.id.to_string(), standing);
    }
    book.shutdown().await.map_err(journal)?;
    Ok(standings)
}

async fn standing(book: &Deedbook, info: &ThreadInfo) -> Result<Standing, deedbook::Error> {
    let detail = info.row.detail.as_deref().unwrap_or_default();
    if info.row.open_doubts > 0 {
        let step = detail.strip_prefix("step ").and_then(|rest| rest.split_once(": "));
        let (step, why) = step.unwrap_or(("", detail));
        return Ok(Standing::InDoubt { step: step.to_owned(), why: why.to_owned() });
    }
    if !info.row.status.is_ended() {
        return Ok(Standing::Unfinished(format!("{} {detail}", info.row.status)));
    }
    match book.wait::<RefundAgent>(info.id.as_str()).await {
        Ok(outcome) => Ok(Standing::Ended(outcome)),
        Err(error) if matches!(error.kind(), ErrorKind::Failed | ErrorKind::Cancelled) => {
            Ok(Standing::Failed(error.to_string()))
        }
        Err(error) => Err(error),
    }
}
