//! Short words for a journal on a simulated disk.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, Filter, StoreError},
    embedded::{
        BackupError, CompactError, CreateError, CreateOptions, Embedded, OpenError, OpenOptions,
    },
    id::{StoreTime, ThreadId},
    pen::{Draft, Pen},
    record::{Kind, RecordHash, Records, Role},
    row::{Row, Status},
};
use harness::SimDisk;

/// Where the journal is.
pub const BOOK: &str = "/sim/book.redb";
/// The length of a file of its log, in bytes.
const LOG_BYTES: u64 = 64 << 10;
const LONG: Duration = Duration::from_secs(3600);
const SALT: [u8; 32] = [7; 32];
/// Every work's journal has this log id, so that one is a copy of another.
const LOG_ID: [u8; 16] = [3; 16];

/// So little is read at once that long threads and logs take several pages.
const PAGE_BYTES: usize = 32 << 10;
const PAGE_LEAVES: usize = 400;

/// A payload; `None` where it was erased.
pub type Payload = Option<Arc<[u8]>>;

/// What a thread holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its records' payloads.
    pub payloads: Vec<Payload>,
    /// The ids of messages that nobody has consumed.
    pub inbox: Vec<u8>,
    /// Whether it has ended.
    pub ended: bool,
}

/// What a journal holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model(pub BTreeMap<String, Thread>);

impl Model {
    /// How many records.
    #[must_use]
    pub fn records(&self) -> usize {
        self.0.values().map(|thread| thread.payloads.len()).sum()
    }

    /// The thread, made if it is not there.
    pub fn thread(&mut self, id: &str) -> &mut Thread {
        self.0.entry(id.to_owned()).or_default()
    }
}

/// Runs a future to its end on this thread.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

fn options(disk: &SimDisk) -> OpenOptions {
    OpenOptions::new().disk(Arc::new(disk.clone())).log_bytes(LOG_BYTES)
}

/// Opens the journal.
///
/// # Errors
/// As [`Embedded::open`].
pub fn open(disk: &SimDisk) -> Result<Embedded, OpenError> {
    Embedded::open(Path::new(BOOK), options(disk))
}

/// Opens the journal, every page of its tables verified first.
///
/// # Errors
/// As [`Embedded::open`].
pub fn open_verified(disk: &SimDisk) -> Result<Embedded, OpenError> {
    Embedded::open(Path::new(BOOK), options(disk).verify_pages(true))
}

/// Opens a copy of the journal.
///
/// # Errors
/// As [`Embedded::open`].
pub fn open_copy(disk: &SimDisk, path: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(path, options(disk))
}

/// Makes a copy of the journal.
///
/// # Errors
/// As [`Embedded::backup`].
pub fn backup(book: &Embedded, path: &Path) -> Result<(), BackupError> {
    wait(book.backup(path, |_| {})).map(drop)
}

/// Compacts the journal, which nobody has open.
///
/// # Errors
/// As [`Embedded::compact`].
pub fn compact(disk: &SimDisk) -> Result<(), CompactError> {
    Embedded::compact(BOOK, &options(disk), |_| {}).map(drop)
}

/// Makes the journal.
///
/// # Errors
/// As [`Embedded::create`].
pub fn create(disk: &SimDisk) -> Result<Embedded, CreateError> {
    create_as(disk, LOG_ID)
}

/// Makes a journal with another identity.
///
/// # Errors
/// As [`Embedded::create`].
pub fn create_as(disk: &SimDisk, log_id: [u8; 16]) -> Result<Embedded, CreateError> {
    let options = CreateOptions::new().log_id(log_id).namespace([4; 16]).secret([5; 32]);
    Embedded::create(Path::new(BOOK), options.open(self::options(disk)))
}

fn row(status: Status) -> Row {
    Row::new("refund", status, StoreTime(1))
}

/// The right to write to a thread, and an append without records.
///
/// # Errors
/// As [`Checkpointer::claim`].
pub async fn pen(book: &Embedded, id: &str) -> Result<(Pen, Append), StoreError> {
    let id = ThreadId::new(id).unwrap();
    let claim = Claim::Thread { id: id.clone(), create: Some(row(Status::Running)) };
    let lease = book.claim(claim, "test", LONG).await?.pop().unwrap();
    book.renew(&[(id.clone(), lease.epoch)], Duration::ZERO).await?;
    let pen = Pen::new(book.identity().log_id, id.clone(), lease.epoch, lease.next, lease.head);
    let append = Append {
        thread: id,
        epoch: lease.epoch,
        at: lease.next,
        records: Records::default(),
        consumes: Vec::new(),
        row: row(Status::Running),
    };
    Ok((pen, append))
}

/// Adds a record to an append.
pub fn write(pen: &mut Pen, append: &mut Append, payload: &[u8]) {
    let draft = Draft::new(&append.thread, Kind::Marker).payload(Role::Value, payload.to_vec());
    let (_, record) = pen.write(draft, StoreTime(1), &mut || SALT);
    append.records.push(record);
}

/// Lets the thread end with the append.
pub fn end(append: &mut Append) {
    append.row = row(Status::Done);
}

/// How a thread is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// As the journal gives it.
    Plain,
    /// Each record checked against the chain, as an export does.
    Verified,
}

/// What a thread holds.
///
/// # Errors
/// As [`Checkpointer::read`]; [`StoreError::Damaged`] if the chain does not hold.
pub async fn thread(
    book: &Embedded,
    id: &ThreadId,
    reading: Reading,
) -> Result<Thread, StoreError> {
    let payloads = payloads(book, id, reading).await?;
    let inbox = inbox(book, id).await?;
    Ok(Thread { payloads, inbox, ended: false })
}

async fn inbox(book: &Embedded, id: &ThreadId) -> Result<Vec<u8>, StoreError> {
    Ok(book.inbox(id).await?.iter().map(|message| message.id.0[0]).collect())
}

async fn payloads(
    book: &Embedded,
    id: &ThreadId,
    reading: Reading,
) -> Result<Vec<Payload>, StoreError> {
    let (mut payloads, mut prev, mut from) = (Vec::new(), RecordHash::ZERO, 0);
    loop {
        let page = book.read(id, from, PAGE_BYTES).await?;
        for (n, record) in &page.items {
            let damaged =
                |why: String| StoreError::Damaged { thread: id.clone(), n: *n, why: why.into() };
            if reading == Reading::Verified {
                record.verify(&book.identity().log_id, &prev).map_err(damaged)?;
            }
            prev = record.hash;
            payloads.push(record.payload(Role::Value).map(|p| p.bytes[..].into()));
        }
        match page.next {
            Some(next) => from = next,
            None => return Ok(payloads),
        }
    }
}

/// Everything that is in a journal.
///
/// # Errors
/// As [`thread`].
///
/// # Panics
/// The log has another number of records than the threads.
pub async fn everything(book: &Embedded) -> Result<Model, StoreError> {
    let mut model = Model::default();
    for listed in book.list(&Filter::default(), None, 1000).await?.items {
        let payloads = payloads(book, &listed.id, Reading::Verified).await?;
        // Asked only where the list says so: most inboxes are empty, and a question has its price.
        let inbox = if listed.inbox == 0 { Vec::new() } else { inbox(book, &listed.id).await? };
        let ended = listed.row.status.is_ended();
        model.0.insert(listed.id.as_str().into(), Thread { payloads, inbox, ended });
    }
    let leaves = leaves(book).await?;
    assert_eq!(leaves, model.records(), "the log does not have the records that the threads have");
    Ok(model)
}

/// How many records the log has.
///
/// # Errors
/// As [`Checkpointer::log`].
pub async fn leaves(book: &Embedded) -> Result<usize, StoreError> {
    let (mut leaves, mut from) = (0, 0);
    loop {
        let page = book.log(from, PAGE_LEAVES).await?;
        leaves += page.items.len();
        match page.next {
            Some(next) => from = next,
            None => return Ok(leaves),
        }
    }
}

/// One more record in a thread of its own.
///
/// # Errors
/// As [`Checkpointer::append`].
pub async fn one_more(book: &Embedded, model: &mut Model) -> Result<(), StoreError> {
    let (mut pen, mut append) = pen(book, "last").await?;
    write(&mut pen, &mut append, b"one more");
    book.append(vec![append]).await.remove(0)?;
    model.thread("last").payloads.push(Some((*b"one more").into()));
    Ok(())
}
