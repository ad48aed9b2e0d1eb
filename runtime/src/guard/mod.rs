//! The guard: a step without a workflow.
//!
//! [`Deedbook::guard`](crate::Deedbook::guard) declares one; [`Guard::call`] runs its body, or
//! gives what is recorded. What it stands on, for programs that bring bodies of another kind, is
//! re-exported here: [`claim`] and the [`Ticket`].

mod book;
mod call;
mod declare;
mod error;
mod gate;
mod replayed;
mod switch;

pub(crate) use gate::{Entry, Gate};

pub use declare::Guard;
pub use error::CallError;
pub use replayed::{Called, Source};

pub use deedbook_journal::guard::{
    After, Answered, Claimed, Conflict, Forgotten, GuardError, InDoubt, InFlight, Off, Operation,
    Seen, Settled, Stands, THREAD_PREFIX, Ticket, Wanted, Within, claim, reset, seen, take_over,
};

use std::time::Duration;

/// What a call does about somebody who is at the same operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// It is an error, which says who, since when, and when to ask again.
    Refuse,
    /// It waits for them for so long, and is given what they bring. So it does for the time at
    /// which the other side may be asked.
    Wait(Duration),
    /// It takes the operation from them, and fences them: what they bring is evidence. For callers
    /// who know that the other is stuck; not under `at_most_once`.
    TakeOver,
}
