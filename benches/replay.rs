//! From a crashed thread to its first new call.
//!
//! A thread makes `n` steps and crashes inside a body. Its journal is copied, and each copy is
//! opened as a new process would: what counts is the time until the body of the first call that
//! is not recorded begins. Reading and folding, which overlap in a resumption, are measured again
//! by themselves; beyond the longer of the two comes what cannot overlap, the turns above all. The
//! floor here is what no verified replay can leave out: hashing the same records.

use std::{collections::BTreeMap, hint::black_box, path::Path, sync::Arc, time::Duration};

use deedbook::{Checkpointer, ThreadId, checkpointer::RecordPage};
use deedbook_journal::{
    embedded::{Embedded, OpenOptions},
    history::History,
    record::{Record, RecordHash},
};
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    Failed, Result,
    disk::CountingDisk,
    effort::Effort,
    files,
    plot::{Axis, Line, Plot},
    report::{Aim, Figure, Findings},
    stage::{Stage, runtime, runtime_alone},
    store::CountingStore,
    watch::{Watch, median, millis},
    work::{self, Plan, Then, Work},
};

const THREAD: &str = "crashed";
const PAGE_BYTES: usize = 512 << 10;

/// Where the time went, in one resumption.
#[derive(Debug, Clone, Copy)]
struct Split {
    open: Duration,
    resume: Duration,
    read: Duration,
    fold: Duration,
    hash: Duration,
}

/// Replays threads of these many steps, as a new process does, then from memory.
///
/// # Errors
/// A journal cannot be made or opened, or a thread failed.
pub fn replay(folder: &Path, sizes: &[u32], effort: Effort) -> Result<Findings> {
    let mut findings = Findings::default();
    let [mut whole, mut hashing] = [const { Vec::new() }; 2];
    for &steps in sizes {
        let path = folder.join("replay.redb");
        fill(&path, steps)?;
        let rounds = effort.pick(if steps > 10_000 { 5 } else { 11 }, 1);
        let splits: Result<Vec<_>> = (0..rounds).map(|_| resume(folder, &path)).collect();
        files::remove(&path)?;
        let splits = splits?;
        let at = f64::from(steps);
        whole.push((at, middle(&splits, |s| s.resume)));
        hashing.push((at, middle(&splits, |s| s.hash)));
        findings.add(told(steps, &splits));
    }
    let mut from_memory = Vec::new();
    for &steps in sizes {
        let splits = kept(folder, steps, effort.pick(5, 1))?;
        from_memory.push((f64::from(steps), middle(&splits, |s| s.resume)));
        findings.add(told_kept(steps, &splits));
    }
    findings.plots.push(Plot {
        name: "replay",
        title: "Replay: from start() to the first new call".to_owned(),
        x: Axis::log("recorded steps"),
        y: Axis::log("time, ms"),
        lines: vec![
            Line::new("from the journal", whole),
            Line::new("from memory, on one OS thread", from_memory),
            Line::beside("hashing the records, alone", hashing),
            Line::beside(
                "aim",
                sizes.iter().map(|&s| (f64::from(s), f64::from(s) / 1e3)).collect(),
            ),
        ],
    });
    Ok(findings)
}

/// The median of one part, in milliseconds.
fn middle<T>(rounds: &[T], part: impl Fn(&T) -> Duration) -> f64 {
    median(&mut rounds.iter().map(|round| millis(part(round))).collect::<Vec<_>>())
}

/// Replays threads of these many steps whose records are in memory and need no check, on one OS
/// thread: what is left when reading and hashing cost nothing. `rounds` of each.
///
/// # Errors
/// A journal cannot be made or opened, or a thread failed.
pub fn turns(folder: &Path, sizes: &[u32], rounds: usize) -> Result<Findings> {
    let mut findings = Findings::default();
    for &steps in sizes {
        findings.add(told_kept(steps, &kept(folder, steps, rounds)?));
    }
    Ok(findings)
}

fn kept(folder: &Path, steps: u32, rounds: usize) -> Result<Vec<Kept>> {
    let path = folder.join("replay.redb");
    fill(&path, steps)?;
    let splits: Result<Vec<_>> = (0..rounds).map(|_| resume_kept(folder, &path)).collect();
    files::remove(&path)?;
    splits
}

/// Where the time went, in one resumption from memory.
#[derive(Debug, Clone, Copy)]
struct Kept {
    resume: Duration,
    fold: Duration,
    code: Duration,
}

fn told_kept(steps: u32, splits: &[Kept]) -> Vec<Figure> {
    let of = |part: fn(&Kept) -> Duration| middle(splits, part);
    let figure =
        |what: &str, value| Figure::new("turns", format!("{steps} steps: {what}"), value, "ms");
    let whole = figure("start() to the first new call, records in memory", of(|s| s.resume));
    let whole = if steps == 10_000 { whole.aim(Aim::AtMost(8.0)) } else { whole };
    vec![
        whole,
        figure("of it, the workflow's own values", of(|s| s.code)),
        figure("parse and fold, alone", of(|s| s.fold)),
    ]
}

fn resume_kept(folder: &Path, crashed: &Path) -> Result<Kept> {
    let path = folder.join("resumed.redb");
    files::copy(crashed, &path)?;
    let home: Arc<dyn Checkpointer> = Arc::new(Embedded::open(&path, OpenOptions::new())?);
    let pages = runtime()?.block_on(pages(&*home))?;
    let records: Vec<Record> =
        pages.values().flat_map(|page| page.items.iter().map(|(_, r)| r.clone())).collect();
    let thread = ThreadId::new(THREAD)?;
    let fold = fold_alone(History::new(thread, home.identity().secret), &records)?;
    let code = work::values(u32::try_from(records.len() / 2)?)?;
    let resume = Prepared { store: CountingStore::keeping(home, pages) }.resume()?;
    files::remove(&path)?;
    Ok(Kept { resume, fold, code })
}

/// A crashed thread whose records are in memory.
#[derive(Debug)]
pub struct Prepared {
    store: Arc<CountingStore>,
}

/// Makes a thread of this many steps that crashed, and reads its records.
///
/// # Errors
/// The journal cannot be made or opened.
pub fn prepare(folder: &Path, steps: u32) -> Result<Prepared> {
    let path = folder.join(format!("prepared-{steps}.redb"));
    fill(&path, steps)?;
    let disk = Arc::new(CountingDisk::hasty());
    let options = OpenOptions::new().disk(disk);
    let home: Arc<dyn Checkpointer> = Arc::new(Embedded::open(&path, options)?);
    let pages = runtime()?.block_on(pages(&*home))?;
    Ok(Prepared { store: CountingStore::keeping(home, pages) })
}

impl Prepared {
    /// Resumes the thread on this OS thread until its first new call. The part that counts; not
    /// inlined, so that a profiler can tell it from what prepares it.
    ///
    /// # Errors
    /// The thread ended.
    #[inline(never)]
    pub fn resume(self) -> Result<Duration> {
        let (hung, mut told) = unbounded_channel();
        let runtime = runtime_alone()?;
        let watch = Watch::start();
        let (disk, work) = (CountingDisk::durable(), Work::telling(hung));
        let stage = Stage::within(runtime, self.store, &disk, work)?;
        let gone = || Failed::from("the thread ended instead of going on");
        stage.wait(told.recv()).ok_or_else(gone)?;
        let resume = watch.elapsed();
        stage.crash();
        Ok(resume)
    }
}

#[inline(never)]
fn fold_alone(mut history: History, records: &[Record]) -> Result<Duration> {
    let watch = Watch::start();
    history.expect(records.len() as u64);
    for record in records {
        history.replay(record)?;
    }
    let fold = watch.elapsed();
    drop(history);
    Ok(fold)
}

/// Every record of the thread, in the pages in which a resumption asks for them.
async fn pages(home: &dyn Checkpointer) -> Result<BTreeMap<(ThreadId, u64), RecordPage>> {
    let thread = ThreadId::new(THREAD)?;
    let mut pages = BTreeMap::new();
    let mut from = Some(0);
    while let Some(n) = from {
        let page = home.read(&thread, n, PAGE_BYTES).await?;
        from = page.next;
        pages.insert((thread.clone(), n), page);
    }
    Ok(pages)
}

fn told(steps: u32, splits: &[Split]) -> Vec<Figure> {
    let of = |part: fn(&Split) -> Duration| middle(splits, part);
    let hashed = of(|s| s.hash);
    let ratio = |part: fn(&Split) -> Duration| {
        let ratios = splits.iter();
        let ratios = ratios.map(|s| part(s).as_secs_f64() / s.hash.as_secs_f64());
        median(&mut ratios.collect::<Vec<_>>())
    };
    let name = format!("{steps} steps");
    let figure = |what: &str, value| Figure::new("replay", format!("{name}: {what}"), value, "ms");
    let whole = figure("start() to the first new call", of(|s| s.resume));
    let whole = if steps < 10_000 { whole } else { whole.aim(Aim::AtMost(f64::from(steps) / 1e3)) };
    let whole = whole.beside(hashed, ratio(|s| s.resume));
    let rest = of(|s| s.resume.saturating_sub(s.read.max(s.fold)));
    let per_step = of(|s| s.resume) * 1e6 / f64::from(steps);
    vec![
        whole,
        figure("read and verify, alone", of(|s| s.read)).beside(hashed, ratio(|s| s.read)),
        figure("parse and fold, alone", of(|s| s.fold)),
        figure("claim, turns, and what did not overlap", rest),
        Figure::new("replay", format!("{name}: a recorded step"), per_step, "ns"),
        figure("open() before, with recovery", of(|s| s.open)),
    ]
}

/// Makes the journal of a thread that crashed after its steps.
fn fill(path: &Path, steps: u32) -> Result<()> {
    let (hung, _told) = unbounded_channel();
    let stage = Stage::create(path, &CountingDisk::hasty(), Work::telling(hung))?;
    let plan = Plan::effects(steps).then(Then::Hang);
    // The start, two records a step, and the intent of the step that hangs.
    let records = 2 + 2 * u64::from(steps);
    stage.begin_all([(THREAD.to_owned(), plan)], |info| info.next >= records)?;
    stage.crash();
    Ok(())
}

fn resume(folder: &Path, crashed: &Path) -> Result<Split> {
    let path = folder.join("resumed.redb");
    files::copy(crashed, &path)?;
    files::settle(&path)?;
    let watch = Watch::start();
    let home: Arc<dyn Checkpointer> = Arc::new(Embedded::open(&path, OpenOptions::new())?);
    let open = watch.elapsed();
    let (hung, mut told) = unbounded_channel();
    let work = Work::telling(hung);
    let watch = Watch::start();
    let stage = Stage::on(Arc::clone(&home), &CountingDisk::durable(), work)?;
    let gone = || Failed::from("the thread ended instead of going on");
    stage.wait(told.recv()).ok_or_else(gone)?;
    let resume = watch.elapsed();
    let executed = stage.work.bodies.load(std::sync::atomic::Ordering::Relaxed);
    stage.crash();
    if executed > 0 {
        return Err(format!("replay executed {executed} recorded bodies").into());
    }
    let [read, fold, hash] = runtime()?.block_on(read_and_fold(&*home))?;
    drop(home);
    files::remove(&path)?;
    Ok(Split { open, resume, read, fold, hash })
}

/// What is done before the workflow is polled, timed by parts: reading, folding, and the hashing
/// that is a part of reading.
async fn read_and_fold(home: &dyn Checkpointer) -> Result<[Duration; 3]> {
    let thread = ThreadId::new(THREAD)?;
    let mut history = History::new(thread.clone(), home.identity().secret);
    let log_id = home.identity().log_id;
    let [mut read, mut fold, mut hash] = [Duration::ZERO; 3];
    let mut from = Some(0);
    while let Some(n) = from {
        let watch = Watch::start();
        let page = home.read(&thread, n, PAGE_BYTES).await?;
        read += watch.elapsed();
        let watch = Watch::start();
        for (_, record) in &page.items {
            history.replay(record)?;
        }
        fold += watch.elapsed();
        let watch = Watch::start();
        for (_, record) in &page.items {
            black_box(RecordHash::of(&log_id, &record.hash, &record.header));
            for payload in &record.payloads {
                black_box(payload.commitment());
            }
        }
        hash += watch.elapsed();
        from = page.next;
    }
    Ok([read, fold, hash])
}
