//! What such a decorator gets wrong.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use deedbook::{CallError, Deedbook, Duplicates};
use serde::{Deserialize, Serialize, Serializer, ser::Error as _};

use crate::{
    Anyhow,
    bank::{Bank, Receipt},
    tell::{say, short, told},
};

const THREADS: usize = 8;
const KEYS: usize = 30;

/// A body that blocks its thread; the async ones are everywhere else.
pub(crate) async fn blocking(book: &Deedbook, bank: &Arc<Bank>) -> Anyhow {
    say("\n8  Bodies that block");
    for what in ["print_label", "print_label again"] {
        let hands = bank.clone();
        let body = move |op: deedbook::Operation| Ok(hands.charge("label", 50, op.key())?);
        let guard = book.guard("print_label").idempotent();
        told(what, bank, guard.call_blocking(&"order-42", body)).await;
    }
    Ok(())
}

/// Threads that all want the same.
pub(crate) async fn threads(book: &Deedbook, bank: &Arc<Bank>) -> Anyhow {
    say("\n9  Eight threads, thirty keys, every thread wants all");
    let runtime = tokio::runtime::Handle::current();
    let all: Vec<_> = (0..THREADS)
        .map(|_| {
            let (book, bank, runtime) = (book.clone(), bank.clone(), runtime.clone());
            tokio::task::spawn_blocking(move || runtime.block_on(every_key(book, bank)))
        })
        .collect();
    let mut receipts = BTreeSet::new();
    for thread in all {
        receipts.extend(thread.await??);
    }
    say(format!("   {:<38} {} receipts", "240 calls", receipts.len()));
    Ok(())
}

async fn every_key(book: Deedbook, bank: Arc<Bank>) -> Result<Vec<usize>, CallError> {
    let mut numbers = Vec::new();
    for n in 0..KEYS {
        let guard = book.guard("enrol").idempotent().key(format!("member-{n}"));
        let guard = guard.duplicates(Duplicates::Wait(Duration::from_secs(60)));
        let body = async |op: deedbook::Operation| {
            Ok(bank.charge(&format!("member-{n}"), 10, op.key())?)
        };
        let receipt: Receipt = guard.call(&n, body).await?;
        numbers.push(receipt.number);
    }
    Ok(numbers)
}

/// A handle that exists in this process only.
#[derive(Deserialize)]
struct Connection;

impl Serialize for Connection {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("a connection cannot be stored"))
    }
}

/// A result that cannot be stored: that it happened is a fact all the same.
pub(crate) async fn no_value(book: &Deedbook, bank: &Arc<Bank>) -> Anyhow {
    say("\n10 A result that cannot be stored");
    for what in ["connect", "connect again"] {
        let body = async |op: deedbook::Operation| {
            bank.charge("connection", 5, op.key())?;
            Ok(Connection)
        };
        let ended = book.guard("connect").idempotent().call(&"line-1", body).await;
        let ended = ended.map(|_| ()).map_err(|error| short(&error));
        say(format!("   {what:<38} {}", ended.err().unwrap_or_default()));
    }
    Ok(())
}
