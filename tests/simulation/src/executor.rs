//! Threads in several processes, on a clock that a seed turns: [`harness::executor`], counted.

use deedbook::planted::{Broken, plant};
use harness::executor::{Lived, live};

use crate::crew::{Crew, Tally};

/// One of so many lives is lived twice, and must be the same.
const TWICE: u64 = 100;

/// Seeds a job has: a worker is told of each.
const JOB: u64 = 16;

/// A life that makes no end in this many rounds once nothing bad happens any more is stuck.
const ROUNDS_MAX: u64 = 20_000;

/// The same where a rule is broken: there it is expected.
const ROUNDS_MAX_BROKEN: u64 = 2_000;

/// Lives in which a broken rule must be noticed.
const LIVES_BROKEN: u64 = 1_200;

/// Lives these seeds.
#[must_use]
pub fn run(crew: &Crew, first: u64, count: u64) -> Tally {
    with(crew, first, count, None)
}

/// Whether a broken rule of the runtime is noticed.
#[must_use]
pub fn notices(crew: &Crew, fault: Broken) -> bool {
    let crew = Crew { stops: true, tells: false, ..*crew };
    !with(&crew, 0, LIVES_BROKEN, Some(fault)).failures.is_empty()
}

/// Lives these seeds, with a rule broken.
#[must_use]
pub fn with(crew: &Crew, first: u64, count: u64, fault: Option<Broken>) -> Tally {
    let end = first + count;
    let jobs: Vec<u64> = (first..end).step_by(JOB as usize).collect();
    crew.run("executor", &jobs, |from, tally| {
        for seed in *from..end.min(from + JOB) {
            plant(fault.as_slice());
            one(seed, seed.is_multiple_of(TWICE) || count == 1, fault, tally);
            plant(&[]);
            if crew.stops && !tally.failures.is_empty() {
                break;
            }
        }
    })
}

fn one(seed: u64, twice: bool, fault: Option<Broken>, tally: &mut Tally) {
    let mut again = format!("deedbook-simulation executor --seed {seed}");
    if let Some(fault) = fault {
        again += &format!(" --plant {fault:?}");
    }
    let most = if fault.is_some() { ROUNDS_MAX_BROKEN } else { ROUNDS_MAX };
    tally.at(&again);
    let Lived { checks, counts, wrongs, print } = live(seed, most);
    tally.count("seeds");
    for (what, times) in counts {
        tally.add(what, times);
    }
    for (check, times) in &checks {
        tally.add(check.name(), *times);
    }
    for why in wrongs {
        tally.fail(&again, why);
    }
    if twice && fault.is_none() {
        tally.count("lived twice");
        let second = live(seed, most);
        if (second.print, &second.checks) != (print, &checks) {
            tally.fail(&again, "the same seed lives another life");
        }
    }
}
