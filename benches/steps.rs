//! What a step costs: syncs, batches, bytes written, time.
//!
//! Rates come from rounds: a number of threads makes its steps, then the floor writes as many
//! groups of the same bytes as the journal committed, then again. A rate is the median of its
//! rounds, and so is the ratio of the two times.

use std::{path::Path, time::Duration};

use crate::{
    Result,
    disk::{CountingDisk, Traffic},
    floor::Floor,
    report::{Aim, Figure},
    stage::Stage,
    store::Asked,
    watch::{Watch, median, micros, quantile},
    work::{Plan, Work},
};

/// What a number of threads cost, in all.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// At the disk.
    pub disk: Traffic,
    /// At the home.
    pub store: Asked,
}

impl Cost {
    /// How many groups were committed.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.disk.commits
    }
}

/// Runs `threads` threads of this plan at once, and counts. `round` makes their ids new.
///
/// # Errors
/// One of them failed.
pub fn count(stage: &Stage, round: usize, threads: usize, plan: &Plan) -> Result<Cost> {
    let (disk, store) = (stage.disk.now(), stage.store.asked());
    let named = (0..threads).map(|at| (format!("round-{round}/{at}"), plan.clone()));
    stage.run_all(named)?;
    Ok(Cost { disk: stage.disk.now().since(disk), store: stage.store.asked().since(store) })
}

/// Syncs, batches and bytes.
///
/// # Errors
/// The journal cannot be made, or a thread failed.
pub fn costs(folder: &Path) -> Result<Vec<Figure>> {
    let disk = CountingDisk::durable();
    let stage = Stage::create(&folder.join("costs.redb"), &disk, Work::default())?;
    // The first write of a journal also says that it is open.
    count(&stage, 0, 1, &Plan::effects(1))?;
    let mut figures = Vec::new();
    let cases = [
        ("1 workflow × 100 idempotent", 1, Plan::effects(100)),
        ("1 workflow × 100 reads", 1, Plan::reads(100)),
        ("64 workflows × 100 idempotent", 64, Plan::effects(100)),
        ("64 workflows × 100 reads", 64, Plan::reads(100)),
    ];
    for (round, (name, threads, plan)) in cases.into_iter().enumerate() {
        let cost = count(&stage, round + 1, threads, &plan)?;
        let steps = threads as f64 * f64::from(plan.steps);
        let mut figure = |what: &str, value: u64, unit| {
            let what = format!("{name}: {what}");
            figures.push(Figure::new("costs", what, value as f64 / steps, unit));
        };
        figure("batches", cost.store.appends, "/step");
        figure("commits", cost.commits(), "/step");
        figure("syncs", cost.disk.syncs, "/step");
        figure("record bytes", cost.store.bytes, "B/step");
        figure("bytes in write calls", cost.disk.bytes, "B/step");
    }
    stage.close()?;
    Ok(figures)
}

/// How long one measurement may take, and what it is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// About how long one measurement goes on.
    pub time: Duration,
    /// At least this many rounds.
    pub rounds: usize,
}

/// Steps per second and latencies, with one thread and with 64.
///
/// # Errors
/// The journal cannot be made, or a thread failed.
pub fn rates(folder: &Path, budget: Budget) -> Result<Vec<Figure>> {
    let mut floor = Floor::new(folder)?;
    let mut figures = Vec::new();
    for (name, threads, steps) in [("1 workflow", 1, 200), ("64 workflows", 64, 100)] {
        let path = folder.join(format!("rates-{threads}.redb"));
        let stage = Stage::create(&path, &CountingDisk::durable(), Work::default())?;
        let measured = rate(&stage, &mut floor, threads, steps, budget)?;
        figures.extend(measured.figures(name, threads));
        stage.close()?;
    }
    Ok(figures)
}

/// What the rounds gave.
#[derive(Debug, Default)]
struct Rates {
    steps: Vec<f64>,
    floor: Vec<f64>,
    ratio: Vec<f64>,
    group: Vec<f64>,
    sync: Vec<f64>,
    took: Vec<f64>,
}

fn rate(
    stage: &Stage,
    floor: &mut Floor,
    threads: usize,
    steps: u32,
    budget: Budget,
) -> Result<Rates> {
    let plan = Plan::effects(steps);
    // A round to warm up, not counted.
    count(stage, 0, threads, &plan)?;
    drop(stage.work.take_times());
    let mut rates = Rates::default();
    let all = Watch::start();
    let mut round = 1;
    while round <= budget.rounds || all.elapsed() < budget.time {
        let watch = Watch::start();
        let cost = count(stage, round, threads, &plan)?;
        let took = watch.elapsed();
        rates.took.extend(stage.work.take_times());
        let commits = cost.commits().max(1);
        let group = cost.store.bytes / commits;
        let beside = floor.run(commits, usize::try_from(group)?)?;
        let made = threads as f64 * f64::from(steps);
        rates.steps.push(made / took.as_secs_f64());
        rates.floor.push(made / beside.as_secs_f64());
        rates.ratio.push(took.as_secs_f64() / beside.as_secs_f64());
        rates.group.push(cost.store.records as f64 / commits as f64);
        rates.sync.push(micros(beside) / commits as f64);
        round += 1;
    }
    Ok(rates)
}

impl Rates {
    fn figures(mut self, name: &str, threads: usize) -> Vec<Figure> {
        let ratio = median(&mut self.ratio);
        let rate = Figure::new(
            "rates",
            format!("{name}: durable effectful steps"),
            median(&mut self.steps),
            "steps/s",
        );
        let rate = rate.beside(median(&mut self.floor), ratio);
        let rate = if threads == 64 { rate.aim(Aim::AtLeast(15_000.0)) } else { rate };
        let sync = median(&mut self.sync);
        let beside =
            |what: &str, value, unit| Figure::new("rates", format!("{name}: {what}"), value, unit);
        let p50 = quantile(&mut self.took, 0.5);
        vec![
            rate,
            beside("records in a commit", median(&mut self.group), "records"),
            beside("a step, p50", p50, "µs").beside(sync, p50 / sync),
            beside("a step, p99", quantile(&mut self.took, 0.99), "µs"),
        ]
    }
}
