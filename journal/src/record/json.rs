//! Just as much JSON as headers use: RFC 8785 restricted to strings, booleans, null, arrays,
//! objects and integers up to 2^53 - 1.

use std::borrow::Cow;

/// Deepest nesting that a header may have; ours have three levels.
const DEPTH_MAX: usize = 16;

/// Writes a string as RFC 8785 section 3.2.2.2 says.
pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, tail) = rest.split_at(plain_length(rest));
        out.extend_from_slice(plain);
        let [byte, tail @ ..] = tail else { break };
        write_escape(out, *byte);
        rest = tail;
    }
    out.push(b'"');
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x09 => b't',
        0x0a => b'n',
        0x0c => b'f',
        0x0d => b'r',
        _ => {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// How many bytes stand before the first one that a string ends at or escapes: below a space, a
/// quote or a backslash. Headers are mostly strings, so it looks at eight bytes at once.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 128;
    // The high bit of the lowest byte below `least` is set, and none below it is.
    let below = |word: u64, least: u64| word.wrapping_sub(ONES * least) & !word & HIGHS;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = below(word, 0x20) | quote | backslash;
        if found != 0 {
            return at * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let marks = |b: &u8| *b < 0x20 || *b == b'"' || *b == b'\\';
    bytes.len() - rest.len() + rest.iter().position(marks).unwrap_or(rest.len())
}

/// The text that stands between the quotes of a string.
pub(super) fn unescape(bytes: &[u8]) -> Result<String, Expected> {
    let mut reader = Reader::new(bytes)?;
    let mut text = reader.plain()?.to_owned();
    while !reader.at_end() {
        reader.expect(b'\\', "the end of a string")?;
        text.push(reader.escape()?);
        text.push_str(reader.plain()?);
    }
    Ok(text)
}

/// Reads header JSON from front to back, without building a tree.
pub(super) struct Reader<'a> {
    rest: &'a str,
}

/// What a [`Reader`] did not find.
pub(super) type Expected = &'static str;

impl<'a> Reader<'a> {
    /// A reader of these bytes, which must be UTF-8.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Expected> {
        let rest = std::str::from_utf8(bytes).map_err(|_| "valid UTF-8")?;
        Ok(Self { rest })
    }

    /// What is not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest.as_bytes()
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.rest.as_bytes().first() == Some(&byte);
        if found {
            // What is taken is ASCII, so that a character begins behind it.
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        found
    }

    fn expect(&mut self, byte: u8, what: Expected) -> Result<(), Expected> {
        if self.take(byte) { Ok(()) } else { Err(what) }
    }

    fn literal(&mut self, word: &str, what: Expected) -> Result<(), Expected> {
        self.rest = self.rest.strip_prefix(word).ok_or(what)?;
        Ok(())
    }

    /// Reads an object, handing each member's name and a reader at its value to `member`.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&str, &mut Self) -> Result<(), Expected>,
    ) -> Result<(), Expected> {
        self.expect(b'{', "an object")?;
        if self.take(b'}') {
            return Ok(());
        }
        let mut last: Option<Cow<'a, str>> = None;
        loop {
            let name = self.string()?;
            if last.is_some_and(|last| *last >= *name) {
                return Err("members once each, in the order of their names");
            }
            self.expect(b':', "a colon")?;
            member(&name, self)?;
            if !self.take(b',') {
                return self.expect(b'}', "the end of an object");
            }
            last = Some(name);
        }
    }

    /// Reads an array, calling `item` at each item.
    pub(super) fn array(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), Expected>,
    ) -> Result<(), Expected> {
        self.expect(b'[', "an array")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.take(b',') {
                return self.expect(b']', "the end of an array");
            }
        }
    }

    /// Reads a comma between items that are read by hand.
    pub(super) fn comma(&mut self) -> Result<(), Expected> {
        self.expect(b',', "a comma")
    }

    pub(super) fn open_array(&mut self) -> Result<(), Expected> {
        self.expect(b'[', "an array")
    }

    pub(super) fn close_array(&mut self) -> Result<(), Expected> {
        self.expect(b']', "the end of an array")
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Expected> {
        if self.rest.starts_with("true") {
            self.literal("true", "true").map(|()| true)
        } else {
            self.literal("false", "a boolean").map(|()| false)
        }
    }

    pub(super) fn integer(&mut self) -> Result<u64, Expected> {
        const WHAT: Expected = "an integer up to 2^53 - 1";
        let bytes = self.rest.as_bytes();
        let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at_checked(digits).ok_or(WHAT)?;
        if digits == 0 || digits > 16 || (digits > 1 && number.starts_with('0')) {
            return Err(WHAT);
        }
        let value = number.bytes().fold(0u64, |v, d| v * 10 + u64::from(d - b'0'));
        if value >= 1 << 53 {
            return Err(WHAT);
        }
        self.rest = rest;
        Ok(value)
    }

    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, Expected> {
        self.expect(b'"', "a string")?;
        let text = self.plain()?;
        if self.take(b'"') {
            return Ok(Cow::Borrowed(text));
        }
        let mut owned = text.to_owned();
        while !self.take(b'"') {
            self.expect(b'\\', "the end of a string")?;
            owned.push(self.escape()?);
            owned.push_str(self.plain()?);
        }
        Ok(Cow::Owned(owned))
    }

    /// Reads what stands in a string before its end or its next escape.
    fn plain(&mut self) -> Result<&'a str, Expected> {
        let length = plain_length(self.rest.as_bytes());
        let (text, rest) = self.rest.split_at_checked(length).ok_or("valid UTF-8")?;
        self.rest = rest;
        Ok(text)
    }

    /// Reads an escape: only those that are written, each in the one form in which it is.
    fn escape(&mut self) -> Result<char, Expected> {
        const WHAT: Expected = "an escape in its shortest form";
        let (read, length) = match *self.rest.as_bytes() {
            [b'"', ..] => ('"', 1),
            [b'\\', ..] => ('\\', 1),
            [b'b', ..] => ('\u{8}', 1),
            [b't', ..] => ('\t', 1),
            [b'n', ..] => ('\n', 1),
            [b'f', ..] => ('\u{c}', 1),
            [b'r', ..] => ('\r', 1),
            [b'u', b'0', b'0', high @ (b'0' | b'1'), low, ..] => {
                let low = match low {
                    b'0'..=b'9' => low - b'0',
                    b'a'..=b'f' => low - b'a' + 10,
                    _ => return Err(WHAT),
                };
                let code = (high - b'0') * 16 + low;
                if matches!(code, 0x08 | 0x09 | 0x0a | 0x0c | 0x0d) {
                    return Err(WHAT);
                }
                (char::from(code), 5)
            }
            _ => return Err(WHAT),
        };
        self.rest = self.rest.get(length..).ok_or(WHAT)?;
        Ok(read)
    }

    /// Reads past any value.
    pub(super) fn skip(&mut self) -> Result<(), Expected> {
        self.skip_below(DEPTH_MAX)
    }

    fn skip_below(&mut self, depth: usize) -> Result<(), Expected> {
        let deeper = depth.checked_sub(1).ok_or("a shallower value")?;
        match self.rest.as_bytes().first() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => self.object(|_, r| r.skip_below(deeper)),
            Some(b'[') => self.array(|r| r.skip_below(deeper)),
            Some(b't' | b'f') => self.boolean().map(drop),
            Some(b'n') => self.literal("null", "null"),
            Some(b'-') => {
                self.take(b'-');
                match self.integer()? {
                    0 => Err("zero without a sign"),
                    _ => Ok(()),
                }
            }
            _ => self.integer().map(drop),
        }
    }
}
