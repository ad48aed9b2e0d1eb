//! A support agent whose model repeats itself: killed at chosen instants, and no effect happens
//! twice.
//!
//! In reading order: [`tools`] is what the agent may do, to a [`ledger`] that counts; [`agent`]
//! puts it together; [`child`] is the process around it, which [`story`] kills and restarts, and
//! [`terminal`] the one in which you talk to it yourself;
//! [`holds`] are the instants at which that happens.

pub mod agent;
pub mod child;
pub mod holds;
pub mod ledger;
pub mod story;
pub mod terminal;
pub mod tools;
