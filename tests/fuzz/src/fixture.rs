//! Real records, values and journals, to begin with.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, Message},
    embedded::{CreateOptions, Embedded, OpenError, OpenOptions, planted::draw_from},
    id::{Branch, IdentityKind, MessageId, Name, StoreTime, ThreadId},
    limits::ValueLimits,
    pen::{Draft, Pen},
    policy::Policy,
    record::{Kind, Place, Record, Records, Role},
    row::{Row, Status},
    value::{encode, view},
};
use serde_json::Value;

use crate::{
    random::Random,
    sim_disk::{Loss, SimDisk},
};

/// Where journals are.
pub(crate) const BOOK: &str = "/sim/book.redb";
/// The log id of every journal.
pub(crate) const LOG_ID: [u8; 16] = [3; 16];
const LOG_BYTES: u64 = 64 << 10;

fn vectors(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

static RECORDS: LazyLock<Value> =
    LazyLock::new(|| vectors(include_str!("../../fixtures/records-v1.json")));
static CANONICAL: LazyLock<Value> =
    LazyLock::new(|| vectors(include_str!("../../fixtures/canonical-v1.json")));

fn text(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| text.as_bytes().to_vec())
}

/// Headers of every kind, and some that are refused.
pub(crate) fn headers() -> Vec<Vec<u8>> {
    let chains = RECORDS["chains"].as_array().unwrap().iter();
    let records = chains.flat_map(|chain| chain["records"].as_array().unwrap());
    let sound = records.filter_map(|record| text(&record["header"]));
    let malformed = RECORDS["malformed"].as_array().unwrap().iter();
    let malformed = malformed.filter_map(|case| text(&case["header"]));
    let tolerated = RECORDS["tolerated"].as_array().unwrap().iter().filter_map(text);
    sound.chain(malformed).chain(tolerated).collect()
}

/// JSON of every form.
pub(crate) fn json() -> Vec<Vec<u8>> {
    let cases = CANONICAL["cases"].as_array().unwrap().iter();
    let refused = CANONICAL["refused"].as_array().unwrap().iter();
    cases.chain(refused).filter_map(|case| text(&case["json"])).collect()
}

/// Values as MessagePack.
pub(crate) fn values() -> Vec<Vec<u8>> {
    let limits = ValueLimits::new();
    let read = |text: Vec<u8>| view::from_json(std::str::from_utf8(&text).unwrap(), &limits).ok();
    let mut values: Vec<_> = json().into_iter().filter_map(read).collect();
    let sample = serde_json::json!({
        "amount": 4200, "note": "é", "pair": [-3, "x"], "map": { "a": { "One": 7 }, "b": null },
    });
    values.push(encode(&sample, &limits).unwrap());
    values.push(vec![0xca, 0x3f, 0xc0, 0, 0]);
    values.push(vec![0xc7, 3, 5, 1, 2, 3]);
    values.push(vec![0xd8, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    values
}

/// Histories as `history` reads them: a kind, which fields there are, and what stands in them.
pub(crate) fn histories() -> Vec<Vec<u8>> {
    let op = |kind: Kind, flags: &[u32], a: u8, b: u8| -> Vec<u8> {
        let number = Kind::ALL.iter().position(|other| *other == kind).unwrap() as u8;
        let flags = flags.iter().fold(0_u32, |flags, bit| flags | 1 << bit).to_le_bytes();
        let payload = if flags[3] == 0 { Vec::new() } else { vec![0xc0; usize::from(a % 8)] };
        [[number].as_slice(), &flags, &[a, b], &payload].concat()
    };
    let start = op(Kind::ThreadStart, &[18, 19, 26], 1, 1);
    let intent = |policy: u8| op(Kind::StepIntent, &[0, 3, 4, 6, 8], 1, policy);
    let mut seeds = vec![
        [start.clone(), intent(1), op(Kind::StepDone, &[3, 5, 28], 1, 1)].concat(),
        [start.clone(), intent(3), op(Kind::ThreadResume, &[18], 1, 1)].concat(),
        [start.clone(), op(Kind::ThreadEnd, &[15, 20], 1, 4)].concat(),
    ];
    for kind in Kind::ALL {
        let one = op(kind.clone(), &[0, 3, 5, 14, 15, 16, 17, 18, 29], 1, 1);
        seeds.push([start.clone(), intent(2), one].concat());
    }
    seeds
}

fn length(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8], bytes].concat()
}

/// Stored forms as `stored` reads them: which it is, then the bytes.
pub(crate) fn stored() -> Vec<Vec<u8>> {
    let time = [1, 0, 0, 0, 0, 0, 0, 0];
    let row =
        [&length(b"refund")[..], &[3], &time, &[3], &time, &length(b"why"), &[1], &time].concat();
    let thread = length(b"thread");
    let head = [&thread[..], &[4], &[9; 32], &[1, 12], &[8; 32], &[6, 1, 5, 3]].concat();
    let chunk = [&[0; 4], &length(&head)[..], b"header", &[7; 32], b"abc"].concat();
    let message =
        [&thread[..], &[6; 16], &[1], &length(b"go"), &length(b"user:a"), &length(b"body")];
    let mut seeds = vec![
        [&[0, 2], &[1; 64][..]].concat(),
        [&[1, 1, 5, 12, 0], &[4; 48][..], &[3]].concat(),
        [&[2, 1, 2, 3], &[5; 32][..], &time, &row, &[2, 0, 1], &[6; 16], &[9, 1]].concat(),
        vec![3, 3, 0, 0, 0, 5, 9, 1, 7, 2, 0],
        [&[4], &message.concat()[..]].concat(),
        [&[5], &chunk[..]].concat(),
        [&[7], &b"deedanc\x01"[..], &LOG_ID, &[1; 52]].concat(),
    ];
    // Frames of a real log.
    let log = journal(Which::Crashed).disk.read(&log_of_the_crashed()).unwrap();
    for at in (4096..log.len() - 104).step_by(16).filter(|at| log[*at..].starts_with(b"DBWF")) {
        let size = u32::from_le_bytes(log[at + 8..at + 12].try_into().unwrap()) as usize;
        seeds.push([&[6, log[at + 12]], &log[at + 104..at + 104 + size]].concat());
    }
    seeds
}

/// What became of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Closed,
    Crashed,
}

/// A journal, and what it holds.
pub(crate) struct Journal {
    pub(crate) disk: SimDisk,
    pub(crate) threads: BTreeMap<ThreadId, Vec<Record>>,
    /// Exports: of all of it, and of one thread.
    pub(crate) exports: Vec<String>,
}

impl Journal {
    /// A copy of its files.
    pub(crate) fn copy(&self) -> SimDisk {
        self.disk.after_power_loss(0, Loss::Nothing, &mut Random::new(1))
    }
}

/// A journal: made once, always the same.
pub(crate) fn journal(which: Which) -> &'static Journal {
    static BOTH: LazyLock<[Journal; 2]> = LazyLock::new(|| {
        draw_from(Some(11));
        let both = [made(Which::Closed), made(Which::Crashed)];
        draw_from(None);
        both
    });
    &BOTH[which as usize]
}

/// The file of the log that the crashed journal was writing to.
pub(crate) fn log_of_the_crashed() -> PathBuf {
    let disk = &journal(Which::Crashed).disk;
    let begun = |path: &PathBuf| {
        disk.read(path).is_some_and(|file| file.get(4096..).is_some_and(|b| b.starts_with(b"DBWF")))
    };
    let mut logs = disk.names().into_iter().filter(|p| p.to_string_lossy().contains("-log"));
    logs.rfind(begun).unwrap()
}

/// Runs a future to its end on this thread.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().unwrap();
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

pub(crate) fn options(disk: &SimDisk) -> OpenOptions {
    let options = OpenOptions::new().disk(Arc::new(disk.clone())).log_bytes(LOG_BYTES);
    // Over damaged bookkeeping the storage library can end the process, unless it looks first.
    options.time(Arc::new(|| 1_000)).verify_pages(true)
}

pub(crate) fn open(disk: &SimDisk, read_only: bool) -> Result<Embedded, OpenError> {
    Embedded::open(Path::new(BOOK), options(disk).read_only(read_only))
}

fn row(status: Status) -> Row {
    Row::new("refund", status, StoreTime(1))
}

/// The right to write to a thread.
pub(crate) async fn pen(book: &Embedded, id: &ThreadId) -> Option<(Pen, Append)> {
    let claim = Claim::Thread { id: id.clone(), create: Some(row(Status::Running)) };
    let lease = book.claim(claim, "test", Duration::from_secs(1)).await.ok()?.pop()?;
    book.renew(&[(id.clone(), lease.epoch)], Duration::ZERO).await.ok()?;
    let pen = Pen::new(LOG_ID, id.clone(), lease.epoch, lease.next, lease.head);
    let row = row(Status::Running);
    let (thread, epoch, at) = (id.clone(), lease.epoch, lease.next);
    Some((
        pen,
        Append { thread, epoch, at, records: Records::default(), consumes: Vec::new(), row },
    ))
}

pub(crate) fn put(pen: &mut Pen, append: &mut Append, draft: Draft) {
    let mut salt = 0;
    let mut salts = || {
        salt += 1;
        [salt; 32]
    };
    append.records.push(pen.write(draft, StoreTime(2), &mut salts).1);
}

/// The steps of a life.
fn drafts(id: &ThreadId) -> Vec<Draft> {
    let value = |json: &str| view::from_json(json, &ValueLimits::new()).unwrap();
    let draft = |kind: Kind| Draft::new(id, kind);
    let place = Place {
        episode: 0,
        branch: Branch::root(),
        name: Name::new("pay").unwrap(),
        kind: IdentityKind::Positional,
        occurrence: 0,
        business_key: None,
    };
    let start = draft(Kind::ThreadStart).with(|h| h.workflow = Some("refund".into()));
    let intent = draft(Kind::StepIntent).with(|h| {
        h.place = Some(place);
        h.attempt = Some(1);
        h.policy = Some(Policy::Idempotent);
        h.key = Some("key".into());
    });
    let done = draft(Kind::StepDone).with(|h| {
        h.call = Some(1);
        h.attempt = Some(1);
    });
    vec![
        start.payload(Role::Input, value(r#"{"order":"ORD-4821","cents":4200}"#)),
        intent.payload(Role::Args, value(r#"{"amount":4200,"to":"é\u202e"}"#)),
        done.payload(Role::Result, value(r#"{"id":"r_17","big":{"$int":"18446744073709551615"}}"#)),
    ]
}

async fn life(book: &Embedded) {
    for name in ["order-4821", "b\u{202e}", "c"] {
        let id = ThreadId::new(name).unwrap();
        for draft in drafts(&id) {
            let (mut pen, mut append) = pen(book, &id).await.unwrap();
            put(&mut pen, &mut append, draft);
            book.append(vec![append]).await.remove(0).unwrap();
        }
        let body = view::from_json("[1]", &ValueLimits::new()).unwrap().into();
        let message =
            Message { id: MessageId([5; 16]), kind: 1, name: "go".into(), by: "a".into(), body };
        book.post(&id, message).await.unwrap();
    }
    let id = ThreadId::new("c").unwrap();
    let (mut pen, mut append) = pen(book, &id).await.unwrap();
    let note = Draft::new(&id, Kind::Redact).with(|h| {
        h.call = Some(1);
        h.role = Some(Role::Args);
    });
    put(&mut pen, &mut append, note);
    book.erase(&id, 1, Role::Args, append).await.unwrap();
    let id = ThreadId::new("order-4821").unwrap();
    let (mut pen, mut append) = self::pen(book, &id).await.unwrap();
    let marker = Draft::new(&id, Kind::Marker).payload(Role::Value, vec![0xc3]);
    put(&mut pen, &mut append, marker);
    book.append(vec![append]).await.remove(0).unwrap();
}

fn made(which: Which) -> Journal {
    let disk = SimDisk::default();
    let options = CreateOptions::new().log_id(LOG_ID).namespace([4; 16]).secret([5; 32]);
    let book = Embedded::create(Path::new(BOOK), options.open(self::options(&disk))).unwrap();
    let (threads, exports) = wait(async {
        life(&book).await;
        let threads = everything(&book).await.unwrap();
        let all = deedbook_cli::export_of(&book, None).await.unwrap();
        let one = deedbook_cli::export_of(&book, Some("order-4821")).await.unwrap();
        if which == Which::Closed {
            book.close().await.unwrap();
        }
        (threads, vec![all, one])
    });
    drop(book);
    disk.unlock();
    let disk = disk.after_power_loss(disk.operations(), Loss::Nothing, &mut Random::new(1));
    Journal { disk, threads, exports }
}

/// Everything that can be read, checked against the chain, or what is wrong with a record that
/// was given. Threads that cannot be read are left out.
pub(crate) async fn everything(book: &Embedded) -> Result<BTreeMap<ThreadId, Vec<Record>>, String> {
    let mut all = BTreeMap::new();
    let Ok(page) = book.list(&Default::default(), None, 1000).await else {
        return Ok(all);
    };
    for info in page.items {
        let (mut records, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            // So little that there are several pages.
            let Ok(page) = book.read(&info.id, at, 400).await else {
                break;
            };
            for (n, record) in page.items {
                if n != records.len() as u64 {
                    return Err(format!("{:?}: record {n} follows {}", info.id, records.len()));
                }
                records.push(record);
            }
            from = page.next;
        }
        let _ = book.inbox(&info.id).await;
        all.insert(info.id, records);
    }
    let _ = book.log(0, 1000).await;
    Ok(all)
}
