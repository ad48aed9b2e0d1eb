//! The tables of the file, and the stored forms of what stands in them beside chunks.

use std::ops::Bound;

use redb::{ReadTransaction, TableDefinition, WriteTransaction};

use super::{
    code::{self, In, Out, Torn},
    entry::{self, Place},
    log::FrameHash,
    state::{Extent, Listed, Thread, Waiting},
};
use crate::{
    admit::Tail,
    checkpointer::{Message, StoreIdentity},
    id::{Epoch, MessageId, Position, StoreTime, ThreadId},
    record::RecordHash,
};

/// The format of the file that this code reads and writes. 1 had no write-ahead log, 2 cut chunks
/// into short parts only; no release wrote either.
pub(super) const FORMAT_VERSION: u8 = 3;

/// `genesis` and `state`.
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("deedbook.meta");
/// Parts of chunks by (first leaf of the drain, number in it): everything is appended at its right
/// edge.
pub(super) const RECORDS: TableDefinition<'_, (u64, u32), &[u8]> =
    TableDefinition::new("deedbook.records");
/// Messages by their place in the log, while nobody has consumed them.
pub(super) const INBOX: TableDefinition<'_, (u64, u32), &[u8]> =
    TableDefinition::new("deedbook.inbox");
/// Threads by id, as they were when the tables were last settled.
pub(super) const THREADS: TableDefinition<'_, &[u8], &[u8]> =
    TableDefinition::new("deedbook.threads");
/// Lists of extents by (thread number, first position).
pub(super) const EXTENTS: TableDefinition<'_, (u64, u64), &[u8]> =
    TableDefinition::new("deedbook.extents");
/// Every message id ever posted, by (thread number, id).
pub(super) const POSTED: TableDefinition<'_, (u64, [u8; 16]), &[u8]> =
    TableDefinition::new("deedbook.posted");

pub(super) const GENESIS: &str = "genesis";
pub(super) const STATE: &str = "state";

/// What is written once, when the journal is made.
pub(super) fn write_genesis(identity: &StoreIdentity) -> Vec<u8> {
    let mut out = Out::default();
    out.byte(FORMAT_VERSION);
    out.fixed(&identity.log_id).fixed(&identity.namespace).fixed(&identity.secret);
    code::seal("meta", GENESIS.as_bytes(), out.0)
}

/// The identity, or the version of another format. The checksum's form is the same in every
/// version, so that damage and another version are told apart.
pub(super) fn read_genesis(stored: &[u8]) -> Result<Result<StoreIdentity, u8>, Torn> {
    let mut input = In(code::unseal("meta", GENESIS.as_bytes(), stored)?);
    let version = input.byte()?;
    if version != FORMAT_VERSION {
        return Ok(Err(version));
    }
    let identity =
        StoreIdentity { log_id: input.fixed()?, namespace: input.fixed()?, secret: input.fixed()? };
    input.end()?;
    Ok(Ok(identity))
}

/// Makes the tables, or opens them, and says whose they are and how far they go.
pub(super) fn begin(
    transaction: &WriteTransaction,
    identity: &StoreIdentity,
    settled: &Settled,
) -> Result<(), redb::Error> {
    let mut meta = transaction.open_table(META)?;
    meta.insert(GENESIS, &write_genesis(identity)[..])?;
    meta.insert(STATE, &write_settled(settled)[..])?;
    transaction.open_table(RECORDS)?;
    transaction.open_table(INBOX)?;
    transaction.open_table(THREADS)?;
    transaction.open_table(EXTENTS)?;
    transaction.open_table(POSTED)?;
    Ok(())
}

/// How far the tables are settled, and whether the journal was closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Closed, with nothing in the log that the tables do not have.
    pub(super) clean: bool,
    /// The generation of the log that `frame` stands in, or follows.
    pub(super) generation: u64,
    /// The first place whose entry is not in the tables yet.
    pub(super) upto: Place,
    /// The last frame whose entries are in the tables.
    pub(super) frame: FrameHash,
    /// The log that belongs to these tables: drawn anew by every process that writes.
    pub(super) log: [u8; 16],
    /// The number of rows in the table of threads.
    pub(super) threads: u64,
}

/// How far the tables go in the eyes of this transaction, or what is wrong with their word.
pub(super) fn settled(
    transaction: &ReadTransaction,
) -> Result<Result<Settled, String>, redb::Error> {
    let meta = transaction.open_table(META)?;
    let Some(stored) = meta.get(STATE)? else {
        return Ok(Err("its state is missing".into()));
    };
    Ok(read_settled(stored.value()).map_err(|why| format!("its state: {why}")))
}

pub(super) fn write_settled(settled: &Settled) -> Vec<u8> {
    let mut out = Out::default();
    out.byte(u8::from(settled.clean)).integer(settled.generation);
    settled.upto.write(&mut out);
    out.fixed(&settled.frame.0).fixed(&settled.log).integer(settled.threads);
    code::seal("meta", STATE.as_bytes(), out.0)
}

pub(super) fn read_settled(stored: &[u8]) -> Result<Settled, Torn> {
    let mut input = In(code::unseal("meta", STATE.as_bytes(), stored)?);
    let settled = Settled {
        clean: input.byte()? != 0,
        generation: input.integer()?,
        upto: Place::read(&mut input)?,
        frame: FrameHash(input.fixed()?),
        log: input.fixed()?,
        threads: input.integer()?,
    };
    input.end()?;
    Ok(settled)
}

/// The row of a thread in the table of threads.
pub(super) fn write_thread(id: &[u8], thread: &Thread) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(256));
    out.integer(thread.no).integer(thread.epoch.0).integer(thread.tail.next);
    out.fixed(&thread.tail.head.0).fixed(&thread.tail.time.0.to_le_bytes());
    entry::write_row(&mut out, &thread.row);
    match thread.listed {
        Some(listed) => out.integer(u64::from(listed.len)).integer(listed.first),
        None => out.integer(0),
    };
    out.integer(thread.inbox.len() as u64);
    for waiting in &thread.inbox {
        out.fixed(&waiting.id.0);
        waiting.place.write(&mut out);
    }
    code::seal("threads", id, out.0)
}

pub(super) fn read_thread(id: &[u8], stored: &[u8]) -> Result<Thread, Torn> {
    let mut input = In(code::unseal("threads", id, stored)?);
    let (no, epoch) = (input.integer()?, Epoch(input.integer()?));
    let tail = Tail {
        next: input.integer()?,
        head: RecordHash(input.fixed()?),
        time: StoreTime(u64::from_le_bytes(input.fixed()?)),
    };
    let row = entry::read_row(&mut input)?;
    let listed = match input.integer()? {
        0 => None,
        len => Some(Listed {
            len: u32::try_from(len).map_err(|_| "a count is too large")?,
            first: input.integer()?,
        }),
    };
    let mut inbox = Vec::new();
    for _ in 0..input.count()? {
        let (id, place) = (MessageId(input.fixed()?), Place::read(&mut input)?);
        inbox.push(Waiting { id, place, message: None });
    }
    input.end()?;
    let mut thread = Thread::new(row);
    thread.no = no;
    thread.epoch = epoch;
    thread.tail = tail;
    thread.listed = listed;
    thread.inbox = inbox;
    thread.exists = true;
    Ok(thread)
}

/// A list of extents: differences, so that an extent costs about four bytes.
pub(super) fn write_extents(key: (u64, u64), extents: &[Extent]) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(extents.len() * 5 + 20));
    out.integer(extents.len() as u64);
    let (mut first, mut leaf) = (0, 0);
    for extent in extents {
        out.integer(extent.first.wrapping_sub(first)).integer(extent.place.leaf.wrapping_sub(leaf));
        out.integer(u64::from(extent.place.sub));
        (first, leaf) = (extent.first, extent.place.leaf);
    }
    code::seal("extents", &extents_key(key), out.0)
}

pub(super) fn read_extents(key: (u64, u64), stored: &[u8]) -> Result<Vec<Extent>, Torn> {
    let mut input = In(code::unseal("extents", &extents_key(key), stored)?);
    let count = input.count()?;
    let mut extents = Vec::with_capacity(count);
    let (mut first, mut leaf): (Position, u64) = (0, 0);
    for _ in 0..count {
        first = first.wrapping_add(input.integer()?);
        leaf = leaf.wrapping_add(input.integer()?);
        let sub = u32::try_from(input.integer()?).map_err(|_| "a place is too large")?;
        extents.push(Extent { first, place: Place { leaf, sub } });
    }
    input.end()?;
    Ok(extents)
}

pub(super) fn extents_key(key: (u64, u64)) -> [u8; 16] {
    let mut bytes = [0; 16];
    let (front, back) = bytes.split_at_mut(8);
    front.copy_from_slice(&key.0.to_le_bytes());
    back.copy_from_slice(&key.1.to_le_bytes());
    bytes
}

/// The value beside a message id that was posted.
pub(super) fn posted_seal(no: u64, id: &MessageId) -> Vec<u8> {
    let mut key = Out::default();
    key.fixed(&no.to_le_bytes()).fixed(&id.0);
    code::seal("posted", &key.0, Vec::new())
}

/// The stored form of a message at its place.
pub(super) fn write_message(place: Place, to: &ThreadId, message: &Message) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(128 + message.body.len()));
    entry::write_message(&mut out, to, message);
    code::seal("inbox", &place.bound(), out.0)
}

/// A message, and to whom it is.
pub(super) fn read_message(place: Place, stored: &[u8]) -> Result<(ThreadId, Message), Torn> {
    let mut input = In(code::unseal("inbox", &place.bound(), stored)?);
    let read = entry::read_message(&mut input)?;
    input.end()?;
    Ok(read)
}
/// Keys as they are met, each behind the one before. A damaged tree can give them in any order, so
/// that who goes on behind the last key would go in a circle.
pub(super) struct Ascending<K>(Option<K>);

impl<K: Ord + Clone> Ascending<K> {
    /// The keys of a range that begins here.
    pub(super) fn after(from: &Bound<K>) -> Self {
        match from {
            Bound::Excluded(key) => Self(Some(key.clone())),
            Bound::Included(_) | Bound::Unbounded => Self(None),
        }
    }

    /// Meets a key.
    pub(super) fn next(&mut self, key: K) -> Result<(), Torn> {
        let follows = self.0.as_ref().is_none_or(|last| *last < key);
        self.0 = Some(key);
        if follows { Ok(()) } else { Err("its keys are out of order") }
    }
}
