//! What a step takes on disk.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use crate::{
    Result,
    disk::CountingDisk,
    files,
    report::{Aim, Figure},
    stage::Stage,
    steps::count,
    work::{Plan, Work},
};

/// Bytes that the file takes on disk after a clean close, and those of the records in it, over the
/// number of steps.
///
/// # Errors
/// The journal cannot be made, or a thread failed.
pub fn bytes(folder: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, threads, each) in [("1 thread", 1, 10_000), ("64 threads", 64, 157)] {
        let path = folder.join(format!("bytes-{threads}.redb"));
        let stage = Stage::create(&path, &CountingDisk::durable(), Work::default())?;
        let cost = count(&stage, 0, threads, &Plan::effects(each))?;
        stage.close()?;
        let steps = threads as f64 * f64::from(each);
        // What is allocated: redb makes a file longer in large steps, and what it has not written
        // is a hole.
        let file = fs::metadata(&path)?.blocks() as f64 * 512.0 / steps;
        let what = format!("{name}, {steps} steps: on disk");
        figures.push(Figure::new("bytes", what, file, "B/step").aim(Aim::AtMost(1536.0)));
        let records = cost.store.bytes as f64 / steps;
        let what = format!("{name}, {steps} steps: records");
        figures.push(Figure::new("bytes", what, records, "B/step"));
        files::remove(&path)?;
    }
    Ok(figures)
}
