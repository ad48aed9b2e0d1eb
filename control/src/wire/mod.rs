//! What stands in the lines: requests, answers, errors, and the values in them.

mod call;
mod error;
mod guard;
mod scalar;
mod value;

pub(crate) use self::{
    call::{
        Append, AppendResult, Appended, Backup, BackupMade, Call, Claim, Claimed, Erase, Erased,
        Examine, Examined, File, FindingValue, Hello, HelloAnswer, Inbox, InboxAnswer, Leave,
        Leaving, Limits, List, ListAnswer, Log, LogAnswer, Now, NowAnswer, Post, PostAnswer,
        ProgressValue, Read, ReadAnswer, Renew, Renewed, Signal, SignalAnswer,
    },
    error::{Fault, Kind},
    guard::{
        AnswerValue, GuardAnswer, GuardClaim, GuardComplete, GuardFail, GuardRenew, GuardRenewed,
        GuardReset, GuardUnknown, OffValue, OutcomeValue, ScopeValue, SettledValue, Standing,
        TicketValue, WasReset,
    },
    scalar::{Hex, Thread, Time, nanos},
    value::{AppendValue, HoldValue, MessageValue, PostedWord, RecordValue, RoleWord, Word},
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A request line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request<'a> {
    pub(crate) id: u64,
    pub(crate) op: String,
    #[serde(borrow, default)]
    pub(crate) args: Option<&'a RawValue>,
}

/// A request line, as it is written.
#[derive(Serialize)]
pub(crate) struct Asking<'a, A> {
    pub(crate) id: u64,
    pub(crate) op: &'static str,
    pub(crate) args: &'a A,
}

/// What a client looks at first in a line of the server.
#[derive(Deserialize)]
pub(crate) struct Seen<'a> {
    pub(crate) id: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) progress: Option<&'a RawValue>,
}

/// A line of the server, in full.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(crate) struct Answer<T> {
    #[serde(default = "none")]
    pub(crate) ok: Option<T>,
    #[serde(default)]
    pub(crate) error: Option<Fault>,
    #[serde(default)]
    pub(crate) progress: Option<ProgressValue>,
}

fn none<T>() -> Option<T> {
    None
}

/// An error line.
#[derive(Serialize)]
struct Failing<'a> {
    id: Option<u64>,
    error: &'a Fault,
}

/// The line that answers request `id`.
pub(crate) fn answer(id: u64, ok: &impl Serialize) -> Result<Vec<u8>, Fault> {
    line(&format!("{{\"id\":{id},\"ok\":"), ok)
}

/// A line that says how far request `id` has come.
pub(crate) fn progress(id: u64, progress: &impl Serialize) -> Result<Vec<u8>, Fault> {
    line(&format!("{{\"id\":{id},\"progress\":"), progress)
}

fn line(before: &str, value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    let mut line = before.as_bytes().to_vec();
    serde_json::to_writer(&mut line, value).map_err(|e| Fault::internal(&e.to_string()))?;
    line.extend_from_slice(b"}\n");
    Ok(line)
}

/// The line that says what went wrong with request `id`, or with the connection.
pub(crate) fn failure(id: Option<u64>, error: &Fault) -> Vec<u8> {
    let said = serde_json::to_vec(&Failing { id, error });
    let mut line = said.unwrap_or_else(|_| b"{\"id\":null,\"error\":{}}".to_vec());
    line.push(b'\n');
    line
}
