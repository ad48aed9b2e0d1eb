//! Bytes, hashes, times and ids as they stand in JSON.

use std::{borrow::Cow, fmt, time::Duration};

use base64::{Engine, display::Base64Display, engine::general_purpose::STANDARD};
use deedbook_journal::{
    hex,
    id::{StoreTime, ThreadId},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes: base64 with padding.
#[derive(Clone)]
pub(crate) struct Base64<'a>(pub(crate) Cow<'a, [u8]>);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Base64<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |text: &str| STANDARD.decode(text).map(|b| Self(b.into())).ok();
        text(deserializer, "bytes in base64", read)
    }
}

/// A hash, a salt or an id: lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hex<const N: usize>(pub(crate) [u8; N]);

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "lower-case hex of the right length", |t| hex::decode(t).map(Self))
    }
}

/// A time of the store: `2026-11-29T12:00:00.000000000Z`.
#[derive(Clone, Copy)]
pub(crate) struct Time(pub(crate) StoreTime);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a time like 2026-11-29T12:00:00.000000000Z", |t| {
            t.parse().map(Self).ok()
        })
    }
}

/// The id of a thread, Deedbook's own included.
#[derive(Clone)]
pub(crate) struct Thread(pub(crate) ThreadId);

impl Serialize for Thread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for Thread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a thread id of 1 to 512 bytes", |t| ThreadId::any(t).map(Self).ok())
    }
}

/// Reads a string that `read` understands.
pub(super) fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    struct Visitor<F>(&'static str, F);
    impl<T, F: FnOnce(&str) -> Option<T>> de::Visitor<'_> for Visitor<F> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            // What was sent may be long, and may be a secret: it is not quoted.
            (self.1)(text).ok_or_else(|| E::custom(format_args!("expected {}", self.0)))
        }
    }
    deserializer.deserialize_str(Visitor(expected, read))
}

/// A time span in nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
