//! The record: one thing that happened, in the form in which it is hashed, stored and exported.
//!
//! A record is a [`Header`] (restricted RFC 8785 JSON, the hash input) and its [`Payload`]s, each
//! bound to the header by a salted commitment, so that a payload can be erased without breaking
//! the chain. `docs/reference/record-format.md` is the format, frozen as version 1.

mod gist;
mod header;
mod json;
mod kind;
mod read;
mod scan;
mod stored;
mod write;
mod written;

use std::{fmt, sync::LazyLock};

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};

#[cfg(feature = "planted-faults")]
pub(crate) use gist::gist_agrees;
pub(crate) use gist::{Gist, Opens};
pub use header::{Commitment, Header, HeaderError, Link, LogState, Place};
pub use kind::{Kind, Role};
pub(crate) use scan::Text;
pub use written::{Records, Written};

use crate::bytes::Bytes;

/// Context of payload commitments.
pub const CONTEXT_PAYLOAD: &str = "deedbook 2026-11-29 v1 payload commitment";
/// Context of record hashes.
pub const CONTEXT_RECORD: &str = "deedbook 2026-11-29 v1 record";
/// The encoding name of values.
pub const ENCODING_MSGPACK: &str = "msgpack";

/// A BLAKE3 hasher in derive-key mode. The context is hashed once a process: for inputs as short
/// as ours that is a third of the work.
fn hasher(context: &'static LazyLock<ContextKey>) -> blake3::Hasher {
    blake3::Hasher::new_from_context_key(context)
}

static PAYLOAD_KEY: LazyLock<ContextKey> =
    LazyLock::new(|| hash_derive_key_context(CONTEXT_PAYLOAD));
static RECORD_KEY: LazyLock<ContextKey> = LazyLock::new(|| hash_derive_key_context(CONTEXT_RECORD));

/// The hash of a record, chained to the one before it; zero before a thread's first record.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RecordHash(pub [u8; 32]);

impl RecordHash {
    /// What stands before a thread's first record.
    pub const ZERO: Self = Self([0; 32]);

    /// `BLAKE3.derive_key(CONTEXT_RECORD, log_id[16] ‖ prev[32] ‖ header)`.
    #[must_use]
    pub fn of(log_id: &[u8; 16], prev: &Self, header: &[u8]) -> Self {
        let mut hasher = hasher(&RECORD_KEY);
        hasher.update(log_id).update(&prev.0).update(header);
        Self(*hasher.finalize().as_bytes())
    }
}

impl fmt::Display for RecordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::hex::write(f, &self.0)
    }
}

impl fmt::Debug for RecordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Bytes that a record carries beside its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// What it is to the record.
    pub role: Role,
    /// 32 fresh random bytes, erased with the bytes.
    pub salt: [u8; 32],
    /// MessagePack.
    pub bytes: Bytes,
}

impl Payload {
    /// `BLAKE3.derive_key(CONTEXT_PAYLOAD, salt[32] ‖ bytes)`.
    #[must_use]
    pub fn commitment(&self) -> [u8; 32] {
        let mut hasher = hasher(&PAYLOAD_KEY);
        hasher.update(&self.salt).update(&self.bytes);
        *hasher.finalize().as_bytes()
    }
}

/// A record as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The header, as exactly these bytes.
    pub header: Bytes,
    /// Its hash.
    pub hash: RecordHash,
    /// Its payloads, in the order of their roles. One that was erased is not here.
    pub payloads: Vec<Payload>,
}

impl Record {
    /// Makes the record that follows `prev`: commits to the payloads, writes the header, hashes.
    #[must_use]
    pub fn seal(
        log_id: &[u8; 16],
        prev: &RecordHash,
        mut header: Header,
        mut payloads: Vec<Payload>,
    ) -> (Header, Written) {
        payloads.sort_by_key(|p| p.role.as_str());
        header.payloads = payloads.iter().map(Commitment::to).collect();
        let bytes: Bytes = header.to_bytes().into();
        let hash = RecordHash::of(log_id, prev, &bytes);
        let record = Self { header: bytes, hash, payloads };
        let written = Written::sealed(log_id, prev, &header, record);
        (header, written)
    }

    /// Checks the hash against the record before, and each payload against its commitment.
    ///
    /// # Errors
    /// What does not match, for people. Nothing is decoded before its hash is checked.
    pub fn verify(&self, log_id: &[u8; 16], prev: &RecordHash) -> Result<Header, String> {
        if RecordHash::of(log_id, prev, &self.header) != self.hash {
            return Err("the header does not match its hash".into());
        }
        let header = Header::parse(&self.header).map_err(|e| e.to_string())?;
        for payload in &self.payloads {
            let role = payload.role.as_str();
            let committed = header.payloads.iter().find(|c| c.role == payload.role);
            let committed =
                committed.ok_or_else(|| format!("payload {role} is not committed to"))?;
            if !committed.is_to(payload) {
                return Err(format!("payload {role} does not match its commitment"));
            }
        }
        Ok(header)
    }

    /// The payload in this role, if the record has one that is not erased.
    #[must_use]
    pub fn payload(&self, role: Role) -> Option<&Payload> {
        self.payloads.iter().find(|p| p.role == role)
    }

    /// About how many bytes it occupies.
    #[must_use]
    pub fn size(&self) -> usize {
        32 + self.header.len() + self.payloads.iter().map(|p| 40 + p.bytes.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
