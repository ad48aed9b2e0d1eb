//! Harness.

#[cfg(doctest)]
mod documents;
#[expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a harness that cannot go on stops its test"
)]
pub mod outside;
