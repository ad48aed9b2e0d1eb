//! Cases, and what came of them.

use std::{fmt, future::Future, pin::Pin};

use crate::{cases::cases, subject::Subject};

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The checkpointer does what the contract says.
    Passed,
    /// It does not: this is what it did.
    Failed(String),
    /// The subject cannot do what the case needs.
    Skipped(&'static str),
}

/// The future of a case.
pub(crate) type CaseFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Outcome>> + Send + 'a>>;

/// One promise of the contract, with the code that tries to break it.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    pub(crate) run: for<'a> fn(&'a dyn Subject) -> CaseFuture<'a>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

/// What came of all cases.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Each case's name and outcome, in order.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// Whether no case failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.outcomes.iter().any(|(_, o)| matches!(o, Outcome::Failed(_)))
    }

    /// How many cases were skipped.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.outcomes.iter().filter(|(_, o)| matches!(o, Outcome::Skipped(_))).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in &self.outcomes {
            match outcome {
                Outcome::Passed => writeln!(f, "passed   {name}")?,
                Outcome::Failed(why) => writeln!(f, "FAILED   {name}: {why}")?,
                Outcome::Skipped(why) => writeln!(f, "skipped  {name}: {why}")?,
            }
        }
        Ok(())
    }
}

/// Runs every case.
///
/// Not cancel safe: storage that a case has made may be left behind.
pub async fn run(subject: &dyn Subject) -> Report {
    let mut report = Report::default();
    for case in cases() {
        let outcome = run_case(subject, &case).await;
        report.outcomes.push((case.name, outcome));
    }
    report
}

/// Runs one case, so that a test harness can show each by its name.
///
/// Not cancel safe: storage that the case has made may be left behind.
pub async fn run_case(subject: &dyn Subject, case: &Case) -> Outcome {
    match (case.run)(subject).await {
        Ok(()) => Outcome::Passed,
        Err(outcome) => outcome,
    }
}
