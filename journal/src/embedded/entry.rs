//! What a group makes durable: an entry for each append of each thread, and one for each message.

use std::sync::Arc;

use super::code::{In, Out, Torn};
use crate::{
    admit::Tail,
    checkpointer::{Append, Message},
    id::{Epoch, LogIndex, MessageId, Position, StoreTime, ThreadId},
    record::{Payload, Record, RecordHash, Records, Role},
    row::{Row, Status},
};

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

    /// The bytes that go into the checksum of a value stored at it.
    pub(super) fn bound(self) -> [u8; 12] {
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

/// An append of one thread, as it became durable.
#[derive(Debug)]
pub(super) struct Appended {
    pub(super) thread: ThreadId,
    pub(super) epoch: Epoch,
    pub(super) at: Position,
    pub(super) prev: RecordHash,
    /// The time of the last record, or of the one before if there is none here.
    pub(super) time: StoreTime,
    /// The row from now on; `None` if it is as before.
    pub(super) row: Option<Row>,
    pub(super) consumes: Vec<MessageId>,
    pub(super) records: Records,
}

impl Appended {
    /// What an append that ends in `after` comes to.
    pub(super) fn of(append: Append, prev: RecordHash, after: &Tail, row: Option<Row>) -> Self {
        Self {
            thread: append.thread,
            epoch: append.epoch,
            at: append.at,
            prev,
            time: after.time,
            row,
            consumes: append.consumes,
            records: append.records,
        }
    }

    /// The number of records.
    pub(super) fn count(&self) -> u64 {
        self.records.len() as u64
    }

    /// The thread's tail after it.
    pub(super) fn tail(&self) -> Tail {
        Tail {
            next: self.at.saturating_add(self.count()),
            head: self.records.last().map_or(self.prev, |r| r.hash),
            time: self.time,
        }
    }
}

/// One thing that a group makes durable.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// Records of a thread.
    Appended(Arc<Appended>),
    /// A message to a thread.
    Message(ThreadId, Arc<Message>),
    /// A payload of a record goes.
    Erased(ThreadId, Position, Role),
}

const APPENDED: u8 = 1;
const MESSAGE: u8 = 2;
const ERASED: u8 = 3;

impl Entry {
    /// The number of records.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Appended(appended) => appended.count(),
            Self::Message(..) | Self::Erased(..) => 0,
        }
    }

    /// The thread it is of.
    pub(super) fn thread(&self) -> &ThreadId {
        match self {
            Self::Appended(appended) => &appended.thread,
            Self::Message(thread, _) | Self::Erased(thread, ..) => thread,
        }
    }

    /// About how many bytes it takes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Appended(appended) => {
                appended.records.iter().fold(128, |bytes, r| bytes.saturating_add(r.size()))
            }
            Self::Message(_, message) => message.body.len().saturating_add(128),
            Self::Erased(..) => 128,
        }
    }

    /// Writes it. What it is written into carries the checksum.
    pub(super) fn write(&self, out: &mut Out) {
        match self {
            Self::Appended(appended) => {
                out.byte(APPENDED);
                write_appended(out, appended);
            }
            Self::Message(to, message) => {
                out.byte(MESSAGE);
                write_message(out, to, message);
            }
            Self::Erased(thread, n, role) => {
                out.byte(ERASED).text(thread.as_str()).integer(*n).byte(role_byte(*role));
            }
        }
    }

    /// Reads what [`Entry::write`] wrote.
    pub(super) fn read(input: &mut In<'_>) -> Result<Self, Torn> {
        match input.byte()? {
            APPENDED => Ok(Self::Appended(Arc::new(read_appended(input)?))),
            MESSAGE => {
                let (to, message) = read_message(input)?;
                Ok(Self::Message(to, Arc::new(message)))
            }
            ERASED => {
                let thread = ThreadId::any(input.text()?).map_err(|_| "a thread id is not one")?;
                Ok(Self::Erased(thread, input.integer()?, role(input.byte()?)?))
            }
            _ => Err("its kind is not known"),
        }
    }
}

fn write_appended(out: &mut Out, appended: &Appended) {
    out.text(appended.thread.as_str()).integer(appended.epoch.0).integer(appended.at);
    out.fixed(&appended.prev.0).fixed(&appended.time.0.to_le_bytes());
    match &appended.row {
        Some(row) => {
            out.byte(1);
            write_row(out, row);
        }
        None => {
            out.byte(0);
        }
    }
    out.integer(appended.consumes.len() as u64);
    for id in &appended.consumes {
        out.fixed(&id.0);
    }
    out.integer(appended.records.len() as u64);
    for record in &appended.records {
        out.fixed(&record.hash.0).integer(record.header.len() as u64).fixed(&record.header);
        out.integer(record.payloads.len() as u64);
        for payload in &record.payloads {
            out.byte(role_byte(payload.role)).fixed(&payload.salt);
            out.integer(payload.bytes.len() as u64).fixed(&payload.bytes);
        }
    }
}

fn read_appended(input: &mut In<'_>) -> Result<Appended, Torn> {
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
    let records = (0..count).map(|_| read_record(input)).collect::<Result<_, _>>()?;
    Ok(Appended { thread, epoch, at, prev, time, row, consumes, records })
}

fn read_record(input: &mut In<'_>) -> Result<Record, Torn> {
    let hash = RecordHash(input.fixed()?);
    let length = input.count()?;
    let header = input.take(length)?.into();
    let count = input.count()?;
    let payload = |_| {
        let role = role(input.byte()?)?;
        let salt = input.fixed()?;
        let length = input.count()?;
        Ok(Payload { role, salt, bytes: input.take(length)?.into() })
    };
    let payloads = (0..count).map(payload).collect::<Result<_, Torn>>()?;
    Ok(Record { header, hash, payloads })
}

/// Writes a message.
pub(super) fn write_message(out: &mut Out, to: &ThreadId, message: &Message) {
    out.text(to.as_str()).fixed(&message.id.0).byte(message.kind);
    out.text(&message.name).text(&message.by);
    out.integer(message.body.len() as u64).fixed(&message.body);
}

/// Reads a message, and to whom it is.
pub(super) fn read_message(input: &mut In<'_>) -> Result<(ThreadId, Message), Torn> {
    let to = ThreadId::any(input.text()?).map_err(|_| "a thread id is not one")?;
    let id = MessageId(input.fixed()?);
    let kind = input.byte()?;
    let (name, by) = (input.shared()?, input.shared()?);
    let length = input.count()?;
    let body = input.take(length)?.into();
    Ok((to, Message { id, kind, name, by, body }))
}

/// The byte for a role: part of the format.
pub(super) fn role_byte(role: Role) -> u8 {
    match role {
        Role::Args => 1,
        Role::Error => 2,
        Role::Input => 3,
        Role::Note => 4,
        Role::Result => 5,
        Role::Shown => 6,
        Role::Value => 7,
    }
}

/// The role with this byte.
pub(super) fn role(byte: u8) -> Result<Role, Torn> {
    Role::ALL.into_iter().find(|r| role_byte(*r) == byte).ok_or("a role is not known")
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
