//! What an agent SDK's idempotent tools promise, and where they stop, done with Deedbook.
//!
//! [`tools`] are four tools, one of each kind; [`billing`] is the other side, which counts;
//! [`stories`] are the situations, each with what came of it.

pub mod billing;
pub mod stories;
pub mod tools;
