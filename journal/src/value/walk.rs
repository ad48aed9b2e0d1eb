//! The one reader of MessagePack: a token walker that never recurses and never panics.
//!
//! Decoding, canonical form, diff and view all stand on [`Reader`].

use super::error::{ValueError, ValueErrorKind};
use crate::limits::ValueLimits;

/// Type of the extension that holds an `i128` outside the 64-bit range: 16 bytes, big-endian,
/// two's complement.
pub const EXT_I128: i8 = 1;

/// Type of the extension that holds a `u128` above `i128::MAX`: 16 bytes, big-endian.
pub const EXT_U128: i8 = 2;

/// The deepest nesting that is ever read or written, whatever the limits say: a debug build
/// decodes 128 levels on a 2 MiB stack with a wide margin.
const DEPTH_CEILING: usize = 128;

pub(crate) fn depth_max(limits: &ValueLimits) -> usize {
    limits.depth_max.min(DEPTH_CEILING)
}

/// An integer of up to 128 bits, in one form for each value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Int {
    /// Zero and above.
    Pos(u128),
    /// Below zero.
    Neg(i128),
}

impl From<i128> for Int {
    fn from(value: i128) -> Self {
        u128::try_from(value).map_or(Self::Neg(value), Self::Pos)
    }
}

impl std::fmt::Display for Int {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pos(value) => value.fmt(f),
            Self::Neg(value) => value.fmt(f),
        }
    }
}

/// One MessagePack token. Containers are followed by their elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Token<'a> {
    Nil,
    Bool(bool),
    Int(Int),
    F32(f32),
    F64(f64),
    Text(&'a str),
    /// A string that is not UTF-8: other programs can write one, this one cannot.
    BadText(&'a [u8]),
    Bytes(&'a [u8]),
    Ext(i8, &'a [u8]),
    /// So many elements follow.
    Array(usize),
    /// So many pairs follow.
    Map(usize),
}

/// Reads tokens from bytes, checking every length against what is left.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The token at the front, left in place.
    pub(crate) fn peek(&self) -> Result<Token<'a>, ValueError> {
        self.clone().next()
    }

    /// The next byte, left in place: enough to tell nil.
    #[inline]
    pub(crate) fn is_nil(&self) -> bool {
        self.rest.first() == Some(&0xc0)
    }

    /// The text at the front. Anything else, and text that is not UTF-8, is left in place.
    #[inline]
    pub(crate) fn take_text(&mut self) -> Option<&'a str> {
        let (marker, rest) = self.rest.split_first()?;
        let (length, rest) = match marker {
            0xa0..=0xbf => (marker & 0x1f, rest),
            0xd9 => rest.split_first().map(|(length, rest)| (*length, rest))?,
            _ => return None,
        };
        let (text, rest) = rest.split_at_checked(length.into())?;
        let text = std::str::from_utf8(text).ok()?;
        self.rest = rest;
        Some(text)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<Token<'a>, ValueError> {
        Ok(match self.raw()? {
            Token::BadText(bytes) => {
                std::str::from_utf8(bytes).map_or(Token::BadText(bytes), Token::Text)
            }
            token => token,
        })
    }

    /// The next token, with every text as [`Token::BadText`]: nobody has looked at it yet.
    fn raw(&mut self) -> Result<Token<'a>, ValueError> {
        let [marker] = self.array()?;
        Ok(match marker {
            0x00..=0x7f => Token::Int(Int::Pos(marker.into())),
            0x80..=0x8f => self.map((marker & 0x0f).into())?,
            0x90..=0x9f => self.list((marker & 0x0f).into())?,
            0xa0..=0xbf => self.text((marker & 0x1f).into())?,
            0xc0 => Token::Nil,
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4)?;
                Token::Bytes(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(marker - 0xc7)?;
                self.ext(length)?
            }
            0xca => Token::F32(f32::from_bits(u32::from_be_bytes(self.array()?))),
            0xcb => Token::F64(f64::from_bits(u64::from_be_bytes(self.array()?))),
            0xcc => Token::Int(Int::Pos(u8::from_be_bytes(self.array()?).into())),
            0xcd => Token::Int(Int::Pos(u16::from_be_bytes(self.array()?).into())),
            0xce => Token::Int(Int::Pos(u32::from_be_bytes(self.array()?).into())),
            0xcf => Token::Int(Int::Pos(u64::from_be_bytes(self.array()?).into())),
            0xd0 => Token::Int(i128::from(i8::from_be_bytes(self.array()?)).into()),
            0xd1 => Token::Int(i128::from(i16::from_be_bytes(self.array()?)).into()),
            0xd2 => Token::Int(i128::from(i32::from_be_bytes(self.array()?)).into()),
            0xd3 => Token::Int(i128::from(i64::from_be_bytes(self.array()?)).into()),
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                self.text(length)?
            }
            0xdc | 0xdd => {
                let length = self.length(marker - 0xdc + 1)?;
                self.list(length)?
            }
            0xde | 0xdf => {
                let length = self.length(marker - 0xde + 1)?;
                self.map(length)?
            }
            0xe0..=0xff => Token::Int(Int::Neg(i8::from_be_bytes([marker]).into())),
            0xc1 => return Err(malformed("the marker byte 0xc1 has no meaning")),
        })
    }

    /// Passes over a token; answers how many values a container holds. As [`raw`](Self::raw), for
    /// those that need not know what it is.
    #[inline]
    fn pass(&mut self) -> Result<Option<usize>, ValueError> {
        let (marker, rest) = self.rest.split_first().ok_or_else(cut_short)?;
        // Flat values are made of these.
        let length = match marker {
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => 0,
            0xa0..=0xbf => usize::from(marker & 0x1f),
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 => 2,
            0xca | 0xce | 0xd2 => 4,
            0xcb | 0xcf | 0xd3 => 8,
            0xd9 => 1 + usize::from(*rest.first().ok_or_else(cut_short)?),
            _ => {
                return Ok(match self.raw()? {
                    Token::Array(count) => Some(count),
                    Token::Map(count) => Some(count.saturating_mul(2)),
                    _ => None,
                });
            }
        };
        self.rest = rest.get(length..).ok_or_else(cut_short)?;
        Ok(None)
    }

    /// Passes over one whole value, however deep, without recursion.
    pub(crate) fn skip(&mut self) -> Result<(), ValueError> {
        let mut pending = 1usize;
        while pending > 0 {
            pending -= 1;
            let inside = match self.raw()? {
                Token::Array(count) => count,
                Token::Map(count) => count.saturating_mul(2),
                _ => 0,
            };
            pending = pending.saturating_add(inside);
        }
        Ok(())
    }

    /// The bytes of the next value, which is passed over.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], ValueError> {
        let before = self.rest;
        self.skip()?;
        let length = before.len() - self.rest.len();
        Ok(before.get(..length).unwrap_or_default())
    }

    /// What is not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Refuses bytes behind the value that was read.
    pub(crate) fn finish(&self) -> Result<(), ValueError> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(malformed(format!("{n} bytes follow its end"))),
        }
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], ValueError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ValueError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A length of 1, 2 or 4 bytes, by size class 0, 1 or 2.
    #[inline]
    fn length(&mut self, class: u8) -> Result<usize, ValueError> {
        let length = match class {
            0 => u8::from_be_bytes(self.array()?).into(),
            1 => u16::from_be_bytes(self.array()?).into(),
            _ => u32::from_be_bytes(self.array()?),
        };
        usize::try_from(length).map_err(|_| cut_short())
    }

    #[inline]
    fn text(&mut self, length: usize) -> Result<Token<'a>, ValueError> {
        Ok(Token::BadText(self.take(length)?))
    }

    fn ext(&mut self, length: usize) -> Result<Token<'a>, ValueError> {
        let kind = i8::from_be_bytes(self.array()?);
        let bytes = self.take(length)?;
        Ok(match (kind, <[u8; 16]>::try_from(bytes)) {
            (EXT_I128, Ok(bytes)) => Token::Int(i128::from_be_bytes(bytes).into()),
            (EXT_U128, Ok(bytes)) => Token::Int(Int::Pos(u128::from_be_bytes(bytes))),
            _ => Token::Ext(kind, bytes),
        })
    }

    /// Every element takes a byte at least, so a count beyond what is left is a lie.
    #[inline]
    fn list(&mut self, count: usize) -> Result<Token<'a>, ValueError> {
        if count > self.rest.len() {
            return Err(cut_short());
        }
        Ok(Token::Array(count))
    }

    #[inline]
    fn map(&mut self, count: usize) -> Result<Token<'a>, ValueError> {
        if count > self.rest.len() / 2 {
            return Err(cut_short());
        }
        Ok(Token::Map(count))
    }
}

/// Whether `bytes` are one whole MessagePack value within `limits`: structure, depth, size and
/// every length, without recursion and without decoding.
///
/// # Errors
/// Too deep, too large, cut short, unknown markers, or bytes behind the value.
pub fn check(bytes: &[u8], limits: &ValueLimits) -> Result<(), ValueError> {
    if bytes.len() > limits.bytes_max {
        return Err(ValueError::too_large(limits.bytes_max));
    }
    let mut reader = Reader::new(bytes);
    let depth_max = depth_max(limits);
    // How many containers are open, what is still to come in the innermost, and the same for those
    // around it in which something is still to come. Most values are flat and need none of these.
    let (mut depth, mut left) = (0, 1usize);
    let mut around: Vec<(usize, usize)> = Vec::new();
    loop {
        while left == 0 {
            match around.pop() {
                Some(outer) => (depth, left) = outer,
                None => return reader.finish(),
            }
        }
        left -= 1;
        if let Some(inside) = reader.pass()? {
            if depth >= depth_max {
                return Err(ValueError::too_deep(depth_max));
            }
            if left > 0 {
                around.push((depth, left));
            }
            (depth, left) = (depth + 1, inside);
        }
    }
}

fn malformed(why: impl std::fmt::Display) -> ValueError {
    ValueError::new(
        ValueErrorKind::Malformed,
        format!("its bytes are not one MessagePack value: {why}; the writer or the store is wrong"),
    )
}

fn cut_short() -> ValueError {
    malformed("they end too early")
}
