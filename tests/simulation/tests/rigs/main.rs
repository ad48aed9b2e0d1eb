//! The reduced sets of the rigs: what was acknowledged is there, nothing else is, and a rule that
//! is broken on purpose is noticed. `.ci/run` runs the standard ones.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test ends at the first surprise"
)]

mod backup;
mod damage;
mod erasure;
mod executor;
mod fault;
mod figures;
mod kill;
mod planted;
mod power;

use std::sync::{Mutex, MutexGuard, PoisonError};

use deedbook_simulation::crew::{Crew, Tally};

/// The program that runs damage in processes of its own.
const PROGRAM: &str = env!("CARGO_BIN_EXE_deedbook-simulation");

/// Planted faults are those of the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn crew() -> Crew {
    Crew::new(false)
}

/// Nothing went wrong; prints what was tried.
fn judge(tally: &Tally) {
    println!("{:?}", tally.counts);
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
}
