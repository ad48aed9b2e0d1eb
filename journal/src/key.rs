//! Operation keys: the idempotency key sent downstream, equal on every attempt, restart, machine.
//!
//! # Derivation, version 1
//!
//! BLAKE3 in its `derive_key` mode with the context `deedbook 2026-11-29 v1 operation key`, over
//! these parts in this order. Before each part stands its length in bytes as a `u64`, big-endian,
//! so that no two lists of parts run together.
//!
//! | part | content |
//! | --- | --- |
//! | namespace | the 16 bytes of the journal's namespace |
//! | scope | one byte: 0 thread, 1 journal |
//! | thread id | its UTF-8; only with scope 0 |
//! | step name | its UTF-8 |
//! | identity kind | one byte: 0 positional, 1 arguments, 2 key |
//! | identity, positional | episode, `u32` big-endian; count of branch parts, `u32` big-endian; each branch part, its UTF-8; occurrence, `u32` big-endian: each number and each name a part of its own |
//! | identity, arguments | the canonical bytes ([`canonical`](crate::value::canonical)); occurrence, `u32` big-endian |
//! | identity, key | its UTF-8 |
//! | generation | `u64` big-endian: 0, or how often a fresh key was granted |
//!
//! The key is the first 24 bytes of the hash. Printed it is `dk1_` and 48 lower-case hex digits;
//! as a UUID it is the first 16 bytes with the version set to 8. The attempt number is no part of
//! it, and neither is anything of the process or the machine.

use std::{fmt, str::FromStr, sync::LazyLock};

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    hex,
    id::{Branch, IdentityKind, ThreadId},
};

/// The domain of the derivation; a part of the format.
const CONTEXT: &str = "deedbook 2026-11-29 v1 operation key";

static CONTEXT_KEY: LazyLock<ContextKey> = LazyLock::new(|| hash_derive_key_context(CONTEXT));

/// What every printed key begins with.
const PREFIX: &str = "dk1_";

/// The 16 random bytes made with a journal that keep its keys apart from those of others.
///
/// Import, backup and restore keep it; several journals may share it on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Namespace(pub [u8; 16]);

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Where the operation happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyScope<'a> {
    /// In this thread.
    Thread(&'a ThreadId),
    /// In the whole journal.
    Journal,
}

/// What makes two calls of a step the same operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyIdentity<'a> {
    /// The place in the program.
    Positional {
        /// Counts continue-as-new within the thread, from 0.
        episode: u32,
        /// The branch in which the call is made.
        branch: &'a Branch,
        /// Counts the calls of this name in the branch, from 0.
        occurrence: u32,
    },
    /// The canonical arguments.
    Arguments {
        /// As [`canonical::of`](crate::value::canonical::of) writes them.
        canonical: &'a [u8],
        /// From 0; above 0 only where a repeat is wanted on purpose.
        occurrence: u32,
    },
    /// An explicit business key.
    Key(&'a str),
}

impl KeyIdentity<'_> {
    /// The kind, a byte of the derivation.
    #[must_use]
    pub fn kind(&self) -> IdentityKind {
        match self {
            Self::Positional { .. } => IdentityKind::Positional,
            Self::Arguments { .. } => IdentityKind::Arguments,
            Self::Key(_) => IdentityKind::Key,
        }
    }
}

/// The idempotency key of one operation: 52 printable ASCII characters, whatever it is made of.
///
/// ```
/// use deedbook_journal::id::{Branch, ThreadId};
/// use deedbook_journal::key::{KeyIdentity, KeyScope, Namespace, OperationKey};
/// let thread = ThreadId::new("order-4821")?;
/// let first = KeyIdentity::Positional { episode: 0, branch: &Branch::root(), occurrence: 0 };
/// let namespace = Namespace([0; 16]);
/// let key = OperationKey::derive(&namespace, KeyScope::Thread(&thread), "pay", first, 0);
/// assert!(key.as_str().starts_with("dk1_"));
/// assert_eq!(key.as_str().parse::<OperationKey>()?, key);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationKey {
    bytes: [u8; 24],
    text: [u8; 52],
}

impl OperationKey {
    /// The key of the operation that these parts name; see the module for the exact bytes.
    #[must_use]
    pub fn derive(
        namespace: &Namespace,
        scope: KeyScope<'_>,
        step: &str,
        identity: KeyIdentity<'_>,
        generation: u64,
    ) -> Self {
        let mut parts = Parts(Vec::with_capacity(256));
        parts.add(&namespace.0);
        match scope {
            KeyScope::Thread(thread) => {
                parts.add(&[0]);
                parts.add(thread.as_str().as_bytes());
            }
            KeyScope::Journal => parts.add(&[1]),
        }
        parts.add(step.as_bytes());
        parts.add(&[identity.kind().as_byte()]);
        match identity {
            KeyIdentity::Positional { episode, branch, occurrence } => {
                parts.add(&episode.to_be_bytes());
                // At most 64 parts, so this never saturates.
                let count = u32::try_from(branch.parts().len()).unwrap_or(u32::MAX);
                parts.add(&count.to_be_bytes());
                for name in branch.parts() {
                    parts.add(name.as_str().as_bytes());
                }
                parts.add(&occurrence.to_be_bytes());
            }
            KeyIdentity::Arguments { canonical, occurrence } => {
                parts.add(canonical);
                parts.add(&occurrence.to_be_bytes());
            }
            KeyIdentity::Key(key) => parts.add(key.as_bytes()),
        }
        parts.add(&generation.to_be_bytes());
        Self::from_bytes(parts.hash())
    }

    /// The key with these 24 bytes.
    fn from_bytes(bytes: [u8; 24]) -> Self {
        let digits = hex::encode(&bytes);
        let mut text = [b'0'; 52];
        let printed = PREFIX.bytes().chain(digits.bytes());
        for (to, from) in text.iter_mut().zip(printed) {
            *to = from;
        }
        Self { bytes, text }
    }

    /// The printed form: `dk1_` and 48 lower-case hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // ASCII by construction.
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// The form for downstreams that take UUIDs only: version 8, from the first 16 bytes.
    #[must_use]
    pub fn to_uuid(&self) -> uuid::Uuid {
        let bytes = self.bytes.first_chunk().copied().unwrap_or_default();
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    }
}

/// Parts, each behind its length, to be hashed at once: most have a few bytes.
struct Parts(Vec<u8>);

impl Parts {
    fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
    }

    fn hash(&self) -> [u8; 24] {
        let mut hasher = blake3::Hasher::new_from_context_key(&CONTEXT_KEY);
        hasher.update(&self.0);
        let mut bytes = [0; 24];
        for (to, from) in bytes.iter_mut().zip(hasher.finalize().as_bytes()) {
            *to = *from;
        }
        bytes
    }
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Text that is no operation key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "operation key cannot be read: expected `dk1_` and 48 lower-case hex digits; copy it whole"
)]
pub struct InvalidKey;

impl FromStr for OperationKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let digits = text.strip_prefix(PREFIX).ok_or(InvalidKey)?;
        hex::decode(digits).map(Self::from_bytes).ok_or(InvalidKey)
    }
}

impl Serialize for OperationKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for OperationKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::Name;

    fn positional(thread: &str, parts: &[String], step: &str, occurrence: u32) -> OperationKey {
        let thread = ThreadId::new(thread).unwrap();
        let names = parts.iter().map(|name| Name::new(name).unwrap()).collect();
        let identity = KeyIdentity::Positional {
            episode: 0,
            branch: &Branch::new(names).unwrap(),
            occurrence,
        };
        OperationKey::derive(&Namespace([7; 16]), KeyScope::Thread(&thread), step, identity, 0)
    }

    #[test]
    fn a_key_is_read_back_and_nothing_else_is() {
        let key = positional("t", &[], "pay", 0);
        let text = key.to_string();
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(format!("{key:?}"), text);
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<OperationKey>(&json).unwrap(), key);
        assert_eq!(key.to_uuid().get_version_num(), 8);
        assert_eq!(key.to_uuid().get_variant(), uuid::Variant::RFC4122);
        for bad in [
            "".to_owned(),
            text.to_uppercase(),
            text.replacen("dk1_", "dk2_", 1),
            text[..51].to_owned(),
            format!("{text}0"),
            format!(" {text}"),
            text.replace("dk1_", "dk1_é"),
        ] {
            assert!(bad.parse::<OperationKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn kinds_and_scopes_are_kept_apart() {
        let (namespace, thread) = (Namespace([0; 16]), ThreadId::new("t").unwrap());
        let key = |scope, identity| OperationKey::derive(&namespace, scope, "s", identity, 0);
        let thread = KeyScope::Thread(&thread);
        let keys = [
            key(thread, KeyIdentity::Key("x")),
            key(KeyScope::Journal, KeyIdentity::Key("x")),
            key(thread, KeyIdentity::Arguments { canonical: b"x", occurrence: 0 }),
            key(thread, KeyIdentity::Arguments { canonical: b"x", occurrence: 1 }),
            key(KeyScope::Journal, KeyIdentity::Arguments { canonical: b"x", occurrence: 0 }),
            OperationKey::derive(&namespace, thread, "s", KeyIdentity::Key("x"), 1),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    /// Texts out of which others can be glued together.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[ab:/#\u{0}]{1,4}", "\\PC{1,40}"]
    }

    proptest! {
        #[test]
        fn ids_never_run_together(
            a in (text(), prop::collection::vec(text(), 0..3), text(), 0u32..3),
            b in (text(), prop::collection::vec(text(), 0..3), text(), 0u32..3),
        ) {
            let key = |(thread, parts, step, n): &(String, Vec<String>, String, u32)| {
                positional(thread, parts, step, *n)
            };
            prop_assert_eq!(key(&a) == key(&b), a == b);
        }

        #[test]
        fn a_cut_moved_anywhere_gives_another_key(text in "[a-c:]{3,8}", i in 1usize..7, j in 1usize..7) {
            let (i, j) = (i.min(text.len() - 1), j.min(text.len() - 1));
            let key = |at: usize| positional(&text[..at], &[], &text[at..], 0);
            prop_assert_eq!(key(i) == key(j), i == j);
        }

        #[test]
        fn every_key_fits_a_header(thread in "\\PC{1,100}", step in "\\PC{1,200}") {
            let key = positional(&thread, &[], &step, 0);
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            prop_assert!(key.as_str().chars().all(fits));
            prop_assert!((16..=64).contains(&key.as_str().len()));
        }
    }
}
