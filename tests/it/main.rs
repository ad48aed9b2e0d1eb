//! The promises, tested: one module a promise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends at the first surprise"
)]

mod batches;
mod compile;
mod divergence;
mod episodes;
mod foreign;
mod guard;
mod histories;
mod house;
mod layers;
mod notices;
mod output_commit;
mod policies;
mod processes;
mod random_workflows;
mod replay;
mod scenarios;
mod signals_timers;
mod smoke;
mod start;
mod traces;
