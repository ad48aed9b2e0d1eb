//! What may happen to one call: the one place that decides it.

use super::{Call, CallKind, Divergence, DivergenceKind, Doubt, History, Standing};
use crate::{
    id::{IdentityKind, Position, StepId, StoreTime},
    limits::ValueLimits,
    policy::{Policy, Terms},
    value::{self, canonical},
};

/// A call as the code makes it now.
#[derive(Debug, Clone, Copy)]
pub struct Declared<'a> {
    /// Its kind.
    pub kind: CallKind,
    /// Its identity.
    pub id: &'a StepId,
    /// The terms of a step.
    pub terms: Option<&'a Terms>,
    /// The arguments of a step, in MessagePack.
    pub args: Option<&'a [u8]>,
    /// Paths in the arguments whose values are not shown in a divergence.
    pub redact: &'a [String],
}

/// What may happen to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is new: open it. For a step this is its first attempt.
    Open,
    /// Its outcome has this position.
    Outcome(Position),
    /// An attempt is under way in this run.
    UnderWay,
    /// The attempt with this number may start.
    Start(u32),
    /// Not before this time.
    Later(StoreTime),
    /// The downstream may be asked.
    Ask,
    /// The downstream may not be asked before this time.
    AskLater(StoreTime),
    /// A timer is set for this time.
    Timer(StoreTime),
    /// A person is to decide.
    Decide,
    /// A person is to settle it.
    Doubt(Doubt),
    /// The code disagrees with the records.
    Diverged(Divergence),
}

/// In what way `call` disagrees with the records, if it does; `recorded` is its number among the
/// recorded calls.
#[must_use]
pub fn diverged(
    history: &History,
    call: &Declared<'_>,
    recorded: Option<usize>,
) -> Option<Divergence> {
    let recorded = recorded.and_then(|number| history.calls().get(number));
    // A recorded identity is of the kind that its name has.
    match recorded {
        Some(recorded) => other_arguments(recorded, call),
        None => other_identity(history, call),
    }
}

/// Decides what may happen to `call` at `now`. Pure and total: it depends on its arguments only
/// and answers for every history.
#[must_use]
pub fn decide(history: &History, call: &Declared<'_>, now: StoreTime) -> Decision {
    decide_recorded(history, history.number(call.kind, call.id), call, now)
}

/// [`decide`], for whoever knows the number of the call among the recorded calls.
pub(crate) fn decide_recorded(
    history: &History,
    number: Option<usize>,
    call: &Declared<'_>,
    now: StoreTime,
) -> Decision {
    if let Some(divergence) = diverged(history, call, number) {
        return Decision::Diverged(divergence);
    }
    let Some(recorded) = number.and_then(|number| history.calls().get(number)) else {
        return Decision::Open;
    };
    if let Some(outcome) = &recorded.outcome {
        return Decision::Outcome(outcome.position);
    }
    match recorded.kind {
        CallKind::Step => step(history, recorded, call, now),
        CallKind::Timer => Decision::Timer(recorded.due.unwrap_or(now)),
        CallKind::Approval => Decision::Decide,
        CallKind::Clock | CallKind::Signal => Decision::Open,
    }
}

fn step(history: &History, recorded: &Call, call: &Declared<'_>, now: StoreTime) -> Decision {
    let terms = effective(recorded.terms.as_ref(), call.terms);
    match recorded.standing_made(terms, history.live_from(), now) {
        Standing::Settled | Standing::UnderWay => Decision::UnderWay,
        Standing::Ready(attempt) => Decision::Start(attempt),
        Standing::Later(until) => Decision::Later(until),
        Standing::Ask => Decision::Ask,
        Standing::AskLater(until) => Decision::AskLater(until),
        Standing::Doubt(doubt) => Decision::Doubt(doubt),
    }
}

/// A doubt is settled under the recorded policy. Of changed declarations only
/// `at_most_once → reconcile` applies by itself: asking can do no harm.
fn effective<'a>(recorded: Option<&'a Terms>, now: Option<&'a Terms>) -> Option<&'a Terms> {
    match (recorded, now) {
        (Some(r), Some(n)) if r.policy == Policy::AtMostOnce && n.policy == Policy::Reconcile => {
            Some(n)
        }
        (Some(r), _) => Some(r),
        (None, n) => n,
    }
}

fn other_identity(history: &History, call: &Declared<'_>) -> Option<Divergence> {
    if call.kind != CallKind::Step {
        return None;
    }
    let recorded: IdentityKind = history.identity_kind(&call.id.name)?;
    let now = call.id.identity.kind();
    if recorded == now {
        return None;
    }
    let first =
        history.calls().iter().find(|c| c.kind == CallKind::Step && c.id.name == call.id.name);
    Some(Divergence {
        call: call.id.to_string(),
        at: first.map_or(0, |c| c.opened),
        kind: DivergenceKind::Identity { recorded, now },
    })
}

/// Compares arguments: the stored bytes first, and only if those differ their canonical forms.
fn other_arguments(recorded: &Call, call: &Declared<'_>) -> Option<Divergence> {
    let (old, new) = (recorded.args.as_deref()?, call.args?);
    if old == new {
        return None;
    }
    let limits = ValueLimits::new().depth_max(128).bytes_max(usize::MAX);
    let old_form = canonical::of_msgpack(old, &limits);
    let new_form = canonical::of_msgpack(new, &limits);
    if old_form.is_ok() && old_form.as_ref().ok() == new_form.as_ref().ok() {
        return None;
    }
    Some(Divergence {
        call: call.id.to_string(),
        at: recorded.opened,
        kind: DivergenceKind::Arguments(value::diff(old, new, call.redact)),
    })
}
