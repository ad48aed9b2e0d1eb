//! What the suite needs of the checkpointer under test.

use std::{fmt, sync::Arc};

use deedbook_journal::checkpointer::{BoxFuture, Checkpointer};

/// How to make, crash and reopen a checkpointer.
pub trait Subject: Send + Sync {
    /// A fresh, empty checkpointer with its own storage.
    fn make(&self) -> BoxFuture<'_, Made>;

    /// Lets go of `home` as a crash of the process would, without closing it, and opens the same
    /// storage again. `None` if this checkpointer cannot be opened again.
    fn reopen(&self, made: Made) -> BoxFuture<'_, Option<Made>>;
}

/// A checkpointer under test.
pub struct Made {
    /// The checkpointer.
    pub home: Arc<dyn Checkpointer>,
    /// Turns the wall clock under it to this many nanoseconds since 1970, if that can be done.
    /// What the checkpointer's own clock makes of it is what is tested.
    pub set_wall: Option<Arc<dyn Fn(u64) + Send + Sync>>,
    /// Anything that has to live as long as the checkpointer: a folder, a server, a number.
    pub keep: Arc<dyn std::any::Any + Send + Sync>,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made")
            .field("home", &self.home)
            .field("turns_clock", &self.set_wall.is_some())
            .finish_non_exhaustive()
    }
}
