//! Short words for the cases: a desk at which one checkpointer is written to and read.

use std::{fmt::Debug, sync::Arc, time::Duration};

use deedbook_journal::{
    checkpointer::{
        Append, Checkpointer, Claim, Lease, Message, Posted, StoreError, StoreIdentity,
    },
    id::{Epoch, MessageId, Position, StoreTime, ThreadId},
    record::{Header, Kind, Payload, Record, RecordHash, Records, Role, Written},
    row::{Row, Status},
};

use crate::report::Outcome;

/// What a case says.
pub(crate) type Said<T = ()> = Result<T, Outcome>;

/// A lease longer than any case.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
pub(crate) const WORKFLOW: &str = "conformance";

/// Fails the case.
pub(crate) fn fail<T>(why: impl Into<String>) -> Said<T> {
    Err(Outcome::Failed(why.into()))
}

/// Fails the case unless both are equal.
pub(crate) fn equal<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Said {
    if found == expected {
        return Ok(());
    }
    fail(format!("{what}: found {found:?}, expected {expected:?}"))
}

/// Fails the case unless the condition holds.
pub(crate) fn holds(what: &str, condition: bool) -> Said {
    if condition { Ok(()) } else { fail(format!("{what} does not hold")) }
}

/// The value, or a failed case.
pub(crate) fn good<T>(what: &str, result: Result<T, StoreError>) -> Said<T> {
    result.map_err(|error| Outcome::Failed(format!("{what}: {error}")))
}

/// The error, or a failed case.
pub(crate) fn bad<T: Debug>(what: &str, result: Result<T, StoreError>) -> Said<StoreError> {
    match result {
        Ok(value) => fail(format!("{what}: succeeded with {value:?}")),
        Err(error) => Ok(error),
    }
}

pub(crate) fn thread(id: &str) -> Said<ThreadId> {
    ThreadId::any(id).map_err(|e| Outcome::Failed(e.to_string()))
}

pub(crate) fn row(status: Status) -> Row {
    Row::new(WORKFLOW, status, StoreTime(0))
}

pub(crate) fn message(id: u8) -> Message {
    Message {
        id: MessageId([id; 16]),
        kind: 1,
        name: "approval".into(),
        by: "user:alice".into(),
        body: vec![id; usize::from(id)].into(),
    }
}

/// Where a writer stands in a thread.
#[derive(Debug, Clone)]
pub(crate) struct Pen {
    pub(crate) identity: StoreIdentity,
    pub(crate) thread: ThreadId,
    pub(crate) epoch: Epoch,
    pub(crate) next: Position,
    pub(crate) head: RecordHash,
    pub(crate) row: Row,
}

impl Pen {
    pub(crate) fn of(home: &dyn Checkpointer, lease: &Lease) -> Self {
        Self {
            identity: home.identity().clone(),
            thread: lease.thread.clone(),
            epoch: lease.epoch,
            next: lease.next,
            head: lease.head,
            row: lease.row.clone(),
        }
    }

    /// The next record, with one payload.
    pub(crate) fn record(&self, time: StoreTime, bytes: &[u8]) -> Written {
        let kind = if self.next == 0 { Kind::ThreadStart } else { Kind::Marker };
        let thread = self.thread.clone();
        let header = Header::new(thread, self.next, self.epoch, kind, time, 0);
        let payload = Payload { role: Role::Value, salt: [7; 32], bytes: bytes.into() };
        Record::seal(&self.identity.log_id, &self.head, header, vec![payload]).1
    }

    /// An append of the next `count` records; the pen stands behind them then.
    pub(crate) fn write(&mut self, count: u64, bytes: &[u8]) -> Append {
        let (at, mut records) = (self.next, Records::default());
        for _ in 0..count {
            let record = self.record(StoreTime(1), bytes);
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

/// Claims a thread, making it if need be.
pub(crate) async fn claim(home: &dyn Checkpointer, id: &str) -> Said<Pen> {
    let lease = claim_for(home, id, "first", LONG).await;
    Ok(Pen::of(home, &good("claiming", lease)?))
}

pub(crate) async fn claim_for(
    home: &dyn Checkpointer,
    id: &str,
    by: &str,
    ttl: Duration,
) -> Result<Lease, StoreError> {
    let id = ThreadId::any(id).map_err(|_| StoreError::NoSuchThread)?;
    let create = Some(row(Status::Running));
    let leases = home.claim(Claim::Thread { id, create }, by, ttl).await?;
    leases.into_iter().next().ok_or(StoreError::NoSuchThread)
}

/// Appends one element.
pub(crate) async fn put(home: &dyn Checkpointer, append: Append) -> Result<Position, StoreError> {
    let mut results = home.append(vec![append]).await;
    match (results.pop(), results.is_empty()) {
        (Some(result), true) => result,
        _ => Err(StoreError::Failed { why: "one element was not answered by one result".into() }),
    }
}

/// A thread with this many records, held by "first".
pub(crate) async fn written(home: &dyn Checkpointer, id: &str, count: u64) -> Said<Pen> {
    let mut pen = claim(home, id).await?;
    let next = good("appending", put(home, pen.write(count, b"\x01")).await)?;
    equal("the next position", &next, &count)?;
    Ok(pen)
}

/// Lets go of a thread.
pub(crate) async fn release(home: &dyn Checkpointer, pen: &Pen) -> Said {
    let lease = [(pen.thread.clone(), pen.epoch)];
    good("releasing", home.renew(&lease, Duration::ZERO).await).map(drop)
}

/// Posts, and expects an answer.
pub(crate) async fn posts(
    home: &dyn Checkpointer,
    to: &ThreadId,
    message: Message,
    expected: Posted,
) -> Said {
    equal("posting", &good("posting", home.post(to, message).await)?, &expected)
}

/// All records of a thread, read in pages of this size; the chain is checked on the way.
pub(crate) async fn read_all(
    home: &Arc<dyn Checkpointer>,
    id: &ThreadId,
    bytes: usize,
) -> Said<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let mut from = 0;
    loop {
        let page = good("reading", home.read(id, from, bytes).await)?;
        for (n, record) in page.items {
            equal("a position", &n, &(records.len() as u64))?;
            let prev = records.last().map_or(RecordHash::ZERO, |r| r.hash);
            let verified = record.verify(&home.identity().log_id, &prev);
            verified.map_err(|why| Outcome::Failed(format!("record {n}: {why}")))?;
            records.push(record);
        }
        match page.next {
            Some(next) => {
                equal("where the next page begins", &next, &(records.len() as u64))?;
                from = next;
            }
            None => return Ok(records),
        }
    }
}
