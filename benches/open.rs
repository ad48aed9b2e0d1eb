//! Opening a journal: one that was closed, and one whose process was killed.

use std::path::Path;

use deedbook::Status;
use deedbook_journal::embedded::{Embedded, OpenOptions};

use crate::{
    Result,
    disk::CountingDisk,
    files,
    report::Figure,
    stage::Stage,
    watch::{Watch, median, millis},
    work::{Plan, Then, Work},
};

/// Threads in the journal that is opened.
pub const THREADS: usize = 1_000;
/// Steps of each of them; each has two records.
pub const STEPS: u32 = 50;

/// Opens a journal of 1,000 waiting threads and 100,000 records, closed and killed.
///
/// # Errors
/// The journal cannot be made or opened.
pub fn open(folder: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for closed in [true, false] {
        let path = folder.join("filled.redb");
        let stage = Stage::create(&path, &CountingDisk::hasty(), Work::default())?;
        let plan = Plan::effects(STEPS).then(Then::Wait);
        let threads = (0..THREADS).map(|at| (format!("thread-{at}"), plan.clone()));
        stage.begin_all(threads, |info| info.row.status == Status::Waiting)?;
        if closed {
            stage.close()?;
        } else {
            stage.crash();
        }
        let mut times = Vec::new();
        let mut records = 0;
        for _ in 0..7 {
            let copy = folder.join("opened.redb");
            files::copy(&path, &copy)?;
            let watch = Watch::start();
            let home = Embedded::open(&copy, OpenOptions::new())?;
            times.push(millis(watch.elapsed()));
            records = home.info().records;
            drop(home);
            files::remove(&copy)?;
        }
        files::remove(&path)?;
        let how = if closed { "closed" } else { "killed" };
        let what = format!("{how}, {THREADS} threads, {records} records");
        figures.push(Figure::new("open", what, median(&mut times), "ms"));
    }
    Ok(figures)
}
