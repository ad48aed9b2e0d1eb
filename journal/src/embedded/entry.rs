//! What stands in the table `log`: one entry for each append of each thread, and one for each
//! message.
//!
//! An entry of records is a head and a body. The head holds everything but the bytes of headers
//! and payloads (those are bound by record hashes and commitments) and carries the checksum, so
//! that opening and listing never touch a body, and a body is hashed once.

use std::sync::Arc;

use super::code::{self, In, Out, Torn};
use crate::{
    admit::Tail,
    checkpointer::{Append, Message},
    id::{Epoch, LogIndex, MessageId, Position, StoreTime, ThreadId},
    record::{Payload, Record, RecordHash, Role},
    row::{Row, Status},
};

pub(super) const LOG: &str = "log";

/// Where an entry stands: the leaf number that the next record had, and the number of entries
/// without records that stand at the same leaf number before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) leaf: LogIndex,
    pub(super) sub: u32,
}

impl Place {
    pub(super) fn key(self) -> (u64, u32) {
        (self.leaf, self.sub)
    }

    /// The place behind an entry with this many records.
    pub(super) fn after(self, records: u64) -> Self {
        if records > 0 {
            Self { leaf: self.leaf.saturating_add(records), sub: 0 }
        } else {
            Self { leaf: self.leaf, sub: self.sub.saturating_add(1) }
        }
    }

    /// The bytes that go into the checksum.
    fn bound(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        let (front, back) = bytes.split_at_mut(8);
        front.copy_from_slice(&self.leaf.to_le_bytes());
        back.copy_from_slice(&self.sub.to_le_bytes());
        bytes
    }

    pub(super) fn write(self, out: &mut Out) {
        out.integer(self.leaf).integer(u64::from(self.sub));
    }

    pub(super) fn read(input: &mut In<'_>) -> Result<Self, Torn> {
        Ok(Self {
            leaf: input.integer()?,
            sub: u32::try_from(input.integer()?).map_err(|_| "a place is too large")?,
        })
    }
}

/// The shape of a record in a body.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    hash: RecordHash,
    header: usize,
    payloads: Vec<(Role, usize)>,
}

/// The head of an entry of records.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) thread: ThreadId,
    pub(super) epoch: Epoch,
    pub(super) at: Position,
    pub(super) prev: RecordHash,
    /// The time of the last record, or of the one before if there is none here.
    pub(super) time: StoreTime,
    /// The row from now on; `None` if it is as before.
    pub(super) row: Option<Row>,
    pub(super) consumes: Vec<MessageId>,
    pub(super) shapes: Vec<Shape>,
}

impl Head {
    /// The head of an append that ends in `after`.
    pub(super) fn of(append: &Append, prev: RecordHash, after: &Tail, row: Option<Row>) -> Self {
        let shape = |record: &Record| Shape {
            hash: record.hash,
            header: record.header.len(),
            payloads: record.payloads.iter().map(|p| (p.role, p.bytes.len())).collect(),
        };
        Self {
            thread: append.thread.clone(),
            epoch: append.epoch,
            at: append.at,
            prev,
            time: after.time,
            row,
            consumes: append.consumes.clone(),
            shapes: append.records.iter().map(shape).collect(),
        }
    }

    /// The number of records.
    pub(super) fn count(&self) -> u64 {
        self.shapes.len() as u64
    }

    /// The hashes of the records, in order.
    pub(super) fn hashes(&self) -> impl Iterator<Item = RecordHash> {
        self.shapes.iter().map(|s| s.hash)
    }

    /// The thread's tail after this entry.
    pub(super) fn tail(&self) -> Tail {
        Tail {
            next: self.at.saturating_add(self.count()),
            head: self.shapes.last().map_or(self.prev, |s| s.hash),
            time: self.time,
        }
    }

    /// The payload of record `n` in `role` is not there from now on.
    pub(super) fn forget(&mut self, n: Position, role: Role) -> bool {
        let at = n.checked_sub(self.at).and_then(|at| usize::try_from(at).ok());
        let Some(shape) = at.and_then(|at| self.shapes.get_mut(at)) else {
            return false;
        };
        let before = shape.payloads.len();
        shape.payloads.retain(|(r, _)| *r != role);
        shape.payloads.len() < before
    }
}

/// An entry as read.
#[derive(Debug)]
pub(super) enum Entry<'a> {
    /// Records, and the body that holds them.
    Records(Head, &'a [u8]),
    /// A message to a thread.
    Message(ThreadId, Message),
}

const RECORDS: u8 = 1;
const MESSAGE: u8 = 2;

/// The stored form of an entry of records.
pub(super) fn records<'r>(
    place: Place,
    head: &Head,
    records: impl Iterator<Item = &'r Record>,
) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(512));
    write_head(&mut out, head);
    let mut head_out = Out(Vec::with_capacity(out.0.len() + 24));
    head_out.byte(RECORDS).integer(out.0.len() as u64).fixed(&out.0);
    let mut stored = code::seal(LOG, &place.bound(), head_out.0);
    for record in records {
        stored.extend_from_slice(&record.header);
        for payload in &record.payloads {
            stored.extend_from_slice(&payload.salt);
            stored.extend_from_slice(&payload.bytes);
        }
    }
    stored
}

/// The stored form of a message.
pub(super) fn message(place: Place, to: &ThreadId, message: &Message) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(128 + message.body.len()));
    out.byte(MESSAGE).text(to.as_str()).fixed(&message.id.0).byte(message.kind);
    out.text(&message.name).text(&message.by).fixed(&message.body);
    code::seal(LOG, &place.bound(), out.0)
}

/// Reads an entry. Its records are not checked yet: see [`unpack`].
pub(super) fn parse(place: Place, stored: &[u8]) -> Result<Entry<'_>, Torn> {
    let mut input = In(stored);
    match input.byte()? {
        RECORDS => {
            let length = input.count()?;
            input.take(length)?;
            input.take(16)?;
            let body = input.0;
            let sealed = stored.split_at_checked(stored.len() - body.len());
            let sealed = sealed.map(|(sealed, _)| sealed).ok_or("cut short")?;
            let mut head = In(code::unseal(LOG, &place.bound(), sealed)?);
            head.byte()?;
            head.integer()?;
            Ok(Entry::Records(read_head(&mut head)?, body))
        }
        MESSAGE => {
            let mut input = In(code::unseal(LOG, &place.bound(), stored)?);
            input.byte()?;
            let to = ThreadId::any(input.text()?).map_err(|_| "a thread id is not one")?;
            let id = MessageId(input.fixed()?);
            let kind = input.byte()?;
            let (name, by) = (input.shared()?, input.shared()?);
            let body = Arc::from(input.0);
            let message = Message { id, kind, name, by, body };
            Ok(Entry::Message(to, message))
        }
        _ => Err("its kind is not known"),
    }
}

/// Takes the records out of a body and checks each; the error names the record.
pub(super) fn unpack(
    log_id: &[u8; 16],
    head: &Head,
    body: &[u8],
) -> Result<Vec<Record>, (Position, String)> {
    let mut input = In(body);
    let mut prev = head.prev;
    let mut records = Vec::with_capacity(head.shapes.len());
    for (n, shape) in (head.at..).zip(&head.shapes) {
        let record = take_record(&mut input, shape).map_err(|why| (n, why.to_owned()))?;
        let verified = record.verify_at(log_id, &prev, &head.thread, n);
        verified.map_err(|why| (n, why))?;
        prev = record.hash;
        records.push(record);
    }
    let last = head.tail().next.saturating_sub(1);
    input.end().map_err(|why| (last, why.to_owned()))?;
    Ok(records)
}

fn take_record(input: &mut In<'_>, shape: &Shape) -> Result<Record, Torn> {
    let header = input.take(shape.header)?.into();
    let mut payloads = Vec::with_capacity(shape.payloads.len());
    for (role, length) in &shape.payloads {
        payloads.push(Payload {
            role: *role,
            salt: input.fixed()?,
            bytes: input.take(*length)?.into(),
        });
    }
    Ok(Record { header, hash: shape.hash, payloads })
}

fn write_head(out: &mut Out, head: &Head) {
    out.text(head.thread.as_str()).integer(head.epoch.0).integer(head.at);
    out.fixed(&head.prev.0).fixed(&head.time.0.to_le_bytes());
    match &head.row {
        Some(row) => {
            out.byte(1);
            write_row(out, row);
        }
        None => {
            out.byte(0);
        }
    }
    out.integer(head.consumes.len() as u64);
    for id in &head.consumes {
        out.fixed(&id.0);
    }
    out.integer(head.shapes.len() as u64);
    for shape in &head.shapes {
        out.fixed(&shape.hash.0).integer(shape.header as u64);
        out.integer(shape.payloads.len() as u64);
        for (role, length) in &shape.payloads {
            out.text(role.as_str()).integer(*length as u64);
        }
    }
}

fn read_head(input: &mut In<'_>) -> Result<Head, Torn> {
    let thread = ThreadId::any(input.text()?).map_err(|_| "a thread id is not one")?;
    let epoch = Epoch(input.integer()?);
    let at = input.integer()?;
    let prev = RecordHash(input.fixed()?);
    let time = StoreTime(u64::from_le_bytes(input.fixed()?));
    let row = match input.byte()? {
        0 => None,
        _ => Some(read_row(input)?),
    };
    let count = input.count()?;
    let consumes = (0..count).map(|_| input.fixed().map(MessageId)).collect::<Result<_, _>>()?;
    let count = input.count()?;
    let shapes = (0..count).map(|_| read_shape(input)).collect::<Result<_, _>>()?;
    input.end()?;
    Ok(Head { thread, epoch, at, prev, time, row, consumes, shapes })
}

fn read_shape(input: &mut In<'_>) -> Result<Shape, Torn> {
    let hash = RecordHash(input.fixed()?);
    let header = length(input)?;
    let count = input.count()?;
    let payload = |_| {
        let role = Role::from_word(input.text()?).ok_or("a role is not known")?;
        Ok((role, length(input)?))
    };
    let payloads = (0..count).map(payload).collect::<Result<_, Torn>>()?;
    Ok(Shape { hash, header, payloads })
}

fn length(input: &mut In<'_>) -> Result<usize, Torn> {
    usize::try_from(input.integer()?).map_err(|_| "a length is too large")
}

/// Writes a row.
pub(super) fn write_row(out: &mut Out, row: &Row) {
    out.text(&row.workflow).byte(row.status.as_byte());
    out.fixed(&row.since.0.to_le_bytes());
    let flags = u8::from(row.wake_at.is_some()) | u8::from(row.detail.is_some()) << 1;
    out.byte(flags);
    if let Some(at) = row.wake_at {
        out.fixed(&at.0.to_le_bytes());
    }
    if let Some(detail) = &row.detail {
        out.text(detail);
    }
    out.integer(u64::from(row.open_doubts));
    out.fixed(&row.created_at.0.to_le_bytes());
}

/// Reads a row.
pub(super) fn read_row(input: &mut In<'_>) -> Result<Row, Torn> {
    let workflow = input.shared()?;
    let status = Status::from_byte(input.byte()?).ok_or("a status is not known")?;
    let since = read_time(input)?;
    let flags = input.byte()?;
    let wake_at = (flags & 1 != 0).then(|| read_time(input)).transpose()?;
    let detail = (flags & 2 != 0).then(|| input.shared()).transpose()?;
    let open_doubts = u32::try_from(input.integer()?).map_err(|_| "a count is too large")?;
    Ok(Row { workflow, status, since, wake_at, detail, open_doubts, created_at: read_time(input)? })
}

fn read_time(input: &mut In<'_>) -> Result<StoreTime, Torn> {
    Ok(StoreTime(u64::from_le_bytes(input.fixed()?)))
}
