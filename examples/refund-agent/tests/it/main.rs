//! The outside world of the agent, tested alone: over real sockets, with real processes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]
#![expect(clippy::indexing_slicing, reason = "a test ends at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "real processes live in real time")]

mod crashes;
mod durability;
mod faults;
mod histories;
mod keys;
mod refunds_file;
mod story;
mod support;
mod without_keys;
