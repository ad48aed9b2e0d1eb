//! Threads kept in memory: for tests, for simulations, and for trying Deedbook out.
//!
//! [`MemoryHome`] keeps every promise of a checkpointer but one: nothing outlives the process. It
//! has what tests need beside them: it counts ([`MemoryHome::counts`]), it can be copied as a
//! crash would leave it ([`MemoryHome::snapshot`]), and it can stop like a machine that loses
//! power ([`MemoryHome::stop_after_appends`]).
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! use deedbook_journal::checkpointer::Checkpointer;
//! use deedbook_memory::{MemoryHome, MemoryOptions};
//!
//! let home: Arc<dyn Checkpointer> = Arc::new(MemoryHome::new(MemoryOptions::new()));
//! # let _ = home;
//! ```

mod home;
mod state;
mod thread;

pub use home::{LastAppend, MemoryCounts, MemoryHome, MemoryOptions, MemorySnapshot};
