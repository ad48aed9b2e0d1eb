//! What grows with the journal: its file, and, if all is well, nothing else.

use std::{path::Path, sync::Arc};

use crate::{
    Failed, Result,
    disk::CountingDisk,
    effort::Effort,
    files,
    floor::Floor,
    gate::Gate,
    plot::{Axis, Line, Plot},
    report::{Aim, Figure, Findings},
    stage::Stage,
    steps::{Cost, count},
    watch::{Watch, median, micros},
    work::{Plan, Work},
};

/// How many threads go on at once while the journal grows.
const THREADS: u64 = 1_000;

/// From how many records on windows are measured.
const FIRST: u64 = 10_000;

/// At the ends of which lengths of the journal there are measured windows, in records.
const ENDS: [u64; 8] =
    [30_000, 100_000, 300_000, 1_000_000, 2_000_000, 3_000_000, 5_000_000, 10_000_000];

/// Steps of every thread in a window. All windows are equal, so that their ends cost the same.
const WINDOW_STEPS: u32 = 2;

/// Most windows at one length, the floor after each.
const WINDOWS: u64 = 15;

/// The file after a clean close, and what a step costs while the journal grows to this many
/// records.
///
/// # Errors
/// The journal cannot be made, or a thread failed.
pub fn growth(folder: &Path, records: u64, effort: Effort) -> Result<Findings> {
    let mut findings = Findings::from(bytes(folder, effort)?);
    findings.add(grow(folder, records, effort)?);
    Ok(findings)
}

/// Bytes that the file takes on disk after a clean close, and those of the records in it, over the
/// number of steps.
fn bytes(folder: &Path, effort: Effort) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let cases =
        [("1 thread", 1, effort.pick(10_000, 500)), ("64 threads", 64, effort.pick(157, 8))];
    for (name, threads, each) in cases {
        let path = folder.join(format!("bytes-{threads}.redb"));
        let stage = Stage::create(&path, &CountingDisk::hasty(), Work::silent())?;
        let cost = count(&stage, 0, threads, &Plan::effects(each))?;
        stage.close()?;
        let steps = threads as f64 * f64::from(each);
        let told = |what: &str, value| {
            Figure::new("growth", format!("{name}, {steps} steps: {what}"), value, "B/step")
        };
        figures.push(told("records", cost.store.bytes as f64 / steps));
        figures.push(told("on disk, closed", files::allocated(&path)? as f64 / steps));
        files::remove(&path)?;
    }
    Ok(figures)
}

/// What a stretch of the journal gave.
#[derive(Debug)]
struct Stretch {
    /// Records in the journal at its end.
    records: f64,
    /// Time of a step, in microseconds.
    step: f64,
    floor: f64,
    /// Times the floor.
    ratio: f64,
    /// Bytes that the files took at its end, over those of the records.
    file: f64,
}

fn grow(folder: &Path, records: u64, effort: Effort) -> Result<Findings> {
    let threads = effort.pick(THREADS, 16);
    let path = folder.join("growth.redb");
    let mut floor = Floor::new(folder)?;
    let gate = Arc::new(Gate::of(threads));
    let work = Work { gate: Some(Arc::clone(&gate)), ..Work::silent() };
    let stage = Stage::create(&path, &CountingDisk::durable(), work)?;
    // A step each is left when the last window is over.
    let each = u32::try_from(records / 2 / threads)? + 2;
    let named = (0..threads).map(|at| (format!("thread-{at}"), Plan::effects(each)));
    let mut running = stage.set_off(named);
    stage.wait(gate.all_here());
    let mut growing = Growing { stage: &stage, gate: &gate, floor: &mut floor, path: &path };
    growing.go_on(FIRST.min(records / 10))?;
    let ends = ENDS.into_iter().filter(|end| *end < records);
    let stretches: Result<Vec<_>> = ends.chain([records]).map(|end| growing.to(end)).collect();
    gate.leave_open();
    stage.wait(async {
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok::<_, Failed>(())
    })?;
    let stored = stage.store.asked();
    stage.close()?;
    let closed = files::allocated(&path)? as f64 / stored.bytes as f64;
    files::remove(&path)?;
    Ok(told(&stretches?, closed, stored.records, threads))
}

/// A journal that grows.
struct Growing<'g> {
    stage: &'g Stage,
    gate: &'g Gate,
    floor: &'g mut Floor,
    path: &'g Path,
}

impl Growing<'_> {
    fn records(&self) -> u64 {
        self.stage.store.asked().records
    }

    /// Steps of every thread until there are about this many records.
    fn steps_to(&self, end: u64) -> Result<u32> {
        Ok(u32::try_from(end.saturating_sub(self.records()) / 2 / self.gate.threads())?)
    }

    fn go_on(&self, end: u64) -> Result<()> {
        let steps = self.steps_to(end)?;
        self.stage.wait(self.gate.advance(steps));
        Ok(())
    }

    /// Goes on to this many records; the last of it are measured.
    fn to(&mut self, end: u64) -> Result<Stretch> {
        let window = 2 * u64::from(WINDOW_STEPS) * self.gate.threads();
        self.go_on(end.saturating_sub(WINDOWS * window))?;
        let [mut step, mut floors, mut ratios] = [const { Vec::new() }; 3];
        while self.records() + window / 2 <= end || step.is_empty() {
            let (disk, store) = (self.stage.disk.now(), self.stage.store.asked());
            let watch = Watch::start();
            self.stage.wait(self.gate.advance(WINDOW_STEPS));
            let took = micros(watch.elapsed());
            let disk = self.stage.disk.now().since(disk);
            let cost = Cost { disk, store: self.stage.store.asked().since(store) };
            let beside = micros(self.floor.run(cost.commits(), cost.group_bytes()?)?);
            let steps = (window / 2) as f64;
            step.push(took / steps);
            floors.push(beside / steps);
            ratios.push(took / beside);
        }
        let stored = self.stage.store.asked();
        Ok(Stretch {
            records: stored.records as f64,
            step: median(&mut step),
            floor: median(&mut floors),
            ratio: median(&mut ratios),
            file: files::allocated(self.path)? as f64 / stored.bytes as f64,
        })
    }
}

fn told(stretches: &[Stretch], closed: f64, records: u64, threads: u64) -> Findings {
    let mut findings = Findings::default();
    for stretch in stretches {
        let name = format!("up to {} records, {threads} threads", stretch.records);
        let step = Figure::new("growth", format!("{name}: a step"), stretch.step, "µs");
        let file = format!("{name}: files beside records, open");
        findings.add(vec![
            step.beside(stretch.floor, stretch.ratio),
            Figure::new("growth", file, stretch.file, "times"),
        ]);
    }
    if let (Some(first), Some(last)) = (stretches.first(), stretches.last()) {
        // In time: of a step of a thousand threads at once, the disk's part is small.
        let flat = "a step at the end beside one at the beginning";
        let flat = Figure::new("growth", flat, last.step / first.step, "times");
        findings.add(vec![flat.aim(Aim::AtMost(1.2))]);
    }
    let what = format!("{records} records: file beside records, closed");
    let file = Figure::new("growth", what, closed, "times").aim(Aim::AtMost(1.5));
    findings.add(vec![file]);
    findings.plots = plots(stretches);
    findings
}

fn plots(stretches: &[Stretch]) -> Vec<Plot> {
    let points = |value: fn(&Stretch) -> f64| -> Vec<_> {
        stretches.iter().map(|stretch| (stretch.records, value(stretch))).collect()
    };
    let x = Axis::log("records in the journal");
    vec![
        Plot {
            name: "growth",
            title: "The time of a step while the journal grows".to_owned(),
            x,
            y: Axis::linear("time of a step, µs"),
            lines: vec![
                Line::new("a durable step, all threads together", points(|s| s.step)),
                Line::beside("floor of the same groups", points(|s| s.floor)),
            ],
        },
        Plot {
            name: "growth-file",
            title: "The files while the journal grows".to_owned(),
            x,
            y: Axis::linear("bytes on disk for each byte of records"),
            lines: vec![Line::new("tables and log, open", points(|s| s.file))],
        },
    ]
}
