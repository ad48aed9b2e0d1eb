//! The hot path as work for a program that counts instructions: a fixed number of steps on one OS
//! thread, with no sync carried out.
//!
//! Each case runs twice, the second time with more to do, so that what both have in common falls
//! out. Only what runs under a function whose name begins with `measured` is counted, on the
//! thread that calls it: the journal's own threads depend on the moment.

use std::{hint::black_box, path::Path};

use deedbook_journal::{
    limits::ValueLimits,
    value::{Fingerprint, canonical},
};
use serde::{Deserialize, Serialize};

use crate::{
    Result,
    disk::CountingDisk,
    files, replay,
    stage::Stage,
    steps::count,
    work::{self, Payload, Plan, Work},
};

/// The functions to count in, as a pattern of their names.
pub const MEASURED: &str = "deedbook_benches::counted::measured*";

/// The function that is called when a run is over.
pub const OVER: &str = "deedbook_benches::counted::over";

/// One counted run of a case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The case: what one unit of it is.
    pub case: String,
    /// How many units it did.
    pub units: u64,
}

/// Runs every case, and says what it ran, in order.
///
/// # Errors
/// A journal cannot be made, or a thread failed.
pub fn all(folder: &Path, quick: bool) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let scale = if quick { 10 } else { 1 };
    let mut ran = |case: &str, units: u64| {
        over();
        runs.push(Run { case: case.to_owned(), units });
    };

    let (step, read) = (Plan::effects(10), Plan::reads(10));
    let cases = [
        ("a step of 1 workflow", 1, [200, 1_200], &step),
        ("a step of 64 workflows", 64, [10, 30], &step),
        ("a read of 1 workflow", 1, [200, 1_200], &read),
    ];
    for (case, threads, sizes, plan) in cases {
        let path = folder.join("counted.redb");
        let stage = Stage::alone(&path, &CountingDisk::hasty(), Work::silent())?;
        count(&stage, 0, threads, plan)?;
        for (round, steps) in sizes.into_iter().map(|steps| steps / scale).enumerate() {
            measured_steps(&stage, round + 1, threads, &Plan { steps, ..plan.clone() })?;
            ran(case, threads as u64 * u64::from(steps));
        }
        stage.close()?;
        files::remove(&path)?;
    }
    for steps in [1_000, 10_000].map(|steps| steps / scale) {
        let kept = replay::prepare(folder, steps)?;
        measured_replay(kept)?;
        ran("a recorded step of a replay", u64::from(steps));
    }
    for times in [100, 1_100] {
        measured_canonical(times)?;
        ran("the canonical form and fingerprint of 200 B", u64::from(times));
    }
    Ok(runs)
}

#[inline(never)]
fn over() {
    black_box(());
}

#[inline(never)]
fn measured_steps(stage: &Stage, round: usize, threads: usize, plan: &Plan) -> Result<()> {
    count(stage, round, threads, plan)?;
    Ok(())
}

#[inline(never)]
fn measured_replay(kept: replay::Prepared) -> Result<()> {
    kept.resume()?;
    Ok(())
}

#[inline(never)]
fn measured_canonical(times: u32) -> Result<()> {
    let limits = ValueLimits::new();
    for number in 0..times {
        let charge = work::charge(number, Payload::USUAL.arguments);
        let canonical = canonical::of(&charge, &limits)?;
        black_box(Fingerprint::of(&[7; 32], &canonical));
    }
    Ok(())
}
