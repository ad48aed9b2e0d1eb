//! The agent: one workflow that assesses, asks a person where needed, pays, waits, and tells the
//! customer.
//!
//! In reading order: this file is the workflow; [`hands`] are what it does to the world;
//! [`outbox`] is where its letters go; [`holds`] are the instants at which the story kills it;
//! [`note`] is what agent and story say to each other; [`process`] is the child process around it
//! all, and [`desk`] what is under way in it.

pub mod desk;
pub mod hands;
pub mod holds;
pub mod note;
pub mod outbox;
pub mod process;

use std::sync::Arc;
use std::time::Duration;

use deedbook::{
    Context, Probe, Result, StepError, ThreadId, Workflow, WorkflowError, WorkflowErrorKind,
};
use serde::{Deserialize, Serialize};

use crate::bank::{BankError, Mode, Receipt};
use crate::judge::{Judge, Verdict};
use crate::requests::Refund;

use hands::{Letters, Payments};
use holds::{Holds, Point};

/// The approval's name; its only request in a thread is [`APPROVAL_REQUEST`].
const APPROVAL: &str = "refund";
/// The approval request of a thread, as shown.
pub const APPROVAL_REQUEST: &str = "refund#0";
/// The timer between the payment and the letter.
pub const SETTLE: &str = "settle";
/// The code of a failure in which the bank has definitely refused.
const REFUSED: &str = "bank-refused";

/// How long the bank keeps its promise about a key.
const KEYS_HONOURED_FOR: Duration = Duration::from_secs(24 * 3_600);
/// How long one call to the bank may take.
pub const BANK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long one attempt to pay may take: longer than the call, which says more when it fails.
const PAY_TIMEOUT: Duration = Duration::from_secs(3);
/// After this long a request that was cut off is not on its way any more. This bank stands on the
/// same machine and begins what it has received; over a network it would be minutes.
const PAY_QUIET: Duration = Duration::from_millis(1_250);
/// The same for a line in a local file, whose writer is dead.
const LETTER_QUIET: Duration = Duration::from_millis(200);
/// How long one attempt to write a letter may take.
const LETTER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a thread begins with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The refund.
    pub refund: Refund,
    /// Whether an earlier request, under another id, was about the same order.
    pub order_seen_before: bool,
}

/// How a request ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The money went back, once.
    Refunded {
        /// The bank's word for it.
        receipt: Receipt,
    },
    /// The rules or the bank refused.
    Rejected {
        /// Who: `judge` or `bank`.
        by: String,
        /// Why.
        why: String,
    },
    /// A person refused.
    Denied {
        /// Who.
        by: String,
        /// Why.
        why: String,
    },
}

/// What a person is shown before the answer is bound to it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    refund: &'a Refund,
    amount: String,
    why: &'a str,
}

/// The agent, with its hands: nothing in here is recorded.
#[derive(Clone)]
pub struct RefundAgent {
    judge: Arc<dyn Judge>,
    bank: Arc<dyn Payments>,
    bank_mode: Mode,
    outbox: Arc<dyn Letters>,
    holds: Arc<Holds>,
    settle: Duration,
}

impl std::fmt::Debug for RefundAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RefundAgent")
            .field("bank", &self.bank)
            .field("bank_mode", &self.bank_mode)
            .finish_non_exhaustive()
    }
}

impl RefundAgent {
    /// An agent that asks this judge, pays through this bank (which promises what `bank_mode`
    /// says), waits for `settle` after a payment, and writes its letters into `outbox`.
    pub fn new(
        judge: Arc<dyn Judge>,
        bank: Arc<dyn Payments>,
        bank_mode: Mode,
        outbox: Arc<dyn Letters>,
        settle: Duration,
    ) -> Self {
        Self { judge, bank, bank_mode, outbox, holds: Arc::default(), settle }
    }

    /// The same agent, held at these instants.
    #[must_use]
    pub fn held_at(self, holds: Arc<Holds>) -> Self {
        Self { holds, ..self }
    }

    /// Pays under the policy that fits what the bank promises. The bank's reference is the
    /// thread's id, so that ledger and journal can be laid side by side.
    async fn pay(&self, ctx: Context, refund: &Refund) -> Result<Receipt> {
        let thread = ctx.thread_id();
        let thread = &thread;
        let step = ctx.step("pay").timeout(PAY_TIMEOUT);
        match self.bank_mode {
            Mode::Keys => {
                let step = step.idempotent().honoured_for(KEYS_HONOURED_FOR);
                step.run(refund, async |op| self.send(refund, op.key(), thread).await).await
            }
            Mode::Lookup => {
                let step = step.reconcile(async |_| self.look_up(thread).await);
                step.quiet(PAY_QUIET)
                    .run(refund, async |op| self.send(refund, op.key(), thread).await)
                    .await
            }
            Mode::None => {
                let step = step.at_most_once();
                step.run(refund, async |op| self.send(refund, op.key(), thread).await).await
            }
        }
    }

    /// One call to the bank, with the instants around it at which the story may kill.
    async fn send(
        &self,
        refund: &Refund,
        key: &str,
        thread: &ThreadId,
    ) -> Result<Receipt, StepError> {
        self.holds.reach(Point::BeforeEffect, thread).await;
        let call = self.bank.refund(refund, key, thread.as_str());
        let called = self.holds.reach_during(Point::InFlight, thread, call).await;
        let receipt = called.map_err(what_is_known)?;
        self.holds.reach(Point::AfterEffect, thread).await;
        Ok(receipt)
    }

    async fn look_up(&self, thread: &ThreadId) -> Result<Probe<Receipt>, StepError> {
        let found = self.bank.find(thread.as_str()).await?;
        Ok(found.map_or(Probe::DidNotHappen, Probe::Happened))
    }

    async fn write_letter(&self, ctx: Context, refund: &Refund, receipt: &Receipt) -> Result<()> {
        let thread = ctx.thread_id();
        let thread = &thread;
        ctx.step("notify")
            .timeout(LETTER_TIMEOUT)
            .reconcile(async |op| {
                let written = self.outbox.holds(op.key()).await?;
                Ok(if written { Probe::Happened(()) } else { Probe::DidNotHappen })
            })
            .quiet(LETTER_QUIET)
            .run(receipt, async |op| {
                let text = format!(
                    "Dear {}, {} are on their way back to you ({}).",
                    refund.customer,
                    refund.amount(),
                    receipt.id
                );
                self.outbox.write(op.key(), thread.as_str(), &text).await?;
                self.holds.reach(Point::AfterLetter, thread).await;
                Ok(())
            })
            .await
    }
}

impl Workflow for RefundAgent {
    const NAME: &'static str = "refund";
    type Input = Asked;
    type Output = Outcome;

    async fn run(&self, ctx: Context, asked: &Asked) -> Result<Outcome> {
        let refund = &asked.refund;
        let verdict = ctx
            .step("assess")
            .read()
            .run(refund, async |_| Ok(self.judge.assess(refund).await?))
            .await?;
        let verdict = second_look(verdict, asked.order_seen_before);
        match &verdict {
            Verdict::Approve { .. } => {}
            Verdict::Reject { why } => {
                let (by, why) = ("judge".to_owned(), why.clone());
                return Ok(Outcome::Rejected { by, why });
            }
            Verdict::NeedsHuman { why } => {
                let amount = refund.amount().to_string();
                let shown = Shown { refund, amount, why };
                let decided = ctx.approval(APPROVAL, &shown).await?;
                if !decided.granted {
                    let (by, why) = (decided.by, decided.reason);
                    return Ok(Outcome::Denied { by, why });
                }
            }
        }
        let receipt = match self.pay(ctx.clone(), refund).await {
            Ok(receipt) => receipt,
            Err(error) if is_refusal(&error) => {
                let (by, why) = ("bank".to_owned(), error.failure().message.clone());
                return Ok(Outcome::Rejected { by, why });
            }
            Err(error) => return Err(error),
        };
        ctx.sleep(SETTLE, self.settle).await?;
        self.holds.reach_in_code(Point::BetweenSteps, &ctx.thread_id());
        self.write_letter(ctx, refund, &receipt).await?;
        Ok(Outcome::Refunded { receipt })
    }
}

/// A second request about one order may be the same wish sent twice: a person looks at it.
fn second_look(verdict: Verdict, order_seen_before: bool) -> Verdict {
    match verdict {
        Verdict::Approve { .. } if order_seen_before => {
            Verdict::NeedsHuman { why: "an earlier request was about the same order".to_owned() }
        }
        verdict => verdict,
    }
}

/// What the bank's answer says about the effect; nothing more may be claimed.
fn what_is_known(error: BankError) -> StepError {
    match &error {
        BankError::Rejected { .. } | BankError::Unsendable { .. } => {
            StepError::from(error).terminal().code(REFUSED)
        }
        // An earlier call with this key is at work: this one has added nothing to it.
        BankError::NotApplied { .. } | BankError::InFlight { .. } => {
            StepError::from(error).not_applied()
        }
        // Money may have moved: the step's policy decides what follows.
        _ => StepError::from(error),
    }
}

fn is_refusal(error: &WorkflowError) -> bool {
    error.kind() == WorkflowErrorKind::StepFailed && error.code() == REFUSED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause() -> String {
        "x".to_owned()
    }

    #[test]
    fn only_what_the_bank_says_is_claimed() {
        let class = |error| format!("{:?}", what_is_known(error));
        let rejected = BankError::Rejected { status: 422, code: cause(), detail: cause() };
        assert!(class(rejected).contains("Terminal"));
        let retry_after = None;
        let not_applied = BankError::NotApplied { cause: cause(), retry_after };
        assert!(class(not_applied).contains("NotApplied"));
        assert!(class(BankError::InFlight { retry_after }).contains("NotApplied"));
        assert!(class(BankError::Ambiguous { cause: cause() }).contains("Unlabelled"));
    }

    #[test]
    fn a_second_request_about_an_order_is_looked_at() {
        let approve = Verdict::Approve { why: cause() };
        assert!(!second_look(approve.clone(), false).needs_human());
        assert!(second_look(approve, true).needs_human());
        assert!(second_look(Verdict::Reject { why: cause() }, true).is_rejection());
    }
}
