//! The workflow that is measured: steps with 200 B of arguments and 100 B of result, unless
//! something else is said.

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

use crate::{
    gate::Gate,
    watch::{Watch, micros},
};

/// How long the values of a step are, in bytes of MessagePack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// Its arguments; at least 150.
    pub arguments: usize,
    /// Its result; at least 90.
    pub result: usize,
}

impl Payload {
    /// 200 B of arguments and 100 B of result.
    pub const USUAL: Self = Self { arguments: 200, result: 100 };

    /// This many bytes in all; five parts of eight are arguments.
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        let arguments = bytes / 8 * 5;
        Self { arguments, result: bytes - arguments }
    }

    /// Both together.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.arguments + self.result
    }
}

/// What a thread is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// How many steps it makes, one after another.
    pub steps: u32,
    /// Whether they are `read` steps rather than `idempotent` ones.
    pub reads: bool,
    /// How long their values are.
    pub payload: Payload,
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
        Self { steps, reads: false, payload: Payload::USUAL, then: Then::End }
    }

    /// `read` steps, and the end.
    #[must_use]
    pub fn reads(steps: u32) -> Self {
        Self { reads: true, ..Self::effects(steps) }
    }

    /// Sets how long the values of a step are.
    #[must_use]
    pub fn carrying(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// Sets what the thread does after its steps.
    #[must_use]
    pub fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// Arguments of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Charge {
    order: String,
    customer: String,
    amount: u32,
    currency: String,
    description: String,
}

/// Result of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Receipt {
    id: String,
    status: String,
    balance: u32,
}

/// The arguments of the step with this number, of this many bytes.
#[must_use]
pub fn charge(number: u32, bytes: usize) -> Charge {
    // What the rest of it takes, in MessagePack.
    let rest = 93 + text_head(bytes.saturating_sub(93));
    Charge {
        order: format!("order-{number:010}"),
        customer: "customer-7f3e2a90-11d4".into(),
        amount: 1_000_000 + number,
        currency: "EUR".into(),
        description: text(
            "two tickets, row 7, refundable until the day before departure, booked by telephone \
             with the desk in Turin",
            bytes.saturating_sub(rest),
        ),
    }
}

/// What a body of the step with this number returns, of this many bytes.
#[must_use]
pub fn receipt(number: u32, bytes: usize) -> Receipt {
    let rest = 65 + text_head(bytes.saturating_sub(65));
    Receipt {
        id: format!("receipt-{number:010}-5b1f9c3d77e04a1e8d21"),
        status: text("accepted by the bank, value today", bytes.saturating_sub(rest)),
        balance: 1_000_000 + number,
    }
}

/// How many bytes MessagePack puts before a text that takes `bytes` with them.
const fn text_head(bytes: usize) -> usize {
    match bytes {
        0..=32 => 1,
        33..=257 => 2,
        258..=65_538 => 3,
        _ => 5,
    }
}

/// A text of this many bytes that begins like `said`.
fn text(said: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    text.push_str(said.get(..bytes.min(said.len())).unwrap_or_default());
    text.extend(std::iter::repeat_n('.', bytes - text.len()));
    text
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
    /// Where each body waits until it is let through.
    pub gate: Option<Arc<Gate>>,
    /// Whether no durations are noted: over millions of steps they are memory of their own.
    pub silent: bool,
}

impl Work {
    /// One that says on `hung` when a body begins that never returns.
    #[must_use]
    pub fn telling(hung: UnboundedSender<()>) -> Self {
        Self { hung: Some(hung), ..Self::default() }
    }

    /// One that notes no durations.
    #[must_use]
    pub fn silent() -> Self {
        Self { silent: true, ..Self::default() }
    }

    /// Takes the durations noted so far, in microseconds.
    #[must_use]
    pub fn take_times(&self) -> Vec<f64> {
        std::mem::take(&mut *self.took.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn steps(&self, ctx: Context, plan: &Plan) -> Result<()> {
        for number in 0..plan.steps {
            let charge = charge(number, plan.payload.arguments);
            let watch = Watch::start();
            let body = async || {
                self.bodies.fetch_add(1, Relaxed);
                if let Some(gate) = &self.gate {
                    gate.pass(number).await;
                }
                Ok(receipt(number, plan.payload.result))
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
        if self.silent {
            return;
        }
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
    let Payload { arguments, result } = Payload::USUAL;
    let stored = encode(&receipt(0, result), &limits)?;
    let work = Work::default();
    let whole = Watch::start();
    for number in 0..steps {
        let charge = charge(number, arguments);
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
    fn the_values_of_a_step_are_as_long_as_they_are_said_to_be() {
        let limits = ValueLimits::new();
        assert_eq!(Payload::USUAL.bytes(), 300);
        for payload in [256, 4 << 10, 64 << 10, 1 << 20].map(Payload::of) {
            for Payload { arguments, result } in [Payload::USUAL, payload] {
                for number in [0, 7, 99_999] {
                    let charge = encode(&charge(number, arguments), &limits).unwrap();
                    let receipt = encode(&receipt(number, result), &limits).unwrap();
                    assert_eq!((charge.len(), receipt.len()), (arguments, result));
                }
            }
        }
    }
}
