//! Where instructions are carried out: keys are claimed, rules asked, the ledger written.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::ledger::{Ledger, LedgerError, Settlement, Summary};
use super::rules;
use super::server::Options;
use super::wire::{Instruction, Receipt};

/// What became of an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// It ended, now or (replayed) in an earlier call.
    Settled { settlement: Settlement, replayed: bool },
    /// Its key's first call is at work.
    InFlight,
    /// Its key belongs to another payload.
    KeyReused,
    /// Nothing was done, on purpose of a test.
    Unavailable,
    /// Executed, and the answer is to be lost, on purpose of a test.
    Lost,
    /// The ledger failed: whether the line is there is unknown until it is read again.
    Failed(String),
}

/// The bank without HTTP.
#[derive(Debug)]
pub(super) struct Desk {
    ledger: Arc<Ledger>,
    faults: Faults,
    /// Keys whose first call is at work. Looked at, and then the ledger, under one lock: a call
    /// leaves here only after its line is in the ledger, so a key is never seen in neither.
    at_work: Mutex<HashMap<String, Instruction>>,
}

/// Proof of a claimed key; gives it back when dropped, however the execution ends.
#[derive(Debug)]
struct Claim {
    desk: Arc<Desk>,
    key: Option<String>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.desk.lock().remove(key);
        }
    }
}

impl Desk {
    pub(super) fn new(ledger: Ledger, options: &Options) -> Self {
        Self { ledger: Arc::new(ledger), faults: Faults::new(options), at_work: Mutex::default() }
    }

    /// Carries out an instruction; with a key, at most once.
    ///
    /// Dropping the future drops the answer only: what has begun goes on, as it does at a bank
    /// whose customer hangs up. `running` stays open until it is done.
    #[expect(
        clippy::disallowed_methods,
        reason = "an execution outlives the connection it came by"
    )]
    pub(super) async fn refund(
        self: &Arc<Self>,
        instruction: Instruction,
        key: Option<String>,
        running: mpsc::Sender<()>,
    ) -> Answer {
        let claim = match self.claim(&instruction, key.as_deref()) {
            Ok(claim) => claim,
            Err(answer) => return answer,
        };
        let (tell, told) = oneshot::channel();
        let desk = Arc::clone(self);
        tokio::spawn(async move {
            let answer = desk.execute(instruction, claim).await;
            // Before `running`: whoever waits for it may open the ledger again.
            drop(desk);
            // The caller may be gone.
            let _gone = tell.send(answer);
            drop(running);
        });
        told.await.unwrap_or_else(|_| Answer::Failed("the execution was cut off".into()))
    }

    /// Every refund with this reference.
    pub(super) fn with_reference(&self, reference: &str) -> Vec<Receipt> {
        self.ledger.with_reference(reference)
    }

    /// The totals.
    pub(super) fn summary(&self) -> Summary {
        self.ledger.summary()
    }

    fn claim(
        self: &Arc<Self>,
        instruction: &Instruction,
        key: Option<&str>,
    ) -> Result<Claim, Answer> {
        if let Some(key) = key {
            let mut at_work = self.lock();
            if let Some(first) = at_work.get(key) {
                let same = first == instruction;
                return Err(if same { Answer::InFlight } else { Answer::KeyReused });
            }
            if let Some(settled) = self.ledger.settled(key) {
                return Err(if settled.instruction == *instruction {
                    Answer::Settled { settlement: settled.settlement, replayed: true }
                } else {
                    Answer::KeyReused
                });
            }
            at_work.insert(key.to_owned(), instruction.clone());
        }
        Ok(Claim { desk: Arc::clone(self), key: key.map(str::to_owned) })
    }

    async fn execute(&self, instruction: Instruction, claim: Claim) -> Answer {
        if self.faults.fails_now() {
            return Answer::Unavailable;
        }
        wait(self.faults.delay_before).await;

        let permitted = rules::permitted(&instruction);
        let (ledger, key) = (Arc::clone(&self.ledger), claim.key.clone());
        let written = tokio::task::spawn_blocking(move || -> Result<Settlement, LedgerError> {
            match (permitted, key) {
                (Ok(()), key) => Ok(Settlement::Refunded(ledger.refund(instruction, key)?)),
                (Err(problem), None) => Ok(Settlement::Rejected(problem)),
                (Err(problem), Some(key)) => {
                    ledger.reject(instruction, key, problem.clone())?;
                    Ok(Settlement::Rejected(problem))
                }
            }
        });
        let settlement = match written.await {
            Ok(Ok(settlement)) => settlement,
            Ok(Err(error)) => return Answer::Failed(error.to_string()),
            Err(error) => return Answer::Failed(error.to_string()),
        };
        // The ledger knows it from here on: the same key gets its answer while this one is late.
        drop(claim);
        let lost = matches!(settlement, Settlement::Refunded(_)) && self.faults.loses_now();
        wait(self.faults.delay_after).await;
        if lost { Answer::Lost } else { Answer::Settled { settlement, replayed: false } }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instruction>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "the bank's slowness is real time")]
async fn wait(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

/// Slowness and faults, chosen at the start.
#[derive(Debug)]
struct Faults {
    delay_before: Duration,
    delay_after: Duration,
    fail_every: Option<NonZeroU64>,
    lose_reply_every: Option<NonZeroU64>,
    begun: AtomicU64,
    executed: AtomicU64,
}

impl Faults {
    fn new(options: &Options) -> Self {
        Self {
            delay_before: Duration::from_millis(options.delay_before_ms),
            delay_after: Duration::from_millis(options.delay_after_ms),
            fail_every: options.fail_every,
            lose_reply_every: options.lose_reply_every,
            begun: AtomicU64::new(0),
            executed: AtomicU64::new(0),
        }
    }

    fn fails_now(&self) -> bool {
        is_nth(&self.begun, self.fail_every)
    }

    fn loses_now(&self) -> bool {
        is_nth(&self.executed, self.lose_reply_every)
    }
}

fn is_nth(counter: &AtomicU64, every: Option<NonZeroU64>) -> bool {
    let count = counter.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    every.is_some_and(|every| count.is_multiple_of(every.get()))
}
