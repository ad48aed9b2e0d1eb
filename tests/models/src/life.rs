//! A short life of a journal with several threads, in one schedule.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    path::Path,
    pin::pin,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, Message, Posted, StoreError},
    embedded::{CommitBy, CreateOptions, Embedded, OpenOptions, planted::draw_from},
    id::{MessageId, StoreTime, ThreadId},
    pen::{Draft, Pen},
    record::{Kind, RecordHash, Records, Role},
    row::{Row, Status},
};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    thread,
};

use crate::{
    random::Random,
    sim_disk::{Fault, Loss, SimDisk},
    watch::{MARK, Watched},
};

const BOOK: &str = "/sim/book.redb";
const LOG_ID: [u8; 16] = [3; 16];
const LONG: Duration = Duration::from_secs(3600);
/// The thread that is there from the beginning, with one record.
const OLD: &str = "old";

/// What happens in a life.
#[derive(Debug, Clone, Copy)]
struct Plan {
    by: CommitBy,
    writers: u32,
    appends: u32,
    /// How long payloads are: long ones fill a file of the log, and bring on drains.
    bytes: usize,
    log_bytes: u64,
    reader: bool,
    poster: bool,
    /// Somebody who goes away while waiting.
    leaver: bool,
    /// Somebody closes it while others write.
    closer: bool,
    /// Behind how many operations which of them fail.
    fault: Option<(usize, Fails)>,
}

#[derive(Debug, Clone, Copy)]
enum Fails {
    /// One, in this way.
    One(Fault),
    /// All from there on.
    All(Fault),
    /// The next sync of a file.
    Sync,
    /// A sync of a file of the log.
    LogSync,
}

impl Plan {
    fn draw() -> Self {
        let mut random = thread_rng();
        let long = random.gen_bool(0.5);
        let fault = random.gen_bool(0.6).then(|| {
            let fault = [Fault::Device, Fault::Short, Fault::Full][random.gen_range(0..3)];
            let fails = [Fails::One(fault), Fails::All(fault), Fails::Sync, Fails::LogSync];
            // A life with long payloads has more of them.
            let operations = if long { 100 } else { 30 };
            (random.gen_range(0..operations), fails[random.gen_range(0..4)])
        });
        Self {
            by: [CommitBy::Either, CommitBy::Caller, CommitBy::Thread][random.gen_range(0..3)],
            writers: random.gen_range(2..4),
            appends: random.gen_range(1..5),
            bytes: if long { [12 << 10, 24 << 10][random.gen_range(0..2)] } else { 8 },
            log_bytes: if random.gen_bool(0.5) { 64 << 10 } else { 128 << 10 },
            reader: random.gen_bool(0.4),
            poster: random.gen_bool(0.3),
            leaver: random.gen_bool(0.3),
            closer: random.gen_bool(0.4),
            fault,
        }
    }
}

/// What came of a life, told behind it.
#[derive(Debug, Default)]
struct Told {
    /// What was acknowledged, by thread.
    kept: BTreeMap<String, Vec<u32>>,
    /// What may be there or not.
    unknown: Vec<u32>,
}

struct Home {
    book: Embedded,
    disk: Watched,
    plan: Plan,
    told: Mutex<Told>,
}

fn row() -> Row {
    Row::new("w", Status::Running, StoreTime(1))
}

fn options(disk: &Watched, plan: Option<&Plan>) -> OpenOptions {
    let options = OpenOptions::new().disk(Arc::new(disk.clone())).cache_bytes(1 << 20);
    let options = options.time(Arc::new(|| 1_000));
    match plan {
        Some(plan) => options.commit_by(plan.by).log_bytes(plan.log_bytes),
        None => options,
    }
}

/// A journal with one record, closed: made once, outside of what is looked at.
fn image() -> SimDisk {
    static IMAGE: LazyLock<Mutex<Option<SimDisk>>> = LazyLock::new(Mutex::default);
    let mut image = IMAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let image = image.get_or_insert_with(|| made().expect("the journal to begin with"));
    image.after_power_loss(0, Loss::Nothing, &mut Random::new(1))
}

/// Has the journal made that lives begin with: in an execution of its own.
pub(crate) fn begin() {
    drop(image());
}

fn made() -> Result<SimDisk, StoreError> {
    draw_from(Some(1));
    let disk = Watched::default();
    let create = CreateOptions::new().log_id(LOG_ID).namespace([4; 16]).secret([5; 32]);
    let book = Embedded::create(Path::new(BOOK), create.open(options(&disk, None)));
    let book = book.expect("a new journal");
    block_on(async {
        let (mut pen, mut append) = pen(&book, OLD).await?;
        write(&mut pen, &mut append, 0, 8);
        book.append(vec![append]).await.remove(0)?;
        book.close().await
    })?;
    drop(book);
    disk.disk.unlock();
    let all = disk.disk.operations();
    Ok(disk.disk.after_power_loss(all, Loss::Nothing, &mut Random::new(1)))
}

async fn pen(book: &Embedded, id: &str) -> Result<(Pen, Append), StoreError> {
    let id = ThreadId::new(id).expect("a thread id");
    let claim = Claim::Thread { id: id.clone(), create: Some(row()) };
    let lease = book.claim(claim, "model", LONG).await?.pop().expect("a lease");
    let pen = Pen::new(LOG_ID, id.clone(), lease.epoch, lease.next, lease.head);
    let (epoch, at) = (lease.epoch, lease.next);
    let (records, consumes) = (Records::default(), Vec::new());
    Ok((pen, Append { thread: id, epoch, at, records, consumes, row: row() }))
}

fn payload(name: u32, bytes: usize) -> Vec<u8> {
    let mut payload = [MARK, name.to_le_bytes()].concat();
    payload.resize(bytes.max(8), 0);
    payload
}

fn write(pen: &mut Pen, append: &mut Append, name: u32, bytes: usize) {
    let draft = Draft::new(&append.thread, Kind::Marker).payload(Role::Value, payload(name, bytes));
    append.records.push(pen.write(draft, StoreTime(1), &mut || [7; 32]).1);
}

impl Home {
    /// Whether an error may be told: only what somebody brought about.
    fn may_fail(&self, what: &str, error: &StoreError) -> bool {
        match error {
            StoreError::Closed => assert!(self.plan.closer, "{what}: closed by nobody"),
            StoreError::Failed { .. } => {
                assert!(self.plan.fault.is_some(), "{what}: {error}, and nothing has failed");
            }
            StoreError::Unknown { .. } => {
                assert!(self.plan.fault.is_some(), "{what}: {error}, and nothing has failed");
                return true;
            }
            other => panic!("{what}: {other}"),
        }
        false
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acknowledged(&self, thread: &str, name: u32) {
        assert!(self.disk.is_durable(name), "{name} of {thread} is told, and is not durable");
        self.told().kept.entry(thread.to_owned()).or_default().push(name);
    }

    async fn write(&self, writer: u32) {
        let thread = format!("w{writer}");
        let (mut pen, mut append) = match pen(&self.book, &thread).await {
            Ok(lease) => lease,
            Err(error) => {
                self.may_fail("a claim", &error);
                return;
            }
        };
        for n in 0..self.plan.appends {
            let name = writer * 16 + n + 1;
            append.at = u64::from(n);
            append.records = Records::default();
            write(&mut pen, &mut append, name, self.plan.bytes);
            match self.book.append(vec![append.clone()]).await.remove(0) {
                Ok(next) => {
                    assert_eq!(next, u64::from(n) + 1, "the answer is another's");
                    self.acknowledged(&thread, name);
                }
                Err(error) => {
                    if self.may_fail("an append", &error) {
                        self.told().unknown.push(name);
                    }
                    // Once it is over, it is.
                    let again = self.book.append(vec![append]).await.remove(0);
                    let over = matches!(again, Err(StoreError::Failed { .. } | StoreError::Closed));
                    assert!(over, "an append behind {error}: {again:?}");
                    return;
                }
            }
        }
    }

    async fn post(&self) {
        let to = ThreadId::new(OLD).expect("a thread id");
        let (name, id) = (900, MessageId([9; 16]));
        let body = payload(name, 8).into();
        let message = Message { id, kind: 1, name: "go".into(), by: "model".into(), body };
        match self.book.post(&to, message).await {
            Ok(posted) => {
                assert_eq!(posted, Posted::Stored, "the answer is another's");
                assert!(self.disk.is_durable(name), "a message is told, and is not durable");
            }
            Err(error) => {
                self.may_fail("a message", &error);
            }
        }
    }

    /// Waits for an append a few times, and goes away.
    async fn leave(&self) {
        let Ok((mut pen, mut append)) = pen(&self.book, "leaver").await else {
            return;
        };
        write(&mut pen, &mut append, 901, 8);
        let mut waiting = pin!(self.book.append(vec![append]));
        let mut polls = thread_rng().gen_range(1..4);
        let answer = poll_fn(|cx| {
            if let Poll::Ready(answer) = waiting.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            polls -= 1;
            if polls == 0 { Poll::Ready(None) } else { Poll::Pending }
        });
        match answer.await {
            Some(mut answer) => match answer.remove(0) {
                Ok(_) => self.acknowledged("leaver", 901),
                Err(error) => {
                    self.may_fail("an append", &error);
                }
            },
            None => self.told().unknown.push(901),
        }
    }

    /// Reads all that there is: nothing that is not durable.
    async fn read(&self) {
        for id in [OLD, "w0", "w1"] {
            let thread = ThreadId::new(id).expect("a thread id");
            match self.book.read(&thread, 0, 1 << 20).await {
                Ok(page) => {
                    let mut prev = RecordHash::ZERO;
                    for (n, record) in &page.items {
                        let good = record.verify_at(&LOG_ID, &prev, &thread, *n);
                        assert_eq!(good, Ok(()), "record {n} of {id}");
                        prev = record.hash;
                        let name = name_of(record.payload(Role::Value).map(|p| &p.bytes[..]));
                        let there = id == OLD || self.disk.is_durable(name);
                        assert!(there, "record {n} of {id} is read, and is not durable");
                    }
                }
                Err(StoreError::NoSuchThread) => assert_ne!(id, OLD, "it was there"),
                Err(error) => {
                    self.may_fail("a read", &error);
                }
            }
        }
    }

    async fn close(&self) {
        match self.book.close().await {
            Ok(()) => {}
            Err(error) => {
                self.may_fail("a close", &error);
            }
        }
    }
}

fn name_of(payload: Option<&[u8]>) -> u32 {
    let name = payload.and_then(|bytes| bytes.get(4..8)?.try_into().ok());
    u32::from_le_bytes(name.expect("a payload of ours"))
}

/// One life. What must not be is a panic.
pub(crate) fn live() {
    let disk = Watched::new(image());
    let plan = Plan::draw();
    draw_from(Some(7));
    let book = Embedded::open(Path::new(BOOK), options(&disk, Some(&plan))).expect("it opens");
    if let Some((behind, fails)) = plan.fault {
        let (at, seed) = (disk.disk.tried().len() + behind, thread_rng().gen_range(0..1 << 32));
        match fails {
            Fails::One(fault) => disk.disk.fail(at, fault, false, seed),
            Fails::All(fault) => disk.disk.fail(at, fault, true, seed),
            Fails::LogSync => disk.fail_log_sync(behind as u32 % 10),
            Fails::Sync => disk.disk.fail_sync(at, seed),
        }
    }
    let home = Arc::new(Home { book, disk: disk.clone(), plan, told: Mutex::default() });
    let mut threads = Vec::new();
    let mut begin = |work: fn(Arc<Home>, u32), number: u32| {
        let home = Arc::clone(&home);
        threads.push(thread::spawn(move || work(home, number)));
    };
    for writer in 0..plan.writers {
        begin(|home, writer| block_on(home.write(writer)), writer);
    }
    if plan.reader {
        begin(|home, _| block_on(home.read()), 0);
    }
    if plan.poster {
        begin(|home, _| block_on(home.post()), 0);
    }
    if plan.leaver {
        begin(|home, _| block_on(home.leave()), 0);
    }
    if plan.closer {
        begin(|home, _| block_on(home.close()), 0);
    }
    for thread in threads {
        thread.join().expect("no panic");
    }
    ended(home);
}

/// Lets go of it, closed or as after a crash, loses power, and looks what is there.
fn ended(home: Arc<Home>) {
    let home = Arc::into_inner(home).expect("all threads have ended");
    let Home { book, disk, plan, told } = home;
    if plan.closer {
        // A close is answered again, and nothing is taken behind it.
        let again = block_on(book.now());
        assert!(again.is_err(), "it goes on behind a close: {again:?}");
    } else if thread_rng().gen_bool(0.5) {
        let closed = block_on(book.close());
        assert!(closed.is_ok() || plan.fault.is_some(), "{closed:?}, and nothing has failed");
    }
    drop(book);
    if let Some(wrong) = disk.wrong() {
        panic!("{wrong}");
    }
    disk.disk.mend();
    let lose = thread_rng().gen_range(0..4);
    let loss = [Loss::Everything, Loss::Everything, Loss::Pieces(512), Loss::Nothing][lose];
    let image = disk.disk.after_power_loss(disk.disk.operations(), loss, &mut Random::new(3));
    let book = Embedded::open(Path::new(BOOK), options(&Watched::new(image), None));
    let book = book.unwrap_or_else(|error| panic!("what is left does not open: {error}"));
    let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (thread, names) in told.kept {
        let id = ThreadId::new(&thread).expect("a thread id");
        let page = block_on(book.read(&id, 0, 1 << 20));
        let page = page.unwrap_or_else(|error| panic!("{thread} is lost: {error}"));
        let found =
            page.items.iter().map(|(_, r)| name_of(r.payload(Role::Value).map(|p| &p.bytes[..])));
        let found: Vec<_> = found.collect();
        assert!(found.starts_with(&names), "{thread} has {found:?} and was told {names:?}");
        let more = &found[names.len()..];
        let known = more.iter().all(|name| told.unknown.contains(name));
        assert!(known, "{thread} has {more:?} beyond what was told or left open");
    }
}
