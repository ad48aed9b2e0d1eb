//! What tests stand on.
//!
//! [`outside`] is a scripted world for tests that say what happens when, [`code`] a workflow made
//! of a closure, [`watched`] a home whose appends can be held back. The rest is a
//! deterministic simulation of a workflow in a hostile world:
//!
//! A [`Simulation`] runs one thread on the home in memory, on a current-thread runtime of its own
//! and on a virtual clock, in a chain of *incarnations*: each is a fresh book that resumes what
//! the crash of the one before left behind. Everything that takes time (bodies, requests on their
//! way, appends) waits at a gate of the [`World`], and gates are opened in the seed's order, so
//! that every interleaving is reachable and none costs real time.
//!
//! [`program`] makes random workflows and runs them.
//!
//! What a seed does not fix: `tokio::select!` draws its own order, and jitter and salts are drawn
//! from the system.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a harness that cannot go on stops its test"
)]

pub mod check;
pub mod code;
pub mod corpus;
#[cfg(doctest)]
mod documents;
mod durable;
pub mod executor;
mod home;
pub mod outside;
pub mod program;
mod random;
mod replay;
mod sim_disk;
mod simulation;
pub mod watched;
mod world;

pub use check::Check;
pub use durable::Durable;
pub use random::Random;
pub use sim_disk::{Change, Fault, Loss, SimDisk, Tape};
pub use simulation::{Crash, Ran, Simulation, THREAD, Visitor};
pub use world::{Fate, Gate, World};
