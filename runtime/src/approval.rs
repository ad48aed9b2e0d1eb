//! Approvals: questions to a person, bound to what the person was shown.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use deedbook_journal::{
    failure::Failure,
    history::{Answer, CallKind},
    id::Branch,
    limits::ValueLimits,
    value,
};
use serde::Serialize;

use crate::{
    desk::Shared,
    error::{WorkflowError, WorkflowErrorKind},
    signal::{First, first, timed_out, waiting},
    workflow::Result,
};

/// A question to a person: await it, or bound it first.
///
/// An answer is bound to this request and to the commitment of what was shown: the first one
/// wins, and later ones are recorded as refused.
#[must_use = "a question is not asked until it is awaited"]
#[derive(Debug)]
pub struct Approval {
    shared: Arc<Shared>,
    branch: Branch,
    name: String,
    shown: Result<Vec<u8>, WorkflowError>,
    within: Option<Duration>,
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Whether it is granted.
    pub granted: bool,
    /// By whom.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl Approval {
    pub(crate) fn new<S: Serialize + ?Sized>(
        shared: Arc<Shared>,
        branch: Branch,
        name: &str,
        shown: &S,
    ) -> Self {
        let limits = shared.limits;
        let shown = value::encode(shown, &limits).map_err(|e| {
            let kind = WorkflowErrorKind::NotRecordable;
            WorkflowError::of_call(kind, name, Failure::of(&e))
        });
        Self { shared, branch, name: name.to_owned(), shown, within: None }
    }

    /// Waits no longer than this: then the wait is an error of kind
    /// [`WorkflowErrorKind::TimedOut`].
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }
}

impl IntoFuture for Approval {
    type Output = Result<Decided>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Decided>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { shared, branch, name, shown, within } = self;
        let made = shown.and_then(|shown| {
            let asked =
                waiting(&shared, CallKind::Approval, &branch, &name, Duration::ZERO, Some(shown))?;
            let timer = within
                .map(|t| {
                    waiting(&shared, CallKind::Timer, &branch, &format!("approval {name}"), t, None)
                })
                .transpose()?;
            Ok((asked, timer))
        });
        Box::pin(async move {
            let (asked, timer) = made?;
            match first(asked, timer).await {
                First::Answer(Answer::Decided { granted, by, reason }) => {
                    let reason = reason.and_then(|bytes| {
                        value::decode::<String>(&bytes, &ValueLimits::new()).ok()
                    });
                    let by = by.to_string();
                    Ok(Decided { granted, by, reason: reason.unwrap_or_default() })
                }
                First::Answer(_) => std::future::pending().await,
                First::TimedOut => Err(timed_out(&name, within.unwrap_or_default())),
            }
        })
    }
}
