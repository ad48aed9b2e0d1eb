//! Figures, each beside a floor that was measured in the same run.
//!
//! A shared machine makes every duration a matter of luck, so durations are compared with the
//! plainest durable write there is ([`floor`]), round by round, and the figure to quote is the
//! median of the ratios. `docs/reference/performance.md` has the figures and what they mean.
//!
//! The measurements: the [`floor`] itself, [`steps`] (syncs, rates and latencies), [`reads`],
//! [`replay`] (from a crashed thread to its first new call, and what of that is the processor's),
//! [`open`] (what a program waits for when it starts), [`growth`] (the file, and the cost of a step
//! in a long journal), [`memory`] (and [`parked`] threads), and [`instructions`] (the hot path,
//! counted by callgrind in [`counted`]).
//!
//! What they are made of: a [`work`]flow to measure, perhaps with a [`gate`], a [`stage`] it runs
//! on, counting [`disk`]s and [`store`]s, their [`files`], [`other`] processes, an [`effort`], a
//! [`watch`], the [`machine`], the [`report`], and [`plot`]s.

pub mod calls;
pub mod counted;
pub mod disk;
pub mod effort;
pub mod files;
pub mod floor;
pub mod gate;
pub mod growth;
pub mod instructions;
pub mod machine;
pub mod memory;
pub mod open;
pub mod other;
pub mod parked;
pub mod plot;
pub mod reads;
pub mod replay;
pub mod report;
pub mod stage;
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
