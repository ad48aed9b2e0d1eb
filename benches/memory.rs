//! Memory, and what holds it: the named settings of the home, and parked threads. And what a
//! reader that stays makes of the file.

use std::path::Path;

use deedbook::{Checkpointer as _, ThreadId};

use crate::{
    Result,
    disk::CountingDisk,
    effort::Effort,
    files,
    other::Fill,
    parked,
    plot::{Axis, Line, Plot},
    report::{Aim, Figure, Findings},
    stage::Stage,
    steps::count,
    work::{Plan, Work},
};
/// Page caches, in MiB.
const CACHES: [usize; 3] = [1, 16, 64];

/// Bytes of the records that go through each of them.
const BYTES: u64 = 512 << 20;

const MIB: f64 = 1048576.0;

/// Memory of a process that fills a journal; of parked threads; and a held reader.
///
/// # Errors
/// A journal cannot be made, a thread failed, or another process did.
pub fn memory(folder: &Path, effort: Effort) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut lines = Vec::new();
    for cache in CACHES {
        let path = folder.join("memory.redb");
        let fill = Fill {
            path: path.clone(),
            bytes: effort.pick(BYTES, 1 << 20),
            payload: 1 << 10,
            cache: cache << 20,
            until_killed: false,
        };
        let moments = fill.elsewhere()?;
        files::remove(&path)?;
        let points = moments.iter().map(|m| (m.records as f64 / MIB, m.resident as f64 / MIB));
        let points: Vec<_> = points.collect();
        let peak = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let records = points.last().map_or(0.0, |point| point.0);
        let what = format!("cache of {cache} MiB, {records:.0} MiB of records: most memory");
        let figure = Figure::new("memory", what, peak, "MiB");
        findings.add(vec![figure.aim(Aim::AtMost(cache as f64 + BESIDE_CACHE))]);
        lines.push(Line::new(format!("cache of {cache} MiB"), points));
    }
    findings.plots.push(Plot {
        name: "memory",
        title: "Memory of a process that fills a journal".to_owned(),
        x: Axis::linear("MiB of records"),
        y: Axis::linear("resident memory, MiB"),
        lines,
    });
    findings.add(vec![reader(folder, effort)?]);
    findings.add(parked::parked(folder, effort)?);
    Ok(findings)
}

/// What is bounded by other names than the cache, in MiB: what is in the log and not in the tables
/// (twice a file of the log at most, of 16 MiB each), once more while it is drained, and the
/// workflows that run.
const BESIDE_CACHE: f64 = 64.0;

/// The file with a reader that stays where it is, beside the same without one.
fn reader(folder: &Path, effort: Effort) -> Result<Figure> {
    let rounds = effort.pick(40, 2);
    let path = folder.join("reader.redb");
    let mut sizes = Vec::new();
    for held in [false, true] {
        let stage = Stage::create(&path, &CountingDisk::hasty(), Work::silent())?;
        count(&stage, 0, 1, &Plan::effects(50))?;
        let thread = ThreadId::new("round-0/0")?;
        // A page and a place to go on from are all that a reader holds.
        let mut page = stage.wait(stage.store.read(&thread, 0, 1_000))?;
        for round in 1..=rounds {
            count(&stage, round, 64, &Plan::effects(effort.pick(50, 5)))?;
            if let (true, Some(next)) = (held, page.next) {
                page = stage.wait(stage.store.read(&thread, next, 1_000))?;
            }
        }
        stage.close()?;
        sizes.push(files::allocated(&path)? as f64);
        drop(page);
        files::remove(&path)?;
    }
    let [without, with] = sizes[..] else {
        return Err("nothing was measured".into());
    };
    let what = "file with a reader that stays, beside one without";
    Ok(Figure::new("memory", what, with / without, "times").aim(Aim::AtMost(1.1)))
}
