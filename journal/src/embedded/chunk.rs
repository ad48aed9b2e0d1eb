//! Chunks: how records stand in the table `records` once they are drained from the log.
//!
//! A drain brings what came together for a thread into chunks of about [`EMBEDDED_CHUNK_BYTES`],
//! so that a thread is read in long runs however its appends lay between those of others. A chunk
//! is a head, the bodies, and one checksum over both: one long hash costs a fifth of a short one
//! for each record. It is stored in parts of which four fill a page of redb: a value longer than
//! a page takes a power of two of pages, which would waste a third of the file.

use super::{
    code::{self, In, Out, Torn},
    entry::{self, Place},
};
use crate::{
    bytes::Bytes,
    id::{LogIndex, Position, ThreadId},
    limits::EMBEDDED_PART_BYTES,
    record::{Payload, Record, RecordHash, Role},
};

pub(super) const RECORDS: &str = "records";
/// The length in front of a chunk, in bytes.
const LENGTH_BYTES: usize = 4;

/// A record in a chunk, but for its bytes.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) leaf: LogIndex,
    pub(super) hash: RecordHash,
    header: usize,
    payloads: Vec<(Role, usize)>,
}

impl Shape {
    fn of(leaf: LogIndex, record: &Record) -> Self {
        let payloads = record.payloads.iter().map(|p| (p.role, p.bytes.len())).collect();
        Self { leaf, hash: record.hash, header: record.header.len(), payloads }
    }
}

/// The head of a chunk.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) thread: ThreadId,
    /// The position of the first record.
    pub(super) at: Position,
    /// The hash of the record before.
    pub(super) prev: RecordHash,
    pub(super) shapes: Vec<Shape>,
}

impl Head {
    /// The position behind the last record.
    pub(super) fn end(&self) -> Position {
        self.at.saturating_add(self.shapes.len() as u64)
    }

    /// The hash of the last record.
    pub(super) fn last(&self) -> RecordHash {
        self.shapes.last().map_or(self.prev, |s| s.hash)
    }
}

/// A run of a thread's records that becomes a chunk.
#[derive(Debug)]
pub(super) struct Chunk<'r> {
    head: Head,
    records: Vec<&'r Record>,
    bytes: usize,
}

impl<'r> Chunk<'r> {
    /// A chunk that begins at a position.
    pub(super) fn new(thread: &ThreadId, at: Position, prev: RecordHash) -> Self {
        let head = Head { thread: thread.clone(), at, prev, shapes: Vec::new() };
        Self { head, records: Vec::new(), bytes: 0 }
    }

    /// The same records as were read, to be written again.
    pub(super) fn again(head: &Head, records: &'r [Record]) -> Self {
        let mut chunk = Self::new(&head.thread, head.at, head.prev);
        for (shape, record) in head.shapes.iter().zip(records) {
            chunk.push(shape.leaf, record);
        }
        chunk
    }

    /// Adds the next record.
    pub(super) fn push(&mut self, leaf: LogIndex, record: &'r Record) {
        self.head.shapes.push(Shape::of(leaf, record));
        self.records.push(record);
        self.bytes = self.bytes.saturating_add(record.size());
    }

    /// About how many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// Its stored form at `key`, to be cut into [`parts`].
    pub(super) fn encode(&self, key: Place) -> Vec<u8> {
        let mut head = Out(Vec::with_capacity(80 + self.head.shapes.len() * 48));
        write_head(&mut head, &self.head);
        let mut out = Out(Vec::with_capacity(head.0.len() + self.bytes + 64));
        out.fixed(&[0; LENGTH_BYTES]).integer(head.0.len() as u64).fixed(&head.0);
        for record in &self.records {
            out.fixed(&record.header);
            for payload in &record.payloads {
                out.fixed(&payload.salt).fixed(&payload.bytes);
            }
        }
        // Longer than four gigabytes is none: an append is bounded far below.
        let length = u32::try_from(out.0.len() + code::SUM_BYTES).unwrap_or(u32::MAX);
        if let Some(front) = out.0.first_chunk_mut() {
            *front = length.to_le_bytes();
        }
        code::seal(RECORDS, &key.bound(), out.0)
    }
}

/// The parts of a stored chunk, in their order.
pub(super) fn parts(stored: &[u8]) -> impl Iterator<Item = &[u8]> {
    stored.chunks(EMBEDDED_PART_BYTES)
}

/// How many parts the chunk has that begins with this one, and its length.
pub(super) fn extent(first: &[u8]) -> Result<(u32, usize), Torn> {
    let length: [u8; LENGTH_BYTES] = In(first).fixed()?;
    let length = u32::from_le_bytes(length) as usize;
    let parts = u32::try_from(length.div_ceil(EMBEDDED_PART_BYTES)).map_err(|_| "too long")?;
    Ok((parts.max(1), length))
}

/// Reads a chunk: its head, and where the bytes of its records begin.
pub(super) fn parse(key: Place, stored: &[u8]) -> Result<(Head, usize), Torn> {
    open(code::unseal(RECORDS, &key.bound(), stored)?)
}

/// The head and the place of the body of a chunk whose checksum does not match, as far as they can
/// be read: to find out which record it is that changed.
pub(super) fn parse_damaged(stored: &[u8]) -> Option<(Head, usize)> {
    let end = stored.len().checked_sub(code::SUM_BYTES)?;
    open(stored.get(..end)?).ok()
}

fn open(value: &[u8]) -> Result<(Head, usize), Torn> {
    let mut input = In(value);
    input.take(LENGTH_BYTES)?;
    let length = input.count()?;
    let mut head = In(input.take(length)?);
    Ok((read_head(&mut head)?, value.len() - input.0.len()))
}

/// Takes the records out of a chunk whose body begins at `body`: each is a part of it, not a copy.
pub(super) fn unpack(
    head: &Head,
    stored: &Bytes,
    body: usize,
) -> Result<Vec<Record>, (Position, Torn)> {
    let mut rest = Rest { stored, at: body };
    let mut records = Vec::with_capacity(head.shapes.len());
    for (n, shape) in (head.at..).zip(&head.shapes) {
        records.push(rest.record(shape).ok_or((n, "cut short"))?);
    }
    if rest.at.saturating_add(code::SUM_BYTES) == stored.len() {
        Ok(records)
    } else {
        Err((head.end().saturating_sub(1), "there is something behind it"))
    }
}

/// What of a chunk was not taken out yet.
struct Rest<'c> {
    stored: &'c Bytes,
    at: usize,
}

impl Rest<'_> {
    fn take(&mut self, length: usize) -> Option<Bytes> {
        let end = self.at.checked_add(length)?;
        let part = self.stored.part(self.at..end)?;
        self.at = end;
        Some(part)
    }

    fn record(&mut self, shape: &Shape) -> Option<Record> {
        let header = self.take(shape.header)?;
        let mut payloads = Vec::with_capacity(shape.payloads.len());
        for (role, length) in &shape.payloads {
            let salt = self.stored.get(self.at..)?.first_chunk().copied()?;
            self.at = self.at.checked_add(32)?;
            payloads.push(Payload { role: *role, salt, bytes: self.take(*length)? });
        }
        Some(Record { header, hash: shape.hash, payloads })
    }
}

fn write_head(out: &mut Out, head: &Head) {
    out.text(head.thread.as_str()).integer(head.at).fixed(&head.prev.0);
    out.integer(head.shapes.len() as u64);
    let mut leaf = 0;
    for shape in &head.shapes {
        // Leaves of a thread rise, so that a difference takes a byte or two.
        out.integer(shape.leaf.wrapping_sub(leaf)).fixed(&shape.hash.0);
        leaf = shape.leaf;
        out.integer(shape.header as u64).integer(shape.payloads.len() as u64);
        for (role, length) in &shape.payloads {
            out.byte(entry::role_byte(*role)).integer(*length as u64);
        }
    }
}

fn read_head(input: &mut In<'_>) -> Result<Head, Torn> {
    let thread = ThreadId::any(input.text()?).map_err(|_| "a thread id is not one")?;
    let (at, prev) = (input.integer()?, RecordHash(input.fixed()?));
    let count = input.count()?;
    let mut shapes = Vec::with_capacity(count);
    let mut leaf: LogIndex = 0;
    for _ in 0..count {
        leaf = leaf.wrapping_add(input.integer()?);
        let hash = RecordHash(input.fixed()?);
        let (header, count) = (length(input)?, input.count()?);
        let payload = |_| Ok((entry::role(input.byte()?)?, length(input)?));
        let payloads = (0..count).map(payload).collect::<Result<_, Torn>>()?;
        shapes.push(Shape { leaf, hash, header, payloads });
    }
    input.end()?;
    Ok(Head { thread, at, prev, shapes })
}

fn length(input: &mut In<'_>) -> Result<usize, Torn> {
    usize::try_from(input.integer()?).map_err(|_| "a length is too large")
}
