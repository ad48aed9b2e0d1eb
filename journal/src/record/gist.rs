//! The gist of a header: what replay needs of it, borrowed from its bytes.
//!
//! A thread's records were verified before they are replayed, each against its own hash or all of
//! a page against one, and every header was read in full before it was stored
//! ([`crate::admit`]). So this reads no more than the fold acts on, copies nothing, and takes for
//! granted what only a writer that breaks the format's rules could break, such as the order of
//! the members. [`Header::parse`] is the reader that takes nothing for granted.

use super::{
    Kind, Role,
    header::{Header, HeaderError, VERSION},
    json::{self, Expected},
    read,
    scan::{Scan, Text},
};
use crate::{
    id::{Branch, Epoch, IdentityKind, Name, Position, StoreTime},
    limits::HEADER_BYTES_MAX,
    policy::Policy,
};

/// What replay needs of a header. The fields are those of [`Header`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Gist<'a> {
    pub(crate) thread: Text<'a>,
    pub(crate) n: Position,
    pub(crate) epoch: Epoch,
    /// Always there, once read.
    pub(crate) kind: Option<Kind>,
    pub(crate) time: StoreTime,
    pub(crate) run: Position,
    pub(crate) place: Opens<'a>,
    pub(crate) attempt: Option<u32>,
    pub(crate) attempts_max: Option<u32>,
    pub(crate) call: Option<Position>,
    pub(crate) generation: u64,
    pub(crate) key: Option<Text<'a>>,
    pub(crate) policy: Option<Policy>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) window_ms: Option<u64>,
    pub(crate) quiet_ms: Option<u64>,
    pub(crate) abandon: bool,
    pub(crate) carry: Vec<Position>,
    pub(crate) due: Option<StoreTime>,
    pub(crate) why: Option<Text<'a>>,
    pub(crate) verdict: Option<Text<'a>>,
    pub(crate) by: Option<Text<'a>>,
    pub(crate) workflow: Option<Text<'a>>,
    pub(crate) build: Option<Text<'a>>,
    /// The commitment to what a person was shown.
    pub(crate) shown: Option<[u8; 32]>,
}

/// Which call a record opens.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opens<'a> {
    pub(crate) episode: u32,
    pub(crate) branch: Path<'a>,
    /// `None` on records that open no call.
    pub(crate) name: Option<Text<'a>>,
    pub(crate) identity: Option<IdentityKind>,
    pub(crate) occurrence: u32,
    pub(crate) business_key: Option<Text<'a>>,
}

/// A branch, as it stands in a header or in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Path<'a> {
    #[default]
    Root,
    /// A JSON array of names.
    Stored(&'a [u8]),
    Known(&'a Branch),
}

impl Path<'_> {
    pub(crate) fn read(self) -> Result<Branch, Expected> {
        let bytes = match self {
            Self::Root => return Ok(Branch::root()),
            Self::Known(branch) => return Ok(branch.clone()),
            Self::Stored(bytes) => bytes,
        };
        let mut parts = Vec::new();
        json::Reader::new(bytes)?.array(|r| {
            parts.push(Name::new(r.string()?).map_err(|_| "a name of 1 to 512 bytes")?);
            Ok(())
        })?;
        Branch::new(parts).map_err(|_| "a branch that is not too deep")
    }
}

/// The members that every header has.
mod required {
    pub(super) const ALL: u8 = THREAD | N | EPOCH | KIND | TIME | RUN | VERSION;
    pub(super) const THREAD: u8 = 1;
    pub(super) const N: u8 = 2;
    pub(super) const EPOCH: u8 = 4;
    pub(super) const KIND: u8 = 8;
    pub(super) const TIME: u8 = 16;
    pub(super) const RUN: u8 = 32;
    pub(super) const VERSION: u8 = 64;
}

impl<'a> Gist<'a> {
    /// Reads the header of a record that was verified, into a gist that is empty.
    pub(crate) fn read(&mut self, bytes: &'a [u8]) -> Result<(), HeaderError> {
        let expected = |what| HeaderError(format!("expected {what}"));
        if bytes.len() > HEADER_BYTES_MAX {
            return Err(expected("fewer bytes"));
        }
        let mut scan = Scan::new(bytes);
        let seen = self.members(&mut scan).map_err(expected)?;
        match required::ALL & !seen {
            0 => Ok(()),
            // A version that this build does not read, or none: the strict reader says which.
            _ => Err(Header::parse(bytes).err().unwrap_or_else(|| expected("another header"))),
        }
    }

    /// Members stand in the order of their names, so that most are met by going once through the
    /// usual ones; what is left is looked up by its name.
    fn members(&mut self, scan: &mut Scan<'a>) -> Result<u8, Expected> {
        let mut seen = 0;
        scan.expect(b'{', "an object")?;
        'members: loop {
            macro_rules! usual {
                ($($name:literal: $read:expr),*) => {$(
                    if scan.pass($name) {
                        $read;
                        if !scan.take(b',') {
                            break 'members;
                        }
                    }
                )*};
            }
            usual! {
                b"\"att\":": self.attempt = Some(scan.small()?),
                b"\"att_max\":": self.attempts_max = Some(scan.small()?),
                b"\"call\":": self.call = Some(scan.integer()?),
                b"\"e\":": { self.epoch = Epoch(scan.integer()?); seen |= required::EPOCH },
                b"\"k\":": { self.kind = Some(scan.kind()?); seen |= required::KIND },
                b"\"key\":": self.key = Some(scan.text()?),
                b"\"n\":": { self.n = scan.integer()?; seen |= required::N },
                b"\"occ\":": self.place.occurrence = scan.small()?,
                b"\"pay\":": self.payloads(scan)?,
                b"\"pol\":": self.policy = Some(scan.policy()?),
                b"\"run\":": { self.run = scan.integer()?; seen |= required::RUN },
                b"\"step\":": self.place.name = Some(scan.text()?),
                b"\"t\":": { self.time = scan.time()?; seen |= required::TIME },
                b"\"th\":": { self.thread = scan.text()?; seen |= required::THREAD },
                b"\"timeout_ms\":": self.timeout_ms = Some(scan.integer()?),
                b"\"v\":": seen |= if scan.integer()? == VERSION { required::VERSION } else { 0 }
            }
            let name = scan.name()?;
            self.rare_member(name, scan)?;
            if !scan.take(b',') {
                break;
            }
        }
        scan.expect(b'}', "the end of an object")?;
        if scan.rest().is_empty() { Ok(seen) } else { Err("nothing behind it") }
    }

    /// The members that most records do not have.
    fn rare_member(&mut self, name: &[u8], scan: &mut Scan<'a>) -> Result<(), Expected> {
        match name {
            b"abandon" => self.abandon = scan.boolean()?,
            b"bkey" => self.place.business_key = Some(scan.text()?),
            b"br" => {
                self.place.branch = Path::Stored(scan.strictly(json::Reader::skip)?);
            }
            b"build" => self.build = Some(scan.text()?),
            b"by" => self.by = Some(scan.text()?),
            b"carry" => {
                let carry = &mut self.carry;
                scan.strictly(|reader| {
                    reader.array(|r| {
                        carry.push(r.integer()?);
                        Ok(())
                    })
                })?;
            }
            b"due" => self.due = Some(scan.time()?),
            b"ep" => self.place.episode = scan.small()?,
            b"gen" => self.generation = scan.integer()?,
            b"idk" => {
                let word = scan.text()?;
                let kinds = [IdentityKind::Arguments, IdentityKind::Key];
                let kind = kinds.into_iter().find(|kind| word.is(kind.as_str()));
                self.place.identity = Some(kind.ok_or("a known kind of identity in `idk`")?);
            }
            b"quiet_ms" => self.quiet_ms = Some(scan.integer()?),
            b"verdict" => self.verdict = Some(scan.text()?),
            b"wf" => self.workflow = Some(scan.text()?),
            b"why" => self.why = Some(scan.text()?),
            b"window_ms" => self.window_ms = Some(scan.integer()?),
            _ => {
                scan.strictly(json::Reader::skip)?;
            }
        }
        Ok(())
    }

    /// Passes over the commitments. A home has checked the payloads against them; only what a
    /// person was shown is told apart by its commitment.
    fn payloads(&mut self, scan: &mut Scan<'a>) -> Result<(), Expected> {
        scan.expect(b'{', "an object in `pay`")?;
        if scan.take(b'}') {
            return Ok(());
        }
        loop {
            if scan.pass(b"\"args\":") || scan.pass(b"\"result\":") {
                scan.pass_commitment()?;
            } else if scan.name()? == Role::Shown.as_str().as_bytes() {
                let shown = &mut self.shown;
                scan.strictly(|reader| {
                    *shown = Some(read::commitment(Role::Shown.as_str(), reader)?.hash);
                    Ok(())
                })?;
            } else {
                scan.pass_commitment()?;
            }
            if !scan.take(b',') {
                return scan.expect(b'}', "the end of `pay`");
            }
        }
    }
}

/// The gist of a header in memory.
impl<'a> From<&'a Header> for Gist<'a> {
    fn from(header: &'a Header) -> Self {
        let text = |text: &'a Option<std::sync::Arc<str>>| text.as_deref().map(Text::from);
        let place = header.place.as_ref().map(|place| Opens {
            episode: place.episode,
            branch: Path::Known(&place.branch),
            name: Some(place.name.as_str().into()),
            identity: Some(place.kind),
            occurrence: place.occurrence,
            business_key: text(&place.business_key),
        });
        let shown = header.payloads.iter().find(|c| c.role == Role::Shown);
        Self {
            thread: header.thread.as_str().into(),
            n: header.n,
            epoch: header.epoch,
            kind: Some(header.kind.clone()),
            time: header.time,
            run: header.run,
            place: place.unwrap_or_default(),
            attempt: header.attempt,
            attempts_max: header.attempts_max,
            call: header.call,
            key: text(&header.key),
            generation: header.generation,
            policy: header.policy,
            timeout_ms: header.timeout_ms,
            window_ms: header.window_ms,
            quiet_ms: header.quiet_ms,
            abandon: header.abandon,
            carry: header.carry.clone(),
            due: header.due,
            why: text(&header.why),
            verdict: text(&header.verdict),
            by: text(&header.by),
            workflow: text(&header.workflow),
            build: text(&header.build),
            shown: shown.map(|c| c.hash),
        }
    }
}

/// What a gist says, whether it was read or made from a header.
#[cfg(any(test, feature = "planted-faults"))]
fn told(gist: &Gist<'_>) -> Result<String, Expected> {
    let text = |text: Option<Text<'_>>| -> Result<String, Expected> {
        Ok(format!("{:?}", text.map(Text::read).transpose()?))
    };
    let Opens { episode, branch, name, identity, occurrence, business_key } = gist.place;
    let mut told = String::new();
    if name.is_some() {
        let kind = identity.unwrap_or(IdentityKind::Positional);
        told += &format!("{episode} {:?} {kind:?} {occurrence} ", branch.read()?);
        told += &text(name)?;
        told += &text(business_key)?;
    }
    for word in [gist.key, gist.why, gist.verdict, gist.by, gist.workflow, gist.build] {
        told += &text(word)?;
    }
    told += &text(Some(gist.thread))?;
    let plain = Gist { thread: Text::default(), place: Opens::default(), ..gist.clone() };
    let plain = Gist { key: None, why: None, verdict: None, by: None, ..plain };
    let plain = Gist { workflow: None, build: None, ..plain };
    Ok(format!("{told} {plain:?}"))
}

/// Whether the reader that replay uses says of a header what the strict one says.
///
/// # Errors
/// What differs.
#[cfg(any(test, feature = "planted-faults"))]
pub(crate) fn gist_agrees(bytes: &[u8]) -> Result<(), String> {
    let header = Header::parse(bytes).map_err(|error| error.to_string())?;
    let mut gist = Gist::default();
    gist.read(bytes).map_err(|error| error.to_string())?;
    let (quick, strict) = (told(&gist)?, told(&Gist::from(&header))?);
    if quick == strict { Ok(()) } else { Err(format!("{quick} is not {strict}")) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Holds the reader that replay uses against the strict one.
    pub(crate) fn agrees(bytes: &[u8]) {
        assert_eq!(gist_agrees(bytes), Ok(()));
    }

    #[test]
    fn a_header_of_another_version_is_refused_with_the_reason_and_any_cut_is_an_error() {
        let whole = br#"{"e":1,"k":"signal","n":4,"pay":{},"run":0,"t":"2026-11-29T12:00:00.000000007Z","th":"a\n","v":1,"why":"\"go\""}"#;
        agrees(whole);
        let refused = |bytes| Gist::default().read(bytes).unwrap_err().to_string();
        for to in 0..whole.len() {
            let error = refused(&whole[..to]);
            assert!(error.contains("cannot be read"), "{to}: {error}");
        }
        let newer = String::from_utf8_lossy(whole).replace("\"v\":1", "\"v\":2");
        let error = refused(newer.as_bytes());
        assert!(error.contains("format version 2"), "{error}");
        let missing = String::from_utf8_lossy(whole).replace("\"n\":4,", "");
        let error = refused(missing.as_bytes());
        assert!(error.contains("`n` is missing"), "{error}");
    }
}
