//! Guarded calls: steps without a workflow, first calls and repeats.
//!
//! A first call makes its intent durable, runs its body, and makes the outcome durable: two
//! commits, of which calls at the same time share some. A repeat reads the step's thread, and
//! writes nothing; or not even that, where a process keeps outcomes in memory.

use std::path::Path;

use deedbook::{CallError, Deedbook};
use tokio::task::JoinSet;

use crate::{
    Result,
    disk::CountingDisk,
    effort::Effort,
    files,
    floor::Floor,
    report::{Figure, Findings},
    stage::Stage,
    steps::Cost,
    watch::{Watch, median},
    work::Work,
};

/// Callers at once, and how many calls each makes in a round.
const CASES: [(usize, u32); 2] = [(1, 200), (64, 20)];

/// Bytes of the arguments and of the result.
const BYTES: usize = 128;

/// First calls per second, and repeats of them, beside the floor of the same groups.
///
/// # Errors
/// A journal cannot be made, or a call failed.
pub fn calls(folder: &Path, effort: Effort) -> Result<Findings> {
    let mut floor = Floor::new(folder)?;
    let mut findings = Findings::default();
    for (callers, calls) in CASES {
        let calls = effort.pick(calls, 5);
        findings.add(measure(folder, &mut floor, callers, calls, effort)?);
    }
    Ok(findings)
}

fn measure(
    folder: &Path,
    floor: &mut Floor,
    callers: usize,
    calls: u32,
    effort: Effort,
) -> Result<Vec<Figure>> {
    let path = folder.join("calls.redb");
    let stage = Stage::create(&path, &CountingDisk::durable(), Work::silent())?;
    made(&stage, 0, callers, calls)?;
    let (mut first, mut plain, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    let (mut commits, mut again) = (Vec::new(), Vec::new());
    let all = Watch::start();
    let mut round = 1;
    while round <= effort.rounds || all.elapsed() < effort.time {
        let number = callers as f64 * f64::from(calls);
        let watch = Watch::start();
        let cost = made(&stage, round, callers, calls)?;
        let took = watch.elapsed().as_secs_f64();
        let beside = floor.run(cost.commits(), cost.group_bytes()?)?.as_secs_f64();
        let watch = Watch::start();
        let repeats = made(&stage, round, callers, calls)?;
        again.push(number / watch.elapsed().as_secs_f64());
        if repeats.store.appends > 0 {
            return Err("a repeat has written something".into());
        }
        first.push(number / took);
        plain.push(number / beside);
        ratio.push(took / beside);
        commits.push(cost.commits() as f64 / number);
        round += 1;
    }
    stage.close()?;
    files::remove(&path)?;
    let who = if callers == 1 { "1 caller".to_owned() } else { format!("{callers} callers") };
    let told =
        |what: &str, value, unit| Figure::new("calls", format!("{who}: {what}"), value, unit);
    Ok(vec![
        told("first calls", median(&mut first), "calls/s")
            .beside(median(&mut plain), median(&mut ratio)),
        told("commits", median(&mut commits), "/call"),
        told("repeats", median(&mut again), "calls/s"),
    ])
}

/// Makes a round of calls. The second time they are repeats.
fn made(stage: &Stage, round: usize, callers: usize, calls: u32) -> Result<Cost> {
    let (disk, store) = (stage.disk.now(), stage.store.asked());
    stage.wait(async {
        let mut set = JoinSet::new();
        for caller in 0..callers {
            set.spawn(one(stage.book().clone(), format!("{round}/{caller}"), calls));
        }
        while let Some(done) = set.join_next().await {
            done??;
        }
        Ok::<_, crate::Failed>(())
    })?;
    Ok(Cost { disk: stage.disk.now().since(disk), store: stage.store.asked().since(store) })
}

async fn one(book: Deedbook, name: String, calls: u32) -> std::result::Result<(), CallError> {
    let text = "x".repeat(BYTES);
    for call in 0..calls {
        let guard = book.guard("charge").idempotent().key(format!("{name}/{call}"));
        guard.call(&text, async |_| Ok(text.clone())).await?;
    }
    Ok(())
}
