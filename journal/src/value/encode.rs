//! Values into MessagePack, with the limits checked while it is written.

use serde::{Serialize, de::DeserializeOwned};

use super::{
    canonical::{Numbers, comparable},
    error::{ValueError, ValueErrorKind},
    serializer::Serializer,
    sink::{self, Buffer, Mark, Open, Sink, Written, slice},
    view,
    walk::{EXT_I128, EXT_U128, Int},
};
use crate::limits::ValueLimits;

/// Writes `value` as MessagePack with named fields.
///
/// What the bytes cannot keep is refused here, at the first write, and never changed silently:
/// `Some(None)`, `Some(())`, and maps that hold a key twice. The rest comes back from
/// [`decode`](super::decode) as it was, floats bit for bit.
///
/// Integers are written in their shortest form. Those beyond 64 bits take an extension type of 16
/// bytes, big-endian: type 1 for an `i128`, type 2 for a `u128` above `i128::MAX`. They come back
/// exactly, except where serde reads no 128-bit integers at all, large or small: inside untagged
/// and internally tagged enums and flattened fields. Reading those is an error, which
/// [`encode_exact`](super::encode_exact) finds at the write.
///
/// # Errors
/// Deeper or larger than `limits`, a value that would change, a repeated key, or an error of the
/// value's own `Serialize` code.
pub fn encode<T: Serialize + ?Sized>(
    value: &T,
    limits: &ValueLimits,
) -> Result<Vec<u8>, ValueError> {
    let mut sink = Msgpack::new(limits);
    value.serialize(Serializer::new(&mut sink))?;
    Ok(sink.into_bytes())
}

/// Writes `value` and reads it back: the bytes, and the value that every replay will get.
///
/// This catches what no look at the bytes can: variants of an untagged enum that are read as
/// another, 128-bit integers where serde does not read them, fields that are written and skipped
/// when read, `Serialize` and `Deserialize` code that disagree.
///
/// ```
/// use deedbook_journal::{limits::ValueLimits, value};
/// #[derive(serde::Serialize, serde::Deserialize)]
/// #[serde(untagged)]
/// enum Amount { Exact(f64), Whole(i64) }
/// let limits = ValueLimits::new();
/// assert!(value::encode_exact(&Amount::Exact(0.5), &limits).is_ok());
/// // Would come back as `Exact(1.0)`.
/// assert!(value::encode_exact(&Amount::Whole(1), &limits).is_err());
/// ```
///
/// # Errors
/// As [`encode`], and where the value read back would be written differently.
pub fn encode_exact<T: Serialize + DeserializeOwned>(
    value: &T,
    limits: &ValueLimits,
) -> Result<(Vec<u8>, T), ValueError> {
    let bytes = encode(value, limits)?;
    let read = super::decode(&bytes, limits).map_err(ValueError::unreadable)?;
    let again = encode(&read, limits).map_err(ValueError::unreadable)?;
    // Maps without an order are written in another order each time.
    let same = bytes == again
        || comparable(&bytes, Numbers::TypeAndBits)? == comparable(&again, Numbers::TypeAndBits)?;
    if same {
        return Ok((bytes, read));
    }
    Err(changed(&bytes, &again))
}

fn changed(bytes: &[u8], again: &[u8]) -> ValueError {
    let message = "it is read back as another value; make `Serialize` and `Deserialize` agree, \
                   or tag the enum";
    let error = ValueError::new(ValueErrorKind::WouldChange, message);
    match super::diff(bytes, again, &[String::new()]).first() {
        Some(difference) => error.under(&difference.path),
        None => error,
    }
}

/// A [`Sink`] that writes MessagePack in its shortest form.
pub(crate) struct Msgpack {
    buffer: Buffer,
}

impl Msgpack {
    pub(crate) fn new(limits: &ValueLimits) -> Self {
        Self { buffer: sink::buffer(limits) }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.buffer.out
    }

    /// Writes a head of `class` with a length: the short form below `short_max`, then 8, 16 and
    /// 32 bits, where a class has them.
    #[inline]
    fn head(&mut self, class: &Class, length: usize, body: &[u8]) -> Written {
        let (head, used) = class.head(length)?;
        self.buffer.put(slice(&head, 0..used), body)
    }

    fn close(&mut self, class: &Class, open: Open, count: usize) -> Written {
        if open.hint != Some(count) {
            let (_, old_used) = class.head(open.hint.unwrap_or(0))?;
            let (new, used) = class.head(count)?;
            self.buffer.room(used.saturating_sub(old_used))?;
            let head = slice(&new, 0..used).iter().copied();
            self.buffer.out.splice(open.at..open.at + old_used, head);
        }
        self.buffer.leave(open);
        Ok(())
    }
}

/// How MessagePack writes the length of one type.
struct Class {
    short: u8,
    short_end: usize,
    bits8: Option<u8>,
    bits16: u8,
}

const TEXT: Class = Class { short: 0xa0, short_end: 32, bits8: Some(0xd9), bits16: 0xda };
const BYTES: Class = Class { short: 0, short_end: 0, bits8: Some(0xc4), bits16: 0xc5 };
const ARRAY: Class = Class { short: 0x90, short_end: 16, bits8: None, bits16: 0xdc };
const MAP: Class = Class { short: 0x80, short_end: 16, bits8: None, bits16: 0xde };

impl Class {
    #[inline]
    fn head(&self, length: usize) -> Result<([u8; 5], usize), ValueError> {
        let wide = u32::try_from(length).map_err(|_| ValueError::too_large(u32::MAX as usize))?;
        let [a, b, c, d] = wide.to_be_bytes();
        Ok(match (self.bits8, length) {
            (_, n) if n < self.short_end => ([self.short | d, 0, 0, 0, 0], 1),
            (Some(marker), 0..=0xff) => ([marker, d, 0, 0, 0], 2),
            (_, 0..=0xffff) => ([self.bits16, c, d, 0, 0], 3),
            _ => ([self.bits16 + 1, a, b, c, d], 5),
        })
    }
}

impl Sink for Msgpack {
    #[inline]
    fn buffer(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
    #[inline]
    fn nil(&mut self) -> Written {
        self.buffer.put(&[0xc0], &[])
    }
    #[inline]
    fn boolean(&mut self, value: bool) -> Written {
        self.buffer.put(&[0xc2 | u8::from(value)], &[])
    }
    #[inline]
    fn int(&mut self, value: Int) -> Written {
        match value {
            Int::Pos(value) => match u64::try_from(value) {
                Ok(value) => self.unsigned(value),
                Err(_) => match i128::try_from(value) {
                    Ok(value) => self.ext(EXT_I128, &value.to_be_bytes()),
                    Err(_) => self.ext(EXT_U128, &value.to_be_bytes()),
                },
            },
            Int::Neg(value) => match i64::try_from(value) {
                Ok(value) => self.negative(value),
                Err(_) => self.ext(EXT_I128, &value.to_be_bytes()),
            },
        }
    }
    #[inline]
    fn f32(&mut self, value: f32) -> Written {
        self.buffer.put(&[0xca], &value.to_bits().to_be_bytes())
    }
    #[inline]
    fn f64(&mut self, value: f64) -> Written {
        self.buffer.put(&[0xcb], &value.to_bits().to_be_bytes())
    }
    #[inline]
    fn text(&mut self, value: &str) -> Written {
        match u8::try_from(value.len()) {
            // Names of fields, and most texts, are as short as this.
            Ok(length @ 0..=31) => self.buffer.put(&[0xa0 | length], value.as_bytes()),
            Ok(length) => self.buffer.put(&[0xd9, length], value.as_bytes()),
            Err(_) => self.head(&TEXT, value.len(), value.as_bytes()),
        }
    }
    #[inline]
    fn bytes(&mut self, value: &[u8]) -> Written {
        self.head(&BYTES, value.len(), value)
    }
    fn ext(&mut self, kind: i8, value: &[u8]) -> Written {
        let [kind] = kind.to_be_bytes();
        let wide =
            u32::try_from(value.len()).map_err(|_| ValueError::too_large(u32::MAX as usize))?;
        let [a, b, c, d] = wide.to_be_bytes();
        match value.len() {
            1 => self.buffer.put(&[0xd4, kind], value),
            2 => self.buffer.put(&[0xd5, kind], value),
            4 => self.buffer.put(&[0xd6, kind], value),
            8 => self.buffer.put(&[0xd7, kind], value),
            16 => self.buffer.put(&[0xd8, kind], value),
            0..=0xff => self.buffer.put(&[0xc7, d, kind], value),
            0x100..=0xffff => self.buffer.put(&[0xc8, c, d, kind], value),
            _ => self.buffer.put(&[0xc9, a, b, c, d, kind], value),
        }
    }
    #[inline]
    fn open_array(&mut self, hint: Option<usize>) -> Result<Open, ValueError> {
        let open = self.buffer.enter(hint)?;
        self.head(&ARRAY, hint.unwrap_or(0), &[])?;
        Ok(open)
    }
    #[inline]
    fn close_array(&mut self, open: Open, count: usize) -> Written {
        self.close(&ARRAY, open, count)
    }
    #[inline]
    fn open_map(&mut self, hint: Option<usize>) -> Result<Open, ValueError> {
        let open = self.buffer.enter(hint)?;
        self.head(&MAP, hint.unwrap_or(0), &[])?;
        Ok(open)
    }
    #[inline]
    fn close_map(&mut self, open: Open, count: usize, distinct: bool) -> Written {
        if !distinct && count > 1 {
            let (out, marks) = self.buffer.entries(open);
            if let Some(key) = repeated(out, marks) {
                return Err(sink::duplicate(Self::shown_key(key)));
            }
        }
        self.close(&MAP, open, count)
    }
    fn shown_key(key: &[u8]) -> String {
        view::shown_key(key)
    }
}

impl Msgpack {
    #[inline]
    fn unsigned(&mut self, value: u64) -> Written {
        let [.., b4, b5, b6, b7] = value.to_be_bytes();
        match value {
            0..=0x7f => self.buffer.put(&[b7], &[]),
            0x80..=0xff => self.buffer.put(&[0xcc, b7], &[]),
            0x100..=0xffff => self.buffer.put(&[0xcd, b6, b7], &[]),
            0x1_0000..=0xffff_ffff => self.buffer.put(&[0xce, b4, b5, b6, b7], &[]),
            _ => self.buffer.put(&[0xcf], &value.to_be_bytes()),
        }
    }

    fn negative(&mut self, value: i64) -> Written {
        let [.., b4, b5, b6, b7] = value.to_be_bytes();
        match value {
            -32..=-1 => self.buffer.put(&[b7], &[]),
            -0x80..=-33 => self.buffer.put(&[0xd0, b7], &[]),
            -0x8000..=-0x81 => self.buffer.put(&[0xd1, b6, b7], &[]),
            -0x8000_0000..=-0x8001 => self.buffer.put(&[0xd2, b4, b5, b6, b7], &[]),
            _ => self.buffer.put(&[0xd3], &value.to_be_bytes()),
        }
    }
}

/// A key that occurs twice in one map.
fn repeated<'a>(out: &'a [u8], marks: &mut [Mark]) -> Option<&'a [u8]> {
    let key = |mark: &Mark| slice(out, mark.key());
    // Nearly always they differ in what is cheap to see.
    let seen = marks.iter().try_fold(0u64, |seen, mark| {
        let key = key(mark);
        let byte = |byte: Option<&u8>| byte.map_or(0, |byte| usize::from(*byte));
        let bit = (key.len() * 49 + byte(key.get(1)) * 7 + byte(key.last())) % 64;
        (seen >> bit & 1 == 0).then_some(seen | 1 << bit)
    });
    if seen.is_some() {
        return None;
    }
    if marks.len() <= 12 {
        let mut rest = &*marks;
        while let Some((first, others)) = rest.split_first() {
            if others.iter().any(|other| key(other) == key(first)) {
                return Some(key(first));
            }
            rest = others;
        }
        return None;
    }
    marks.sort_unstable_by(|a, b| key(a).cmp(key(b)));
    marks.windows(2).find_map(|pair| match pair {
        [a, b] if key(a) == key(b) => Some(key(a)),
        _ => None,
    })
}
