//! What a step costs: syncs, batches, bytes written, time.
//!
//! Rates come from rounds: a number of threads makes its steps, then the floor writes as many
//! groups of the same bytes as the journal committed, then again. A rate is the median of its
//! rounds, and so is the ratio of the two times. All ways to commit take turns, so that they
//! meet the same disk.

use std::path::Path;

use deedbook_journal::embedded::{CommitBy, OpenOptions};

use crate::{
    Result,
    disk::{CountingDisk, Traffic},
    effort::Effort,
    files,
    floor::Floor,
    plot::{Axis, Line, Plot},
    report::{Aim, Figure, Findings},
    stage::Stage,
    store::Asked,
    watch::{Watch, median, micros, quantile},
    work::{Payload, Plan, Work},
};

/// How many workflows at once, and about how many steps each makes in a round.
const WORKFLOWS: [(usize, u32); 4] = [(1, 200), (8, 100), (64, 50), (512, 20)];

/// Bytes of a step's values, by name.
const PAYLOADS: [(&str, usize); 3] = [("256 B", 256), ("4 KiB", 4 << 10), ("64 KiB", 64 << 10)];

/// About how many bytes of values one round writes at most.
const ROUND_BYTES: usize = 16 << 20;

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

    /// Bytes of records in a group, on average.
    ///
    /// # Errors
    /// There are more than memory holds.
    pub fn group_bytes(&self) -> Result<usize> {
        Ok(usize::try_from(self.store.bytes / self.commits().max(1))?)
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

/// Which rates to measure; everything where nothing is said.
#[derive(Debug, Clone, Default)]
pub struct Only {
    /// Numbers of workflows at once.
    pub workflows: Vec<usize>,
    /// Bytes of a step's values.
    pub bytes: Vec<usize>,
}

impl Only {
    fn has(&self, threads: usize, bytes: usize) -> bool {
        let among = |all: &[usize], one| all.is_empty() || all.contains(&one);
        among(&self.workflows, threads) && among(&self.bytes, bytes)
    }
}

/// Syncs, batches and bytes, then rates and latencies.
///
/// # Errors
/// A journal cannot be made, or a thread failed.
pub fn steps(folder: &Path, effort: Effort, only: &Only) -> Result<Findings> {
    let mut findings = Findings::from(costs(folder)?);
    findings.add(rates(folder, effort, only)?);
    Ok(findings)
}

fn costs(folder: &Path) -> Result<Vec<Figure>> {
    let path = folder.join("costs.redb");
    let stage = Stage::create(&path, &CountingDisk::durable(), Work::default())?;
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
    files::remove(&path)?;
    Ok(figures)
}

/// What was measured of one number of workflows with one payload under one way to commit.
#[derive(Debug)]
struct Cell {
    threads: usize,
    bytes: usize,
    name: String,
    by: CommitBy,
    rates: Rates,
}

fn rates(folder: &Path, effort: Effort, only: &Only) -> Result<Findings> {
    let mut floor = Floor::new(folder)?;
    let mut findings = Findings::default();
    let mut told = Vec::new();
    for (payload, bytes) in PAYLOADS {
        for (threads, most) in WORKFLOWS.into_iter().take(effort.pick(WORKFLOWS.len(), 2)) {
            if !only.has(threads, bytes) {
                continue;
            }
            let workflows = if threads == 1 { "workflow" } else { "workflows" };
            let fit = u32::try_from(ROUND_BYTES / (threads * bytes))?;
            let steps = effort.pick(most, 5).min(fit.max(2));
            let plan = Plan::effects(steps).carrying(Payload::of(bytes));
            for (by, rates) in pair(folder, &mut floor, threads, &plan, effort)? {
                let name = format!("{threads} {workflows}, {payload}, {}", called(by));
                let mut cell = Cell { threads, bytes, name, by, rates };
                findings.figures.extend(cell.figures());
                told.push(cell.summary(payload));
            }
        }
    }
    if only.workflows.is_empty() && only.bytes.is_empty() {
        findings.plots.extend(plots(&told));
    }
    Ok(findings)
}

/// The ways to commit, the usual one first.
const WAYS: [CommitBy; 3] = [CommitBy::Either, CommitBy::Caller, CommitBy::Thread];

const fn called(by: CommitBy) -> &'static str {
    match by {
        CommitBy::Either => "by either",
        CommitBy::Caller => "by callers",
        CommitBy::Thread => "by a thread",
    }
}

/// Measures all ways to commit, a round of each in turn.
fn pair(
    folder: &Path,
    floor: &mut Floor,
    threads: usize,
    plan: &Plan,
    effort: Effort,
) -> Result<Vec<(CommitBy, Rates)>> {
    let mut sides = Vec::new();
    for by in WAYS {
        let path = folder.join(format!("rates-{by:?}.redb"));
        let options = OpenOptions::new().commit_by(by);
        let disk = CountingDisk::durable();
        let stage = Stage::create_with(&path, &disk, Work::default(), options)?;
        // A round to warm up, not counted.
        count(&stage, 0, threads, plan)?;
        drop(stage.work.take_times());
        sides.push((by, path, stage, Rates::default()));
    }
    let all = Watch::start();
    let mut round = 1;
    while round <= effort.rounds || all.elapsed() < 3 * effort.time {
        for (_, _, stage, rates) in &mut sides {
            rates.round(stage, floor, round, threads, plan)?;
        }
        round += 1;
    }
    let mut measured = Vec::new();
    for (by, path, stage, rates) in sides {
        stage.close()?;
        files::remove(&path)?;
        measured.push((by, rates));
    }
    Ok(measured)
}

/// What the rounds gave.
#[derive(Debug, Default)]
struct Rates {
    steps: Vec<f64>,
    floor: Vec<f64>,
    ratio: Vec<f64>,
    /// The time of the floor in groups of as many batches as there are workflows, over ours.
    share: Vec<f64>,
    group: Vec<f64>,
    sync: Vec<f64>,
    took: Vec<f64>,
}

impl Rates {
    fn round(
        &mut self,
        stage: &Stage,
        floor: &mut Floor,
        round: usize,
        threads: usize,
        plan: &Plan,
    ) -> Result<()> {
        let watch = Watch::start();
        let cost = count(stage, round, threads, plan)?;
        let took = watch.elapsed();
        self.took.extend(stage.work.take_times());
        let commits = cost.commits().max(1);
        let beside = floor.run(commits, cost.group_bytes()?)?;
        let full = cost.store.appends.div_ceil(threads as u64).max(1);
        let in_full_groups = floor.run(full, usize::try_from(cost.store.bytes / full)?)?;
        let made = threads as f64 * f64::from(plan.steps);
        self.steps.push(made / took.as_secs_f64());
        self.floor.push(made / beside.as_secs_f64());
        self.ratio.push(took.as_secs_f64() / beside.as_secs_f64());
        self.share.push(in_full_groups.as_secs_f64() / took.as_secs_f64());
        self.group.push(cost.store.records as f64 / commits as f64);
        self.sync.push(micros(beside) / commits as f64);
        Ok(())
    }
}

/// What the plots need of a cell.
#[derive(Debug)]
struct Summary {
    threads: f64,
    payload: &'static str,
    by: CommitBy,
    rate: f64,
    floor: f64,
    ratio: f64,
}

impl Cell {
    fn figures(&mut self) -> Vec<Figure> {
        let rates = &mut self.rates;
        let name = &self.name;
        let told =
            |what: &str, value, unit| Figure::new("steps", format!("{name}: {what}"), value, unit);
        let small = self.bytes == 256 && self.by == CommitBy::default();
        let rate = told("durable steps", median(&mut rates.steps), "steps/s")
            .beside(median(&mut rates.floor), median(&mut rates.ratio));
        let rate = match self.threads {
            64 if small => rate.aim(Aim::AtLeast(100_000.0)),
            _ => rate,
        };
        let sync = median(&mut rates.sync);
        let p50 = quantile(&mut rates.took, 0.5);
        let p99 = quantile(&mut rates.took, 0.99);
        let mut figures = vec![
            rate,
            told("records in a commit", median(&mut rates.group), "records"),
            told("a step, p50", p50, "µs").beside(sync, p50 / sync),
            told("a step, p99", p99, "µs"),
        ];
        if small && self.threads == 1 {
            let times = told("a step beside the floor", median(&mut rates.ratio), "times");
            figures.push(times.aim(Aim::AtMost(1.3)));
        }
        if small && self.threads == 64 {
            let tail = told("p99 beside p50", p99 / p50, "times");
            let share = told("share of the floor in full groups", median(&mut rates.share), "");
            figures.push(tail.aim(Aim::AtMost(5.0)));
            figures.push(share.aim(Aim::AtLeast(0.5)));
        }
        figures
    }

    fn summary(&mut self, payload: &'static str) -> Summary {
        Summary {
            threads: self.threads as f64,
            payload,
            by: self.by,
            rate: median(&mut self.rates.steps),
            floor: median(&mut self.rates.floor),
            ratio: median(&mut self.rates.ratio),
        }
    }
}

fn plots(told: &[Summary]) -> [Plot; 2] {
    let points = |payload: &str, by, value: fn(&Summary) -> f64| {
        let of = told.iter().filter(|cell| cell.payload == payload && cell.by == by);
        of.map(|cell| (cell.threads, value(cell))).collect::<Vec<_>>()
    };
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for (payload, _) in PAYLOADS {
        rates.push(Line::new(payload, points(payload, CommitBy::default(), |cell| cell.rate)));
        let floor = points(payload, CommitBy::default(), |cell| cell.floor);
        rates.push(Line::beside(format!("{payload}: floor of the same groups"), floor));
        for by in WAYS {
            let name = format!("{payload}, committed {}", called(by));
            ratios.push(Line::new(name, points(payload, by, |cell| cell.ratio)));
        }
    }
    let x = Axis::log("workflows at once");
    [
        Plot {
            name: "steps",
            title: "Durable steps per second".to_owned(),
            x,
            y: Axis::log("steps per second"),
            lines: rates,
        },
        Plot {
            name: "commit-by",
            title: "Who commits: time of the steps beside that of the floor".to_owned(),
            x,
            y: Axis::linear("times the floor of the same groups"),
            lines: ratios,
        },
    ]
}
