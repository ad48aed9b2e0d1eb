//! What may be said to a thread by anybody but its holder, and how it becomes a record.
//!
//! A message is posted to the thread's inbox and has no place in its history until the holder
//! admits it: [`admit`] is the one function that turns a message into a record, for a running
//! workflow and for the command line alike.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    checkpointer::Message,
    failure::Failure,
    guard, hex,
    history::{CallKind, History, Standing},
    id::{Name, StoreTime},
    limits::{HEADER_TEXT_BYTES_MAX, ValueLimits},
    pen::Draft,
    record::{Header, Kind, Role},
    value,
};

/// A value for a signal; the name is the signal's, the body its MessagePack.
pub const SIGNAL: u8 = 1;
/// A decision on an approval; the name is the request's step id, the body a [`Decide`].
pub const DECIDE: u8 = 2;
/// A settlement of a doubt; the name is the step id, the body a [`Resolve`].
pub const RESOLVE: u8 = 3;
/// A cancellation; the body is a [`Cancel`].
pub const CANCEL: u8 = 4;
/// A result that came too late to be an outcome; the name is the step id, the body a [`Late`].
pub const LATE: u8 = 5;

/// A decision on an approval request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decide {
    /// Whether it is granted.
    pub granted: bool,
    /// Why.
    pub reason: String,
    /// The hex commitment of what was shown, to which the decision is bound.
    pub shown: String,
}

/// A settlement of a doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolve {
    /// What is said to have happened.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
}

/// What is said to have happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The effect happened, with this result in MessagePack.
    Happened(Bytes),
    /// The effect did not happen: the step runs again under the same key.
    DidNotHappen,
    /// The step has failed for good.
    Failed(Failure),
}

/// MessagePack inside a message.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

/// A cancellation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// Why.
    pub reason: String,
}

/// A result that came too late.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// The attempt that it belongs to.
    pub attempt: u32,
    /// The result in MessagePack, or what went wrong.
    pub outcome: Result<Bytes, Failure>,
}

/// Turns a message into the record that gives it a position: what it asks for if the history
/// allows it, a `message.refused` that says why if not. Pure and total; the record fits the
/// history and the limits of the format, whatever the message holds.
#[must_use]
pub fn admit(history: &History, message: &Message, now: StoreTime) -> Draft {
    let drafted = if history.end().is_some() {
        Err("the thread has ended".to_owned())
    } else if history.start().is_none() {
        Err("the thread has not started".to_owned())
    } else {
        match message.kind {
            RESOLVE => resolve(history, message, now),
            SIGNAL | DECIDE | CANCEL if guard::is_guarded(history) => {
                Err("a step of its own can be resolved or reset, and nothing else".into())
            }
            SIGNAL => signal(history, message),
            DECIDE => decide(history, message),
            CANCEL => cancel(history, message),
            LATE => late(history, message),
            other => Err(format!("messages of kind {other} are not known to this build")),
        }
    };
    let draft = drafted.unwrap_or_else(|why| {
        Draft::new(history.thread(), Kind::MessageRefused)
            .with(|h| h.why = Some(short(&why, HEADER_TEXT_BYTES_MAX).into()))
    });
    draft.with(|h: &mut Header| {
        h.message = Some(message.id);
        h.by = Some(short(&message.by, HEADER_TEXT_BYTES_MAX).into());
    })
}

fn signal(history: &History, message: &Message) -> Result<Draft, String> {
    Name::new(&message.name).map_err(|e| e.to_string())?;
    value::check(&message.body, &ValueLimits::new()).map_err(|e| e.to_string())?;
    let draft = Draft::new(history.thread(), Kind::Signal)
        .with(|h| h.why = Some(message.name.clone()))
        .payload(Role::Value, message.body.to_vec());
    Ok(draft)
}

fn decide(history: &History, message: &Message) -> Result<Draft, String> {
    let body: Decide = decode(message)?;
    let call = history
        .find(CallKind::Approval, &message.name)
        .ok_or_else(|| format!("there is no approval request {:?}", named(message)))?;
    if call.outcome.is_some() {
        return Err(format!("approval request {} is already decided", call.id));
    }
    let shown = call.shown.map(|c| hex::encode(&c)).unwrap_or_default();
    if body.shown != shown {
        return Err(format!(
            "the decision is bound to {} and request {} shows {shown}",
            short(&body.shown, 64),
            call.id
        ));
    }
    let verdict = if body.granted { "granted" } else { "denied" };
    Ok(Draft::new(history.thread(), Kind::ApprovalDecide)
        .with(|h| {
            h.call = Some(call.opened);
            h.verdict = Some(verdict.into());
        })
        .payload(Role::Note, encode(&body.reason)?))
}

fn resolve(history: &History, message: &Message, now: StoreTime) -> Result<Draft, String> {
    let body: Resolve = decode(message)?;
    let call = history
        .find(CallKind::Step, &message.name)
        .ok_or_else(|| format!("there is no step {:?}", named(message)))?;
    let doubtful = matches!(history.standing(call, now), Standing::Doubt(_));
    if !doubtful && history.settled_by_person(call) && !history.may_be_settled_again(call) {
        return Err(format!(
            "step {} is not in doubt: it was settled, and the workflow was given what was said",
            call.id
        ));
    }
    if !doubtful && !history.may_be_settled_again(call) {
        return Err(format!("step {} is not in doubt", call.id));
    }
    if guard::is_guarded(history) && call.outcome.is_some() && body.verdict == Verdict::DidNotHappen
    {
        return Err(format!(
            "step {} was settled, and whoever called it since was given that; a reset lets it happen \
             anew, under a fresh key",
            call.id
        ));
    }
    let draft = Draft::new(history.thread(), Kind::StepResolve)
        .with(|h| h.call = Some(call.opened))
        .payload(Role::Note, encode(&body.reason)?);
    Ok(match body.verdict {
        Verdict::Happened(value) => {
            value::check(&value.0, &ValueLimits::new()).map_err(|e| e.to_string())?;
            draft.with(|h| h.verdict = Some("happened".into())).payload(Role::Result, value.0)
        }
        Verdict::DidNotHappen => draft.with(|h| h.verdict = Some("did_not_happen".into())),
        Verdict::Failed(failure) => draft
            .with(|h| h.verdict = Some("failed".into()))
            .payload(Role::Error, encode(&failure)?),
    })
}

fn cancel(history: &History, message: &Message) -> Result<Draft, String> {
    let body: Cancel = decode(message)?;
    if history.cancelled() {
        return Err("the thread is already being cancelled".into());
    }
    Ok(Draft::new(history.thread(), Kind::Marker)
        .with(|h| h.why = Some("cancel".into()))
        .payload(Role::Note, encode(&body.reason)?))
}

fn late(history: &History, message: &Message) -> Result<Draft, String> {
    let body: Late = decode(message)?;
    let call = history
        .find(CallKind::Step, &message.name)
        .ok_or_else(|| format!("there is no step {:?}", named(message)))?;
    if !call.attempts.iter().any(|a| a.number == body.attempt) {
        return Err(format!("step {} has no attempt {}", call.id, body.attempt));
    }
    let draft = Draft::new(history.thread(), Kind::StepLate).with(|h| {
        h.call = Some(call.opened);
        h.attempt = Some(body.attempt);
    });
    Ok(match body.outcome {
        Ok(value) => {
            value::check(&value.0, &ValueLimits::new()).map_err(|e| e.to_string())?;
            draft.payload(Role::Result, value.0)
        }
        Err(failure) => draft.payload(Role::Error, encode(&failure)?),
    })
}

/// The message's name, as much of it as fits a sentence.
fn named(message: &Message) -> Cow<'_, str> {
    short(&message.name, 128)
}

/// A text that fits: whole, or its beginning and a mark.
fn short(text: &str, bytes_max: usize) -> Cow<'_, str> {
    const MARK: &str = " [cut]";
    if text.len() <= bytes_max {
        return text.into();
    }
    let mut end = bytes_max.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (text.get(..end).unwrap_or_default().to_owned() + MARK).into()
}

fn decode<T: DeserializeOwned>(message: &Message) -> Result<T, String> {
    value::decode(&message.body, &ValueLimits::new()).map_err(|e| format!("its body is {e}"))
}

fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, String> {
    value::encode(body, &ValueLimits::new()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests;
