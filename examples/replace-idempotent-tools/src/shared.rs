//! Two callers at once, and time: on a journal in memory whose clock this program turns.

use std::{sync::Arc, time::Duration};

use deedbook::{CallError, Deedbook, Duplicates, Filter, VirtualClock, guard, step};
use tokio::sync::Notify;

use crate::{
    Anyhow,
    bank::{Bank, Receipt},
    tell::{say, short, told},
};

/// A bank that answers when it is told to.
#[derive(Clone)]
struct SlowBank {
    bank: Arc<Bank>,
    begun: Arc<Notify>,
    answers: Arc<Notify>,
}

/// The order of the first caller, who is still at it.
async fn first(book: Deedbook, order: u8, slow: SlowBank) -> Result<Receipt, CallError> {
    let body = async move |op: deedbook::Operation| {
        slow.begun.notify_one();
        slow.answers.notified().await;
        Ok(slow.bank.charge(&format!("first, {order}"), 100, op.key())?)
    };
    book.guard("charge").idempotent().call(&order, body).await
}

/// The second caller. What it does about the first is said at its call, so it is by hand.
async fn second(
    book: &Deedbook,
    order: u8,
    bank: &Bank,
    duplicates: Duplicates,
) -> Result<Receipt, CallError> {
    let guard = book.guard("charge").idempotent().duplicates(duplicates);
    let body = async |op: deedbook::Operation| {
        Ok(bank.charge(&format!("second, {order}"), 100, op.key())?)
    };
    guard.call(&order, body).await
}

pub(crate) async fn duplicates() -> Anyhow {
    say("\n5  Somebody is at it already");
    let book = Deedbook::memory().clock(VirtualClock::new()).holder("svc:shop").start().await?;
    let minute = Duration::from_secs(60);
    let choices = [
        ("refuse", Duplicates::Refuse),
        ("wait", Duplicates::Wait(minute)),
        ("take over", Duplicates::TakeOver),
    ];
    for (order, (word, duplicates)) in (1..).zip(choices) {
        let bank = Arc::new(Bank::in_memory());
        let slow = SlowBank { bank: bank.clone(), begun: Arc::default(), answers: Arc::default() };
        let owner = Box::pin(first(book.clone(), order, slow.clone()));
        let other = async {
            slow.begun.notified().await;
            if let Duplicates::Wait(_) = duplicates {
                // It waits from here on; the first is let go by and by.
                slow.answers.notify_one();
            }
            let second = second(&book, order, &bank, duplicates).await;
            slow.answers.notify_one();
            second
        };
        let (first, second) = tokio::join!(owner, other);
        for (who, ended) in [("first", first), ("second", second)] {
            let ended = match ended {
                Ok(receipt) => format!("given     {}", receipt.of),
                Err(error) => short(&error),
            };
            say(format!("   {:<38} {ended}", format!("{word}: the {who}")));
        }
    }
    Ok(book.shutdown().await?)
}

/// Good for a day, from when it was recorded.
#[step("rate", read, valid_for = "1d")]
async fn rate(book: &Deedbook, of: &str, #[hands] bank: &Bank) -> Result<Receipt, CallError> {
    // Reading changes nothing; here it leaves a line, so that it shows.
    Ok(bank.charge(of, 0, &format!("read {}", bank.count()))?)
}

pub(crate) async fn time_and_reset() -> Anyhow {
    say("\n6  Time passes");
    let clock = VirtualClock::new();
    let book = Deedbook::memory().clock(clock.clone()).holder("svc:shop").start().await?;
    let bank = Bank::in_memory();
    told("rate", &bank, rate(&book, "EUR", &bank)).await;
    clock.advance(Duration::from_secs(23 * 3600));
    told("rate, 23 hours later", &bank, rate(&book, "EUR", &bank)).await;
    clock.advance(Duration::from_secs(3600));
    told("rate, 24 hours later", &bank, rate(&book, "EUR", &bank)).await;

    say("\n7  Looked at, and done anew on purpose");
    let prefix = Some(guard::THREAD_PREFIX.into());
    let filter = Filter { prefix, reserved: true, ..Filter::default() };
    for info in book.threads(&filter, None, 100).await?.items {
        let home = book.checkpointer();
        let Some(seen) = guard::seen(&**home, &info).await? else { continue };
        let (Some(call), stands) = (seen.call(), seen.stands.as_str()) else { continue };
        say(format!("   {:<38} {stands}", call.id.name.to_string()));
        book.reset(&info.id, "user:ann", "the rate was wrong").await?;
        say(format!("   {:<38} by user:ann: the rate was wrong", "reset"));
    }
    told("rate after it", &bank, rate(&book, "EUR", &bank)).await;
    Ok(book.shutdown().await?)
}
