//! The guard: a step without a workflow.
//!
//! A guarded step is a thread of its own with one step in it. Its id comes from the scope, the
//! step's name and its identity, so that everybody who wants the same operation meets in the same
//! thread, whoever and wherever they are: a function that must not charge twice, a tool of an
//! agent, a program in another language, a step of a workflow whose scope is the whole journal.
//!
//! [`claim`] says what the caller may do. Only [`Claimed::Fresh`] lets it run the body, under an
//! intent that is durable by then; the [`Ticket`] in it takes what became of it:
//!
//! - [`Ticket::complete`]: it happened, and this is its result;
//! - [`Ticket::fail`]: it certainly did not happen;
//! - [`Ticket::unknown`]: nobody knows. So it is, too, if the caller dies and says nothing.
//!
//! What follows is decided by the recorded policy and by the same pure functions as for every step
//! of a workflow ([`crate::history::decide`], [`crate::history::ended`]). A ticket is fenced: who
//! lost the step to somebody else writes evidence, not outcomes ([`GuardError::Lost`]).
//!
//! Nothing here reads a clock or draws randomness: times come from the home, and salts from seeds
//! of 32 fresh random bytes that are kept nowhere.
//!
//! ```
//! # use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Waker}, time::Duration};
//! use deedbook_journal::{
//!     checkpointer::Checkpointer,
//!     guard::{Claimed, Wanted, Within, claim},
//!     policy::Policy,
//!     value,
//! };
//! # fn now<T>(future: impl Future<Output = T>) -> T {
//! #     let mut future = pin!(future);
//! #     loop {
//! #         let mut cx = Context::from_waker(Waker::noop());
//! #         if let Poll::Ready(done) = future.as_mut().poll(&mut cx) {
//! #             return done;
//! #         }
//! #         std::thread::yield_now();
//! #     }
//! # }
//! # let folder = std::env::temp_dir().join(format!("deedbook-guard-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # use deedbook_journal::embedded::Embedded;
//! # let home = Embedded::create(folder.join("a.redb"), Default::default())?;
//! # now(async {
//! let wanted = Wanted::new(Within::Journal, "charge", Policy::Idempotent)?
//!     .key("ORD-42")?
//!     .arguments(&("ORD-42", 4200))?;
//! let lease = Duration::from_secs(30);
//! // The seeds are 32 random bytes each time.
//! let Claimed::Fresh(ticket) = claim(&home, &wanted, "shop", lease, [1; 32]).await? else {
//!     panic!("nobody has charged before");
//! };
//! // … charge the card under `ticket.operation().key`, and then:
//! ticket.complete(&home, value::encode("receipt 7", &Default::default())?).await?;
//!
//! // Whoever wants the same is given what happened.
//! let again = claim(&home, &wanted, "shop", lease, [2; 32]).await?;
//! assert!(matches!(again, Claimed::Settled(_)));
//! # home.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod claim;
mod forget;
mod reset;
mod seen;
mod switch;
mod ticket;
mod wanted;

pub use claim::{Claimed, Conflict, InDoubt, InFlight, Settled, claim, take_over};
pub use forget::{Forgotten, forget, is_forgotten, may_be_forgotten};
pub use reset::reset;
pub use seen::{Seen, Stands, seen};
pub use switch::{Off, Switch, switch};
pub use ticket::{After, Answered, Operation, Ticket};
pub use wanted::{Wanted, Within};

use crate::{
    checkpointer::{Filter, StoreError},
    history::{Call, CallKind, Decision, Declared, History, decide},
    id::{InvalidName, StoreTime},
    row::{Row, Status},
    turn::Blocked,
    value::ValueError,
};

/// What stands as the workflow's name in the threads of guarded steps.
pub const WORKFLOW: &str = "deedbook:step";

/// What the ids of those threads begin with.
pub const THREAD_PREFIX: &str = "deedbook:step/";

/// Lists the threads of guarded steps, or of those of this name.
#[must_use]
pub fn listed(name: Option<&str>) -> Filter {
    let prefix = match name {
        Some(name) => format!("{THREAD_PREFIX}{}/", wanted::shown(name)),
        None => THREAD_PREFIX.to_owned(),
    };
    Filter {
        workflow: Some(WORKFLOW.into()),
        prefix: Some(prefix.into()),
        reserved: true,
        ..Filter::default()
    }
}

/// Why the guard did not do as asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The name, the key or the scope cannot be used.
    #[error("{0}")]
    Name(#[from] InvalidName),
    /// The arguments or the result cannot be recorded.
    #[error("{0}")]
    Value(#[from] ValueError),
    /// Somebody else has taken the step over, so that what became of this attempt cannot be its
    /// outcome. It is kept as evidence if it was one.
    #[error(
        "somebody else has taken the step over: what became of this attempt is {} and changes \
         nothing; claim the step again to learn its outcome",
        if *.kept { "kept as evidence" } else { "not recorded" }
    )]
    Lost {
        /// Whether it is kept.
        kept: bool,
    },
    /// The step is not in a state that allows it.
    #[error("refused: {why}")]
    Refused {
        /// Why not, and what to do.
        why: String,
    },
    /// The journal did not do as asked.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// The one step of a guarded step's thread, once it has begun.
pub(crate) fn step(history: &History) -> Option<&Call> {
    history.calls().iter().find(|call| call.kind == CallKind::Step)
}

/// Whether this is the thread of a guarded step.
#[must_use]
pub fn is_guarded(history: &History) -> bool {
    history.start().is_some_and(|start| &*start.workflow == WORKFLOW)
}

/// What may happen to a guarded step, for a caller who wants it as it was recorded. Whatever is
/// still open is not carried on by anybody.
pub(crate) fn decided(history: &History, now: StoreTime) -> Decision {
    let Some(call) = step(history) else { return Decision::Open };
    let declared = Declared {
        kind: CallKind::Step,
        id: &call.id,
        terms: call.terms.as_ref(),
        args: None,
        redact: &[],
    };
    decide(history, &declared, now)
}

/// The row of a guarded step of which nothing runs.
pub(crate) fn row_at_rest(history: &History, row: &Row, now: StoreTime) -> Row {
    let (status, detail) = match (step(history), decided(history, now)) {
        (Some(call), Decision::Doubt(doubt)) => {
            let (status, detail) = Blocked::status(&[Blocked::Doubt(call.id.clone(), doubt)]);
            (status, Some(detail.into()))
        }
        _ => (Status::Idle, None),
    };
    let same = (row.status, &row.detail) == (status, &detail);
    let open_doubts = u32::from(status == Status::InDoubt);
    let since = if same { row.since } else { now };
    Row { status, since, wake_at: None, detail, open_doubts, ..row.clone() }
}
