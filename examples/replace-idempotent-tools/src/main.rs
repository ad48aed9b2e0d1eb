//! What a decorator over a table does for single calls, done by a journal; and what such a
//! decorator gets wrong, done right. See README.md.

mod bank;
mod killed;
mod more;
mod plain;
mod shared;
mod steps;
mod tell;

use std::{env, error::Error, path::PathBuf, process::ExitCode, sync::Arc};

use bank::Bank;
use deedbook::Deedbook;
use tell::say;

/// Any error: this program ends with it.
pub(crate) type Anyhow<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let done = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => in_new_folder().await,
        [journal] if !journal.starts_with('-') => story(journal.into()).await,
        [word, name, journal] if word == "--child" => killed::child(name, journal.as_ref()).await,
        _ => {
            say("usage: replace-idempotent-tools [JOURNAL]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format!("failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn in_new_folder() -> Anyhow {
    let folder = tempfile::tempdir()?;
    story(folder.path().join("shop.redb")).await
}

/// All of it. A second time, on the same journal, nothing happens again.
async fn story(journal: PathBuf) -> Anyhow {
    let bank = Arc::new(Bank::open(&journal)?);
    let book = Deedbook::open_or_create(&journal).holder("svc:shop").start().await?;
    plain::quick_start(&book, &bank).await?;
    plain::key_at_the_call(&book, &bank).await?;
    plain::key_by_a_function(&book, &bank).await?;
    plain::scope(&book, &bank).await?;
    // These need a clock that can be turned, and so a journal in memory: another home, and the
    // same calls.
    shared::duplicates().await?;
    shared::time_and_reset().await?;
    more::blocking(&book, &bank).await?;
    more::threads(&book, &bank).await?;
    more::no_value(&book, &bank).await?;
    book.shutdown().await?;
    killed::story(&journal, &bank).await?;
    bank.audit()
}
