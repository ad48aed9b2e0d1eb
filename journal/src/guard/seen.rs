//! Guarded steps as they are shown.

use super::{Within, decided, step, wanted::Recorded};
use crate::{
    checkpointer::{Checkpointer, StoreError, ThreadInfo},
    history::{Answer, Call, Decision, Doubt, History},
    id::{Position, StoreTime, ThreadId},
    limits::ValueLimits,
    sheet::Read,
    value,
};

/// A guarded step, for people.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its thread.
    pub thread: ThreadId,
    /// Where it happens once; `None` if that was erased.
    pub within: Option<Within>,
    /// Where it stands.
    pub stands: Stands,
    /// Since when.
    pub since: StoreTime,
    /// What its records add up to.
    pub history: History,
}

/// Where a guarded step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// It happened.
    Done,
    /// It has failed for good.
    Failed,
    /// Somebody is at it.
    InFlight,
    /// Nobody knows whether it happened, and a person decides.
    InDoubt(Doubt),
    /// Nobody knows whether it happened, and the next caller asks the downstream.
    ToBeAsked,
    /// It has not happened, or may be sent again under the same key: the next caller does it.
    Open,
}

impl Stands {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::InFlight => "in flight",
            Self::InDoubt(_) => "in doubt",
            Self::ToBeAsked => "to be asked",
            Self::Open => "open",
        }
    }
}

impl Seen {
    /// The step.
    #[must_use]
    pub fn call(&self) -> Option<&Call> {
        step(&self.history)
    }
}

/// Looks at a guarded step as it is listed, and writes nothing. `None` if it has no step yet.
///
/// # Errors
/// As [`Checkpointer::read`].
pub async fn seen(home: &dyn Checkpointer, info: &ThreadInfo) -> Result<Option<Seen>, StoreError> {
    let mut read = Read::nothing(home, &info.id);
    read.catch_up(home, Position::MAX).await?;
    let mut history = read.history;
    if info.holder.is_none() {
        history.loaded();
    }
    let now = home.now().await?;
    let input = history.input().map(|input| value::decode::<Recorded>(input, &ValueLimits::new()));
    let within = match input.and_then(Result::ok) {
        Some(Recorded { within: Some(id) }) => ThreadId::any(id).ok().map(Within::Thread),
        Some(Recorded { within: None }) => Some(Within::Journal),
        None => None,
    };
    let Some(call) = step(&history) else { return Ok(None) };
    let failed = call.outcome.as_ref().is_some_and(|outcome| {
        matches!(outcome.answer, Answer::Failed(_) | Answer::Erased { failed: true })
    });
    let stands = match decided(&history, now) {
        Decision::Outcome(_) if failed => Stands::Failed,
        Decision::Outcome(_) => Stands::Done,
        Decision::Doubt(doubt) => Stands::InDoubt(doubt),
        Decision::UnderWay => Stands::InFlight,
        Decision::Ask | Decision::AskLater(_) => Stands::ToBeAsked,
        _ => Stands::Open,
    };
    let since = call.outcome.as_ref().map(|outcome| outcome.time);
    let since = since.or(call.attempts.last().map(|attempt| attempt.started));
    let since = since.unwrap_or(call.opened_time);
    Ok(Some(Seen { thread: info.id.clone(), within, stands, since, history }))
}
