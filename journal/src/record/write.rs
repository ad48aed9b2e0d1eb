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

impl Header {
    /// The header as it is hashed and stored: RFC 8785, members in the byte order of their names.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Object { bytes: Vec::with_capacity(512), first: true };
        let place = self.place.as_ref();
        let link = self.link.as_deref();
        let log = self.log.as_deref();
        out.flag("abandon", self.abandon);
        out.integer("appr", self.allowed_by);
        out.integer("att", self.attempt.map(u64::from));
        out.integer("att_max", self.attempts_max.map(u64::from));
        out.string("bkey", place.and_then(|p| p.business_key.as_deref()));
        out.strings("br", place.map_or(&[], |p| p.branch.parts()));
        out.string("build", self.build.as_deref());
        out.string("by", self.by.as_deref());
        out.integer("call", self.call);
        out.integers("carry", &self.carry);
        out.integer("doubts", self.doubts.map(u64::from));
        out.time("due", self.due);
        out.integer("e", Some(self.epoch.0));
        out.integer("ep", place.map(|p| u64::from(p.episode)).filter(|e| *e > 0));
        out.integer("gen", Some(self.generation).filter(|g| *g > 0));
        out.hex("heads", log.and_then(|l| l.heads.as_ref()));
        out.string("idk", place.and_then(identity_word));
        out.string("k", Some(self.kind.as_str()));
        out.string("key", self.key.as_deref());
        out.hex("msg", self.message.as_ref().map(|m| &m.0));
        out.integer("n", Some(self.n));
        out.integer("occ", place.map(|p| u64::from(p.occurrence)));
        out.payloads(&self.payloads);
        out.string("pol", self.policy.map(Policy::as_str));
        out.integer("proc", self.process);
        out.integer("quiet_ms", self.quiet_ms);
        out.string("ref", link.and_then(|l| l.thread.as_ref()).map(|t| t.as_str()));
        out.hex("ref_hash", link.and_then(|l| l.hash.as_ref()).map(|h| &h.0));
        out.integer("ref_n", link.and_then(|l| l.n));
        out.string("role", self.role.map(|r| r.as_str()));
        out.hex("root", log.map(|l| &l.root));
        out.string("rule", self.rule.as_deref());
        out.integer("run", Some(self.run));
        out.integer("size", log.map(|l| l.size));
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
}

/// The kind of identity, where it is not the usual one.
fn identity_word(place: &Place) -> Option<&'static str> {
    match place.kind {
        IdentityKind::Positional => None,
        kind => Some(kind.as_str()),
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
            self.bytes.push(mark);
            self.number(*value);
            mark = b',';
        }
        self.bytes.push(b']');
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
        self.bytes.extend_from_slice(digits.get(from..).unwrap_or_default());
    }

    fn string(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.name(name);
            write_string(&mut self.bytes, value);
        }
    }

    fn hex<const N: usize>(&mut self, name: &str, value: Option<&[u8; N]>) {
        if let Some(value) = value {
            self.name(name);
            self.bytes.push(b'"');
            hex::extend(&mut self.bytes, value);
            self.bytes.push(b'"');
        }
    }

    fn time(&mut self, name: &str, value: Option<StoreTime>) {
        if let Some(value) = value {
            self.name(name);
            self.bytes.push(b'"');
            self.bytes.extend_from_slice(&value.text());
            self.bytes.push(b'"');
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
            self.bytes.push(mark);
            for part in ["\"", payload.role.as_str(), "\":[\"", ENCODING_MSGPACK, "\","] {
                self.bytes.extend_from_slice(part.as_bytes());
            }
            self.number(payload.length);
            self.bytes.extend_from_slice(b",\"");
            hex::extend(&mut self.bytes, &payload.hash);
            self.bytes.extend_from_slice(b"\"]");
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
