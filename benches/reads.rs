//! Durable `read` steps: nothing waits for their records but the end of the thread, so that what
//! they cost is the processor's part and the disk's width.

use std::path::Path;

use crate::{
    Result,
    disk::CountingDisk,
    effort::Effort,
    files,
    floor::Floor,
    plot::{Axis, Line, Plot},
    report::{Aim, Figure, Findings},
    stage::Stage,
    steps::count,
    watch::{Watch, median},
    work::{Payload, Plan, Work},
};

/// Workflows at once, reads of each in a round, and bytes of a read's values.
const CASES: [(usize, u32, usize); 5] =
    [(1, 10_000, 256), (1, 4_000, 4 << 10), (1, 400, 64 << 10), (64, 500, 256), (64, 100, 4 << 10)];

/// Reads per second, from the start of the threads until their ends are durable, and with them
/// every read.
///
/// # Errors
/// A journal cannot be made, or a thread failed.
pub fn reads(folder: &Path, effort: Effort) -> Result<Findings> {
    let mut floor = Floor::new(folder)?;
    let mut findings = Findings::default();
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for (threads, reads, bytes) in CASES {
        let plan = Plan::reads(effort.pick(reads, 20)).carrying(Payload::of(bytes));
        let mut rates = measure(folder, &mut floor, threads, &plan, effort)?;
        if threads == 1 {
            ours.push((bytes as f64, median(&mut rates.reads)));
            plain.push((bytes as f64, median(&mut rates.floor)));
        }
        findings.add(rates.figures(threads, bytes));
    }
    findings.plots.push(Plot {
        name: "reads",
        title: "Durable reads per second in one workflow".to_owned(),
        x: Axis::log("bytes of arguments and result"),
        y: Axis::log("reads per second"),
        lines: vec![Line::new("reads", ours), Line::beside("floor of the same groups", plain)],
    });
    Ok(findings)
}

/// What the rounds gave.
#[derive(Debug, Default)]
struct Rates {
    reads: Vec<f64>,
    floor: Vec<f64>,
    ratio: Vec<f64>,
    group: Vec<f64>,
}

fn measure(
    folder: &Path,
    floor: &mut Floor,
    threads: usize,
    plan: &Plan,
    effort: Effort,
) -> Result<Rates> {
    let path = folder.join("reads.redb");
    let stage = Stage::create(&path, &CountingDisk::durable(), Work::silent())?;
    count(&stage, 0, threads, plan)?;
    let mut rates = Rates::default();
    let all = Watch::start();
    let mut round = 1;
    while round <= effort.rounds || all.elapsed() < effort.time {
        let watch = Watch::start();
        let cost = count(&stage, round, threads, plan)?;
        let took = watch.elapsed().as_secs_f64();
        let beside = floor.run(cost.commits(), cost.group_bytes()?)?.as_secs_f64();
        let made = threads as f64 * f64::from(plan.steps);
        rates.reads.push(made / took);
        rates.floor.push(made / beside);
        rates.ratio.push(took / beside);
        rates.group.push(cost.store.records as f64 / cost.commits().max(1) as f64);
        round += 1;
    }
    stage.close()?;
    files::remove(&path)?;
    Ok(rates)
}

impl Rates {
    fn figures(&mut self, threads: usize, bytes: usize) -> Vec<Figure> {
        let workflows = if threads == 1 { "workflow" } else { "workflows" };
        let name = format!("{threads} {workflows}, {}", size(bytes));
        let told =
            |what: &str, value, unit| Figure::new("reads", format!("{name}: {what}"), value, unit);
        let rate = told("durable reads", median(&mut self.reads), "reads/s")
            .beside(median(&mut self.floor), median(&mut self.ratio));
        let aimed = threads == 1 && bytes == 256;
        let rate = if aimed { rate.aim(Aim::AtLeast(200_000.0)) } else { rate };
        vec![rate, told("records in a commit", median(&mut self.group), "records")]
    }
}

fn size(bytes: usize) -> String {
    if bytes < 1 << 10 { format!("{bytes} B") } else { format!("{} KiB", bytes >> 10) }
}
