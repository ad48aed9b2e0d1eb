//! Every operation of a close fails, and power is lost while the next process begins to write.
//!
//! A case of its own: the tables said that the journal was closed, as the system showed them, and
//! the disk did not have it; the next process took away the log that was still needed.

use deedbook_journal::checkpointer::Checkpointer;
use harness::{Fault, Loss, Random, SimDisk};

use crate::{
    book::{Model, create, one_more, open, wait},
    crew::{Crew, Tally},
    look::{Wanted, Wrong, look, tried},
};

/// In so many ways a failing sync leaves some of what it should have written.
const WAYS: u64 = 4;

/// An operation of a close that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Which.
    pub at: usize,
    /// What a failing sync leaves.
    pub way: u64,
}

impl Case {
    /// The command that runs it again.
    #[must_use]
    pub fn again(&self) -> String {
        format!("deedbook-simulation close --at {} --way {}", self.at, self.way)
    }
}

/// A journal with a record, and what became of it.
struct Closed {
    disk: SimDisk,
    model: Model,
    failed: bool,
    operations: usize,
}

fn closed(case: Option<Case>) -> Result<Closed, Wrong> {
    let failed = |error: &dyn std::fmt::Display| Wrong::Unopenable(error.to_string());
    let disk = SimDisk::default();
    let book = create(&disk).map_err(|error| failed(&error))?;
    let mut model = Model::default();
    wait(one_more(&book, &mut model)).map_err(|error| failed(&error))?;
    let begun = disk.tried().len();
    if let Some(Case { at, way }) = case {
        disk.fail(begun + at, Fault::Device, false, way);
    }
    let closed = wait(book.close());
    drop(book);
    let operations = disk.tried().len() - begun;
    disk.mend();
    disk.unlock();
    Ok(Closed { disk, model, failed: closed.is_err(), operations })
}

/// Every operation of a close, in some ways.
///
/// # Panics
/// The close fails without a fault.
#[must_use]
pub fn cases() -> Vec<Case> {
    let operations = closed(None).unwrap().operations;
    (0..operations).flat_map(|at| (0..WAYS).map(move |way| Case { at, way })).collect()
}

/// Runs these cases.
#[must_use]
pub fn run(crew: &Crew, cases: &[Case]) -> Tally {
    crew.run("close", cases, |case, tally| {
        tried(tally, "runs", &case.again(), |counts| one(*case, counts));
    })
}

fn one(case: Case, tally: &mut Tally) -> Result<(), Wrong> {
    let Closed { disk, model, failed, .. } = closed(Some(case))?;
    tally.add("closes that failed", u64::from(failed));
    let from = disk.operations();
    let mut more = model.clone();
    let book = open(&disk).map_err(|error| Wrong::Unopenable(error.to_string()))?;
    wait(one_more(&book, &mut more)).map_err(|error| Wrong::Unopenable(error.to_string()))?;
    drop(book);
    disk.unlock();
    for lost in from..=disk.operations() {
        tally.count("images");
        let image = disk.after_power_loss(lost, Loss::Everything, &mut Random::new(0));
        let before = (lost < disk.operations()).then_some(&model);
        let allowed: Vec<_> = before.into_iter().chain([&more]).collect();
        let wanted = Wanted { allowed: &allowed, may_be_absent: false, close: false };
        look(&image, wanted).map_err(|wrong| match wrong {
            Wrong::Unopenable(why) => Wrong::Unopenable(format!("power lost at {lost}: {why}")),
            Wrong::Other(why) => Wrong::Other(format!("power lost at {lost}: {why}")),
            panic => panic,
        })?;
    }
    Ok(())
}
