//! The guard's operations: what each is given, and what it answers.

use deedbook_journal::failure::Failure;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::scalar::{Thread, Time};

/// Where a guarded step happens once. There is no default: what is meant has to be said.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScopeValue {
    Journal,
    Thread(Thread),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardClaim {
    pub(crate) step: String,
    pub(crate) scope: ScopeValue,
    pub(crate) policy: String,
    #[serde(default)]
    pub(crate) arguments: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) key: Option<String>,
    #[serde(default)]
    pub(crate) identified_by: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) occurrence: u32,
    #[serde(default)]
    pub(crate) any_content: bool,
    #[serde(default)]
    pub(crate) redact: Vec<String>,
    #[serde(default)]
    pub(crate) timeout_ns: Option<u64>,
    #[serde(default)]
    pub(crate) window_ns: Option<u64>,
    #[serde(default)]
    pub(crate) quiet_ns: Option<u64>,
    #[serde(default)]
    pub(crate) attempts_max: Option<u32>,
    #[serde(default)]
    pub(crate) valid_for_ns: Option<u64>,
    #[serde(default)]
    pub(crate) holder: Option<String>,
    #[serde(default)]
    pub(crate) lease_ns: Option<u64>,
    #[serde(default)]
    pub(crate) wait_ns: u64,
    #[serde(default)]
    pub(crate) take_over: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardComplete {
    pub(crate) ticket: u64,
    /// Null is a result like any other.
    #[serde(default)]
    pub(crate) result: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) unstored: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardFail {
    pub(crate) ticket: u64,
    pub(crate) failure: Failure,
    #[serde(default, rename = "final")]
    pub(crate) finally: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardUnknown {
    pub(crate) ticket: u64,
    pub(crate) failure: Failure,
    #[serde(default)]
    pub(crate) why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardAnswer {
    pub(crate) ticket: u64,
    pub(crate) answer: AnswerValue,
}

/// What the downstream says of the last attempt.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AnswerValue {
    Happened(Box<RawValue>),
    DidNotHappen,
    Inconclusive,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardRenew {
    pub(crate) ticket: u64,
    pub(crate) lease_ns: u64,
}

#[derive(Serialize)]
pub(crate) struct GuardRenewed {
    pub(crate) until: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardReset {
    pub(crate) thread: Thread,
    pub(crate) by: String,
    pub(crate) reason: String,
}

#[derive(Serialize)]
pub(crate) struct WasReset {
    pub(crate) position: u64,
}

/// What a caller may do, and where a step stands.
#[derive(Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Standing {
    Fresh(TicketValue),
    Ask(TicketValue),
    Settled(SettledValue),
    InFlight {
        thread: Thread,
        owner: String,
        since: Option<Time>,
        age_ns: u64,
        key: Option<String>,
        retry_after_ns: u64,
    },
    InDoubt {
        thread: Thread,
        step: String,
        doubt: &'static str,
        since: Option<Time>,
        key: Option<String>,
        attempts: u32,
        retry_after_ns: Option<u64>,
    },
    Conflict {
        thread: Thread,
        step: String,
        recorded: Option<String>,
        given: String,
        fields: Vec<String>,
    },
    /// The next caller may try again.
    Open,
}

#[derive(Serialize)]
pub(crate) struct TicketValue {
    pub(crate) ticket: u64,
    pub(crate) thread: Thread,
    pub(crate) key: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) first_started_at: Time,
    pub(crate) timeout_ns: u64,
    pub(crate) until: Time,
    /// Guards are off: who turned them off, and why. The body runs all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) off: Option<OffValue>,
}

#[derive(Clone, Serialize)]
pub(crate) struct OffValue {
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) since: Time,
}

#[derive(Serialize)]
pub(crate) struct SettledValue {
    pub(crate) thread: Thread,
    pub(crate) outcome: OutcomeValue,
    pub(crate) position: u64,
    pub(crate) at: Time,
    pub(crate) key: Option<String>,
    pub(crate) attempts: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeValue {
    Result(Box<RawValue>),
    Failed(Failure),
    Unstored(Failure),
    Erased,
}
