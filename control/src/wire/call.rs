//! The operations: what each is given, and what it answers.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    error::Fault,
    scalar::{Hex, Thread, Time},
    value::{
        AppendValue, EntryValue, FilterValue, HoldValue, InfoValue, LeaseValue, MessageValue,
        PostedWord, RecordValue, RoleWord, WhichValue, Word,
    },
};

/// An operation.
pub(crate) trait Call: Serialize {
    const OP: &'static str;
    type Answer: DeserializeOwned;
}

macro_rules! calls {
    ($($args:ty => $op:literal -> $answer:ty;)*) => {
        $(impl Call for $args {
            const OP: &'static str = $op;
            type Answer = $answer;
        })*
    };
}

calls! {
    Hello => "hello" -> HelloAnswer;
    Now => "now" -> NowAnswer;
    Append<'_> => "append" -> Appended;
    Read => "read" -> ReadAnswer<'static>;
    Post<'_> => "post" -> PostAnswer;
    Inbox => "inbox" -> InboxAnswer<'static>;
    Claim => "claim" -> Claimed;
    Renew => "renew" -> Renewed;
    List => "list" -> ListAnswer;
    Log => "log" -> LogAnswer;
    Erase<'_> => "erase" -> Erased;
    Backup => "backup" -> BackupMade;
    Examine => "examine" -> Examined;
    Leave => "leave" -> Leaving;
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    pub(crate) v: u32,
    #[serde(default)]
    pub(crate) log_id: Option<Hex<16>>,
    #[serde(default)]
    pub(crate) client: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct HelloAnswer {
    pub(crate) v: u32,
    pub(crate) log_id: Hex<16>,
    pub(crate) namespace: Hex<16>,
    pub(crate) secret: Hex<32>,
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) runs: bool,
    pub(crate) file: Option<File>,
    pub(crate) limits: Limits,
}

/// Which file the journal is, for a client that sees another one under the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) line_bytes: usize,
    pub(crate) in_flight: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Now {}

#[derive(Serialize, Deserialize)]
pub(crate) struct NowAnswer {
    pub(crate) now: Time,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Append<'a> {
    pub(crate) group: Vec<AppendValue<'a>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Appended {
    pub(crate) results: Vec<AppendResult>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AppendResult {
    Next(u64),
    Error(Fault),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Read {
    pub(crate) thread: Thread,
    #[serde(default)]
    pub(crate) from: u64,
    #[serde(default = "most")]
    pub(crate) bytes_max: usize,
}

fn most() -> usize {
    usize::MAX
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ReadAnswer<'a> {
    pub(crate) records: Vec<(u64, RecordValue<'a>)>,
    pub(crate) next: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Post<'a> {
    pub(crate) thread: Thread,
    pub(crate) message: MessageValue<'a>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct PostAnswer {
    pub(crate) posted: Word<PostedWord>,
}

/// A signal with a plain value: what other languages post.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signal {
    pub(crate) thread: Thread,
    pub(crate) name: String,
    pub(crate) value: Box<RawValue>,
    pub(crate) by: String,
    #[serde(default)]
    pub(crate) id: Option<Hex<16>>,
}

#[derive(Serialize)]
pub(crate) struct SignalAnswer {
    pub(crate) posted: Word<PostedWord>,
    pub(crate) id: Hex<16>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inbox {
    pub(crate) thread: Thread,
    #[serde(default)]
    pub(crate) after: Option<Hex<16>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct InboxAnswer<'a> {
    pub(crate) messages: Vec<MessageValue<'a>>,
    pub(crate) more: bool,
    /// The message after which to go on is there no more, and these are the first ones.
    pub(crate) again: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub(crate) which: WhichValue,
    pub(crate) holder: String,
    pub(crate) ttl_ns: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Claimed {
    pub(crate) leases: Vec<LeaseValue>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renew {
    pub(crate) leases: Vec<HoldValue>,
    pub(crate) ttl_ns: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Renewed {
    pub(crate) until: Vec<Option<Time>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    #[serde(default)]
    pub(crate) filter: FilterValue,
    #[serde(default)]
    pub(crate) after: Option<Thread>,
    #[serde(default = "most")]
    pub(crate) max: usize,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ListAnswer {
    pub(crate) threads: Vec<InfoValue>,
    pub(crate) next: Option<Thread>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    #[serde(default)]
    pub(crate) from: u64,
    #[serde(default = "most")]
    pub(crate) max: usize,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct LogAnswer {
    pub(crate) entries: Vec<EntryValue>,
    pub(crate) next: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Erase<'a> {
    pub(crate) thread: Thread,
    pub(crate) n: u64,
    pub(crate) role: Word<RoleWord>,
    pub(crate) note: AppendValue<'a>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Erased {
    pub(crate) next: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backup {
    pub(crate) to: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct BackupMade {
    pub(crate) log_id: Hex<16>,
    pub(crate) threads: u64,
    pub(crate) records: u64,
    pub(crate) head: Option<(u64, Hex<32>)>,
    pub(crate) file_bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Examine {}

#[derive(Serialize, Deserialize)]
pub(crate) struct Examined {
    pub(crate) records: u64,
    pub(crate) rolled_back_from: Option<u64>,
    pub(crate) findings: Vec<FindingValue>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct FindingValue {
    pub(crate) about: String,
    pub(crate) verdict: String,
    pub(crate) said: String,
    pub(crate) next: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Leave {}

#[derive(Serialize, Deserialize)]
pub(crate) struct Leaving {
    pub(crate) leaves: bool,
}

/// How far a backup or an examination has come.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ProgressValue {
    pub(crate) stage: String,
    pub(crate) records: u64,
    pub(crate) of: u64,
    pub(crate) bytes: u64,
}
