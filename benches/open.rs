//! Opening a journal: one that was closed, and one whose process was killed in the middle of its
//! work; and resuming what was running.
//!
//! *Warm*: the files are in the system's memory. *Cold*: they were taken out of it, and what the
//! opening had read from the disk is told beside; a virtual disk may still have them in the memory
//! of its host.

use std::{path::Path, sync::Arc};

use deedbook::{Deedbook, Status};
use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{Embedded, OpenOptions},
};
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    Failed, Result,
    disk::CountingDisk,
    effort::Effort,
    files,
    machine::read_from_disk,
    other::{Fill, WAITING},
    plot::{Axis, Line, Plot},
    report::{Aim, Figure, Findings},
    stage::{Stage, runtime},
    watch::{Watch, median, millis},
    work::{Plan, Then, Work},
};

/// Threads in the journals of many threads.
const THREADS: usize = 1_000;
/// Steps of each of them; each has two records.
const STEPS: u32 = 50;
/// MiB of records in the journals of a killed process.
const SIZES: [u64; 3] = [16, 128, 1024];

/// Opens journals, warm and cold, and resumes what was running.
///
/// # Errors
/// A journal cannot be made or opened, or a thread failed.
pub fn open(folder: &Path, effort: Effort) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.add(vec![waiting(folder, effort)?, resume_all(folder, effort)?]);
    let mut lines = ["closed, warm", "closed, cold", "killed, warm", "killed, cold"]
        .map(|name| Line::new(name, Vec::new()));
    let sizes: &[u64] = effort.pick(&SIZES, &[1]);
    for &size in sizes {
        let path = folder.join("killed.redb");
        let killed = Fill {
            path: path.clone(),
            bytes: size << 20,
            payload: 4 << 10,
            cache: 64 << 20,
            until_killed: true,
        };
        killed.elsewhere()?;
        let [warm, cold] = both(folder, &path, size, effort, "killed", &mut findings)?;
        close(&path)?;
        let [closed_warm, closed_cold] =
            both(folder, &path, size, effort, "closed", &mut findings)?;
        files::remove(&path)?;
        for (line, time) in lines.iter_mut().zip([closed_warm, closed_cold, warm, cold]) {
            line.points.push((size as f64, time));
        }
    }
    findings.plots.push(Plot {
        name: "open",
        title: "Opening a journal".to_owned(),
        x: Axis::log("MiB of records"),
        y: Axis::log("time, median, ms"),
        lines: lines.into(),
    });
    Ok(findings)
}

/// Recovers a journal, and closes it.
fn close(path: &Path) -> Result<()> {
    let home = Embedded::open(path, OpenOptions::new())?;
    Ok(runtime()?.block_on(home.close())?)
}

/// Medians of opening copies of this journal, warm and cold, in milliseconds.
fn both(
    folder: &Path,
    path: &Path,
    size: u64,
    effort: Effort,
    how: &str,
    findings: &mut Findings,
) -> Result<[f64; 2]> {
    let mut opened = [Vec::new(), Vec::new()];
    for _ in 0..effort.pick(3, 1) {
        for (cold, opened) in [false, true].into_iter().zip(&mut opened) {
            opened.push(open_copy(folder, path, cold)?);
        }
    }
    let mut medians = [0.0; 2];
    for ((state, opened), middle) in ["warm", "cold"].iter().zip(&opened).zip(&mut medians) {
        let of =
            |part: fn(&Opened) -> f64| median(&mut opened.iter().map(part).collect::<Vec<_>>());
        let told = |what: &str, value, unit| {
            let what = format!("{size} MiB, {how}, {state}: {what}");
            Figure::new("open", what, value, unit)
        };
        *middle = of(|opened| opened.open);
        let time = told("open", *middle, "ms");
        findings.add(vec![
            match (how, *state, size) {
                ("closed", "warm", _) => time.aim(Aim::AtMost(10.0)),
                ("killed", "warm", 1024) => time.aim(Aim::AtMost(100.0)),
                ("killed", "cold", 1024) => time.aim(Aim::AtMost(1000.0)),
                _ => time,
            },
            told("first durable write after it", of(|opened| opened.write), "ms"),
            told("not in the tables", of(|opened| opened.undrained) / 1048576.0, "MiB"),
            told("read from the disk", of(|opened| opened.from_disk) / 1048576.0, "MiB"),
        ]);
    }
    Ok(medians)
}

/// What opening took.
#[derive(Debug)]
struct Opened {
    open: f64,
    write: f64,
    undrained: f64,
    from_disk: f64,
}

fn open_copy(folder: &Path, path: &Path, cold: bool) -> Result<Opened> {
    let copy = folder.join("opened.redb");
    files::copy(path, &copy)?;
    // The first sync of a file waits for whatever was written to it before.
    files::settle(&copy)?;
    if cold {
        files::evict(&copy)?;
    }
    let before = read_from_disk()?;
    let watch = Watch::start();
    let home = Embedded::open(&copy, OpenOptions::new())?;
    let open = millis(watch.elapsed());
    let from_disk = read_from_disk()?.saturating_sub(before) as f64;
    let undrained = home.info().undrained_bytes as f64;
    let runtime = runtime()?;
    let write = runtime.block_on(async {
        // Nothing is hosted here: what was running stays as it is.
        let book = Deedbook::on(Arc::new(home)).start().await?;
        let watch = Watch::start();
        book.signal(WAITING, "go on", &()).await?;
        Ok::<_, Failed>(millis(watch.elapsed()))
    })?;
    drop(runtime);
    files::remove(&copy)?;
    Ok(Opened { open, write, undrained, from_disk })
}

/// Opening a closed journal of many waiting threads.
fn waiting(folder: &Path, effort: Effort) -> Result<Figure> {
    let (path, copy) = (folder.join("filled.redb"), folder.join("opened.redb"));
    let threads = effort.pick(THREADS, 20);
    let stage = Stage::create(&path, &CountingDisk::hasty(), Work::default())?;
    let plan = Plan::effects(STEPS).then(Then::Wait);
    let named = (0..threads).map(|at| (format!("thread-{at}"), plan.clone()));
    stage.begin_all(named, |info| info.row.status == Status::Waiting)?;
    stage.close()?;
    let mut times = Vec::new();
    let mut records = 0;
    for _ in 0..effort.pick(7, 1) {
        files::copy(&path, &copy)?;
        let watch = Watch::start();
        let home = Embedded::open(&copy, OpenOptions::new())?;
        times.push(millis(watch.elapsed()));
        records = home.info().records;
        drop(home);
        files::remove(&copy)?;
    }
    files::remove(&path)?;
    let what = format!("{threads} waiting threads, {records} records, closed, warm: open");
    Ok(Figure::new("open", what, median(&mut times), "ms").aim(Aim::AtMost(10.0)))
}

/// From `start()` until each of many killed threads makes a new call.
fn resume_all(folder: &Path, effort: Effort) -> Result<Figure> {
    let (path, copy) = (folder.join("running.redb"), folder.join("resumed.redb"));
    let threads = effort.pick(THREADS, 20);
    let (hung, _told) = unbounded_channel();
    let stage = Stage::create(&path, &CountingDisk::hasty(), Work::telling(hung))?;
    let plan = Plan::effects(STEPS).then(Then::Hang);
    let named = (0..threads).map(|at| (format!("thread-{at}"), plan.clone()));
    let records = 2 + 2 * u64::from(STEPS);
    stage.begin_all(named, |info| info.next >= records)?;
    stage.crash();
    let mut times = Vec::new();
    for _ in 0..effort.pick(5, 1) {
        files::copy(&path, &copy)?;
        files::settle(&copy)?;
        let home = Arc::new(Embedded::open(&copy, OpenOptions::new())?);
        let (hung, mut told) = unbounded_channel();
        let watch = Watch::start();
        let stage = Stage::on(home, &CountingDisk::durable(), Work::telling(hung))?;
        stage.wait(async {
            for _ in 0..threads {
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
    let records = threads * (2 * STEPS as usize + 1);
    let what = format!("start() until {threads} killed threads, {records} records, go on");
    Ok(Figure::new("open", what, median(&mut times), "ms"))
}
