//! What a guarded call brought, and where it comes from.

use std::sync::Arc;

use deedbook_journal::{
    guard::Settled,
    id::{Position, StoreTime, ThreadId},
};

/// A result, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called<T> {
    /// The result: the decoded stored value, for the first caller as for every later one.
    pub value: T,
    /// Where it comes from.
    pub source: Source,
}

/// Where a result comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Whether it was recorded before this call, whose body did not run.
    pub replayed: bool,
    /// The step's thread.
    pub thread: ThreadId,
    /// The record that settled it.
    pub position: Position,
    /// When that was recorded.
    pub at: StoreTime,
    /// The operation key that was sent downstream, unless the step is a read.
    pub key: Option<Arc<str>>,
    /// How many attempts there were.
    pub attempts: u32,
}

impl Source {
    pub(crate) fn of(settled: &Settled, replayed: bool) -> Self {
        Self {
            replayed,
            thread: settled.thread.clone(),
            position: settled.position,
            at: settled.at,
            key: settled.key.clone(),
            attempts: settled.attempts,
        }
    }
}
