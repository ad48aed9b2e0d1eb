//! Rows, records, messages, holds and lists as they stand in JSON, and back.

use std::{borrow::Cow, fmt, str::FromStr};

use deedbook_journal::{
    checkpointer::{
        Append, Claim, Filter, Lease, LogEntry, Message, Posted, StoreError, ThreadInfo,
    },
    id::{Epoch, MessageId},
    record::{Payload, Record, RecordHash, Role},
    row::{Row, Status},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::scalar::{Base64, Hex, Thread, Time, text};

/// A word of a fixed list.
#[derive(Clone, Copy)]
pub(crate) struct Word<T>(pub(crate) T);

impl<T: fmt::Display> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a word of the protocol", |t| t.parse().map(Self).ok())
    }
}

/// The role of a payload, by its word.
#[derive(Clone, Copy)]
pub(crate) struct RoleWord(pub(crate) Role);

impl fmt::Display for RoleWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl FromStr for RoleWord {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Role::from_word(word).map(Self).ok_or(())
    }
}

/// What became of a message, by its word.
#[derive(Clone, Copy)]
pub(crate) struct PostedWord(pub(crate) Posted);

impl PostedWord {
    const ALL: [(Posted, &'static str); 4] = [
        (Posted::Stored, "stored"),
        (Posted::AlreadyThere, "already_there"),
        (Posted::ThreadEnded, "thread_ended"),
        (Posted::NoSuchThread, "no_such_thread"),
    ];
}

impl fmt::Display for PostedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.iter().find(|(posted, _)| *posted == self.0);
        f.write_str(word.map_or("", |(_, word)| word))
    }
}

impl FromStr for PostedWord {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().find(|(_, word)| *word == text).map(|(p, _)| Self(*p)).ok_or(())
    }
}

/// A thread's row.
#[derive(Serialize, Deserialize)]
pub(crate) struct RowValue {
    workflow: String,
    status: Word<Status>,
    since: Time,
    wake_at: Option<Time>,
    detail: Option<String>,
    open_doubts: u32,
    created_at: Time,
}

impl From<&Row> for RowValue {
    fn from(row: &Row) -> Self {
        Self {
            workflow: (&*row.workflow).into(),
            status: Word(row.status),
            since: Time(row.since),
            wake_at: row.wake_at.map(Time),
            detail: row.detail.as_deref().map(Into::into),
            open_doubts: row.open_doubts,
            created_at: Time(row.created_at),
        }
    }
}

impl From<RowValue> for Row {
    fn from(row: RowValue) -> Self {
        Self {
            workflow: row.workflow.into(),
            status: row.status.0,
            since: row.since.0,
            wake_at: row.wake_at.map(|t| t.0),
            detail: row.detail.map(Into::into),
            open_doubts: row.open_doubts,
            created_at: row.created_at.0,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct PayloadValue<'a> {
    role: Word<RoleWord>,
    salt: Hex<32>,
    bytes: Base64<'a>,
}

/// A record: its header as the text that is hashed.
#[derive(Serialize, Deserialize)]
pub(crate) struct RecordValue<'a> {
    header: Cow<'a, str>,
    hash: Hex<32>,
    payloads: Vec<PayloadValue<'a>>,
}

impl<'a> TryFrom<&'a Record> for RecordValue<'a> {
    type Error = StoreError;

    fn try_from(record: &'a Record) -> Result<Self, StoreError> {
        let payload = |p: &'a Payload| PayloadValue {
            role: Word(RoleWord(p.role)),
            salt: Hex(p.salt),
            bytes: Base64(Cow::Borrowed(&p.bytes)),
        };
        let header = std::str::from_utf8(&record.header);
        let header = header.map_err(|_| StoreError::Refused { why: "a header is text".into() })?;
        Ok(Self {
            header: header.into(),
            hash: Hex(record.hash.0),
            payloads: record.payloads.iter().map(payload).collect(),
        })
    }
}

impl From<RecordValue<'_>> for Record {
    fn from(record: RecordValue<'_>) -> Self {
        let payload = |p: PayloadValue<'_>| Payload {
            role: p.role.0.0,
            salt: p.salt.0,
            bytes: p.bytes.0.into_owned().into(),
        };
        Self {
            header: record.header.into_owned().into_bytes().into(),
            hash: RecordHash(record.hash.0),
            payloads: record.payloads.into_iter().map(payload).collect(),
        }
    }
}

/// One element of an append.
#[derive(Serialize, Deserialize)]
pub(crate) struct AppendValue<'a> {
    thread: Thread,
    epoch: u64,
    at: u64,
    records: Vec<RecordValue<'a>>,
    #[serde(default)]
    consumes: Vec<Hex<16>>,
    row: RowValue,
}

impl<'a> TryFrom<&'a Append> for AppendValue<'a> {
    type Error = StoreError;

    fn try_from(append: &'a Append) -> Result<Self, StoreError> {
        let records: Result<_, _> = append.records.iter().map(RecordValue::try_from).collect();
        Ok(Self {
            thread: Thread(append.thread.clone()),
            epoch: append.epoch.0,
            at: append.at,
            records: records?,
            consumes: append.consumes.iter().map(|id| Hex(id.0)).collect(),
            row: (&append.row).into(),
        })
    }
}

impl From<AppendValue<'_>> for Append {
    fn from(append: AppendValue<'_>) -> Self {
        Self {
            thread: append.thread.0,
            epoch: Epoch(append.epoch),
            at: append.at,
            records: append.records.into_iter().map(Record::from).collect(),
            consumes: append.consumes.into_iter().map(|id| MessageId(id.0)).collect(),
            row: append.row.into(),
        }
    }
}

/// A message.
#[derive(Serialize, Deserialize)]
pub(crate) struct MessageValue<'a> {
    id: Hex<16>,
    kind: u8,
    name: String,
    by: String,
    body: Base64<'a>,
}

impl<'a> From<&'a Message> for MessageValue<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            id: Hex(message.id.0),
            kind: message.kind,
            name: (&*message.name).into(),
            by: (&*message.by).into(),
            body: Base64(Cow::Borrowed(&message.body)),
        }
    }
}

impl From<MessageValue<'_>> for Message {
    fn from(message: MessageValue<'_>) -> Self {
        Self {
            id: MessageId(message.id.0),
            kind: message.kind,
            name: message.name.into(),
            by: message.by.into(),
            body: message.body.0.into_owned().into(),
        }
    }
}

/// Which threads to take hold of.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum WhichValue {
    Thread {
        id: Thread,
        #[serde(default)]
        create: Option<RowValue>,
    },
    Due {
        workflows: Vec<String>,
        max: usize,
    },
}

impl From<&Claim> for WhichValue {
    fn from(which: &Claim) -> Self {
        match which {
            Claim::Thread { id, create } => {
                Self::Thread { id: Thread(id.clone()), create: create.as_ref().map(Into::into) }
            }
            Claim::Due { workflows, max } => {
                let workflows = workflows.iter().map(|w| (&**w).into()).collect();
                Self::Due { workflows, max: *max }
            }
        }
    }
}

impl From<WhichValue> for Claim {
    fn from(which: WhichValue) -> Self {
        match which {
            WhichValue::Thread { id, create } => {
                Self::Thread { id: id.0, create: create.map(Into::into) }
            }
            WhichValue::Due { workflows, max } => {
                Self::Due { workflows: workflows.into_iter().map(Into::into).collect(), max }
            }
        }
    }
}

/// A hold on a thread.
#[derive(Serialize, Deserialize)]
pub(crate) struct LeaseValue {
    thread: Thread,
    epoch: u64,
    until: Time,
    next: u64,
    head: Hex<32>,
    row: RowValue,
}

impl From<&Lease> for LeaseValue {
    fn from(lease: &Lease) -> Self {
        Self {
            thread: Thread(lease.thread.clone()),
            epoch: lease.epoch.0,
            until: Time(lease.until),
            next: lease.next,
            head: Hex(lease.head.0),
            row: (&lease.row).into(),
        }
    }
}

impl From<LeaseValue> for Lease {
    fn from(lease: LeaseValue) -> Self {
        Self {
            thread: lease.thread.0,
            epoch: Epoch(lease.epoch),
            until: lease.until.0,
            next: lease.next,
            head: RecordHash(lease.head.0),
            row: lease.row.into(),
        }
    }
}

/// A thread, and the epoch under which it is held.
#[derive(Serialize, Deserialize)]
pub(crate) struct HoldValue {
    pub(crate) thread: Thread,
    pub(crate) epoch: u64,
}

/// Which threads to list.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FilterValue {
    statuses: Vec<Word<Status>>,
    workflow: Option<String>,
    prefix: Option<String>,
    doubts_only: bool,
    created_from: Option<Time>,
    created_before: Option<Time>,
    reserved: bool,
}

impl From<&Filter> for FilterValue {
    fn from(filter: &Filter) -> Self {
        Self {
            statuses: filter.statuses.iter().copied().map(Word).collect(),
            workflow: filter.workflow.as_deref().map(Into::into),
            prefix: filter.prefix.as_deref().map(Into::into),
            doubts_only: filter.doubts_only,
            created_from: filter.created_from.map(Time),
            created_before: filter.created_before.map(Time),
            reserved: filter.reserved,
        }
    }
}

impl From<FilterValue> for Filter {
    fn from(filter: FilterValue) -> Self {
        Self {
            statuses: filter.statuses.into_iter().map(|s| s.0).collect(),
            workflow: filter.workflow.map(Into::into),
            prefix: filter.prefix.map(Into::into),
            doubts_only: filter.doubts_only,
            created_from: filter.created_from.map(|t| t.0),
            created_before: filter.created_before.map(|t| t.0),
            reserved: filter.reserved,
        }
    }
}

/// A thread as listed.
#[derive(Serialize, Deserialize)]
pub(crate) struct InfoValue {
    id: Thread,
    epoch: u64,
    next: u64,
    head: Hex<32>,
    row: RowValue,
    inbox: usize,
    holder: Option<String>,
}

impl From<&ThreadInfo> for InfoValue {
    fn from(info: &ThreadInfo) -> Self {
        Self {
            id: Thread(info.id.clone()),
            epoch: info.epoch.0,
            next: info.next,
            head: Hex(info.head.0),
            row: (&info.row).into(),
            inbox: info.inbox,
            holder: info.holder.as_deref().map(Into::into),
        }
    }
}

impl From<InfoValue> for ThreadInfo {
    fn from(info: InfoValue) -> Self {
        Self {
            id: info.id.0,
            epoch: Epoch(info.epoch),
            next: info.next,
            head: RecordHash(info.head.0),
            row: info.row.into(),
            inbox: info.inbox,
            holder: info.holder.map(Into::into),
        }
    }
}

/// A leaf of the log.
#[derive(Serialize, Deserialize)]
pub(crate) struct EntryValue {
    index: u64,
    thread: Thread,
    n: u64,
    hash: Hex<32>,
}

impl From<&LogEntry> for EntryValue {
    fn from(entry: &LogEntry) -> Self {
        Self {
            index: entry.index,
            thread: Thread(entry.thread.clone()),
            n: entry.n,
            hash: Hex(entry.hash.0),
        }
    }
}

impl From<EntryValue> for LogEntry {
    fn from(entry: EntryValue) -> Self {
        Self {
            index: entry.index,
            thread: entry.thread.0,
            n: entry.n,
            hash: RecordHash(entry.hash.0),
        }
    }
}
