//! Why a guarded call has no value.

use std::{error::Error as StdError, fmt, sync::Arc};

use deedbook_journal::{
    checkpointer::StoreError,
    failure::Failure,
    guard::{Conflict, GuardError, InDoubt, InFlight},
    id::{InvalidName, ThreadId},
    value::ValueError,
};

use crate::error::{Error, ErrorKind};

/// Why a guarded call has no value. Each says what the caller can do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CallError {
    /// Somebody is at it, and the call does not wait (any longer). An HTTP front end says 409.
    InFlight(Box<InFlight>),
    /// Nobody knows whether it happened, and the policy lets nothing more happen now.
    InDoubt {
        /// What is known.
        doubt: Box<InDoubt>,
        /// What this call's own attempt ended with, if it made one.
        failure: Option<Failure>,
    },
    /// The same identity is recorded with other arguments. An HTTP front end says 422.
    Conflict(Box<Conflict>),
    /// It has failed for good: the same answer to every caller, until it is reset.
    Failed {
        /// What went wrong, as recorded.
        failure: Failure,
        /// It was recorded before this call.
        replayed: bool,
        /// The step's thread, which [`crate::Deedbook::reset`] takes.
        thread: ThreadId,
    },
    /// This call's attempt failed, and the next call may try again, under the same key.
    NotDone {
        /// What went wrong, as recorded.
        failure: Failure,
        /// It may have had its effect all the same; the other side honours the key.
        ambiguous: bool,
    },
    /// It happened, and its result was not stored, or was erased.
    NoResult {
        /// Why there is none.
        failure: Failure,
        /// The step's thread, which [`crate::Deedbook::reset`] takes.
        thread: ThreadId,
        /// The operation key to look for on the other side, unless the step is a read.
        key: Option<Arc<str>>,
    },
    /// The recorded result is no value of the type that the caller expects.
    Unreadable {
        /// What does not fit.
        why: String,
    },
    /// Somebody else has taken the step over while this call's body ran.
    Lost {
        /// What the body brought is kept as evidence.
        kept: bool,
    },
    /// The call cannot be made as it was declared. Nothing has happened.
    Invalid {
        /// What is wrong.
        why: String,
    },
    /// The journal did not do as asked.
    Journal(Error),
}

impl CallError {
    pub(crate) fn invalid(why: impl fmt::Display) -> Self {
        Self::Invalid { why: why.to_string() }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight(flight) => {
                write!(f, "{} is at it", flight.owner)?;
                if flight.since.is_some() {
                    write!(f, ", for {:.1} s by now", flight.age.as_secs_f64())?;
                }
                if let Some(key) = &flight.key {
                    write!(f, " (operation key {key})")?;
                }
                write!(f, "; ask again in {:.0} s", flight.retry_after.as_secs_f64().ceil())
            }
            Self::InDoubt { doubt, failure } => in_doubt(doubt, failure.as_ref(), f),
            Self::Conflict(conflict) => {
                write!(f, "step {} is recorded with other arguments", conflict.step)?;
                if !conflict.fields.is_empty() {
                    write!(f, " (at {})", conflict.fields.join(", "))?;
                }
                let recorded = conflict.recorded.map(|print| print.short());
                let recorded = recorded.as_deref().unwrap_or("erased");
                write!(
                    f,
                    ": fingerprint {recorded} there, {} here; another operation needs another key",
                    conflict.given.short()
                )
            }
            Self::Failed { failure, thread, .. } => {
                write!(
                    f,
                    "it has failed for good: {failure}; a reset lets it happen anew (thread {thread})"
                )
            }
            Self::NotDone { failure, ambiguous: false } => {
                write!(f, "{failure}; it had no effect, and can be called again")
            }
            Self::NotDone { failure, ambiguous: true } => {
                write!(f, "{failure}; call again: it is sent again under the same key")
            }
            Self::NoResult { failure, thread, key } => {
                write!(f, "it happened, and its result is not available: {failure}")?;
                match key {
                    Some(key) => write!(f, "; look it up by its key {key} (thread {thread})"),
                    None => write!(f, " (thread {thread})"),
                }
            }
            Self::Unreadable { why } => {
                write!(f, "the recorded result cannot be read as what is expected: {why}")
            }
            Self::Lost { kept } => {
                write!(f, "{}", GuardError::Lost { kept: *kept })
            }
            Self::Invalid { why } => f.write_str(why),
            Self::Journal(error) => error.fmt(f),
        }
    }
}

fn in_doubt(doubt: &InDoubt, failure: Option<&Failure>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "step {} is in doubt", doubt.step)?;
    if let Some(key) = &doubt.key {
        write!(f, " (operation key {key})")?;
    }
    write!(f, ": {}", doubt.doubt)?;
    if let Some(failure) = failure {
        write!(f, " ({failure})")?;
    }
    match doubt.retry_after {
        Some(time) => write!(
            f,
            "; call again in {:.0} s, and the other side is asked",
            time.as_secs_f64().ceil()
        ),
        None => write!(
            f,
            "; find out what happened and settle it: `deedbook doubts` says how \
             (`deedbook resolve`, thread {})",
            doubt.thread
        ),
    }
}

impl StdError for CallError {}

impl From<GuardError> for CallError {
    fn from(error: GuardError) -> Self {
        match error {
            GuardError::Lost { kept } => Self::Lost { kept },
            GuardError::Store(error) => error.into(),
            GuardError::Refused { why } => Self::Journal(Error::new(ErrorKind::Refused, why)),
            error => Self::invalid(error),
        }
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Journal(error.into())
    }
}

impl From<InvalidName> for CallError {
    fn from(error: InvalidName) -> Self {
        Self::invalid(error)
    }
}

impl From<ValueError> for CallError {
    fn from(error: ValueError) -> Self {
        Self::invalid(error)
    }
}

impl From<InFlight> for CallError {
    fn from(flight: InFlight) -> Self {
        Self::InFlight(Box::new(flight))
    }
}

impl From<InDoubt> for CallError {
    fn from(doubt: InDoubt) -> Self {
        Self::InDoubt { doubt: Box::new(doubt), failure: None }
    }
}

impl From<Conflict> for CallError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(Box::new(conflict))
    }
}
