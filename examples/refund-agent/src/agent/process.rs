//! The agent as a process: opens the journal, resumes what is in it, takes up the requests of a
//! file, and hands in people's answers, until every request has ended or stopped.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deedbook::{Deedbook, Error};
use deedbook_control::ServeError;

use super::desk::Desk;
use super::holds::{HoldAt, Holds};
use super::note::{Note, say};
use super::outbox::{Outbox, OutboxError};
use super::{BANK_TIMEOUT, RefundAgent};
use crate::bank::{BadAddress, Bank, Mode};
use crate::judge::RuleJudge;
use crate::requests;

/// How to run the agent.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The journal's file; made if there is none
    #[arg(long, value_name = "FILE")]
    pub journal: PathBuf,
    /// The bank's address
    #[arg(long, value_name = "URL")]
    pub bank: String,
    /// What the bank promises
    #[arg(long, value_enum, default_value = "keys")]
    pub bank_mode: Mode,
    /// The requests, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub refunds: PathBuf,
    /// Where letters go
    #[arg(long, value_name = "FILE")]
    pub outbox: PathBuf,
    /// Stop at the Nth arrival at a point, say so, and wait to be killed
    #[arg(long, value_name = "POINT:N")]
    pub crash_at: Vec<HoldAt>,
    /// How many requests are at work at once, those that wait for a person not counted
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub at_once: usize,
    /// How long a verdict takes
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub thinking_ms: u64,
    /// How long a payment settles before the letter is written
    #[arg(long, value_name = "MS", default_value_t = 300)]
    pub settle_ms: u64,
    /// Stop when standard input ends
    #[arg(long)]
    pub until_stdin_ends: bool,
}

/// The agent cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The requests cannot be read.
    #[error("requests {}: {source}", path.display())]
    Requests {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The bank's address is not one.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// Letters cannot be written.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The tool cannot be let in.
    #[error(transparent)]
    Control(#[from] ServeError),
    /// The journal cannot be used.
    #[error("journal {}: {source}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Error,
    },
}

/// Works until every request has ended or stopped, and closes the journal.
///
/// # Errors
/// [`AgentError`] when it cannot start, or the journal fails under it. Requests that go wrong are
/// notes, not errors.
pub async fn work(options: Options) -> Result<(), AgentError> {
    let path = options.refunds.clone();
    let read = tokio::task::spawn_blocking(move || requests::read(path)).await;
    let entries = read.unwrap_or_else(|gone| Err(io::Error::other(gone)));
    let entries =
        entries.map_err(|source| AgentError::Requests { path: options.refunds.clone(), source })?;
    let bank = Bank::new(&options.bank)?.with_timeout(BANK_TIMEOUT);
    let outbox = Arc::new(Outbox::open(&options.outbox)?);
    let holds = Arc::new(Holds::new(options.crash_at.clone()));
    let judge = RuleJudge::new().thinking(Duration::from_millis(options.thinking_ms));
    let settle = Duration::from_millis(options.settle_ms);
    let agent =
        RefundAgent::new(Arc::new(judge), Arc::new(bank), options.bank_mode, outbox, settle)
            .held_at(Arc::clone(&holds));
    let path = options.journal.clone();
    let journal = |source| AgentError::Journal { path: path.clone(), source };
    let book = Deedbook::open_or_create(&options.journal)
        .host(agent)
        .holder(format!("refund-agent:{}", std::process::id()))
        .build(env!("CARGO_PKG_VERSION"))
        .start()
        .await
        .map_err(journal)?;
    // `deedbook` looks inside, and answers the agent's questions, while it runs.
    let control = deedbook_control::serve(&book)?;
    let worked = match Desk::open(book.clone(), holds, options).await {
        Ok(mut desk) => desk.work(entries).await,
        Err(error) => Err(error),
    };
    control.stop().await;
    let closed = book.shutdown().await;
    worked.and(closed).map_err(journal)?;
    say(&Note::Finished);
    Ok(())
}
