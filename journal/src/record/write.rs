//! Writing headers: RFC 8785, members in the byte order of their names.

use super::{
    ENCODING_MSGPACK,
    header::{Commitment, Header, Place, VERSION},
    json::write_string,
};
use crate::{
    hex,
    id::{IdentityKind, Name, StoreTime},
    policy::Policy,
};

/// The largest integer that every JSON reader keeps exact.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// What stands before the value of a member.
macro_rules! name {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

impl Header {
    /// The header as it is hashed and stored: RFC 8785, members in the byte order of their names.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Object(Vec::with_capacity(512));
        let place = self.place.as_ref();
        let link = self.link.as_deref();
        let log = self.log.as_deref();
        out.flag(name!("abandon"), self.abandon);
        out.integer(name!("appr"), self.allowed_by);
        out.integer(name!("att"), self.attempt.map(u64::from));
        out.integer(name!("att_max"), self.attempts_max.map(u64::from));
        out.string(name!("bkey"), place.and_then(|p| p.business_key.as_deref()));
        out.strings(name!("br"), place.map_or(&[], |p| p.branch.parts()));
        out.string(name!("build"), self.build.as_deref());
        out.string(name!("by"), self.by.as_deref());
        out.integer(name!("call"), self.call);
        out.integers(name!("carry"), &self.carry);
        out.integer(name!("doubts"), self.doubts.map(u64::from));
        out.time(name!("due"), self.due);
        out.integer(name!("e"), Some(self.epoch.0));
        out.integer(name!("ep"), place.map(|p| u64::from(p.episode)).filter(|e| *e > 0));
        out.integer(name!("gen"), Some(self.generation).filter(|g| *g > 0));
        out.hex(name!("heads"), log.and_then(|l| l.heads.as_ref()));
        out.string(name!("idk"), place.and_then(identity_word));
        out.string(name!("k"), Some(self.kind.as_str()));
        out.string(name!("key"), self.key.as_deref());
        out.hex(name!("msg"), self.message.as_ref().map(|m| &m.0));
        out.integer(name!("n"), Some(self.n));
        out.integer(name!("occ"), place.map(|p| u64::from(p.occurrence)));
        out.payloads(&self.payloads);
        out.string(name!("pol"), self.policy.map(Policy::as_str));
        out.integer(name!("proc"), self.process);
        out.integer(name!("quiet_ms"), self.quiet_ms);
        out.string(name!("ref"), link.and_then(|l| l.thread.as_ref()).map(|t| t.as_str()));
        out.hex(name!("ref_hash"), link.and_then(|l| l.hash.as_ref()).map(|h| &h.0));
        out.integer(name!("ref_n"), link.and_then(|l| l.n));
        out.string(name!("role"), self.role.map(|r| r.as_str()));
        out.hex(name!("root"), log.map(|l| &l.root));
        out.string(name!("rule"), self.rule.as_deref());
        out.integer(name!("run"), Some(self.run));
        out.integer(name!("size"), log.map(|l| l.size));
        out.string(name!("step"), place.map(|p| p.name.as_str()));
        out.time(name!("t"), Some(self.time));
        out.string(name!("th"), Some(self.thread.as_str()));
        out.integer(name!("timeout_ms"), self.timeout_ms);
        out.integer(name!("v"), Some(VERSION));
        out.string(name!("verdict"), self.verdict.as_deref());
        out.string(name!("wf"), self.workflow.as_deref());
        out.string(name!("why"), self.why.as_deref());
        out.integer(name!("window_ms"), self.window_ms);
        out.end()
    }
}

/// The kind of identity, where it is not the usual one.
fn identity_word(place: &Place) -> Option<&'static str> {
    match place.kind {
        IdentityKind::Positional => None,
        kind => Some(kind.as_str()),
    }
}

/// An object being written: members, each behind a comma, the first of which becomes the brace.
struct Object(Vec<u8>);

impl Object {
    fn name(&mut self, name: &str) {
        self.0.extend_from_slice(name.as_bytes());
    }

    fn flag(&mut self, name: &str, set: bool) {
        if set {
            self.name(name);
            self.0.extend_from_slice(b"true");
        }
    }

    fn integer(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.name(name);
            self.number(value);
        }
    }

    fn integers(&mut self, name: &str, values: &[u64]) {
        if values.is_empty() {
            return;
        }
        self.name(name);
        let mut mark = b'[';
        for value in values {
            self.0.push(mark);
            self.number(*value);
            mark = b',';
        }
        self.0.push(b']');
    }

    /// Positions, epochs and milliseconds stay below 2^53; a larger one is a time of "for ever"
    /// and is cut to the largest integer that every JSON reader keeps exact.
    fn number(&mut self, value: u64) {
        let mut digits = [b'0'; 16];
        let mut rest = value.min(INTEGER_MAX);
        let mut from = digits.len();
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            // Below ten, so that the cast keeps it.
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            from = at;
            if rest == 0 {
                break;
            }
        }
        self.0.extend_from_slice(digits.get(from..).unwrap_or_default());
    }

    fn string(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.name(name);
            write_string(&mut self.0, value);
        }
    }

    fn hex<const N: usize>(&mut self, name: &str, value: Option<&[u8; N]>) {
        if let Some(value) = value {
            self.name(name);
            self.0.push(b'"');
            hex::extend(&mut self.0, value);
            self.0.push(b'"');
        }
    }

    fn time(&mut self, name: &str, value: Option<StoreTime>) {
        if let Some(value) = value {
            self.name(name);
            self.0.push(b'"');
            self.0.extend_from_slice(&value.text());
            self.0.push(b'"');
        }
    }

    fn strings(&mut self, name: &str, values: &[Name]) {
        if values.is_empty() {
            return;
        }
        self.name(name);
        let mut mark = b'[';
        for value in values {
            self.0.push(mark);
            write_string(&mut self.0, value.as_str());
            mark = b',';
        }
        self.0.push(b']');
    }

    fn payloads(&mut self, payloads: &[Commitment]) {
        self.name(name!("pay"));
        let mut mark = b'{';
        for payload in payloads {
            self.0.push(mark);
            for part in ["\"", payload.role.as_str(), "\":[\"", ENCODING_MSGPACK, "\","] {
                self.0.extend_from_slice(part.as_bytes());
            }
            self.number(payload.length);
            self.0.extend_from_slice(b",\"");
            hex::extend(&mut self.0, &payload.hash);
            self.0.extend_from_slice(b"\"]");
            mark = b',';
        }
        if payloads.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
    }

    fn end(mut self) -> Vec<u8> {
        // Every header has members.
        if let Some(comma) = self.0.first_mut() {
            *comma = b'{';
        }
        self.0.push(b'}');
        self.0
    }
}
