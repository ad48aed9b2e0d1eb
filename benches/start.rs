//! Starting a program: resuming all that was running, and holding all that is parked.

use std::{path::Path, process::Command, sync::Arc};

use deedbook::Status;
use deedbook_journal::embedded::{Embedded, OpenOptions};
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    Failed, Result,
    disk::CountingDisk,
    files,
    machine::resident,
    open::{STEPS, THREADS},
    report::Figure,
    stage::Stage,
    watch::{Watch, median, millis},
    work::{Plan, Then, Work},
};

/// How many threads are parked.
const PARKED: usize = 10_000;

/// A start after a kill, and the memory of parked threads.
///
/// # Errors
/// A journal cannot be made or opened, or a thread failed.
pub fn start(folder: &Path) -> Result<Vec<Figure>> {
    let mut figures = vec![resume_all(folder)?];
    figures.extend(parked(folder)?);
    Ok(figures)
}

/// From `start()` until each of 1,000 killed threads makes a new call.
fn resume_all(folder: &Path) -> Result<Figure> {
    let path = folder.join("killed.redb");
    let (hung, _told) = unbounded_channel();
    let stage = Stage::create(&path, &CountingDisk::hasty(), Work::telling(hung))?;
    let plan = Plan::effects(STEPS).then(Then::Hang);
    let threads = (0..THREADS).map(|at| (format!("thread-{at}"), plan.clone()));
    let records = 2 + 2 * u64::from(STEPS);
    stage.begin_all(threads, |info| info.next >= records)?;
    stage.crash();
    let mut times = Vec::new();
    for _ in 0..5 {
        let copy = folder.join("resumed.redb");
        files::copy(&path, &copy)?;
        let home = Arc::new(Embedded::open(&copy, OpenOptions::new())?);
        let (hung, mut told) = unbounded_channel();
        let watch = Watch::start();
        let stage = Stage::on(home, &CountingDisk::durable(), Work::telling(hung))?;
        stage.wait(async {
            for _ in 0..THREADS {
                let gone = || Failed::from("a thread ended instead of going on");
                told.recv().await.ok_or_else(gone)?;
            }
            Ok::<(), Failed>(())
        })?;
        times.push(millis(watch.elapsed()));
        stage.crash();
        files::remove(&copy)?;
    }
    files::remove(&path)?;
    let records = THREADS * (2 * STEPS as usize + 1);
    let what = format!("resume {THREADS} killed threads, {records} records");
    Ok(Figure::new("start-up", what, median(&mut times), "ms"))
}

/// Memory for each parked thread: a process that opens and starts a journal of 10,000, less one
/// that does the same with a journal of one.
fn parked(folder: &Path) -> Result<Vec<Figure>> {
    let mut grown = Vec::new();
    let mut file = 0;
    for count in [1, PARKED] {
        let path = folder.join("parked.redb");
        let stage = Stage::create(&path, &CountingDisk::hasty(), Work::default())?;
        let plan = Plan::effects(1).then(Then::Wait);
        let threads = (0..count).map(|at| (format!("thread-{at:05}"), plan.clone()));
        stage.begin_all(threads, |info| info.row.status == Status::Waiting)?;
        stage.close()?;
        file = std::fs::metadata(&path)?.len();
        let output = Command::new(std::env::current_exe()?).arg("resident").arg(&path).output()?;
        let text = String::from_utf8(output.stdout)?;
        let bytes: u64 = text.trim().parse().map_err(|_| {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            Failed::from(format!("the other process did not say its memory: {why}"))
        })?;
        grown.push(bytes);
        files::remove(&path)?;
    }
    let (Some(one), Some(many)) = (grown.first(), grown.get(1)) else {
        return Err("nothing was measured".into());
    };
    let each = many.saturating_sub(*one) as f64 / (PARKED - 1) as f64;
    let what = format!("{PARKED} parked threads: memory of each");
    let stored = format!("{PARKED} parked threads: file");
    Ok(vec![
        Figure::new("start-up", what, each, "B"),
        Figure::new("start-up", stored, file as f64 / PARKED as f64, "B/thread"),
    ])
}

/// What the other process does: opens and starts a journal, and says by how many bytes its
/// resident memory grew. The page cache of the journal is kept small: it is not per thread.
///
/// # Errors
/// The journal cannot be opened.
pub fn grown(path: &Path) -> Result<u64> {
    let before = resident()?;
    let options = OpenOptions::new().cache_bytes(256 << 10);
    let home = Arc::new(Embedded::open(path, options)?);
    let stage = Stage::on(home, &CountingDisk::durable(), Work::default())?;
    let after = resident()?;
    stage.close()?;
    Ok(after.saturating_sub(before))
}
