//! Rules broken on purpose: which rig notices which.

use std::{ops::ControlFlow, path::Path};

use deedbook_journal::embedded::planted::{Broken, plant};

use crate::{
    crew::{Crew, Tally},
    damage::{Stride, Which, apart},
    fault, gate,
    power::{self, Sweep},
};

/// A rig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rig {
    /// [`power`].
    Power,
    /// [`fault`].
    Fault,
    /// [`gate`].
    Gate,
    /// [`crate::damage`].
    Damage,
}

impl Rig {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Power, Self::Fault, Self::Gate, Self::Damage];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Fault => "fault",
            Self::Gate => "gate",
            Self::Damage => "damage",
        }
    }
}

/// A broken rule, and the rigs that notice.
#[derive(Debug, Clone)]
pub struct Row {
    /// The rule.
    pub fault: Broken,
    /// Whether each of [`Rig::ALL`] notices.
    pub noticed: [bool; Rig::ALL.len()],
    /// The rig that must.
    pub by: Rig,
}

impl Row {
    /// Whether the rig that must notice does.
    #[must_use]
    pub fn holds(&self) -> bool {
        Rig::ALL.iter().zip(self.noticed).any(|(rig, noticed)| *rig == self.by && noticed)
    }
}

/// The rig that must notice a broken rule.
#[must_use]
pub fn must_notice(fault: Broken) -> Rig {
    match fault {
        Broken::TrustFoundFrames
        | Broken::AppendBehindFrames
        | Broken::TrySyncAgain
        | Broken::OnePhaseCommit => Rig::Gate,
        Broken::SkipChecksum | Broken::IgnoreDamagedFrame | Broken::OpenWithoutLog => Rig::Damage,
        _ => Rig::Power,
    }
}

/// Breaks each rule and asks each rig. `program` is this program, for [`apart`].
///
/// # Errors
/// As [`notices`].
pub fn matrix(crew: &Crew, program: &Path) -> Result<Vec<Row>, String> {
    let row = |fault: Broken| {
        let mut noticed = [false; Rig::ALL.len()];
        for (rig, noticed) in Rig::ALL.into_iter().zip(&mut noticed) {
            *noticed = notices(crew, program, rig, fault)?;
        }
        Ok(Row { fault, noticed, by: must_notice(fault) })
    };
    Broken::ALL.into_iter().map(row).collect()
}

/// Whether a rig notices a broken rule. The sets are small, and the first failure is enough.
///
/// # Errors
/// The journals to damage could not be made.
pub fn notices(crew: &Crew, program: &Path, rig: Rig, fault: Broken) -> Result<bool, String> {
    let crew = Crew { stops: true, tells: false, ..*crew };
    if rig == Rig::Damage {
        // Those with a log first: they show most.
        let journals = [Which::Unmarked, Which::Marked, Which::Closed];
        let tally = apart::run(&crew, program, &journals, Stride(499), Some(fault))?;
        return Ok(!tally.failures.is_empty());
    }
    // What fails without the fault is planned without it.
    let cases = if rig == Rig::Fault { fault::cases(0) } else { Vec::new() };
    plant(Some(fault));
    let tally = asked(&crew, rig, &cases);
    plant(None);
    Ok(!tally.failures.is_empty())
}

fn asked(crew: &Crew, rig: Rig, cases: &[fault::Case]) -> Tally {
    match rig {
        Rig::Power => {
            // Work by work: most faults show in the first.
            let found = (0..8).try_for_each(|seed| {
                let tally = power::run(crew, &[seed], Sweep::coarse(), None);
                match tally.failures.is_empty() {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(tally),
                }
            });
            found.break_value().unwrap_or_default()
        }
        Rig::Fault => {
            let some: Vec<_> = cases.iter().step_by(3).copied().collect();
            fault::run(crew, &some)
        }
        Rig::Gate => {
            let seeds: Vec<u64> = (0..300).collect();
            gate::run(crew, &seeds)
        }
        Rig::Damage => Tally::default(),
    }
}
