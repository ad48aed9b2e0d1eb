//! The embedded home on real files: what it refuses, what it survives, and what it says.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "these are tests"
)]

mod anchor;
mod backup;
mod commit_by;
mod compact;
mod damage;
mod desk;
mod doctor;
mod examined;
mod faults;
mod held;
mod kill;
mod open;
mod stale;
