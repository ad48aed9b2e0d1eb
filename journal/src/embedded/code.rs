//! Bytes: variable-length integers, texts, and the checksum under every value.
//!
//! redb checks nothing on a read, so every value carries a checksum over its table, its key and
//! itself: neither a changed nor a misplaced value is taken for a good one.

use std::sync::{Arc, OnceLock};

use super::planted::{Broken, planted};

/// What is wrong with a stored value.
pub(super) type Torn = &'static str;

/// The length of a checksum, in bytes.
pub(super) const SUM_BYTES: usize = 16;
const CONTEXT_SUM: &str = "deedbook 2026-11-29 v1 embedded checksum";
const CONTEXT_LONG: &str = "deedbook 2026-12-01 v1 embedded checksum of a chunk";

/// The checksum over a value in its place.
pub(super) fn sum(table: &str, key: &[u8], value: &[u8]) -> [u8; SUM_BYTES] {
    static KEY: OnceLock<[u8; 32]> = OnceLock::new();
    let sum_key = KEY.get_or_init(|| blake3::derive_key(CONTEXT_SUM, &[]));
    let mut hasher = blake3::Hasher::new_keyed(sum_key);
    hasher.update(&lengths(table, key)).update(table.as_bytes()).update(key).update(value);
    first(&hasher.finalize())
}

/// The same for long values. What they are bound to comes behind them: blake3 hashes many kilobytes
/// at a time where they begin at one.
fn sum_long(table: &str, key: &[u8], value: &[u8]) -> [u8; SUM_BYTES] {
    static KEY: OnceLock<[u8; 32]> = OnceLock::new();
    let sum_key = KEY.get_or_init(|| blake3::derive_key(CONTEXT_LONG, &[]));
    let mut hasher = blake3::Hasher::new_keyed(sum_key);
    hasher.update(value).update(table.as_bytes()).update(key).update(&lengths(table, key));
    first(&hasher.finalize())
}

fn lengths(table: &str, key: &[u8]) -> [u8; 16] {
    let mut lengths = [0; 16];
    let (front, back) = lengths.split_at_mut(8);
    front.copy_from_slice(&(table.len() as u64).to_le_bytes());
    back.copy_from_slice(&(key.len() as u64).to_le_bytes());
    lengths
}

fn first(hash: &blake3::Hash) -> [u8; SUM_BYTES] {
    let mut sum = [0; SUM_BYTES];
    for (out, byte) in sum.iter_mut().zip(hash.as_bytes()) {
        *out = *byte;
    }
    sum
}

/// Puts the checksum behind a value.
pub(super) fn seal(table: &str, key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
    let sum = sum(table, key, &value);
    value.extend_from_slice(&sum);
    value
}

/// Puts the checksum for long values behind a value.
pub(super) fn seal_long(table: &str, key: &[u8], value: &mut Vec<u8>) {
    let sum = sum_long(table, key, value);
    value.extend_from_slice(&sum);
}

/// The value before its checksum, if that is right.
pub(super) fn unseal<'a>(table: &str, key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], Torn> {
    unseal_as(stored, |value| sum(table, key, value))
}

/// The value before its checksum for long values, if that is right.
pub(super) fn unseal_long<'a>(table: &str, key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], Torn> {
    unseal_as(stored, |value| sum_long(table, key, value))
}

fn unseal_as(stored: &[u8], sum: impl Fn(&[u8]) -> [u8; SUM_BYTES]) -> Result<&[u8], Torn> {
    let at = stored.len().checked_sub(SUM_BYTES);
    let (value, stored_sum) = at.and_then(|at| stored.split_at_checked(at)).ok_or("cut short")?;
    if sum(value) == stored_sum || planted(Broken::SkipChecksum) {
        Ok(value)
    } else {
        Err("its checksum does not match")
    }
}

/// A value being written.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    pub(super) fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    pub(super) fn integer(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    pub(super) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.integer(text.len() as u64).fixed(text.as_bytes())
    }
}

/// A value being read.
#[derive(Debug)]
pub(super) struct In<'a>(pub(super) &'a [u8]);

impl<'a> In<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Torn> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Torn> {
        self.take(N)?.try_into().map_err(|_| "cut short")
    }

    pub(super) fn byte(&mut self) -> Result<u8, Torn> {
        let [byte] = self.fixed()?;
        Ok(byte)
    }

    pub(super) fn integer(&mut self) -> Result<u64, Torn> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err("a number is too large");
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number is too long")
    }

    /// A count of things that take at least a byte each, so that no length is believed that the
    /// rest cannot hold.
    pub(super) fn count(&mut self) -> Result<usize, Torn> {
        let count = usize::try_from(self.integer()?).map_err(|_| "a count is too large")?;
        if count > self.0.len() {
            return Err("a count is too large");
        }
        Ok(count)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Torn> {
        let length = self.count()?;
        std::str::from_utf8(self.take(length)?).map_err(|_| "a text is not UTF-8")
    }

    pub(super) fn shared(&mut self) -> Result<Arc<str>, Torn> {
        Ok(self.text()?.into())
    }

    pub(super) fn end(&self) -> Result<(), Torn> {
        if self.0.is_empty() { Ok(()) } else { Err("there is something behind it") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip_and_hostile_ones_are_errors() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Out::default();
            out.integer(value);
            let mut back = In(&out.0);
            assert_eq!(back.integer(), Ok(value));
            assert!(back.end().is_ok());
        }
        assert!(In(&[0x80; 10]).integer().is_err());
        assert!(
            In(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).integer().is_err()
        );
        assert!(In(&[0x80]).integer().is_err());
        assert!(In(&[0xff, 0xff, 0x03, 1]).count().is_err());
    }

    fn long(table: &str, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut stored = value.to_vec();
        seal_long(table, key, &mut stored);
        stored
    }

    #[test]
    fn a_value_is_bound_to_its_table_and_key() {
        type Unseal = for<'a> fn(&str, &[u8], &'a [u8]) -> Result<&'a [u8], Torn>;
        let short = (seal("t", b"k", b"value".to_vec()), unseal as Unseal);
        let long = (long("t", b"k", b"value"), unseal_long as Unseal);
        assert_ne!(short.0, long.0);
        for (stored, unseal) in [short, long] {
            assert_eq!(unseal("t", b"k", &stored), Ok(&b"value"[..]));
            assert!(unseal("u", b"k", &stored).is_err());
            assert!(unseal("t", b"l", &stored).is_err());
            assert!(unseal("tk", b"", &stored).is_err());
            for at in 0..stored.len() {
                let mut changed = stored.clone();
                changed[at] ^= 0x10;
                assert!(unseal("t", b"k", &changed).is_err());
                assert!(unseal("t", b"k", &stored[..at]).is_err());
            }
        }
    }

    #[test]
    fn a_long_value_does_not_run_into_what_it_is_bound_to() {
        let stored = long("t", b"k", b"value");
        for (table, key, value) in [("e", &b"tk"[..], &b"valu"[..]), ("t", &b""[..], b"valuet")] {
            let other = long(table, key, value);
            assert_ne!(other[value.len()..], stored[5..]);
        }
    }
}
