//! The refund story.
//!
//! In reading order: [`money`] (amounts without floats), [`requests`] (the lines that customers
//! send), [`judge`] (who decides), [`bank`] (a real HTTP server with its own durable ledger, and
//! its client): nothing of these knows Deedbook, and a program without a journal could use all of
//! it, and would then refund some customers twice. [`agent`] is the workflow and its process;
//! [`story`] starts it, kills it, and lays the bank's ledger beside the journal.

pub mod money;
pub mod requests;

pub mod judge;

pub mod bank;

pub mod agent;
pub mod story;
