//! `#[step]` on functions of every kind that it takes, in workflows whose futures move between
//! threads.
#![deny(warnings)]

use std::{borrow::Cow, error::Error, future::Future};

use deedbook::{CallError, Context, Deedbook, Operation, Probe, Result, StepError, Workflow, step};
use serde::{Serialize, de::DeserializeOwned};

pub trait Bank: Clone + Send + Sync + 'static {
    fn pay(
        &self,
        cents: u64,
        key: &str,
    ) -> impl Future<Output = Result<String, Box<dyn Error + Send + Sync>>> + Send;
}

#[step("pay", idempotent, honoured_for = "24h", operation = op)]
async fn pay<B: Bank>(ctx: &Context, cents: u64, #[hands] bank: &B) -> Result<String> {
    bank.pay(cents, op.key()).await.map_err(StepError::boxed)
}

#[step("assess", read)]
async fn assess<'a, const N: usize>(
    ctx: &Context,
    cents: &u64,
    note: Option<&'a str>,
    #[hands] rule: fn(&u64) -> bool,
    words: Cow<'_, str>,
) -> Result<bool> {
    Ok(*cents > 10 && note.is_some_and(|note| note.len() > N + words.len()) && rule(cents))
}

async fn asked(op: Operation) -> Result<Probe<u8>, StepError> {
    Ok(Probe::Happened(u8::try_from(op.attempt())?))
}

/// With a probe that is a function.
#[step("mail", reconcile, probe = asked, quiet = "1m", abandon, id = order)]
pub async fn mail(ctx: Context, order: String) -> Result<u8> {
    Ok(1)
}

#[step("keep", at_most_once, key = order.len())]
pub async fn keep<T>(book: &Deedbook, order: &[T], guard: &str) -> Result<Vec<T>, CallError>
where
    T: Serialize + DeserializeOwned + Clone + Send + Sync,
{
    if guard.is_empty() {
        return Ok(Vec::new());
    }
    Ok(order.to_vec())
}

#[step("log", idempotent)]
async fn log(
    book: &Deedbook,
    line: impl Serialize + Clone + Send + Sync,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    Ok(())
}

#[step("tell", read)]
async fn tell(ctx: &Context, word: impl Serialize + Clone + Send + Sync) -> Result<()> {
    Ok(())
}

pub struct Refund<B>(pub B);

impl<B: Bank> Workflow for Refund<B> {
    const NAME: &'static str = "refund";
    type Input = u64;
    type Output = String;

    async fn run(&self, ctx: Context, cents: &u64) -> Result<String> {
        if assess::<3>(&ctx, cents, Some("now"), |_| true, "a".into()).await? {
            mail(ctx.clone(), "order".to_owned()).await?;
        }
        tell(&ctx, "two").await?;
        let (a, b) = futures::join!(
            pay(&ctx.branch("left"), *cents, &self.0),
            pay(&ctx.branch("right"), 2, &self.0),
        );
        Ok(a? + &b?)
    }
}

fn moves<T: Send>(_: T) {}

fn main() {
    let _ = |book: &Deedbook| {
        moves(keep(book, &[1_u8], "x"));
        moves(log(book, 1));
    };
}
