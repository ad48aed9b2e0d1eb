//! The house around the code: what a reader meets before the first line of Rust, kept by tests.

mod behaviours;
mod dependencies;
mod documents;
mod invariants;
mod tidy;
mod tree;
