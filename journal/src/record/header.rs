//! The header: everything about a record but its payloads, and the input of its hash.

use std::sync::Arc;

use super::{
    ENCODING_MSGPACK, Payload,
    json::{Expected, Reader, write_string},
    kind::{Kind, Role},
};
use crate::{
    hex,
    id::{Branch, Epoch, IdentityKind, MessageId, Name, Position, StoreTime, ThreadId},
    limits::HEADER_BYTES_MAX,
    policy::Policy,
};

/// The format version that this code writes.
const VERSION: u64 = 1;

/// A header that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the header cannot be read: {0}")]
pub struct HeaderError(String);

/// What a record says of one payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commitment {
    /// What the payload is to the record.
    pub role: Role,
    /// Its length in bytes.
    pub length: u64,
    /// [`Payload::commitment`].
    pub hash: [u8; 32],
}

impl Commitment {
    /// Commits to a payload.
    #[must_use]
    pub fn to(payload: &Payload) -> Self {
        Self {
            role: payload.role,
            length: payload.bytes.len() as u64,
            hash: payload.commitment(),
        }
    }
}

/// Which call a record opens: a [`crate::id::StepId`] without the fingerprint, which never
/// stands in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The episode (`ep`).
    pub episode: u32,
    /// The branch (`br`).
    pub branch: Branch,
    /// The name (`step`).
    pub name: Name,
    /// The kind of identity (`idk`).
    pub kind: IdentityKind,
    /// The occurrence (`occ`).
    pub occurrence: u32,
    /// The business key (`bkey`), where the kind is [`IdentityKind::Key`].
    pub business_key: Option<Arc<str>>,
}

/// The fields of a header. Absent ones are not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// `th`: the thread.
    pub thread: ThreadId,
    /// `n`: the position in the thread.
    pub n: Position,
    /// `e`: the epoch of the writer.
    pub epoch: Epoch,
    /// `k`: what happened.
    pub kind: Kind,
    /// `t`: when, by the store's clock.
    pub time: StoreTime,
    /// `run`: the position of the thread's last `thread.start` or `thread.resume`.
    pub run: Position,
    /// `br ep idk bkey occ step`: which call, on records that open one.
    pub place: Option<Place>,
    /// `att`: the attempt, from 1.
    pub attempt: Option<u32>,
    /// `att_max`: how many attempts there may be.
    pub attempts_max: Option<u32>,
    /// `call`: the position of the record that opened what this one is about.
    pub call: Option<Position>,
    /// `key`: the operation key sent downstream.
    pub key: Option<Arc<str>>,
    /// `gen`: the generation of the operation key, above 0 after a fresh key.
    pub generation: u64,
    /// `pol`: the policy.
    pub policy: Option<Policy>,
    /// `timeout_ms`: how long an attempt may take.
    pub timeout_ms: Option<u64>,
    /// `window_ms`: how long the downstream honours the key.
    pub window_ms: Option<u64>,
    /// `quiet_ms`: how long after the last send a probe's "no" counts.
    pub quiet_ms: Option<u64>,
    /// `abandon`: the thread may end while this step is in doubt.
    pub abandon: bool,
    /// `due`: when a timer fires, or when the next attempt may start.
    pub due: Option<StoreTime>,
    /// `why`: the reason, a word of the format.
    pub why: Option<Arc<str>>,
    /// `verdict`: what was decided, a word of the format.
    pub verdict: Option<Arc<str>>,
    /// `msg`: the message that this record gave a position to.
    pub message: Option<MessageId>,
    /// `by`: who, where it is not the run itself.
    pub by: Option<Arc<str>>,
    /// `wf`: the workflow's name.
    pub workflow: Option<Arc<str>>,
    /// `build`: the version of the user's code.
    pub build: Option<Arc<str>>,
    /// `proc`: the position of this process's `run.start` in the system thread.
    pub process: Option<Position>,
    /// `doubts`: open doubts left at the end.
    pub doubts: Option<u32>,
    /// `pay`: the commitments to the payloads, in the order of their roles.
    pub payloads: Vec<Commitment>,
}

impl Header {
    /// A header with only what every record has.
    #[must_use]
    pub fn new(
        thread: ThreadId,
        n: Position,
        epoch: Epoch,
        kind: Kind,
        time: StoreTime,
        run: Position,
    ) -> Self {
        Self {
            thread,
            n,
            epoch,
            kind,
            time,
            run,
            place: None,
            attempt: None,
            attempts_max: None,
            call: None,
            key: None,
            generation: 0,
            policy: None,
            timeout_ms: None,
            window_ms: None,
            quiet_ms: None,
            abandon: false,
            due: None,
            why: None,
            verdict: None,
            message: None,
            by: None,
            workflow: None,
            build: None,
            process: None,
            doubts: None,
            payloads: Vec::new(),
        }
    }

    /// The header as it is hashed and stored: RFC 8785, members in the byte order of their names.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Object {
            bytes: Vec::with_capacity(384),
            first: true,
        };
        let place = self.place.as_ref();
        out.flag("abandon", self.abandon);
        out.integer("att", self.attempt.map(u64::from));
        out.integer("att_max", self.attempts_max.map(u64::from));
        out.string("bkey", place.and_then(|p| p.business_key.as_deref()));
        out.strings("br", place.map_or(&[], |p| p.branch.parts()));
        out.string("build", self.build.as_deref());
        out.string("by", self.by.as_deref());
        out.integer("call", self.call);
        out.integer("doubts", self.doubts.map(u64::from));
        out.time("due", self.due);
        out.integer("e", Some(self.epoch.0));
        out.integer("ep", place.map(|p| u64::from(p.episode)).filter(|e| *e > 0));
        out.integer("gen", Some(self.generation).filter(|g| *g > 0));
        let by_place = |k: &IdentityKind| *k == IdentityKind::Positional;
        out.string(
            "idk",
            place
                .map(|p| p.kind)
                .filter(|k| !by_place(k))
                .map(IdentityKind::as_str),
        );
        out.string("k", Some(self.kind.as_str()));
        out.string("key", self.key.as_deref());
        out.string("msg", self.message.map(|m| hex::encode(&m.0)).as_deref());
        out.integer("n", Some(self.n));
        out.integer("occ", place.map(|p| u64::from(p.occurrence)));
        out.payloads(&self.payloads);
        out.string("pol", self.policy.map(Policy::as_str));
        out.integer("proc", self.process);
        out.integer("quiet_ms", self.quiet_ms);
        out.integer("run", Some(self.run));
        out.string("step", place.map(|p| p.name.as_str()));
        out.time("t", Some(self.time));
        out.string("th", Some(self.thread.as_str()));
        out.integer("timeout_ms", self.timeout_ms);
        out.integer("v", Some(VERSION));
        out.string("verdict", self.verdict.as_deref());
        out.string("wf", self.workflow.as_deref());
        out.string("why", self.why.as_deref());
        out.integer("window_ms", self.window_ms);
        out.end()
    }

    /// Reads a header. Members that this version does not know are passed over: they are part of
    /// the hash all the same.
    ///
    /// # Errors
    /// Not a header of version 1, or a member of the wrong form.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.len() > HEADER_BYTES_MAX {
            let length = bytes.len();
            return Err(HeaderError(format!(
                "it has {length} bytes and {HEADER_BYTES_MAX} are the most"
            )));
        }
        let mut draft = Draft::default();
        let mut reader = Reader::new(bytes);
        let read = reader.object(|name, reader| draft.member(name, reader));
        read.map_err(|what| HeaderError(format!("expected {what}")))?;
        if !reader.at_end() {
            return Err(HeaderError("there is something behind it".into()));
        }
        draft.finish()
    }
}

/// An object being written.
struct Object {
    bytes: Vec<u8>,
    first: bool,
}

impl Object {
    fn name(&mut self, name: &str) {
        self.bytes.push(if self.first { b'{' } else { b',' });
        self.first = false;
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b"\":");
    }

    fn flag(&mut self, name: &str, set: bool) {
        if set {
            self.name(name);
            self.bytes.extend_from_slice(b"true");
        }
    }

    fn integer(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.name(name);
            // Positions, epochs and milliseconds stay below 2^53; a larger one is a time of
            // "for ever" and is cut to the largest integer that every JSON reader keeps exact.
            self.bytes
                .extend_from_slice(value.min((1 << 53) - 1).to_string().as_bytes());
        }
    }

    fn string(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.name(name);
            write_string(&mut self.bytes, value);
        }
    }

    fn time(&mut self, name: &str, value: Option<StoreTime>) {
        if let Some(value) = value {
            self.string(name, Some(&value.to_string()));
        }
    }

    fn strings(&mut self, name: &str, values: &[Name]) {
        if values.is_empty() {
            return;
        }
        self.name(name);
        let mut mark = b'[';
        for value in values {
            self.bytes.push(mark);
            write_string(&mut self.bytes, value.as_str());
            mark = b',';
        }
        self.bytes.push(b']');
    }

    fn payloads(&mut self, payloads: &[Commitment]) {
        self.name("pay");
        let mut mark = b'{';
        for payload in payloads {
            let role = payload.role.as_str();
            let hash = hex::encode(&payload.hash);
            self.bytes.push(mark);
            let text = format!(
                "\"{role}\":[\"{ENCODING_MSGPACK}\",{},\"{hash}\"]",
                payload.length
            );
            self.bytes.extend_from_slice(text.as_bytes());
            mark = b',';
        }
        if payloads.is_empty() {
            self.bytes.push(b'{');
        }
        self.bytes.push(b'}');
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(b'}');
        self.bytes
    }
}

/// A header being read.
#[derive(Default)]
struct Draft {
    version: Option<u64>,
    thread: Option<ThreadId>,
    n: Option<u64>,
    epoch: Option<u64>,
    kind: Option<Kind>,
    time: Option<StoreTime>,
    run: Option<u64>,
    name: Option<Name>,
    branch: Vec<Name>,
    episode: u32,
    identity: Option<IdentityKind>,
    occurrence: Option<u32>,
    business_key: Option<Arc<str>>,
    rest: Rest,
}

/// The optional fields of a header, as read.
#[derive(Default)]
struct Rest {
    attempt: Option<u32>,
    attempts_max: Option<u32>,
    call: Option<u64>,
    key: Option<Arc<str>>,
    generation: u64,
    policy: Option<Policy>,
    timeout_ms: Option<u64>,
    window_ms: Option<u64>,
    quiet_ms: Option<u64>,
    abandon: bool,
    due: Option<StoreTime>,
    why: Option<Arc<str>>,
    verdict: Option<Arc<str>>,
    message: Option<MessageId>,
    by: Option<Arc<str>>,
    workflow: Option<Arc<str>>,
    build: Option<Arc<str>>,
    process: Option<u64>,
    doubts: Option<u32>,
    payloads: Vec<Commitment>,
}

impl Draft {
    fn member(&mut self, name: &str, reader: &mut Reader<'_>) -> Result<(), Expected> {
        match name {
            "v" => self.version = Some(reader.integer()?),
            "th" => {
                let id = ThreadId::any(reader.string()?).map_err(|_| "a thread id in `th`")?;
                self.thread = Some(id);
            }
            "n" => self.n = Some(reader.integer()?),
            "e" => self.epoch = Some(reader.integer()?),
            "k" => self.kind = Some(Kind::from_word(&reader.string()?)),
            "t" => self.time = Some(time(reader)?),
            "run" => self.run = Some(reader.integer()?),
            "step" => self.name = Some(step_name(reader)?),
            "br" => reader.array(|r| {
                self.branch.push(step_name(r)?);
                Ok(())
            })?,
            "ep" => self.episode = small(reader)?,
            "idk" => {
                self.identity = Some(match &*reader.string()? {
                    "arguments" => IdentityKind::Arguments,
                    "key" => IdentityKind::Key,
                    _ => return Err("a known kind of identity in `idk`"),
                });
            }
            "occ" => self.occurrence = Some(small(reader)?),
            "bkey" => self.business_key = Some(text(reader)?),
            _ => self.rest.member(name, reader)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<Header, HeaderError> {
        let missing = |field: &str| HeaderError(format!("field `{field}` is missing"));
        match self.version {
            Some(VERSION) => {}
            Some(other) => {
                return Err(HeaderError(format!(
                    "it has format version {other} and this build reads up to {VERSION}; \
                     use a newer build"
                )));
            }
            None => return Err(missing("v")),
        }
        let place = self.name.map(|name| {
            Ok(Place {
                episode: self.episode,
                branch: Branch::new(self.branch).map_err(|e| HeaderError(e.to_string()))?,
                name,
                kind: self.identity.unwrap_or(IdentityKind::Positional),
                occurrence: self.occurrence.unwrap_or(0),
                business_key: self.business_key,
            })
        });
        let rest = self.rest;
        Ok(Header {
            thread: self.thread.ok_or_else(|| missing("th"))?,
            n: self.n.ok_or_else(|| missing("n"))?,
            epoch: Epoch(self.epoch.ok_or_else(|| missing("e"))?),
            kind: self.kind.ok_or_else(|| missing("k"))?,
            time: self.time.ok_or_else(|| missing("t"))?,
            run: self.run.ok_or_else(|| missing("run"))?,
            place: place.transpose()?,
            attempt: rest.attempt,
            attempts_max: rest.attempts_max,
            call: rest.call,
            key: rest.key,
            generation: rest.generation,
            policy: rest.policy,
            timeout_ms: rest.timeout_ms,
            window_ms: rest.window_ms,
            quiet_ms: rest.quiet_ms,
            abandon: rest.abandon,
            due: rest.due,
            why: rest.why,
            verdict: rest.verdict,
            message: rest.message,
            by: rest.by,
            workflow: rest.workflow,
            build: rest.build,
            process: rest.process,
            doubts: rest.doubts,
            payloads: rest.payloads,
        })
    }
}

impl Rest {
    fn member(&mut self, name: &str, reader: &mut Reader<'_>) -> Result<(), Expected> {
        match name {
            "att" => self.attempt = Some(small(reader)?),
            "att_max" => self.attempts_max = Some(small(reader)?),
            "call" => self.call = Some(reader.integer()?),
            "key" => self.key = Some(text(reader)?),
            "gen" => self.generation = reader.integer()?,
            "pol" => {
                let policy = Policy::from_word(&reader.string()?);
                self.policy = Some(policy.ok_or("a known policy in `pol`")?);
            }
            "timeout_ms" => self.timeout_ms = Some(reader.integer()?),
            "window_ms" => self.window_ms = Some(reader.integer()?),
            "quiet_ms" => self.quiet_ms = Some(reader.integer()?),
            "abandon" => self.abandon = reader.boolean()?,
            "due" => self.due = Some(time(reader)?),
            "why" => self.why = Some(text(reader)?),
            "verdict" => self.verdict = Some(text(reader)?),
            "msg" => {
                let bytes = hex::decode(&reader.string()?).ok_or("16 bytes of hex in `msg`")?;
                self.message = Some(MessageId(bytes));
            }
            "by" => self.by = Some(text(reader)?),
            "wf" => self.workflow = Some(text(reader)?),
            "build" => self.build = Some(text(reader)?),
            "proc" => self.process = Some(reader.integer()?),
            "doubts" => self.doubts = Some(small(reader)?),
            "pay" => reader.object(|role, r| {
                self.payloads.push(commitment(role, r)?);
                Ok(())
            })?,
            _ => reader.skip()?,
        }
        Ok(())
    }
}

fn text(reader: &mut Reader<'_>) -> Result<Arc<str>, Expected> {
    Ok(reader.string()?.into())
}

fn small(reader: &mut Reader<'_>) -> Result<u32, Expected> {
    u32::try_from(reader.integer()?).map_err(|_| "a number below 2^32")
}

fn time(reader: &mut Reader<'_>) -> Result<StoreTime, Expected> {
    reader
        .string()?
        .parse()
        .map_err(|_| "an RFC 3339 time with nine digits")
}

fn step_name(reader: &mut Reader<'_>) -> Result<Name, Expected> {
    Name::new(reader.string()?).map_err(|_| "a name of 1 to 512 bytes")
}

fn commitment(role: &str, reader: &mut Reader<'_>) -> Result<Commitment, Expected> {
    let role = Role::from_word(role).ok_or("a known role in `pay`")?;
    reader.open_array()?;
    if reader.string()? != ENCODING_MSGPACK {
        return Err("the encoding msgpack in `pay`");
    }
    reader.comma()?;
    let length = reader.integer()?;
    reader.comma()?;
    let hash = hex::decode(&reader.string()?).ok_or("32 bytes of hex in `pay`")?;
    reader.close_array()?;
    Ok(Commitment { role, length, hash })
}
