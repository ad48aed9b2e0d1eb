//! Threads that are parked: what each costs in memory and on disk, and what they cost a start.

use std::{path::Path, sync::Arc};

use deedbook::Status;
use deedbook_journal::embedded::{Embedded, OpenOptions};

use crate::{
    Result,
    disk::CountingDisk,
    effort::Effort,
    files,
    machine::resident,
    other::{self, Started},
    report::{Aim, Figure},
    stage::Stage,
    watch::{Watch, millis},
    work::{Plan, Then, Work},
};

/// How many threads are parked.
const PARKED: usize = 100_000;

/// A process that opens and starts a journal of many parked threads, beside one that does the
/// same with a journal of one.
///
/// # Errors
/// A journal cannot be made or opened, or a thread failed.
pub fn parked(folder: &Path, effort: Effort) -> Result<Vec<Figure>> {
    let count = effort.pick(PARKED, 50);
    let path = folder.join("parked.redb");
    let start = |threads: usize| -> Result<(Started, u64)> {
        let stage = Stage::create(&path, &CountingDisk::hasty(), Work::default())?;
        let plan = Plan::effects(1).then(Then::Wait);
        let threads = (0..threads).map(|at| (format!("thread-{at:06}"), plan.clone()));
        stage.begin_all(threads, |info| info.row.status == Status::Waiting)?;
        stage.close()?;
        let file = files::allocated(&path)?;
        let started = other::started(&path)?;
        files::remove(&path)?;
        Ok((started, file))
    };
    let (one, _) = start(1)?;
    let (many, file) = start(count)?;
    let each = many.resident.saturating_sub(one.resident) as f64 / (count - 1) as f64;
    let told = |what: &str, value, unit| {
        Figure::new("memory", format!("{count} parked threads: {what}"), value, unit)
    };
    Ok(vec![
        told("memory of each", each, "B").aim(Aim::AtMost(1024.0)),
        told("on disk, each", file as f64 / count as f64, "B"),
        told("open and start", many.millis, "ms"),
        told("histories read by it", many.histories as f64, "").aim(Aim::AtMost(0.0)),
        told("read from the files by it, each", many.read_bytes as f64 / count as f64, "B"),
    ])
}

/// What the other process does: opens and starts a journal. The page cache of the journal is kept
/// small: it is not per thread.
///
/// # Errors
/// The journal cannot be opened.
pub fn start(path: &Path) -> Result<Started> {
    let before = resident()?;
    let disk = CountingDisk::durable();
    let watch = Watch::start();
    let options = OpenOptions::new().cache_bytes(256 << 10).disk(Arc::new(disk.clone()));
    let home = Arc::new(Embedded::open(path, options)?);
    let stage = Stage::on(home, &disk, Work::default())?;
    let millis = millis(watch.elapsed());
    let resident = resident()?.saturating_sub(before);
    let histories = stage.store.asked().reads;
    let read_bytes = stage.disk.now().read_bytes;
    stage.close()?;
    Ok(Started { millis, resident, histories, read_bytes })
}
