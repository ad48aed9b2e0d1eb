//! The embedded home, and workflows on it, in hostile surroundings, in rigs that count what they
//! try.
//!
//! A [`work`] is a seed's life of a journal on a simulated disk, with what must be there after
//! each part of it; [`look`] opens what was left and compares. On these stand the rigs: [`power`]
//! loses power at every operation, [`fault`] makes every operation fail, [`close`] those of a
//! close with what the next process begins with, [`gate`] makes syncs fail one after the other,
//! [`damage`] changes bytes. [`kill`] needs no simulated disk: it kills real processes.
//! [`planted`] breaks a rule on purpose and asks
//! each rig whether it notices. [`crew`] runs cases side by side and sees that none hangs,
//! [`report`] says what was tried.
//!
//! What a seed does not fix: an idle log is marked after 100 ms of real time, so that a machine
//! that stops a run for that long moves the operations behind it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a rig that cannot go on stops its run"
)]

pub mod book;
pub mod close;
pub mod crew;
pub mod damage;
pub mod executor;
pub mod fault;
pub mod figures;
pub mod gate;
pub mod kill;
pub mod look;
pub mod planted;
pub mod power;
pub mod report;
pub mod size;
pub mod work;
