//! The workflow that is measured: steps with 200 B of arguments and 100 B of result.

use std::{
    future::{Future as _, pending, poll_fn},
    hint::black_box,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use deedbook::{Context, Result, ValueLimits, Workflow};
use deedbook_journal::value::{ValueError, decode, encode};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;

use crate::watch::{Watch, micros};

/// What a thread is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// How many steps it makes, one after another.
    pub steps: u32,
    /// Whether they are `read` steps rather than `idempotent` ones.
    pub reads: bool,
    /// What it does then.
    pub then: Then,
}

/// What a thread does after its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// It ends.
    End,
    /// Its next body never returns, so that a crash finds it running.
    Hang,
    /// It waits for a signal that nobody sends, so that it parks.
    Wait,
}

impl Plan {
    /// `idempotent` steps, and the end.
    #[must_use]
    pub fn effects(steps: u32) -> Self {
        Self { steps, reads: false, then: Then::End }
    }

    /// `read` steps, and the end.
    #[must_use]
    pub fn reads(steps: u32) -> Self {
        Self { reads: true, ..Self::effects(steps) }
    }

    /// Sets what the thread does after its steps.
    #[must_use]
    pub fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// Arguments of a step: 200 B in MessagePack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Charge {
    order: String,
    customer: String,
    amount: u32,
    currency: String,
    description: String,
}

/// Result of a step: 100 B in MessagePack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Receipt {
    id: String,
    status: String,
    balance: u32,
}

/// The arguments of the step with this number.
#[must_use]
pub fn charge(number: u32) -> Charge {
    Charge {
        order: format!("order-{number:010}"),
        customer: "customer-7f3e2a90-11d4".into(),
        amount: 1_000_000 + number,
        currency: "EUR".into(),
        description: "two tickets, row 7, refundable until the day before departure, \
                      booked by telephone with the desk in Turin"
            .into(),
    }
}

/// What a body of the step with this number returns.
#[must_use]
pub fn receipt(number: u32) -> Receipt {
    Receipt {
        id: format!("receipt-{number:010}-5b1f9c3d77e04a1e8d21"),
        status: "accepted by the bank, value today".into(),
        balance: 1_000_000 + number,
    }
}

/// The workflow, and what it notes while it runs. None of it decides what the code does.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// How long each step took, in microseconds, as the code saw it.
    pub took: Arc<Mutex<Vec<f64>>>,
    /// How often the code was polled.
    pub polls: Arc<AtomicU64>,
    /// How many bodies were executed.
    pub bodies: Arc<AtomicU64>,
    /// Told when a body begins that never returns.
    pub hung: Option<UnboundedSender<()>>,
}

impl Work {
    /// One that says on `hung` when a body begins that never returns.
    #[must_use]
    pub fn telling(hung: UnboundedSender<()>) -> Self {
        Self { hung: Some(hung), ..Self::default() }
    }

    /// Takes the durations noted so far, in microseconds.
    #[must_use]
    pub fn take_times(&self) -> Vec<f64> {
        std::mem::take(&mut *self.took.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn steps(&self, ctx: Context, plan: &Plan) -> Result<()> {
        for number in 0..plan.steps {
            let charge = charge(number);
            let watch = Watch::start();
            let body = async || {
                self.bodies.fetch_add(1, Relaxed);
                Ok(receipt(number))
            };
            let step = ctx.step("charge");
            let _receipt = if plan.reads {
                step.read().run(&charge, async |_| body().await).await?
            } else {
                let step = step.idempotent();
                step.run(&charge, async |_| body().await).await?
            };
            self.took(watch);
        }
        Ok(())
    }

    fn took(&self, watch: Watch) {
        let mut took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        took.push(micros(watch.elapsed()));
    }

    async fn all(&self, ctx: Context, plan: &Plan) -> Result<()> {
        self.steps(ctx.clone(), plan).await?;
        match plan.then {
            Then::End => Ok(()),
            Then::Wait => ctx.signal::<()>("go on").await,
            Then::Hang => {
                let hang = async |_| {
                    if let Some(hung) = &self.hung {
                        // Whoever measures may have gone.
                        let _ = hung.send(());
                    }
                    pending().await
                };
                ctx.step("hang").read().run(&(), hang).await
            }
        }
    }
}

impl Workflow for Work {
    const NAME: &'static str = "work";
    type Input = Plan;
    type Output = ();

    async fn run(&self, ctx: Context, plan: &Plan) -> Result<()> {
        let mut all = pin!(self.all(ctx, plan));
        poll_fn(|cx| -> Poll<Result<()>> {
            self.polls.fetch_add(1, Relaxed);
            all.as_mut().poll(cx)
        })
        .await
    }
}

/// How long the code of this many steps needs for its own values, and nothing else: making the
/// arguments, encoding them, decoding the results, and looking at the watch.
///
/// # Errors
/// Values of this kind are not stored.
#[inline(never)]
pub fn values(steps: u32) -> Result<Duration, ValueError> {
    let limits = ValueLimits::new();
    let stored = encode(&receipt(0), &limits)?;
    let work = Work::default();
    let whole = Watch::start();
    for number in 0..steps {
        let charge = charge(number);
        let watch = Watch::start();
        black_box(encode(&charge, &limits)?);
        black_box(decode::<Receipt>(&stored, &limits)?);
        work.took(watch);
    }
    Ok(whole.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_200_bytes_of_arguments_and_100_of_result() {
        let limits = ValueLimits::new();
        for number in [0, 7, 99_999] {
            assert_eq!(encode(&charge(number), &limits).unwrap().len(), 200);
            assert_eq!(encode(&receipt(number), &limits).unwrap().len(), 100);
        }
    }
}
