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
mod lines;
mod numbered;
mod queue;
mod sorted;

use std::{collections::HashMap, sync::Arc};

pub use blocked::{Blocked, Waits};
pub use queue::{Made, Queue, View};
pub use sorted::Sorted;

use crate::{
    history::{Declared, Divergence, History},
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

/// What the thread does next. Numbers are those under which calls were [made](Queue::make), and
/// places in [`State::live`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Offer this call the outcome with this position.
    Offer {
        /// The call.
        call: u64,
        /// The position.
        position: Position,
    },
    /// Append what these acts need, and carry them out.
    Act(Vec<Act>),
    /// Wait for a body, or for this time.
    Wait(Option<StoreTime>),
    /// Nothing runs: the thread waits, and has nothing to do before this time.
    Park {
        /// When it has something to do by itself.
        until: Option<StoreTime>,
        /// What it waits for first: what needs a person most, or comes first.
        first: Blocked,
        /// How much else it waits for.
        more: usize,
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
    Open(u64),
    /// Append the intent of this attempt, and start the body once it is durable.
    Start {
        /// The call.
        call: u64,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Ask the downstream once everything is durable.
    Probe(u64),
    /// The timer is due: append that it fired.
    Fire(u64),
}

impl Act {
    /// The call that it is about.
    #[must_use]
    pub fn call(&self) -> u64 {
        match self {
            Self::Open(call) | Self::Start { call, .. } | Self::Probe(call) | Self::Fire(call) => {
                *call
            }
        }
    }
}

/// Decides what a thread with these live calls does next. Pure and total.
///
/// Whoever runs a thread keeps its calls in a [`Queue`], which decides the same and costs less.
#[must_use]
pub fn next(state: &State<'_>) -> Next {
    let mut queue = Queue::new(state.history.keyed());
    for (number, live) in (0..).zip(state.live) {
        let Declared { kind, id, .. } = live.declared;
        queue.make(number, live.declared, state.history.number(kind, id));
        queue.set_asked(number, live.asked);
        queue.set_busy(number, live.busy);
    }
    queue.next(&View {
        history: state.history,
        first_unmade: state.first_unmade,
        delivered: state.delivered,
        now: state.now,
    })
}

#[cfg(test)]
mod tests;
