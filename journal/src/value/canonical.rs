//! Canonical form 1: one sequence of bytes for each value, whatever wrote it.
//!
//! Two values have the same canonical bytes exactly when they are the same value by the rules
//! below; fingerprints and identities by arguments stand on it. Every front end writes it the
//! same way; `tests/fixtures/canonical-v1.json` holds vectors.
//!
//! # The bytes
//!
//! The byte `01` (the version of the form), then one value. A value is a tag byte and its content;
//! `u32` stands for four bytes, big-endian.
//!
//! | tag | value | content |
//! | --- | --- | --- |
//! | `4e` `N` | nil: JSON `null`, `None`, `()` | - |
//! | `46` `F`, `54` `T` | false, true | - |
//! | `2b` `+` | integer of 0 and above, to 2^128 - 1 | one byte: count of magnitude bytes, 0 to 16; the magnitude, big-endian, no leading zero byte (0 has none) |
//! | `2d` `-` | integer below 0, from -2^127 | the magnitude in the same way |
//! | `44` `D` | any other finite number | the IEEE 754 binary64 bits, 8 bytes, big-endian |
//! | `53` `S` | text | `u32` count of bytes; the UTF-8, as it is: no normalisation |
//! | `42` `B` | bytes | `u32` count; the bytes |
//! | `41` `A` | array | `u32` count of elements; each element's value |
//! | `4d` `M` | map | `u32` count of entries; for each entry the key's value, then the value's, in ascending order of the key's bytes (all of them, tag first, compared as unsigned) |
//! | `58` `X` | MessagePack extension that Deedbook does not know | its type, 1 byte; `u32` count; the bytes |
//!
//! # The rules
//!
//! - *Numbers go by mathematical value.* A float that is an integer from -2^127 to 2^128 - 1 is
//!   written as that integer, so `120`, `120.0` and `1.2e2` are one value and `-0.0` is `0`. A
//!   32-bit float stands for the 64-bit float of exactly its value. NaN and the infinities are
//!   refused.
//! - *Types stay apart.* A bool is not a number, bytes are not text, the key `1` is not the key
//!   `"1"`, absent is not nil.
//! - *Duplicates are refused*, by canonical key: `1` and `1.0` are one key.
//! - A struct is the map of its field names; enums, options and unit types are as `encode` writes
//!   them. Array order matters; map order does not.
//! - Defaults are not filled in; whoever wants them filled does it before.

use serde::Serialize;

use super::{
    error::{ValueError, ValueErrorKind},
    serializer::Serializer,
    sink::{self, Buffer, Mark, Open, Sink, Written, slice},
    view,
    walk::{self, Int, Reader},
};
use crate::limits::ValueLimits;

/// The version of the canonical form, its first byte.
pub const VERSION: u8 = 1;

/// The canonical bytes of `value`, straight from its `Serialize` code.
///
/// Equal to [`of_msgpack`] of what [`encode`](super::encode) writes.
///
/// ```
/// use deedbook_journal::{limits::ValueLimits, value::canonical};
/// let limits = ValueLimits::new();
/// assert_eq!(canonical::of(&120u8, &limits)?, canonical::of(&120.0f64, &limits)?);
/// assert_ne!(canonical::of("120", &limits)?, canonical::of(&120, &limits)?);
/// assert!(canonical::of(&f64::NAN, &limits).is_err());
/// # Ok::<(), deedbook_journal::value::ValueError>(())
/// ```
///
/// # Errors
/// As [`encode`](super::encode), and for NaN, infinities and keys that are one number.
pub fn of<T: Serialize + ?Sized>(value: &T, limits: &ValueLimits) -> Result<Vec<u8>, ValueError> {
    let mut sink = Canonical::new(limits, Numbers::Value);
    value.serialize(Serializer::new(&mut sink))?;
    Ok(sink.buffer.out)
}

/// The canonical bytes of a value that is MessagePack already.
///
/// # Errors
/// As [`of`], and for bytes that are not one whole MessagePack value.
pub fn of_msgpack(bytes: &[u8], limits: &ValueLimits) -> Result<Vec<u8>, ValueError> {
    if bytes.len() > limits.bytes_max {
        return Err(ValueError::too_large(limits.bytes_max));
    }
    convert(bytes, limits, Numbers::Value)
}

/// As [`of_msgpack`] with other rules for numbers: for comparing, not for fingerprints.
pub(crate) fn comparable(bytes: &[u8], numbers: Numbers) -> Result<Vec<u8>, ValueError> {
    let limits = ValueLimits::new().depth_max(usize::MAX).bytes_max(usize::MAX);
    convert(bytes, &limits, numbers)
}

fn convert(bytes: &[u8], limits: &ValueLimits, numbers: Numbers) -> Result<Vec<u8>, ValueError> {
    let mut sink = Canonical::new(limits, numbers);
    let mut reader = Reader::new(bytes);
    sink::copy(&mut reader, &mut sink)?;
    reader.finish()?;
    Ok(sink.buffer.out)
}

/// What makes two numbers the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Their value; NaN and infinities are refused. The rule of the canonical form.
    Value,
    /// Their value, and NaN and infinities by their bits.
    ValueOrBits,
    /// Type and bits.
    TypeAndBits,
}

/// A [`Sink`] that writes canonical form 1.
struct Canonical {
    buffer: Buffer,
    numbers: Numbers,
    /// Reused while maps are put in order.
    sorted: Vec<u8>,
}

impl Canonical {
    fn new(limits: &ValueLimits, numbers: Numbers) -> Self {
        // No value grows more than fivefold from MessagePack, so that every value within the
        // limit has a canonical form.
        let bytes_max = limits.bytes_max.saturating_mul(5).saturating_add(1);
        let mut buffer = Buffer::new(walk::depth_max(limits), bytes_max);
        buffer.out.push(VERSION);
        Self { buffer, numbers, sorted: Vec::new() }
    }

    #[inline]
    fn head(&mut self, tag: u8, length: usize, body: &[u8]) -> Written {
        let wide = u32::try_from(length).map_err(|_| ValueError::too_large(u32::MAX as usize))?;
        let [a, b, c, d] = wide.to_be_bytes();
        self.buffer.put(&[tag, a, b, c, d], body)
    }

    fn close(&mut self, tag: u8, open: Open, count: usize) -> Written {
        if open.hint != Some(count) {
            let wide =
                u32::try_from(count).map_err(|_| ValueError::too_large(u32::MAX as usize))?;
            let [a, b, c, d] = wide.to_be_bytes();
            if let Some(head) = self.buffer.out.get_mut(open.at..open.at + 5) {
                head.copy_from_slice(&[tag, a, b, c, d]);
            }
        }
        self.buffer.leave(open);
        Ok(())
    }
}

/// The integer that `value` is, if it is one of the 128-bit range.
fn integer(value: f64) -> Option<Int> {
    // 2^127 and 2^128, exactly.
    const TWO_127: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    const TWO_128: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0;
    if value.trunc() != value {
        return None;
    }
    if (0.0..TWO_128).contains(&value) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number from 0 to below 2^128, so the cast is exact"
        )]
        return Some(Int::Pos(value as u128));
    }
    if (-TWO_127..0.0).contains(&value) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a whole number from -2^127 to below 0, so the cast is exact"
        )]
        return Some(Int::Neg(value as i128));
    }
    None
}

impl Sink for Canonical {
    #[inline]
    fn buffer(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
    #[inline]
    fn nil(&mut self) -> Written {
        self.buffer.put(b"N", &[])
    }
    #[inline]
    fn boolean(&mut self, value: bool) -> Written {
        self.buffer.put(if value { b"T" } else { b"F" }, &[])
    }
    #[inline]
    fn int(&mut self, value: Int) -> Written {
        let (tag, magnitude) = match value {
            Int::Pos(value) => (b'+', value),
            Int::Neg(value) => (b'-', value.unsigned_abs()),
        };
        let bytes = magnitude.to_be_bytes();
        let zeros = (magnitude.leading_zeros() / 8) as usize;
        let significant = bytes.get(zeros..).unwrap_or_default();
        let count = significant.len().to_be_bytes();
        self.buffer.put(&[tag, count.last().copied().unwrap_or(0)], significant)
    }
    #[inline]
    fn f32(&mut self, value: f32) -> Written {
        match self.numbers {
            Numbers::TypeAndBits => self.buffer.put(b"d", &value.to_bits().to_be_bytes()),
            _ => self.f64(widen(value)),
        }
    }
    #[inline]
    fn f64(&mut self, value: f64) -> Written {
        if let Some(value) = integer(value)
            && self.numbers != Numbers::TypeAndBits
        {
            return self.int(value);
        }
        if !value.is_finite() && self.numbers == Numbers::Value {
            let what = if value.is_nan() { "NaN" } else { "an infinity" };
            let message = format!("{what} has no canonical form; pass an option or text instead");
            return Err(ValueError::new(ValueErrorKind::NotCanonical, message));
        }
        self.buffer.put(b"D", &value.to_bits().to_be_bytes())
    }
    #[inline]
    fn text(&mut self, value: &str) -> Written {
        self.head(b'S', value.len(), value.as_bytes())
    }
    #[inline]
    fn bytes(&mut self, value: &[u8]) -> Written {
        self.head(b'B', value.len(), value)
    }
    fn ext(&mut self, kind: i8, value: &[u8]) -> Written {
        let [kind] = kind.to_be_bytes();
        let wide =
            u32::try_from(value.len()).map_err(|_| ValueError::too_large(u32::MAX as usize))?;
        let [a, b, c, d] = wide.to_be_bytes();
        self.buffer.put(&[b'X', kind, a, b, c, d], value)
    }
    #[inline]
    fn open_array(&mut self, hint: Option<usize>) -> Result<Open, ValueError> {
        let open = self.buffer.enter(hint)?;
        self.head(b'A', hint.unwrap_or(0), &[])?;
        Ok(open)
    }
    #[inline]
    fn close_array(&mut self, open: Open, count: usize) -> Written {
        self.close(b'A', open, count)
    }
    #[inline]
    fn open_map(&mut self, hint: Option<usize>) -> Result<Open, ValueError> {
        let open = self.buffer.enter(hint)?;
        self.head(b'M', hint.unwrap_or(0), &[])?;
        Ok(open)
    }
    #[inline]
    fn close_map(&mut self, open: Open, count: usize, _distinct: bool) -> Written {
        let (out, marks) = self.buffer.entries(open);
        sort(out, marks, &mut self.sorted).map_err(|key| sink::duplicate(Self::shown_key(&key)))?;
        self.close(b'M', open, count)
    }
    fn shown_key(key: &[u8]) -> String {
        match key.split_first() {
            Some((b'S', text)) => String::from_utf8_lossy(slice(text, 4..text.len())).into(),
            Some((tag @ (b'+' | b'-'), number)) => {
                let digits = number.iter().skip(1).fold(0u128, |n, b| n << 8 | u128::from(*b));
                let sign = if *tag == b'-' { "-" } else { "" };
                format!("{sign}{digits}")
            }
            Some((b'T', _)) => "true".into(),
            Some((b'F', _)) => "false".into(),
            Some((b'N', _)) => "null".into(),
            _ => view::base64(key),
        }
    }
}

/// Puts the entries of a map in the order of their keys; answers a key that occurs twice.
fn sort(out: &mut Vec<u8>, marks: &mut [Mark], sorted: &mut Vec<u8>) -> Result<(), Vec<u8>> {
    let Some(first) = marks.first().map(|mark| mark.key) else {
        return Ok(());
    };
    let bytes = out.as_slice();
    let key = |mark: &Mark| slice(bytes, mark.key());
    if marks.is_sorted_by(|a, b| key(a) < key(b)) {
        return Ok(());
    }
    marks.sort_unstable_by(|a, b| key(a).cmp(key(b)));
    for pair in marks.windows(2) {
        if let [a, b] = pair
            && key(a) == key(b)
        {
            return Err(key(a).to_vec());
        }
    }
    sorted.clear();
    for mark in marks.iter() {
        sorted.extend_from_slice(slice(bytes, mark.key..mark.end));
    }
    out.truncate(first);
    out.extend_from_slice(sorted);
    Ok(())
}

/// The 64-bit float of the same value; a NaN keeps its bits, which a cast need not.
pub(crate) fn widen(value: f32) -> f64 {
    if !value.is_nan() {
        return value.into();
    }
    let bits = u64::from(value.to_bits());
    f64::from_bits((bits >> 31) << 63 | 0x7ff << 52 | (bits & 0x007f_ffff) << 29)
}
