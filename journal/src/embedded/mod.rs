//! The embedded home: one file, one process.

mod clock;

pub use clock::{StoreClock, TimeSource};
