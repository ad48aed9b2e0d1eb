//! How much is tried.

use crate::{damage::Stride, power::Sweep};

/// A size of every rig.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Its name.
    pub name: &'static str,
    /// Works whose every operation is crashed.
    pub power_seeds: u64,
    /// How.
    pub power: Sweep,
    /// Works whose every operation fails.
    pub fault_seeds: u64,
    /// One of how many of these runs.
    pub fault_every: usize,
    /// Lives with failing syncs.
    pub gate_seeds: u64,
    /// How densely journals are damaged.
    pub damage: Stride,
}

impl Size {
    /// For the test command.
    #[must_use]
    pub fn reduced() -> Self {
        Self {
            name: "reduced",
            power_seeds: 3,
            power: Sweep { losses: 1, again: 2, ..Sweep::whole() },
            fault_seeds: 2,
            fault_every: 5,
            gate_seeds: 150,
            damage: Stride(499),
        }
    }

    /// For every change, in release mode: a few minutes on two processors.
    #[must_use]
    pub fn full() -> Self {
        Self {
            name: "full",
            power_seeds: 32,
            power: Sweep::whole(),
            fault_seeds: 14,
            fault_every: 1,
            gate_seeds: 5000,
            damage: Stride(23),
        }
    }

    /// For a night.
    #[must_use]
    pub fn nightly() -> Self {
        Self {
            name: "nightly",
            power_seeds: 200,
            fault_seeds: 100,
            gate_seeds: 100_000,
            damage: Stride(1),
            ..Self::full()
        }
    }

    /// All of them.
    #[must_use]
    pub fn all() -> [Self; 3] {
        [Self::reduced(), Self::full(), Self::nightly()]
    }

    /// What a run of the full size must at least have tried: rig, count, number.
    #[must_use]
    pub fn floors() -> [(&'static str, &'static str, u64); 6] {
        [
            ("power", "crash points", 10_000),
            ("power", "images", 150_000),
            ("power", "crashed twice", 40_000),
            ("fault", "runs", 8_000),
            ("gate", "seeds", 5_000),
            ("damage", "cases", 50_000),
        ]
    }
}
