//! What a body's end means under its policy: which record it becomes.

use super::{AttemptEnd, Call, Doubt};
use crate::{
    id::StoreTime,
    policy::{Policy, Terms},
    record::Kind,
};

/// How a body ended that did not return a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It failed, and another attempt would fail the same way.
    Terminal,
    /// It failed, and certainly had no effect.
    NotApplied,
    /// Nobody knows whether it had its effect.
    Ambiguous(Doubt),
}

/// The record for such an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRecord {
    /// `step.fail` or `step.unknown`.
    pub kind: EndKind,
    /// The field `why`.
    pub why: &'static str,
    /// When the next attempt may start; `None` if there is to be none by itself.
    pub due: Option<StoreTime>,
}

/// The two kinds of record for an end without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndKind {
    /// It certainly had no effect, or it settles the step.
    Fail,
    /// It may have had its effect.
    Unknown,
}

impl From<EndKind> for Kind {
    fn from(kind: EndKind) -> Self {
        match kind {
            EndKind::Fail => Self::StepFail,
            EndKind::Unknown => Self::StepUnknown,
        }
    }
}

/// Decides which record the end of `call`'s attempt under way becomes; `due` is when the next
/// attempt may start if there is one. Pure and total.
#[must_use]
pub fn ended(call: &Call, terms: &Terms, end: Ended, due: StoreTime) -> EndRecord {
    let more = !call.used_up(terms);
    let fail = |why, due| EndRecord { kind: EndKind::Fail, why, due };
    match (end, terms.policy) {
        (Ended::Terminal, _) => fail("terminal", None),
        (Ended::NotApplied, _) if more => fail("not_applied", Some(due)),
        (Ended::NotApplied, policy) if policy.has_effect() && call.had_ambiguous() => {
            fail("not_applied", None)
        }
        (Ended::NotApplied, _) => fail("exhausted", None),
        // A read has no effect to be in doubt about.
        (Ended::Ambiguous(Doubt::Dropped | Doubt::Cancelled), Policy::Read) => {
            fail("dropped", None)
        }
        (Ended::Ambiguous(why), Policy::Read) if more => fail(why.as_str(), Some(due)),
        (Ended::Ambiguous(_), Policy::Read) => fail("exhausted", None),
        (Ended::Ambiguous(why), Policy::Idempotent) => EndRecord {
            kind: EndKind::Unknown,
            why: why.as_str(),
            due: (more && why != Doubt::Dropped && why != Doubt::Cancelled).then_some(due),
        },
        (Ended::Ambiguous(why), Policy::Reconcile | Policy::AtMostOnce) => {
            EndRecord { kind: EndKind::Unknown, why: why.as_str(), due: None }
        }
    }
}

impl Call {
    /// Whether an attempt before the one under way may have had its effect.
    fn had_ambiguous(&self) -> bool {
        let before = self.uncleared().split_last().map(|(_, before)| before);
        let ambiguous =
            |end: &AttemptEnd| matches!(end, AttemptEnd::Open | AttemptEnd::Ambiguous(..));
        before.unwrap_or_default().iter().any(|a| ambiguous(&a.end))
    }
}
