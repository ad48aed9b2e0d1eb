//! Figures, each beside a floor that was measured in the same run.
//!
//! A shared machine makes every duration a matter of luck, so durations are compared with the
//! plainest durable write there is ([`floor`]), round by round, and the figure to quote is the
//! median of the ratios. `docs/reference/performance.md` has the figures and what they mean.
//!
//! The measurements: [`steps`] (syncs, rates and latencies), [`bytes`] (what a step takes on
//! disk), [`replay`] (from a crashed thread to its first new call, and what of that is the
//! processor's), [`open`] and [`start`] (what a program waits for when it starts). What they are
//! made of: a [`work`]flow to measure, a [`stage`] it runs on, counting [`disk`]s and
//! [`store`]s, their
//! [`files`], a [`watch`], the [`machine`], and the [`report`].

pub mod bytes;
pub mod disk;
pub mod files;
pub mod floor;
pub mod machine;
pub mod open;
pub mod replay;
pub mod report;
pub mod stage;
pub mod start;
pub mod steps;
pub mod store;
pub mod watch;
pub mod work;

#[cfg(test)]
mod guard;

/// Whatever went wrong: a measurement that fails has no figure.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// What a measurement gives.
pub type Result<T> = std::result::Result<T, Failed>;
