//! Which layout of tables an append costs least in, and what the embedded home makes of it.
//!
//! ```text
//! cargo run --release -p deedbook-journal --example layout [FOLDER [home]]
//! ```
//!
//! Prints microseconds for each commit (the median of the rounds' medians) and, beside it, the
//! ratio to a plain write of as many bytes with one fdatasync into a preallocated, zero-filled
//! file in the same round. Engines take turns within each round. All redb commits are two-phase.
//! `docs/decisions/0001-layout.md` has the figures and what follows from them.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![expect(clippy::print_stdout, clippy::indexing_slicing, reason = "a measurement prints")]

use std::{
    collections::BTreeMap,
    error::Error,
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim},
    embedded::{CountingDisk, CreateOptions, Embedded, OpenOptions as Open, RealDisk},
    id::{Epoch, StoreTime, ThreadId},
    record::{Header, Kind, Payload, Record, RecordHash, Role},
    row::{Row, Status},
};
use redb::{Database, TableDefinition};

type Done<T = ()> = Result<T, Box<dyn Error>>;

const APPEND_BYTES: usize = 600;
const ROW_BYTES: usize = 180;
const ROUNDS: usize = 5;
const COMMITS: usize = 120;

const DIRECT: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("direct");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const EXTENTS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("extents");
const THREADS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("threads");

/// CPU time of this process so far, in milliseconds, and bytes in its write calls.
fn used() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = behind.split_whitespace().skip(11).take(2).flat_map(str::parse::<f64>).sum();
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let written = io.lines().find_map(|l| l.strip_prefix("wchar: ")?.parse().ok());
    (ticks * 10.0, written.unwrap_or(0.0))
}

/// Something that commits one append for each of some threads.
trait Engine {
    fn name(&self) -> &'static str;
    fn commit(&mut self, threads: &[u64]) -> Done;
}

struct Floor {
    file: File,
    at: u64,
    len: u64,
}

impl Floor {
    fn new(folder: &Path) -> Done<Self> {
        let path = folder.join("floor");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        let len = 256 << 20;
        for at in (0..len).step_by(1 << 20) {
            file.write_all_at(&[0; 1 << 20], at)?;
        }
        file.sync_all()?;
        Ok(Self { file, at: 0, len })
    }
}

impl Engine for Floor {
    fn name(&self) -> &'static str {
        "floor: write + fdatasync"
    }

    fn commit(&mut self, threads: &[u64]) -> Done {
        let bytes = vec![7; APPEND_BYTES * threads.len()];
        self.at %= self.len - bytes.len() as u64;
        self.file.write_all_at(&bytes, self.at)?;
        self.file.sync_data()?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Layout {
    Direct,
    ExtentEach,
    RecentInRow,
    Deferred,
}

struct Tables {
    db: Database,
    layout: Layout,
    next: BTreeMap<u64, u64>,
    recent: BTreeMap<u64, Vec<u64>>,
    place: u64,
    unsettled: usize,
}

impl Tables {
    fn new(folder: &Path, name: &str, layout: Layout) -> Done<Self> {
        let path = folder.join(name);
        let db = Database::builder().set_cache_size(64 << 20).create(path)?;
        Ok(Self {
            db,
            layout,
            next: BTreeMap::new(),
            recent: BTreeMap::new(),
            place: 0,
            unsettled: 0,
        })
    }
}

fn id(thread: u64) -> Vec<u8> {
    format!("order-{:08x}", thread.wrapping_mul(0x9e37_79b9) as u32).into_bytes()
}

impl Engine for Tables {
    fn name(&self) -> &'static str {
        match self.layout {
            Layout::Direct => "a: key (thread, n), row each",
            Layout::ExtentEach => "b: right edge, extent and row each",
            Layout::RecentInRow => "c: right edge, extents in the row",
            Layout::Deferred => "d: right edge alone, rest by 1024",
        }
    }

    fn commit(&mut self, threads: &[u64]) -> Done {
        let mut transaction = self.db.begin_write()?;
        transaction.set_two_phase_commit(true);
        let bytes = [7; APPEND_BYTES];
        let row = |extents: usize| vec![5_u8; ROW_BYTES + 3 * extents];
        for &thread in threads {
            let n = self.next.entry(thread).or_default();
            if self.layout == Layout::Direct {
                transaction.open_table(DIRECT)?.insert((thread, *n), &bytes[..])?;
                transaction.open_table(THREADS)?.insert(&id(thread)[..], &row(0)[..])?;
                *n += 2;
                continue;
            }
            transaction.open_table(LOG)?.insert(self.place, &bytes[..])?;
            let recent = self.recent.entry(thread).or_default();
            recent.push(self.place);
            match self.layout {
                Layout::ExtentEach => {
                    let place = self.place.to_le_bytes();
                    transaction.open_table(EXTENTS)?.insert((thread, *n), &place[..])?;
                    transaction.open_table(THREADS)?.insert(&id(thread)[..], &row(0)[..])?;
                }
                Layout::RecentInRow => {
                    if recent.len() >= 32 {
                        let list = vec![3; recent.len() * 4];
                        transaction.open_table(EXTENTS)?.insert((thread, *n), &list[..])?;
                        recent.clear();
                    }
                    let row = row(recent.len());
                    transaction.open_table(THREADS)?.insert(&id(thread)[..], &row[..])?;
                }
                _ => self.unsettled += 1,
            }
            *n += 2;
            self.place += 2;
        }
        if self.unsettled >= 1024 {
            for (thread, recent) in std::mem::take(&mut self.recent) {
                let list = vec![3; recent.len() * 4];
                let first = self.next.get(&thread).copied().unwrap_or_default();
                transaction.open_table(EXTENTS)?.insert((thread, first), &list[..])?;
                transaction.open_table(THREADS)?.insert(&id(thread)[..], &row(0)[..])?;
            }
            self.unsettled = 0;
        }
        transaction.commit()?;
        Ok(())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn compare(folder: &Path, threads: u64, group: usize) -> Done {
    let at = |name: &str| format!("{name}-{threads}-{group}.redb");
    let mut engines: Vec<Box<dyn Engine>> = vec![
        Box::new(Floor::new(folder)?),
        Box::new(Tables::new(folder, &at("direct"), Layout::Direct)?),
        Box::new(Tables::new(folder, &at("extent"), Layout::ExtentEach)?),
        Box::new(Tables::new(folder, &at("recent"), Layout::RecentInRow)?),
        Box::new(Tables::new(folder, &at("deferred"), Layout::Deferred)?),
    ];
    let mut rounds = vec![Vec::new(); engines.len()];
    let mut means = vec![Vec::new(); engines.len()];
    let mut spent = vec![(0.0, 0.0); engines.len()];
    let mut turn = 0_u64;
    for round in 0..=ROUNDS {
        for (k, engine) in engines.iter_mut().enumerate() {
            // The first round fills: as many threads as there are to be, in large groups.
            if round == 0 {
                let all: Vec<u64> = (0..threads).collect();
                for some in all.chunks(2048) {
                    engine.commit(some)?;
                }
                continue;
            }
            let mut times = Vec::with_capacity(COMMITS);
            let before = used();
            for _ in 0..COMMITS {
                let some: Vec<u64> = (0..group as u64)
                    .map(|i| (turn + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) % threads)
                    .collect();
                turn += group as u64;
                let since = Instant::now();
                engine.commit(&some)?;
                times.push(since.elapsed().as_secs_f64() * 1e6);
            }
            let after = used();
            spent[k].0 += (after.0 - before.0) * 1e3 / (COMMITS * ROUNDS) as f64;
            spent[k].1 += (after.1 - before.1) / (COMMITS * ROUNDS) as f64;
            means[k].push(times.iter().sum::<f64>() / times.len() as f64);
            rounds[k].push(median(times));
        }
    }
    println!("\n{threads} threads, groups of {group}, {APPEND_BYTES} B an append:");
    println!(
        "{:38} {:>10} {:>7} {:>10} {:>7} {:>7} {:>9}",
        "", "median us", "ratio", "mean us", "ratio", "CPU us", "B written"
    );
    let (floor, floor_mean) = (median(rounds[0].clone()), median(means[0].clone()));
    for (k, engine) in engines.iter().enumerate() {
        let (time, mean) = (median(rounds[k].clone()), median(means[k].clone()));
        let (cpu, written) = spent[k];
        println!(
            "{:38} {time:>10.0} {:>7.2} {mean:>10.0} {:>7.2} {cpu:>7.0} {written:>9.0}",
            engine.name(),
            time / floor,
            mean / floor_mean,
        );
    }
    Ok(())
}

/// What an effectful step writes: an intent with 200 B of arguments, or a result of 100 B.
fn record(log_id: &[u8; 16], thread: &ThreadId, n: u64, epoch: Epoch, head: RecordHash) -> Record {
    let kind = if n.is_multiple_of(2) { Kind::StepIntent } else { Kind::StepDone };
    let mut header = Header::new(thread.clone(), n, epoch, kind, StoreTime(1), 0);
    header.attempt = Some(1);
    header.call = (n % 2 == 1).then(|| n - 1);
    header.key = n.is_multiple_of(2).then(|| "dk1_3f9c0a7be1d24856bb0f6e8a7c1d2e3f4a5b6c7d".into());
    let (role, size) = if n.is_multiple_of(2) { (Role::Args, 200) } else { (Role::Result, 100) };
    let payload = Payload { role, salt: [9; 32], bytes: vec![5; size].into() };
    Record::seal(log_id, &head, header, vec![payload]).1
}

struct Pen {
    thread: ThreadId,
    epoch: Epoch,
    next: u64,
    head: RecordHash,
    row: Row,
}

impl Pen {
    async fn claim(home: &Embedded, id: &str) -> Done<Self> {
        let row = Row {
            workflow: "refund".into(),
            status: Status::Running,
            since: StoreTime(0),
            wake_at: Some(StoreTime(0)),
            detail: None,
            open_doubts: 0,
            created_at: StoreTime(0),
        };
        let claim = Claim::Thread { id: ThreadId::new(id)?, create: Some(row) };
        let mut leases = home.claim(claim, "layout", Duration::from_secs(3600)).await?;
        let lease = leases.pop().ok_or("no lease")?;
        Ok(Self {
            thread: lease.thread,
            epoch: lease.epoch,
            next: lease.next,
            head: lease.head,
            row: lease.row,
        })
    }

    fn append(&mut self, log_id: &[u8; 16], count: u64) -> Append {
        let (at, mut records) = (self.next, Vec::new());
        for _ in 0..count {
            let record = record(log_id, &self.thread, self.next, self.epoch, self.head);
            self.next += 1;
            self.head = record.hash;
            records.push(record);
        }
        Append {
            thread: self.thread.clone(),
            epoch: self.epoch,
            at,
            records,
            consumes: Vec::new(),
            row: self.row.clone(),
        }
    }
}

fn runtime() -> Done<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().build()?)
}

/// Appends of one record each, by this many threads of the system with a runtime each.
fn appends(home: &Arc<Embedded>, writers: usize, workers: usize, each: u64) -> Done<f64> {
    let since = Instant::now();
    std::thread::scope(|scope| -> Done {
        let mut running = Vec::new();
        for worker in 0..workers {
            let home = Arc::clone(home);
            running.push(scope.spawn(move || -> Result<(), String> {
                let text = |e: Box<dyn Error>| e.to_string();
                let runtime = runtime().map_err(text)?;
                let local = tokio::task::LocalSet::new();
                for k in (worker..writers).step_by(workers) {
                    let home = Arc::clone(&home);
                    local.spawn_local(async move {
                        let id = format!("order-{writers}-{each}-{k}");
                        let pen = Pen::claim(&home, &id).await;
                        assert!(pen.is_ok(), "{id}: held");
                        let Ok(mut pen) = pen else { return };
                        let log_id = home.identity().log_id;
                        for _ in 0..each {
                            let stored = home.append(vec![pen.append(&log_id, 1)]).await;
                            assert!(stored.iter().all(Result::is_ok), "{stored:?}");
                        }
                    });
                }
                runtime.block_on(local);
                Ok(())
            }));
        }
        for worker in running {
            worker.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })?;
    Ok((writers as u64 * each) as f64 / since.elapsed().as_secs_f64())
}

fn home(folder: &Path) -> Done {
    let disk = Arc::new(CountingDisk::new(Arc::new(RealDisk)));
    let path = folder.join("home.redb");
    let options = CreateOptions::new().open(Open::new().disk(Arc::clone(&disk) as _));
    let book = Arc::new(Embedded::create(&path, options)?);
    let mut floor = Floor::new(folder)?;
    println!("\nthe home, appends of one record (about 500 B) through the trait:");
    for (writers, each) in [(1, 400), (64, 400), (1, 401), (64, 401), (256, 100)] {
        let (before, since) = (disk.counts(), Instant::now());
        for _ in 0..200 {
            floor.commit(&[0])?;
        }
        let sync = since.elapsed().as_secs_f64() / 200.0;
        let cpu = used().0;
        let rate = appends(&book, writers, 2.min(writers), each)?;
        let (after, cpu) = (disk.counts(), used().0 - cpu);
        let count = writers as f64 * each as f64;
        println!(
            "{writers:4} writers: {rate:>8.0} appends/s, {:.2} floor syncs an append, {:.3} syncs and \
             {:.0} B written and {:.0} us of CPU an append (floor {:.0} us)",
            1.0 / rate / sync,
            (after.syncs - before.syncs) as f64 / count,
            (after.bytes_written - before.bytes_written) as f64 / count,
            cpu * 1e3 / count,
            sync * 1e6
        );
    }
    let book = Arc::into_inner(book).ok_or("still in use")?;
    runtime()?.block_on(reads(&book))?;
    let info = book.info();
    println!(
        "file: {} B for {} records of {} threads: {:.0} B a record",
        info.file_bytes,
        info.records,
        info.threads,
        info.file_bytes as f64 / info.records as f64
    );
    runtime()?.block_on(book.close())?;
    drop(book);
    opening(&path)
}

async fn reads(book: &Embedded) -> Done {
    let log_id = book.identity().log_id;
    let mut pen = Pen::claim(book, "long").await?;
    for _ in 0..10_000 {
        for stored in book.append(vec![pen.append(&log_id, 2)]).await {
            stored?;
        }
    }
    let (mut times, cpu) = (Vec::new(), used().0);
    for _ in 0..7 {
        let since = Instant::now();
        let (mut from, mut count) = (0, 0);
        loop {
            let page = book.read(&pen.thread, from, 4 << 20).await?;
            count += page.items.len();
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!(count, 20_000);
        times.push(since.elapsed().as_secs_f64() * 1e3);
    }
    println!(
        "a thread of 20000 records read and verified: {:.1} ms, {:.1} ms of CPU",
        median(times),
        (used().0 - cpu) / 7.0
    );
    let mut times = Vec::new();
    for from in 0..500 {
        let since = Instant::now();
        book.read(&pen.thread, from * 40, 0).await?;
        times.push(since.elapsed().as_secs_f64() * 1e6);
    }
    println!("one record anywhere in it: {:.0} us", median(times));
    Ok(())
}

fn opening(path: &Path) -> Done {
    let since = Instant::now();
    let book = Embedded::open(path, Open::new())?;
    println!("opening what was closed: {:.1} ms", since.elapsed().as_secs_f64() * 1e3);
    runtime()?.block_on(async {
        let log_id = book.identity().log_id;
        let mut pen = Pen::claim(&book, "one more").await?;
        for _ in 0..1000 {
            for stored in book.append(vec![pen.append(&log_id, 1)]).await {
                stored?;
            }
        }
        Done::Ok(())
    })?;
    drop(book);
    let since = Instant::now();
    let book = Embedded::open(path, Open::new())?;
    println!(
        "opening what was not, 1000 entries unsettled: {:.1} ms",
        since.elapsed().as_secs_f64() * 1e3
    );
    runtime()?.block_on(book.close())?;
    Ok(())
}

fn main() -> Done {
    let named = std::env::args().nth(1).map(PathBuf::from);
    let folder = named.unwrap_or_else(|| std::env::temp_dir().join("deedbook-layout"));
    std::fs::create_dir_all(&folder)?;
    let only = std::env::args().nth(2);
    if only.as_deref() != Some("home") {
        for (threads, group) in [(1, 1), (64, 1), (64, 64), (20_000, 64)] {
            compare(&folder, threads, group)?;
        }
    }
    home(&folder)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
