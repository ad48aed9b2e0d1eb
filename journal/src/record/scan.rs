//! Scanning header JSON: no more checks than it takes never to read past it.

use std::borrow::Cow;

use super::{
    json::{self, Expected},
    kind::Kind,
};
use crate::{digits, id::StoreTime, policy::Policy};

/// A text in a header as it stands there, or one in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Text<'a> {
    bytes: &'a [u8],
    /// Whether it holds escapes.
    escaped: bool,
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), escaped: false }
    }
}

impl<'a> Text<'a> {
    /// Whether it is this word.
    #[inline]
    pub(crate) fn is(self, word: &str) -> bool {
        match self.escaped {
            false => self.bytes == word.as_bytes(),
            true => self.read().is_ok_and(|text| text == word),
        }
    }

    /// The text, without escapes.
    #[inline]
    pub(crate) fn read(self) -> Result<Cow<'a, str>, Expected> {
        if self.escaped {
            return json::unescape(self.bytes).map(Cow::Owned);
        }
        std::str::from_utf8(self.bytes).map(Cow::Borrowed).map_err(|_| "valid UTF-8")
    }
}

/// What of a header is not scanned yet.
pub(super) struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Passes over this byte, if it is the next one.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    #[inline]
    pub(super) fn expect(&mut self, byte: u8, what: Expected) -> Result<(), Expected> {
        if self.take(byte) { Ok(()) } else { Err(what) }
    }

    /// Passes over these bytes, if they are the next ones.
    #[inline]
    pub(super) fn pass<const N: usize>(&mut self, word: &[u8; N]) -> bool {
        match self.rest.split_first_chunk() {
            Some((first, rest)) if first == word => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// A kind; those of steps, which are nearly all, before any other.
    #[inline]
    pub(super) fn kind(&mut self) -> Result<Kind, Expected> {
        if self.pass(b"\"step.intent\"") {
            Ok(Kind::StepIntent)
        } else if self.pass(b"\"step.done\"") {
            Ok(Kind::StepDone)
        } else {
            self.text()?.read().map(|word| Kind::from_word(&word))
        }
    }

    #[inline]
    pub(super) fn policy(&mut self) -> Result<Policy, Expected> {
        if self.pass(b"\"idempotent\"") {
            return Ok(Policy::Idempotent);
        }
        if self.pass(b"\"read\"") {
            return Ok(Policy::Read);
        }
        let word = self.text()?;
        let policies = [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce];
        let policy = policies.into_iter().find(|policy| word.is(policy.as_str()));
        policy.ok_or("a known policy in `pol`")
    }

    #[inline]
    fn word<const N: usize>(&mut self, word: &[u8; N], what: Expected) -> Result<(), Expected> {
        if self.pass(word) { Ok(()) } else { Err(what) }
    }

    /// The name of the next member, and the colon behind it. Names that are known have no escapes.
    #[inline]
    pub(super) fn name(&mut self) -> Result<&'a [u8], Expected> {
        let name = self.text()?;
        self.expect(b':', "a colon")?;
        Ok(name.bytes)
    }

    #[inline]
    pub(super) fn text(&mut self) -> Result<Text<'a>, Expected> {
        self.expect(b'"', "a string")?;
        let all = self.rest;
        let mut length = plain_length(all);
        let mut escaped = false;
        loop {
            match all.get(length..) {
                Some([b'"', rest @ ..]) => {
                    self.rest = rest;
                    let bytes = all.get(..length).unwrap_or_default();
                    return Ok(Text { bytes, escaped });
                }
                // Whatever is escaped does not end the string.
                Some([b'\\', _, rest @ ..]) => {
                    escaped = true;
                    length += 2 + plain_length(rest);
                }
                _ => return Err("the end of a string"),
            }
        }
    }

    #[inline]
    pub(super) fn integer(&mut self) -> Result<u64, Expected> {
        const WHAT: Expected = "an integer up to 2^53 - 1";
        // Many are counts of one.
        if let [digit @ b'0'..=b'9', b',' | b'}', ..] = self.rest {
            self.rest = self.rest.get(1..).unwrap_or_default();
            return Ok((digit - b'0').into());
        }
        let (digits, mut value) = match self.rest.first_chunk() {
            Some(eight) => digits::leading(*eight),
            None => (0, 0),
        };
        let mut rest = self.rest.get(digits..).unwrap_or_default();
        while let [digit @ b'0'..=b'9', behind @ ..] = rest {
            if value >= 1 << 53 {
                return Err(WHAT);
            }
            value = value * 10 + u64::from(digit - b'0');
            rest = behind;
        }
        if rest.len() == self.rest.len() || value >= 1 << 53 {
            return Err(WHAT);
        }
        self.rest = rest;
        Ok(value)
    }

    #[inline]
    pub(super) fn small(&mut self) -> Result<u32, Expected> {
        u32::try_from(self.integer()?).map_err(|_| "a number below 2^32")
    }

    #[inline]
    pub(super) fn boolean(&mut self) -> Result<bool, Expected> {
        match self.word(b"true", "true") {
            Ok(()) => Ok(true),
            Err(_) => self.word(b"false", "a boolean").map(|()| false),
        }
    }

    #[inline]
    pub(super) fn time(&mut self) -> Result<StoreTime, Expected> {
        const WHAT: Expected = "an RFC 3339 time with nine digits";
        match self.rest.split_first_chunk::<32>() {
            Some(([b'"', text @ .., b'"'], rest)) => {
                self.rest = rest;
                StoreTime::from_text(text).ok_or(WHAT)
            }
            _ => Err(WHAT),
        }
    }

    /// Passes over what commits to a payload, behind its role: encoding, length, hash.
    #[inline]
    pub(super) fn pass_commitment(&mut self) -> Result<(), Expected> {
        const WHAT: Expected = "an encoding, a length and a hash in `pay`";
        self.word(b"[\"msgpack\",", WHAT)?;
        self.integer()?;
        match self.rest.split_first_chunk::<68>() {
            Some(([b',', b'"', .., b'"', b']'], rest)) => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(WHAT),
        }
    }

    /// Lets the strict reader read a value; answers the bytes of it.
    pub(super) fn strictly(
        &mut self,
        read: impl FnOnce(&mut json::Reader<'a>) -> Result<(), Expected>,
    ) -> Result<&'a [u8], Expected> {
        let before = self.rest;
        let mut reader = json::Reader::new(before)?;
        read(&mut reader)?;
        self.rest = reader.rest();
        Ok(before.get(..before.len() - self.rest.len()).unwrap_or_default())
    }
}

/// How many bytes stand before the first quote or backslash. Eight at once, as headers are mostly
/// texts.
#[inline]
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 128;
    // The high bit of the lowest byte that is zero is set, and none below it is.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut length = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let found = zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return length + (found.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    let marks = |b: &u8| *b == b'"' || *b == b'\\';
    length + rest.iter().position(marks).unwrap_or(rest.len())
}
