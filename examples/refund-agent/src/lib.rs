//! The outside world of the refund story: what the agent reads, asks and pays through.
//!
//! In reading order: [`money`] (amounts without floats), [`requests`] (the lines that customers
//! send), [`judge`] (who decides), [`bank`] (a real HTTP server with its own durable ledger, and
//! its client). Nothing here knows Deedbook: a program without a journal could use all of it, and
//! would then refund some customers twice.

pub mod money;
pub mod requests;

pub mod judge;

pub mod bank;
