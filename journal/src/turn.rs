//! What a thread does next: the one place that decides it.
//!
//! The rule, which makes replay give every outcome in the order in which it was first given:
//!
//! 1. *Offer.* Of the calls whose futures were polled since they were last refused, offer the
//!    outcome with the lowest position, and only that one. Before an outcome at `p` is offered,
//!    every call recorded below `p` must have been made.
//! 2. *Quiescence.* When there is nothing to offer, every recorded call must have been made:
//!    otherwise a renamed step would run again. Only now do new calls open and bodies start.
//! 3. *Wait* for a body, or *park* for a time, a message or a person. A workflow with nothing
//!    that Deedbook could wait for is *stalled*.

mod blocked;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

pub use blocked::{Blocked, Waits};

use crate::{
    history::{
        Call, CallKind, Decision, Declared, Divergence, DivergenceKind, Doubt, History, Instead,
        decide,
    },
    id::{Position, StoreTime},
};

/// A call that the workflow has made and not been given the outcome of.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    /// The call as the code makes it.
    pub declared: Declared<'a>,
    /// Whether its future was polled since its outcome was last refused.
    pub asked: bool,
    /// Whether its body or its probe is under way.
    pub busy: bool,
}

/// What [`next`] decides from.
#[derive(Debug)]
pub struct State<'a> {
    /// The records, the ones just appended included.
    pub history: &'a History,
    /// The live calls, in the order in which they were made.
    pub live: &'a [Live<'a>],
    /// The lowest position below [`History::live_from`] that opened a call which the code has
    /// not made yet.
    pub first_unmade: Option<Position>,
    /// How many signals of a name were delivered.
    pub delivered: &'a HashMap<Arc<str>, usize>,
    /// The store's clock.
    pub now: StoreTime,
}

/// What the thread does next. Numbers are places in [`State::live`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Offer this call the outcome with this position.
    Offer {
        /// The call.
        call: usize,
        /// The position.
        position: Position,
    },
    /// Append what these acts need, and carry them out.
    Act(Vec<Act>),
    /// Wait for a body, or for this time.
    Wait(Option<StoreTime>),
    /// Nothing runs: the thread waits for what is listed, and has nothing to do before this time.
    Park {
        /// When it has something to do by itself.
        until: Option<StoreTime>,
        /// What it waits for.
        blocked: Vec<Blocked>,
    },
    /// The code disagrees with the records.
    Diverged(Divergence),
    /// The workflow waits for something that Deedbook does not know.
    Stalled,
}

/// One thing to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Open a timer, an approval request, or a reading of the clock.
    Open(usize),
    /// Append the intent of this attempt, and start the body once it is durable.
    Start {
        /// The call.
        call: usize,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Ask the downstream once everything is durable.
    Probe(usize),
    /// The timer is due: append that it fired.
    Fire(usize),
}

impl Act {
    /// The call that it is about.
    #[must_use]
    pub fn call(&self) -> usize {
        match self {
            Self::Open(call) | Self::Start { call, .. } | Self::Probe(call) | Self::Fire(call) => {
                *call
            }
        }
    }
}

/// Decides what the thread does next. Pure and total.
#[must_use]
pub fn next(state: &State<'_>) -> Next {
    if let Some((call, position)) = lowest_outcome(state) {
        return match state.first_unmade {
            Some(unmade) if unmade < position => not_made(state, unmade),
            _ => Next::Offer { call, position },
        };
    }
    if let Some(unmade) = state.first_unmade {
        return not_made(state, unmade);
    }
    quiescent(state)
}

fn lowest_outcome(state: &State<'_>) -> Option<(usize, Position)> {
    let mut taken: HashSet<&str> = HashSet::new();
    let mut lowest: Option<(usize, Position)> = None;
    for (number, live) in state.live.iter().enumerate().filter(|(_, l)| l.asked) {
        let position = match live.declared.kind {
            // The earliest wait for a name stands first in its queue.
            CallKind::Signal => {
                let name = live.declared.id.name.as_str();
                let first = taken.insert(name);
                let signals = state.history.signals(name);
                let next = state.delivered.get(name).copied().unwrap_or(0);
                first.then(|| signals.get(next)).flatten().map(|s| s.position)
            }
            _ => recorded(state, live).and_then(|c| c.outcome.as_ref()).map(|o| o.position),
        };
        if let Some(position) = position
            && lowest.is_none_or(|(_, p)| position < p)
        {
            lowest = Some((number, position));
        }
    }
    lowest
}

fn recorded<'a>(state: &State<'a>, live: &Live<'_>) -> Option<&'a Call> {
    let number = state.history.number(live.declared.kind, live.declared.id)?;
    state.history.calls().get(number)
}

fn not_made(state: &State<'_>, opened: Position) -> Next {
    let call = state.history.opened_at(opened).map(|c| c.id.to_string()).unwrap_or_default();
    let kind = DivergenceKind::NotMade { instead: instead(state, opened) };
    Next::Diverged(Divergence { call, at: opened, kind })
}

/// What the code does where its records have the call opened at this position: the first new call
/// that it has made, or else the first one that is recorded behind the missing one.
fn instead(state: &State<'_>, missing: Position) -> Instead {
    let mut behind = None;
    for live in state.live {
        let shown = || match live.declared.kind {
            CallKind::Step => live.declared.id.to_string(),
            kind => format!("{} {}", kind.as_str(), live.declared.id),
        };
        match recorded(state, live) {
            None => return Instead::New(shown()),
            Some(call) if call.opened > missing && behind.is_none() => behind = Some(shown()),
            Some(_) => {}
        }
    }
    behind.map_or(Instead::Nothing, Instead::Behind)
}

fn quiescent(state: &State<'_>) -> Next {
    let mut acts = Vec::new();
    let mut blocked = Vec::new();
    let mut until: Option<StoreTime> = None;
    let mut seen = HashSet::new();
    let mut busy = false;
    for (number, live) in state.live.iter().enumerate() {
        busy |= live.busy;
        if !live.busy && !live.asked {
            continue;
        }
        // Of twins by arguments the first that asks runs for all of them.
        let twin = live.declared.kind != CallKind::Signal
            && !seen.insert((live.declared.kind, live.declared.id));
        if live.busy || twin {
            continue;
        }
        let id = live.declared.id;
        if live.declared.kind == CallKind::Signal {
            blocked.push(Blocked::Signal(id.name.as_str().into()));
            continue;
        }
        let mut wait = |time: StoreTime, why: Blocked| {
            until = Some(until.map_or(time, |u| u.min(time)));
            blocked.push(why);
        };
        match decide(state.history, &live.declared, state.now) {
            Decision::Open if live.declared.kind == CallKind::Step => {
                acts.push(Act::Start { call: number, attempt: 1 });
            }
            Decision::Open => acts.push(Act::Open(number)),
            Decision::Start(attempt) => acts.push(Act::Start { call: number, attempt }),
            Decision::Ask => acts.push(Act::Probe(number)),
            Decision::Timer(due) if due <= state.now => acts.push(Act::Fire(number)),
            Decision::Timer(due) => wait(due, Blocked::Timer(id.clone(), due)),
            Decision::Later(due) => wait(due, Blocked::Retry(id.clone(), due)),
            Decision::AskLater(due) => wait(due, Blocked::Quiet(id.clone(), due)),
            Decision::Decide => blocked.push(Blocked::Approval(id.clone())),
            Decision::Doubt(doubt) => blocked.push(doubtful(state, live, doubt)),
            Decision::Diverged(divergence) => return Next::Diverged(divergence),
            // A twin runs it, or its outcome waits for its future to be polled.
            Decision::UnderWay | Decision::Outcome(_) => {}
        }
    }
    if !acts.is_empty() {
        Next::Act(acts)
    } else if busy {
        Next::Wait(until)
    } else if blocked.is_empty() {
        Next::Stalled
    } else {
        Next::Park { until, blocked }
    }
}

fn doubtful(state: &State<'_>, live: &Live<'_>, doubt: Doubt) -> Blocked {
    let id = live.declared.id.clone();
    match recorded(state, live).and_then(|call| state.history.misread(call)) {
        Some(why) if doubt == Doubt::Unreadable => Blocked::Misread(id, why.clone()),
        _ => Blocked::Doubt(id, doubt),
    }
}

#[cfg(test)]
mod tests;
