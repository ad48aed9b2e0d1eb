//! Rules broken on purpose: which rig notices which.

use std::{ops::ControlFlow, path::Path};

use deedbook::planted::Broken as BrokenInRuntime;
use deedbook_journal::embedded::planted::{Broken, plant};

use crate::{
    close,
    crew::{Crew, Tally},
    damage::{Stride, Which, apart},
    executor, fault, gate, kill,
    power::{self, Sweep},
};

/// A rig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rig {
    /// [`power`].
    Power,
    /// [`fault`].
    Fault,
    /// [`close`].
    Close,
    /// [`gate`].
    Gate,
    /// [`crate::damage`].
    Damage,
    /// [`crate::kill`].
    Kill,
    /// [`crate::executor`].
    Executor,
}

impl Rig {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Power,
        Self::Fault,
        Self::Close,
        Self::Gate,
        Self::Damage,
        Self::Kill,
        Self::Executor,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Fault => "fault",
            Self::Close => "close",
            Self::Gate => "gate",
            Self::Damage => "damage",
            Self::Kill => "kill",
            Self::Executor => "executor",
        }
    }
}

/// A rule that can be broken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// One of the embedded home.
    Home(Broken),
    /// One of the runtime.
    Runtime(BrokenInRuntime),
}

impl Rule {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let runtime = BrokenInRuntime::ALL.into_iter().map(Self::Runtime);
        Broken::ALL.into_iter().map(Self::Home).chain(runtime).collect()
    }
}

impl From<Broken> for Rule {
    fn from(fault: Broken) -> Self {
        Self::Home(fault)
    }
}

impl From<BrokenInRuntime> for Rule {
    fn from(fault: BrokenInRuntime) -> Self {
        Self::Runtime(fault)
    }
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Home(fault) => fault.fmt(f),
            Self::Runtime(fault) => fault.fmt(f),
        }
    }
}

/// A broken rule, and the rigs that notice.
#[derive(Debug, Clone)]
pub struct Row {
    /// The rule.
    pub fault: Rule,
    /// Whether each of [`Rig::ALL`] notices; `None` where it was not asked.
    pub noticed: [Option<bool>; Rig::ALL.len()],
    /// The rig that must.
    pub by: Rig,
}

impl Row {
    /// Whether the rig that must notice does.
    #[must_use]
    pub fn holds(&self) -> bool {
        let mut all = Rig::ALL.iter().zip(self.noticed);
        all.any(|(rig, noticed)| *rig == self.by && noticed == Some(true))
    }
}

/// The rig that must notice a broken rule.
#[must_use]
pub fn must_notice(fault: impl Into<Rule>) -> Rig {
    let Rule::Home(fault) = fault.into() else {
        return Rig::Executor;
    };
    match fault {
        Broken::TrustFoundFrames
        | Broken::AppendBehindFrames
        | Broken::TrySyncAgain
        | Broken::OnePhaseCommit => Rig::Gate,
        Broken::TellEarly | Broken::LiveOn | Broken::CallItFailed => Rig::Fault,
        Broken::SkipChecksum
        | Broken::IgnoreDamagedFrame
        | Broken::OpenWithoutLog
        | Broken::IgnoreAnchor => Rig::Damage,
        Broken::TrustFoundTables => Rig::Close,
        _ => Rig::Power,
    }
}

/// Breaks each rule and asks the rig that must notice, or `every` rig: one that does not notice
/// tries all that it has. `program` is this program, for [`apart`].
///
/// # Errors
/// As [`notices`].
pub fn matrix(
    crew: &Crew,
    program: &Path,
    rules: &[Rule],
    every: bool,
) -> Result<Vec<Row>, String> {
    let row = |&fault: &Rule| {
        let by = must_notice(fault);
        let mut noticed = [None; Rig::ALL.len()];
        for (rig, noticed) in Rig::ALL.into_iter().zip(&mut noticed) {
            if every || rig == by {
                *noticed = Some(notices(crew, program, rig, fault)?);
            }
        }
        Ok(Row { fault, noticed, by })
    };
    rules.iter().map(row).collect()
}

/// Whether a rig notices a broken rule. The sets are small, and the first failure is enough.
///
/// # Errors
/// The journals to damage could not be made.
pub fn notices(
    crew: &Crew,
    program: &Path,
    rig: Rig,
    fault: impl Into<Rule>,
) -> Result<bool, String> {
    let crew = Crew { stops: true, tells: false, ..*crew };
    let rule = fault.into();
    if rig == Rig::Kill {
        let sweep = kill::Sweep { seeds: 1, every: 7, again: 0 };
        let plan = kill::Plan { plant: Some(rule), ..kill::Plan::of(sweep) };
        return Ok(!kill::run(&crew, program, &plan).failures.is_empty());
    }
    let fault = match (rule, rig) {
        (Rule::Home(fault), _) if rig != Rig::Executor => fault,
        (Rule::Runtime(fault), Rig::Executor) => return Ok(executor::notices(&crew, fault)),
        // The executor's threads are in memory, and the other rigs do not ask for its rules.
        _ => return Ok(false),
    };
    if rig == Rig::Damage {
        // Those with a log first: they show most.
        let journals = [Which::Unmarked, Which::Marked, Which::Closed];
        let tally = apart::run(&crew, program, &journals, Stride(499), Some(fault))?;
        return Ok(!tally.failures.is_empty());
    }
    // What fails without the fault is planned without it.
    let cases = if rig == Rig::Fault { fault::cases(0) } else { Vec::new() };
    let closes = if rig == Rig::Close { close::cases() } else { Vec::new() };
    plant(Some(fault));
    let tally = asked(&crew, rig, &cases, &closes);
    plant(None);
    Ok(!tally.failures.is_empty())
}

fn asked(crew: &Crew, rig: Rig, cases: &[fault::Case], closes: &[close::Case]) -> Tally {
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
        Rig::Close => close::run(crew, closes),
        Rig::Gate => {
            let seeds: Vec<u64> = (0..300).collect();
            gate::run(crew, &seeds)
        }
        Rig::Damage | Rig::Kill | Rig::Executor => Tally::default(),
    }
}
