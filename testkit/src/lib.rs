//! Crashes your workflow at every write and at every request, resumes it, and says what went
//! wrong.
//!
//! [`crash_matrix`] goes into a plain `#[test]`. The workflow under test talks to
//! [`Downstream`]s of a [`World`] instead of the real services, through whatever seam it has for
//! them; everything else is the code that runs in production.
//!
//! What is checked after each crash and resumption:
//!
//! - nothing was done twice under one operation key, and nothing under a key that no step has;
//! - nothing was done whose intent is not in the journal;
//! - no step is recorded as done that never happened;
//! - an `at_most_once` step was asked for once; where its outcome is not known, it is in doubt;
//! - a request that was on its way when the process died has not been sent again too early;
//! - the program comes to its end, with the result that it has without the crash.
//!
//! [`kill_matrix`] does the same with real processes, a journal on disk, and SIGKILL.
//!
//! [`replay_check`] replays threads that `deedbook export` has written with the code as it is now,
//! with nothing executed.
//!
//! Bodies must wait for nothing but their downstreams: a body that reads a real clock or socket
//! makes time pass before it is done. One thread runs everything, and equal seeds run equally.

mod downstream;
mod home;
mod judge;
mod kill;
mod life;
mod matrix;
mod place;
mod random;
mod replay;
mod report;
mod world;

pub use downstream::{Downstream, DownstreamError};
pub use kill::kill_matrix;
pub use matrix::{CrashMatrix, crash_matrix};
pub use replay::{ReplayCheck, Replays, Verdict, WasReplayed, replay_check};
pub use report::Matrix;
pub use world::World;
