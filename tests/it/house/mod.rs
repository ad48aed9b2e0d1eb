//! The house around the code: what a reader meets before the first line of Rust, kept by tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends at the first surprise"
)]

mod dependencies;
mod documents;
mod invariants;
mod tidy;
mod tree;
