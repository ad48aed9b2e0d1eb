//! The messages of people, ready to be posted or admitted.

use std::sync::Arc;

use crate::{
    checkpointer::Message,
    hex,
    history::Call,
    id::{MessageId, StepId},
    limits::ValueLimits,
    message::{CANCEL, Cancel, DECIDE, Decide, RESOLVE, Resolve, SIGNAL, Verdict},
    value::{self, ValueError},
};

/// A signal with a value in MessagePack.
#[must_use]
pub fn signal(id: MessageId, name: &str, value: Vec<u8>, by: &str) -> Message {
    Message { id, kind: SIGNAL, name: name.into(), by: by.into(), body: value.into() }
}

/// A decision on an approval request, bound to what the request shows.
///
/// # Errors
/// A reason larger than a value may be.
pub fn decide(
    id: MessageId,
    request: &Call,
    granted: bool,
    reason: &str,
    by: &str,
) -> Result<Message, ValueError> {
    let shown = request.shown.map(|c| hex::encode(&c)).unwrap_or_default();
    let body = Decide { granted, reason: reason.into(), shown };
    message(id, DECIDE, &request.id.to_string(), by, &body)
}

/// A settlement of a doubt.
///
/// # Errors
/// A reason or a result larger than a value may be.
pub fn resolve(
    id: MessageId,
    step: &StepId,
    verdict: Verdict,
    reason: &str,
    by: &str,
) -> Result<Message, ValueError> {
    let reason = reason.into();
    message(id, RESOLVE, &step.to_string(), by, &Resolve { verdict, reason })
}

/// A cancellation of the thread.
///
/// # Errors
/// A reason larger than a value may be.
pub fn cancel(id: MessageId, reason: &str, by: &str) -> Result<Message, ValueError> {
    let reason = reason.into();
    message(id, CANCEL, "", by, &Cancel { reason })
}

fn message<T: serde::Serialize>(
    id: MessageId,
    kind: u8,
    name: &str,
    by: &str,
    body: &T,
) -> Result<Message, ValueError> {
    let body: Arc<[u8]> = value::encode(body, &ValueLimits::new())?.into();
    Ok(Message { id, kind, name: name.into(), by: by.into(), body })
}
