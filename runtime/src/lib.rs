//! Deedbook: a durable workflow journal with exactly-once-within-scope steps.
//!
//! Every step of a workflow is recorded before and after it happens, so that a crashed run resumes
//! where it stopped, no step is done twice within its scope, and a stranger can check the record.
//!
//! In reading order: a [`Workflow`] is the user's code; its [`Context`] makes [`Step`]s, each
//! under a policy; a [`Deedbook`] runs it.

mod approval;
mod book;
mod branch;
mod builder;
mod clock;
mod context;
mod control;
mod desk;
mod error;
mod executor;
pub mod guard;
mod home;
mod load;
mod look;
mod notice;
mod operation;
mod options;
pub mod planted;
mod policy;
mod process;
mod random;
mod replay;
mod retry;
mod signal;
mod step;
mod wait;
mod wake;
mod worker;
mod workflow;

pub use approval::{Approval, Decided};
pub use book::{Deedbook, Resolution};
pub use builder::Builder;
pub use clock::{Clock, SystemClock, TimeSource, VirtualClock};
pub use context::Context;
pub use error::{Error, ErrorKind, StepError, StepResultExt, WorkflowError, WorkflowErrorKind};
pub use guard::{CallError, Duplicates, Guard};
pub use home::{Backup, Progress, Stage};
pub use look::OpenDoubt;
pub use notice::{Notice, Noticed, Watch};
pub use operation::{Attempt, Operation};
pub use policy::{
    AtMostOnce, Idempotent, NoPolicy, Policy, PolicyKind, Probe, Read, Receives, Reconcile,
};
pub use replay::{OtherPolicy, Replayed, ReplayedTo};
pub use retry::Retry;
pub use signal::Signal;
pub use step::Step;
pub use workflow::{Result, Workflow};

#[cfg(feature = "macros")]
pub use deedbook_macros::step;

/// What the code stands on that `#[step]` writes.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub use serde as __serde;

pub use deedbook_journal::{
    checkpointer::{self, Checkpointer, Filter, ThreadInfo},
    failure::Failure,
    history::{Divergence, DivergenceKind, Doubt, Instead},
    id::{Scope, StoreTime, ThreadId},
    limits::ValueLimits,
    row::{Row, Status},
    turn::Waits,
    value::Secret,
};
