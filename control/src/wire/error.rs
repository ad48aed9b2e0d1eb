//! What went wrong, with everything that a client needs to act on it.

use deedbook_journal::{checkpointer::StoreError, id::Epoch};
use serde::{Deserialize, Serialize};

use super::scalar::Thread;
use crate::limits::{LINE_BYTES_MAX, PROTOCOL_VERSION};

/// An error as it stands in a line. Fields beside `kind` and `message` depend on the kind.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    #[serde(flatten)]
    more: Box<More>,
}

/// What some kinds have besides.
#[derive(Clone, Default, Serialize, Deserialize)]
struct More {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thread: Option<Thread>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    versions: Option<Vec<u32>>,
}

/// The kind of an error, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    // Of the journal.
    Fenced,
    Moved,
    Held,
    NoSuchThread,
    Unknown,
    Damaged,
    Refused,
    Failed,
    Closed,
    // Of the guard.
    Lost,
    // Of the protocol.
    BadJson,
    BadRequest,
    NoHello,
    Version,
    OtherJournal,
    Forbidden,
    Busy,
    TooLong,
    Slow,
    Internal,
    /// One that this build does not know.
    #[serde(other)]
    Other,
}

impl Fault {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), more: Box::default() }
    }

    fn with(kind: Kind, message: impl Into<String>, more: More) -> Self {
        Self { kind, message: message.into(), more: Box::new(more) }
    }

    pub(crate) fn bad_request(why: &str) -> Self {
        Self::new(Kind::BadRequest, format!("the request cannot be understood: {why}"))
    }

    pub(crate) fn internal(why: &str) -> Self {
        Self::new(Kind::Internal, format!("a fault of the server itself: {why}"))
    }

    pub(crate) fn refused(why: impl Into<String>) -> Self {
        StoreError::Refused { why: why.into().into() }.into()
    }

    pub(crate) fn too_long() -> Self {
        let message = format!("a line has at most {LINE_BYTES_MAX} bytes; send less at once");
        let more = More { bytes_max: Some(LINE_BYTES_MAX as u64), ..More::default() };
        Self::with(Kind::TooLong, message, more)
    }

    pub(crate) fn version(theirs: u32) -> Self {
        let message = format!(
            "version {theirs} of the protocol is not spoken here, only version {PROTOCOL_VERSION}; \
             use the same build on both sides"
        );
        let more = More { versions: Some(vec![PROTOCOL_VERSION]), ..More::default() };
        Self::with(Kind::Version, message, more)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let because = |why: &str| More { why: Some(why.into()), ..More::default() };
        let (kind, more) = match &error {
            StoreError::Fenced { held } => {
                (Kind::Fenced, More { held: Some(held.0), ..More::default() })
            }
            StoreError::Moved { next } => {
                (Kind::Moved, More { next: Some(*next), ..More::default() })
            }
            StoreError::Held { by } => {
                (Kind::Held, More { by: Some((&**by).into()), ..More::default() })
            }
            StoreError::NoSuchThread => (Kind::NoSuchThread, More::default()),
            StoreError::Unknown { why } => (Kind::Unknown, because(why)),
            StoreError::Damaged { thread, n, why } => {
                let thread = Some(Thread(thread.clone()));
                (Kind::Damaged, More { thread, n: Some(*n), ..because(why) })
            }
            StoreError::Refused { why } => (Kind::Refused, because(why)),
            StoreError::Failed { why } => (Kind::Failed, because(why)),
            StoreError::Closed => (Kind::Closed, More::default()),
            other => (Kind::Failed, because(&other.to_string())),
        };
        Self::with(kind, error.to_string(), more)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let Fault { kind, message, more } = fault;
        let More { held, next, by, thread, n, why, .. } = *more;
        let why = why.unwrap_or(message).into();
        match (kind, held, next, by, thread, n) {
            (Kind::Fenced, Some(held), ..) => Self::Fenced { held: Epoch(held) },
            (Kind::Moved, _, Some(next), ..) => Self::Moved { next },
            (Kind::Held, _, _, Some(by), ..) => Self::Held { by: by.into() },
            (Kind::NoSuchThread, ..) => Self::NoSuchThread,
            (Kind::Unknown, ..) => Self::Unknown { why },
            (Kind::Damaged, .., Some(thread), Some(n)) => {
                Self::Damaged { thread: thread.0, n, why }
            }
            (Kind::Failed | Kind::Internal, ..) => Self::Failed { why },
            (Kind::Closed, ..) => Self::Closed,
            _ => Self::Refused { why },
        }
    }
}

#[cfg(test)]
mod tests {
    use deedbook_journal::id::ThreadId;

    use super::*;

    #[test]
    fn every_error_of_a_store_keeps_every_field() {
        let why = "because".into();
        for error in [
            StoreError::Fenced { held: Epoch(7) },
            StoreError::Moved { next: 9 },
            StoreError::Held { by: "run:1".into() },
            StoreError::NoSuchThread,
            StoreError::Unknown { why },
            StoreError::Damaged {
                thread: ThreadId::new("a\u{202e}").unwrap(),
                n: 3,
                why: "x".into(),
            },
            StoreError::Refused { why: "r".into() },
            StoreError::Failed { why: "f".into() },
            StoreError::Closed,
        ] {
            let line = serde_json::to_string(&Fault::from(error.clone())).unwrap();
            let back: Fault = serde_json::from_str(&line).unwrap();
            assert_eq!(back.message, error.to_string());
            assert_eq!(StoreError::from(back), error, "{line}");
        }
        let later = r#"{"kind":"something_new","message":"m","more":1}"#;
        let later: Fault = serde_json::from_str(later).unwrap();
        assert_eq!(later.kind, Kind::Other);
    }
}
