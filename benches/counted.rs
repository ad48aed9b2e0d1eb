//! The hot path as work for a program that counts instructions: a fixed number of steps on one OS
//! thread, with no sync carried out.
//!
//! Each case runs twice, the second time with more to do, so that what both have in common falls
//! out. Only what runs under a function whose name begins with `measured` is counted, on the
//! thread that calls it: the journal's own threads depend on the moment.

use std::{hint::black_box, path::Path, sync::Arc};

use deedbook_journal::{
    limits::ValueLimits,
    value::{Fingerprint, canonical},
};
use serde::{Deserialize, Serialize};

use crate::{
    Result,
    disk::CountingDisk,
    files,
    gate::Gate,
    replay,
    stage::Stage,
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
    let scale = if quick { 4 } else { 1 };
    let mut ran = |case: &str, units: u64| {
        over();
        runs.push(Run { case: case.to_owned(), units });
    };

    let cases = [
        ("a step of 1 workflow", 1, [100, 1_000], Plan::effects(0)),
        ("a step of 64 workflows", 64, [4, 12], Plan::effects(0)),
        ("a read of 1 workflow", 1, [100, 1_000], Plan::reads(0)),
    ];
    for (case, threads, windows, plan) in cases {
        let path = folder.join("counted.redb");
        let gate = Arc::new(Gate::of(threads));
        let work = Work { gate: Some(Arc::clone(&gate)), ..Work::silent() };
        let stage = Stage::alone(&path, &CountingDisk::hasty(), work)?;
        let windows = windows.map(|steps| steps / scale);
        // One more is begun behind each window. Too few for a drain: who is held up by the keeper
        // does other things than who is not.
        let plan = Plan { steps: windows.iter().sum::<u32>() + 1, ..plan };
        let running = stage.set_off((0..threads).map(|at| (format!("{at}"), plan.clone())));
        stage.wait(gate.all_here());
        for steps in windows {
            measured_steps(&stage, &gate, steps);
            ran(case, threads * u64::from(steps));
        }
        drop(running);
        stage.crash();
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
fn measured_steps(stage: &Stage, gate: &Gate, steps: u32) {
    stage.wait(gate.advance(steps));
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
