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

use std::{
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

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

#[test]
fn more_workers_than_any_machine_can_start_are_refused() {
    for number in ["0", "1025", "99999999", "99999999999999999999999"] {
        let mut program = Command::new(PROGRAM);
        let ran = program.args(["--workers", number, "power"]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains("it is a number from 1 to 1024"), "{said}");
    }
}
