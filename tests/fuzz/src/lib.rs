//! Everything that reads bytes, given any bytes.
//!
//! A [`Target`] is a promise about what some reader makes of bytes that anybody may have written.
//! An input that breaks it is a finding, and so is one that makes our code panic, even where the
//! panic is caught ([`panics`]). Inputs come from the kept [`corpus`], from the [`mutator`], and
//! from the engine in `engine/`, a workspace apart, which is led by coverage.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a target that cannot go on stops its run"
)]

mod arguments;
mod canonical;
pub mod corpus;
mod export;
mod fixture;
mod header;
mod history;
mod input;
mod journal;
mod json;
mod log;
mod msgpack;
pub mod mutator;
pub mod panics;
// The disk and the dice of the tests, without what else the harness is built of.
#[path = "../../harness/random.rs"]
pub mod random;
mod record;
#[path = "../../harness/sim_disk/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "others use more of it")]
mod sim_disk;
mod stored;
mod words;

/// What is wrong with what was made of an input.
pub type Broken = String;

/// A promise about what is made of any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What is promised.
    pub promise: &'static str,
    /// Tries an input.
    run: fn(&[u8]) -> Result<(), Broken>,
    /// Inputs to begin with, made from real records, journals and exports.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that its inputs are made of.
    pub words: &'static [&'static str],
    /// How long an input may be, in bytes.
    pub bytes_max: usize,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    header::TARGET,
    record::TARGET,
    stored::TARGET,
    history::TARGET,
    msgpack::TARGET,
    canonical::TARGET,
    json::TARGET,
    words::TARGET,
    journal::TARGET,
    log::TARGET,
    export::TARGET,
    arguments::TARGET,
];

impl Target {
    /// The target of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Tries an input.
    ///
    /// # Errors
    /// Which promise it breaks.
    pub fn attempt(&self, input: &[u8]) -> Result<(), Broken> {
        panics::none_of_ours(|| (self.run)(input))
    }
}

/// What must be there.
fn good<T>(what: &str, result: Result<T, impl std::fmt::Display>) -> Result<T, Broken> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Holds two values against each other.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, left: &T, right: &T) -> Result<(), Broken> {
    if left == right { Ok(()) } else { Err(format!("{what}: {left:?} is not {right:?}")) }
}
