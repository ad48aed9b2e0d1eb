//! Power is lost at every operation of the embedded home, and again while it recovers: what was
//! acknowledged is there, nothing else is, and a rule that is broken on purpose is noticed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test ends at the first surprise"
)]

mod erasure;
mod faults;
mod loss;
mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Planted faults are those of the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
