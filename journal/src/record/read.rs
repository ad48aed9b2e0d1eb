//! Reading headers: one pass, in the one form in which they are written.

use std::{borrow::Cow, sync::Arc};

use super::{
    ENCODING_MSGPACK, RecordHash,
    header::{Commitment, Header, HeaderError, Link, LogState, Place, VERSION},
    json::{Expected, Reader},
    kind::{Kind, Role},
};
use crate::{
    hex,
    id::{Branch, Epoch, IdentityKind, MessageId, Name, StoreTime, ThreadId},
    limits::HEADER_BYTES_MAX,
    policy::Policy,
};

impl Header {
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
        members(bytes, |name, reader| draft.member(name, reader))?;
        draft.finish()
    }
}

/// Reads all members of a header.
pub(super) fn members(
    bytes: &[u8],
    member: impl FnMut(&str, &mut Reader<'_>) -> Result<(), Expected>,
) -> Result<(), HeaderError> {
    let expected = |what| HeaderError(format!("expected {what}"));
    let mut reader = Reader::new(bytes).map_err(expected)?;
    reader.object(member).map_err(expected)?;
    if reader.at_end() { Ok(()) } else { Err(HeaderError("there is something behind it".into())) }
}

/// A header being read: its fields, and those that only together make one.
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
    size: Option<u64>,
    root: Option<[u8; 32]>,
    heads: Option<[u8; 32]>,
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
    allowed_by: Option<u64>,
    rule: Option<Arc<str>>,
    role: Option<Role>,
    link: Option<Box<Link>>,
    carry: Vec<u64>,
    due: Option<StoreTime>,
    why: Option<Arc<str>>,
    verdict: Option<Arc<str>>,
    message: Option<MessageId>,
    by: Option<Arc<str>>,
    workflow: Option<Arc<str>>,
    build: Option<Arc<str>>,
    process: Option<u64>,
    doubts: Option<u32>,
    payloads: Option<Vec<Commitment>>,
}

impl Draft {
    fn member(&mut self, name: &str, reader: &mut Reader<'_>) -> Result<(), Expected> {
        match name {
            "v" => self.version = Some(reader.integer()?),
            "th" => self.thread = Some(thread(reader)?),
            "n" => self.n = Some(reader.integer()?),
            "e" => self.epoch = Some(reader.integer()?),
            "k" => self.kind = Some(Kind::from_word(&reader.string()?)),
            "t" => self.time = Some(time(reader)?),
            "run" => self.run = Some(reader.integer()?),
            "step" => self.name = Some(step_name(reader)?),
            "br" => {
                reader.array(|r| {
                    self.branch.push(step_name(r)?);
                    Ok(())
                })?;
                written(!self.branch.is_empty(), "a branch that is not the root in `br`")?;
            }
            "ep" => {
                self.episode = small(reader)?;
                written(self.episode > 0, "a number above 0 in `ep`")?;
            }
            "idk" => {
                self.identity = Some(match &*reader.string()? {
                    "arguments" => IdentityKind::Arguments,
                    "key" => IdentityKind::Key,
                    _ => return Err("a known kind of identity in `idk`"),
                });
            }
            "occ" => self.occurrence = Some(small(reader)?),
            "bkey" => self.business_key = Some(text(reader)?),
            "size" => self.size = Some(reader.integer()?),
            "root" => self.root = Some(digest(reader, "32 bytes of hex in `root`")?),
            "heads" => self.heads = Some(digest(reader, "32 bytes of hex in `heads`")?),
            _ => self.rest.member(name, reader)?,
        }
        Ok(())
    }

    /// The place, if there is one: with its name and its occurrence, or nothing of it.
    fn place(&mut self) -> Result<Option<Place>, HeaderError> {
        match (self.name.take(), self.occurrence) {
            (Some(name), Some(occurrence)) => Ok(Some(Place {
                episode: self.episode,
                branch: Branch::new(std::mem::take(&mut self.branch))
                    .map_err(|e| HeaderError(e.to_string()))?,
                name,
                kind: self.identity.unwrap_or(IdentityKind::Positional),
                occurrence,
                business_key: self.business_key.take(),
            })),
            (Some(_), None) => Err(missing("occ")),
            (None, occurrence) => {
                let nothing = occurrence.is_none()
                    && self.episode == 0
                    && self.branch.is_empty()
                    && self.identity.is_none()
                    && self.business_key.is_none();
                if nothing { Ok(None) } else { Err(missing("step")) }
            }
        }
    }

    fn finish(mut self) -> Result<Header, HeaderError> {
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
        let place = self.place()?;
        let log = match (self.size, self.root) {
            (Some(size), Some(root)) => Some(Box::new(LogState { size, root, heads: self.heads })),
            (None, None) if self.heads.is_none() => None,
            (Some(_), None) => return Err(missing("root")),
            (None, _) => return Err(missing("size")),
        };
        let rest = self.rest;
        Ok(Header {
            thread: self.thread.ok_or_else(|| missing("th"))?,
            n: self.n.ok_or_else(|| missing("n"))?,
            epoch: Epoch(self.epoch.ok_or_else(|| missing("e"))?),
            kind: self.kind.ok_or_else(|| missing("k"))?,
            time: self.time.ok_or_else(|| missing("t"))?,
            run: self.run.ok_or_else(|| missing("run"))?,
            place,
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
            allowed_by: rest.allowed_by,
            rule: rest.rule,
            role: rest.role,
            link: rest.link,
            carry: rest.carry,
            log,
            due: rest.due,
            why: rest.why,
            verdict: rest.verdict,
            message: rest.message,
            by: rest.by,
            workflow: rest.workflow,
            build: rest.build,
            process: rest.process,
            doubts: rest.doubts,
            payloads: rest.payloads.ok_or_else(|| missing("pay"))?,
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
            "gen" => {
                self.generation = reader.integer()?;
                written(self.generation > 0, "a number above 0 in `gen`")?;
            }
            "pol" => {
                let policy = Policy::from_word(&reader.string()?);
                self.policy = Some(policy.ok_or("a known policy in `pol`")?);
            }
            "timeout_ms" => self.timeout_ms = Some(reader.integer()?),
            "window_ms" => self.window_ms = Some(reader.integer()?),
            "quiet_ms" => self.quiet_ms = Some(reader.integer()?),
            "abandon" => {
                self.abandon = reader.boolean()?;
                written(self.abandon, "true in `abandon`")?;
            }
            "appr" => self.allowed_by = Some(reader.integer()?),
            "rule" => self.rule = Some(text(reader)?),
            "role" => {
                let role = Role::from_word(&reader.string()?);
                self.role = Some(role.ok_or("a known role in `role`")?);
            }
            "ref" => self.link().thread = Some(thread(reader)?),
            "ref_n" => self.link().n = Some(reader.integer()?),
            "ref_hash" => {
                let hash = digest(reader, "32 bytes of hex in `ref_hash`")?;
                self.link().hash = Some(RecordHash(hash));
            }
            "carry" => {
                reader.array(|r| {
                    self.carry.push(r.integer()?);
                    Ok(())
                })?;
                written(!self.carry.is_empty(), "a position in `carry`")?;
            }
            "due" => self.due = Some(time(reader)?),
            "why" => self.why = Some(text(reader)?),
            "verdict" => self.verdict = Some(text(reader)?),
            "msg" => self.message = Some(MessageId(digest(reader, "16 bytes of hex in `msg`")?)),
            "by" => self.by = Some(text(reader)?),
            "wf" => self.workflow = Some(text(reader)?),
            "build" => self.build = Some(text(reader)?),
            "proc" => self.process = Some(reader.integer()?),
            "doubts" => self.doubts = Some(small(reader)?),
            "pay" => {
                let payloads = self.payloads.get_or_insert_default();
                reader.object(|role, r| {
                    payloads.push(commitment(role, r)?);
                    Ok(())
                })?;
            }
            _ => reader.skip()?,
        }
        Ok(())
    }

    fn link(&mut self) -> &mut Link {
        self.link.get_or_insert_default()
    }
}

fn missing(field: &str) -> HeaderError {
    HeaderError(format!("field `{field}` is missing"))
}

/// What says no more than its absence is not written, so that one header has one form.
fn written(says_something: bool, what: Expected) -> Result<(), Expected> {
    if says_something { Ok(()) } else { Err(what) }
}

fn text(reader: &mut Reader<'_>) -> Result<Arc<str>, Expected> {
    Ok(match reader.string()? {
        Cow::Borrowed(text) => text.into(),
        Cow::Owned(text) => text.into(),
    })
}

fn small(reader: &mut Reader<'_>) -> Result<u32, Expected> {
    u32::try_from(reader.integer()?).map_err(|_| "a number below 2^32")
}

fn time(reader: &mut Reader<'_>) -> Result<StoreTime, Expected> {
    StoreTime::from_text(reader.string()?.as_bytes()).ok_or("an RFC 3339 time with nine digits")
}

fn thread(reader: &mut Reader<'_>) -> Result<ThreadId, Expected> {
    ThreadId::any(reader.string()?).map_err(|_| "a thread id of 1 to 512 bytes")
}

fn step_name(reader: &mut Reader<'_>) -> Result<Name, Expected> {
    Name::new(reader.string()?).map_err(|_| "a name of 1 to 512 bytes")
}

fn digest<const N: usize>(reader: &mut Reader<'_>, what: Expected) -> Result<[u8; N], Expected> {
    hex::decode(&reader.string()?).ok_or(what)
}

pub(super) fn commitment(role: &str, reader: &mut Reader<'_>) -> Result<Commitment, Expected> {
    let role = Role::from_word(role).ok_or("a known role in `pay`")?;
    reader.open_array()?;
    if reader.string()? != ENCODING_MSGPACK {
        return Err("the encoding msgpack in `pay`");
    }
    reader.comma()?;
    let length = reader.integer()?;
    reader.comma()?;
    let hash = digest(reader, "32 bytes of hex in `pay`")?;
    reader.close_array()?;
    Ok(Commitment { role, length, hash })
}
