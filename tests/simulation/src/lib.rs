//! The embedded home in hostile surroundings, in rigs that count what they try.
//!
//! A [`work`] is a seed's life of a journal on a simulated disk, with what must be there after
//! each part of it; [`look`] opens what was left and compares. On these stand the rigs: [`power`]
//! loses power at every operation, [`fault`] makes every operation fail, [`gate`] makes syncs fail
//! one after the other, [`damage`] changes bytes. [`planted`] breaks a rule on purpose and asks
//! each rig whether it notices. [`crew`] runs cases side by side and sees that none hangs,
//! [`report`] says what was tried.
//!
//! A backup and a compaction write through the same seam: their rigs belong beside [`power`], as
//! further parts of a [`work::Work`].
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
pub mod crew;
pub mod damage;
pub mod fault;
pub mod gate;
pub mod look;
pub mod planted;
pub mod power;
pub mod report;
pub mod size;
pub mod work;
