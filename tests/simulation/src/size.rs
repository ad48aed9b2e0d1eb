//! How much is tried.

use crate::{damage::Stride, kill, power::Sweep};

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
    /// How much is killed.
    pub kill: kill::Sweep,
    /// Lives of threads.
    pub executor_seeds: u64,
}

impl Size {
    /// For the test command.
    #[must_use]
    pub fn reduced() -> Self {
        Self {
            name: "reduced",
            power_seeds: 3,
            power: Sweep { losses: 1, again: 2, ..Sweep::whole() },
            fault_seeds: 3,
            fault_every: 7,
            gate_seeds: 150,
            damage: Stride(499),
            kill: kill::Sweep { seeds: 2, every: 60, again: 1 },
            executor_seeds: 300,
        }
    }

    /// For every change, in release mode: a few minutes on two processors.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            name: "standard",
            power_seeds: 18,
            power: Sweep::whole(),
            fault_seeds: 10,
            fault_every: 1,
            gate_seeds: 5000,
            damage: Stride(13),
            kill: kill::Sweep { seeds: 4, every: 3, again: 1 },
            executor_seeds: 24_000,
        }
    }

    /// For a night.
    #[must_use]
    pub fn full() -> Self {
        Self {
            name: "full",
            power_seeds: 200,
            fault_seeds: 100,
            gate_seeds: 100_000,
            damage: Stride(1),
            kill: kill::Sweep { seeds: 20, every: 1, again: 1 },
            executor_seeds: 2_000_000,
            ..Self::standard()
        }
    }

    /// All of them.
    #[must_use]
    pub fn all() -> [Self; 3] {
        [Self::reduced(), Self::standard(), Self::full()]
    }

    /// What a run of the standard size must at least have tried: rig, count, number.
    #[must_use]
    pub fn floors() -> [(&'static str, &'static str, u64); 10] {
        [
            ("power", "crash points", 10_000),
            ("power", "images", 150_000),
            ("power", "crashed twice", 40_000),
            ("fault", "runs", 8_000),
            ("gate", "seeds", 5_000),
            ("damage", "cases", 50_000),
            ("kill", "kills", 4_500),
            ("kill", "points under every policy", 200),
            ("executor", "seeds", 20_000),
            ("executor", "lived twice", 200),
        ]
    }
}
