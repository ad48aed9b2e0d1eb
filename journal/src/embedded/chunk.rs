//! Chunks: how records stand in the table `records` once they are drained from the log.
//!
//! A drain brings what came together for a thread into chunks of at most [`EMBEDDED_CHUNK_BYTES`],
//! so that a thread is read in long runs however its appends lay between those of others. A chunk
//! is a head, the bodies, and one checksum over both: one long hash costs a fifth of a short one
//! for each record.
//!
//! It is stored in parts. redb gives a value that is longer than a page a power of two of pages
//! for itself, so most of a chunk is cut into parts that fill such runs: one insert brings up to
//! sixteen pages. What is left is cut into short parts, which share pages. How long the parts are
//! follows from the length of the chunk alone, which its first bytes say.

use super::{
    code::{self, In, Out, Torn},
    entry::{self, Place},
};
use crate::{
    bytes::Bytes,
    id::{LogIndex, Position, ThreadId},
    limits::{
        EMBEDDED_CHUNK_BYTES, EMBEDDED_PAGE_BYTES, EMBEDDED_PART_BYTES, EMBEDDED_PART_HEAD_BYTES,
        EMBEDDED_PART_PAGES_MAX, EMBEDDED_PART_SPARE,
    },
    record::{Payload, Record, RecordHash, Role},
};

const RECORDS: &str = "records";
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

/// A record, and its place in the log.
pub(super) type Leaf<'r> = (LogIndex, &'r Record);

/// A run of a thread's records that becomes a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk<'r> {
    pub(super) thread: &'r ThreadId,
    /// The position of the first record.
    pub(super) at: Position,
    /// The hash of the record before.
    pub(super) prev: RecordHash,
    pub(super) records: &'r [Leaf<'r>],
}

/// How long a chunk becomes, record by record.
struct Length {
    /// Of the head, but for the records.
    front: usize,
    count: u64,
    /// Of the records in the head.
    shapes: usize,
    bodies: usize,
    leaf: LogIndex,
}

impl Length {
    fn of(chunk: &Chunk<'_>) -> Self {
        let id = chunk.thread.as_str().len();
        let front = integer_len(id as u64) + id + integer_len(chunk.at) + size_of::<RecordHash>();
        Self { front, count: 0, shapes: 0, bodies: 0, leaf: 0 }
    }

    fn push(&mut self, (leaf, record): Leaf<'_>) {
        self.count += 1;
        let payloads = record.payloads.len() as u64;
        self.shapes += integer_len(leaf.wrapping_sub(self.leaf)) + size_of::<RecordHash>();
        self.shapes += integer_len(record.header.len() as u64) + integer_len(payloads);
        self.leaf = leaf;
        self.bodies += record.header.len();
        for payload in &record.payloads {
            self.shapes += 1 + integer_len(payload.bytes.len() as u64);
            self.bodies += payload.salt.len() + payload.bytes.len();
        }
    }

    fn head(&self) -> usize {
        self.front + integer_len(self.count) + self.shapes
    }

    /// Of the chunk as it is stored.
    fn stored(&self) -> usize {
        let head = self.head();
        LENGTH_BYTES + integer_len(head as u64) + head + self.bodies + code::SUM_BYTES
    }
}

/// How many bytes [`Out::integer`] writes.
fn integer_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

impl<'r> Chunk<'r> {
    /// The same records as were read, to be written again.
    pub(super) fn again(head: &'r Head, records: &'r [Leaf<'r>]) -> Self {
        Self { thread: &head.thread, at: head.at, prev: head.prev, records }
    }

    /// The same, with only this many of the records, and what is behind them.
    pub(super) fn split(self, count: usize) -> (Self, Self) {
        let (records, rest) = self.records.split_at(count.min(self.records.len()));
        let prev = records.last().map_or(self.prev, |(_, record)| record.hash);
        let at = self.at.saturating_add(records.len() as u64);
        (Self { records, ..self }, Self { at, prev, records: rest, ..self })
    }

    /// How many of the records come into a chunk, at least one: as many as there is room for, or
    /// somewhat fewer if their parts then fill their pages. And whether they do.
    pub(super) fn cut(&self) -> (usize, bool) {
        let mut length = Length::of(self);
        let (mut fit, mut whole) = ((0, 0), (0, 0));
        for (count, leaf) in (1..).zip(self.records) {
            length.push(*leaf);
            let stored = length.stored();
            if count > 1 && stored > EMBEDDED_CHUNK_BYTES {
                break;
            }
            fit = (count, stored);
            if is_whole(stored) {
                whole = fit;
            }
        }
        let near = whole.0 > 0 && fit.1 - whole.1 < EMBEDDED_PAGE_BYTES;
        if near { (whole.0, true) } else { (fit.0, false) }
    }

    /// Writes its stored form at `key`, to be cut into [`parts`].
    pub(super) fn encode(&self, key: Place, stored: &mut Vec<u8>) {
        let mut length = Length::of(self);
        self.records.iter().for_each(|leaf| length.push(*leaf));
        stored.clear();
        stored.reserve(length.stored());
        let mut out = Out(std::mem::take(stored));
        // Longer than four gigabytes is none: an append is bounded far below.
        let bytes = u32::try_from(length.stored()).unwrap_or(u32::MAX);
        out.fixed(&bytes.to_le_bytes()).integer(length.head() as u64);
        self.write_head(&mut out);
        for (_, record) in self.records {
            out.fixed(&record.header);
            for payload in &record.payloads {
                out.fixed(&payload.salt).fixed(&payload.bytes);
            }
        }
        *stored = out.0;
        seal(key, stored);
    }

    fn write_head(&self, out: &mut Out) {
        out.text(self.thread.as_str()).integer(self.at).fixed(&self.prev.0);
        out.integer(self.records.len() as u64);
        let mut before = 0;
        for (leaf, record) in self.records {
            // Leaves of a thread rise, so that a difference takes a byte or two.
            out.integer(leaf.wrapping_sub(before)).fixed(&record.hash.0);
            before = *leaf;
            out.integer(record.header.len() as u64).integer(record.payloads.len() as u64);
            for payload in &record.payloads {
                out.byte(entry::role_byte(payload.role)).integer(payload.bytes.len() as u64);
            }
        }
    }
}

/// The longest part that a run of pages holds.
const fn room(pages: usize) -> usize {
    pages * EMBEDDED_PAGE_BYTES - EMBEDDED_PART_HEAD_BYTES
}

/// The length of the next part where so much of a chunk is left, if it fills pages.
fn long_part(left: usize) -> Option<usize> {
    let mut pages = EMBEDDED_PART_PAGES_MAX;
    while pages > 0 {
        let room = room(pages);
        if left >= room {
            return Some(room);
        }
        if room - left <= room / EMBEDDED_PART_SPARE {
            return Some(left);
        }
        pages /= 2;
    }
    None
}

/// The lengths of the parts of a chunk, in their order.
fn lengths(length: usize) -> impl Iterator<Item = usize> {
    // One page and a rest would be a page between those that the rests share, and end them early.
    let short = length < room(2) && long_part(length) != Some(length);
    let mut left = length;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let long = if short { None } else { long_part(left) };
        // Short ones are of one length: a small last one would leave a gap behind every fourth.
        let part = long.unwrap_or_else(|| left.div_ceil(left.div_ceil(EMBEDDED_PART_BYTES)));
        left -= part;
        Some(part)
    })
}

/// Whether a chunk of this length fills its pages: none of them has room for anything else.
fn is_whole(length: usize) -> bool {
    lengths(length).all(|part| part > EMBEDDED_PART_BYTES)
}

/// The parts of a stored chunk, in their order.
pub(super) fn parts(stored: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = stored;
    lengths(stored.len()).map_while(move |length| {
        let (part, rest) = left.split_at_checked(length)?;
        left = rest;
        Some(part)
    })
}

/// How many keys of the table belong to a chunk of this length. Erasing makes it shorter, and then
/// it can have more parts than before; but never more than this.
pub(super) fn keys(length: usize) -> u32 {
    u32::try_from(length.div_ceil(EMBEDDED_PART_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// The length of a chunk, as its first part says it, and how many parts it has.
pub(super) fn extent(first: &[u8]) -> Result<(usize, u32), Torn> {
    let length: [u8; LENGTH_BYTES] = In(first).fixed()?;
    let length = u32::from_le_bytes(length) as usize;
    let parts = u32::try_from(lengths(length).count()).map_err(|_| "too long")?;
    Ok((length, parts.max(1)))
}

/// Puts the checksum behind a chunk.
pub(super) fn seal(key: Place, stored: &mut Vec<u8>) {
    code::seal_long(RECORDS, &key.bound(), stored);
}

/// Reads a chunk: its head, and where the bytes of its records begin.
pub(super) fn parse(key: Place, stored: &[u8]) -> Result<(Head, usize), Torn> {
    open(code::unseal_long(RECORDS, &key.bound(), stored)?)
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

#[cfg(test)]
mod tests {
    use redb::{ReadableTableMetadata, backends::InMemoryBackend};

    use super::*;
    use crate::embedded::tables;

    fn record(header: usize, payloads: &[usize]) -> Record {
        let payload =
            |n: &usize| Payload { role: Role::Value, salt: [1; 32], bytes: vec![2; *n].into() };
        let header = vec![3; header].into();
        let payloads = payloads.iter().map(payload).collect();
        Record { header, hash: RecordHash([4; 32]), payloads }
    }

    fn all(length: usize) -> Vec<usize> {
        parts(&vec![0; length]).map(<[u8]>::len).collect()
    }

    /// What a table needs beside what is put into it, and how much of its pages is empty.
    fn spent(values: &[usize]) -> (u64, u64) {
        let db = redb::Builder::new().create_with_backend(InMemoryBackend::new()).unwrap();
        let transaction = db.begin_write().unwrap();
        let spent = {
            let mut table = transaction.open_table(tables::RECORDS).unwrap();
            for (sub, length) in (0..).zip(values) {
                table.insert((7, sub), &vec![1; *length][..]).unwrap();
            }
            let stats = table.stats().unwrap();
            (stats.metadata_bytes(), stats.fragmented_bytes())
        };
        transaction.commit().unwrap();
        spent
    }

    #[test]
    fn a_long_part_leaves_nothing_of_its_pages() {
        for pages in [1, 2, 4, 8, 16] {
            let room = pages * EMBEDDED_PAGE_BYTES - EMBEDDED_PART_HEAD_BYTES;
            assert_eq!(spent(&[room]), (8, 0), "{pages} pages");
            assert!(spent(&[room + 1]).1 > 4000, "{pages} pages");
            assert_eq!(all(room), [room]);
        }
        // What is between long parts has pages of its own; beside them is the page of a branch.
        let (_, empty) = spent(&[4076, 1000, 1000, 1000, 1000, 8172]);
        assert!((4000..4100).contains(&empty), "{empty}");
        let (_, empty) = spent(&[1000, 4076, 1000, 8172]);
        assert!((10_000..10_300).contains(&empty), "{empty}");
    }

    #[test]
    fn a_chunk_is_its_parts_and_they_follow_from_its_length() {
        assert_eq!(all(65_516), [65_516]);
        assert_eq!(all(65_517), [65_516, 1]);
        assert_eq!(all(60_000), [60_000]);
        assert_eq!(all(50_000), [32_748, 16_364, 888]);
        assert_eq!(all(12_000), [8_172, 3_828]);
        assert_eq!(all(5_500), [917, 917, 917, 917, 916, 916]);
        assert_eq!(all(4_000), [4_000]);
        assert_eq!(all(1_030), [515, 515]);
        let mut longest = 0;
        for length in (20..140_000).step_by(7) {
            let mut stored: Vec<u8> = (0..length).map(|n| n as u8).collect();
            stored[..4].copy_from_slice(&(length as u32).to_le_bytes());
            let parts: Vec<_> = parts(&stored).collect();
            assert_eq!(extent(parts[0]), Ok((length, parts.len() as u32)), "{length}");
            assert_eq!(parts.concat(), stored, "{length}");
            // Also when it has become shorter, it stays within its keys.
            longest = longest.max(parts.len());
            assert!(longest <= keys(length) as usize, "{length}");
            let is_long = |part: &&[u8]| part.len() > EMBEDDED_PART_BYTES;
            assert_eq!(is_whole(length), parts.iter().all(is_long), "{length}");
        }
        assert!(extent(&[1, 2, 3]).is_err());
        assert_eq!(extent(&[0; 4]), Ok((0, 1)));
    }

    #[test]
    fn a_chunk_is_cut_where_it_fills_its_pages() {
        let thread = ThreadId::new("t").unwrap();
        let prev = RecordHash::ZERO;
        let sizes = [(7, 0), (211, 256), (300, 20), (100, 3_000), (500, 30_000), (260, 70_000)];
        for (header, payload) in sizes {
            let one = record(header, &[payload, 100]);
            for count in 1..200_u64 {
                // Leaves that rise by more than what a byte holds.
                let leaves: Vec<Leaf<'_>> =
                    (0..count).map(|k| (u64::MAX / 2 + k * 300, &one)).collect();
                let mut run = Chunk { thread: &thread, at: 120, prev, records: &leaves };
                while !run.records.is_empty() {
                    let (count, whole) = run.cut();
                    let (chunk, rest) = run.split(count);
                    assert!(count > 0 && chunk.records.len() == count);
                    let mut stored = Vec::new();
                    chunk.encode(Place { leaf: 9, sub: 2 }, &mut stored);
                    assert!(count == 1 || stored.len() <= EMBEDDED_CHUNK_BYTES);
                    assert!(!whole || is_whole(stored.len()));
                    // A whole one leaves behind less than would fill another page.
                    assert!(whole || rest.records.is_empty() || payload > 1000);
                    assert_eq!(extent(&stored).unwrap().0, stored.len());
                    let (head, _) = parse(Place { leaf: 9, sub: 2 }, &stored).unwrap();
                    assert_eq!((head.end(), head.last()), (rest.at, rest.prev));
                    run = rest;
                }
            }
        }
    }

    #[test]
    fn a_length_is_what_is_written() {
        for value in (0..64).map(|bit| 1_u64 << bit).flat_map(|v| [v - 1, v, v + 1, u64::MAX]) {
            let mut out = Out::default();
            out.integer(value);
            assert_eq!(out.0.len(), integer_len(value), "{value}");
        }
    }
}
