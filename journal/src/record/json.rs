//! Just as much JSON as headers use: RFC 8785 restricted to strings, booleans, null, arrays,
//! objects and integers up to 2^53 - 1.

use std::borrow::Cow;

/// Deepest nesting that a header may have; ours have three levels.
const DEPTH_MAX: usize = 16;

/// Writes a string as RFC 8785 section 3.2.2.2 says.
pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest
        .iter()
        .position(|b| *b < 0x20 || *b == b'"' || *b == b'\\')
    {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        if let [byte, tail @ ..] = tail {
            write_escape(out, *byte);
            rest = tail;
        }
    }
    out.extend_from_slice(rest);
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

/// Reads header JSON from front to back, without building a tree.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// What a [`Reader`] did not find.
pub(super) type Expected = &'static str;

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, byte: u8, what: Expected) -> Result<(), Expected> {
        if self.take(byte) { Ok(()) } else { Err(what) }
    }

    fn literal(&mut self, word: &[u8], what: Expected) -> Result<(), Expected> {
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
        if self.rest.starts_with(b"true") {
            self.literal(b"true", "true").map(|()| true)
        } else {
            self.literal(b"false", "a boolean").map(|()| false)
        }
    }

    pub(super) fn integer(&mut self) -> Result<u64, Expected> {
        const WHAT: Expected = "an integer up to 2^53 - 1";
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        if digits == 0 || digits > 16 || (digits > 1 && number.first() == Some(&b'0')) {
            return Err(WHAT);
        }
        let value = number
            .iter()
            .fold(0u64, |v, d| v * 10 + u64::from(d - b'0'));
        if value >= 1 << 53 {
            return Err(WHAT);
        }
        self.rest = rest;
        Ok(value)
    }

    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, Expected> {
        const WHAT: Expected = "a string";
        self.expect(b'"', WHAT)?;
        let plain = self
            .rest
            .iter()
            .position(|b| *b < 0x20 || *b == b'"' || *b == b'\\')
            .ok_or("the end of a string")?;
        let (text, rest) = self.rest.split_at(plain);
        let text = std::str::from_utf8(text).map_err(|_| "valid UTF-8")?;
        self.rest = rest;
        if self.take(b'"') {
            return Ok(Cow::Borrowed(text));
        }
        let mut owned = text.to_owned();
        loop {
            match self.rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Ok(Cow::Owned(owned));
                }
                [b'\\', code, rest @ ..] => {
                    self.rest = rest;
                    owned.push(self.escape(*code)?);
                }
                [byte, ..] if *byte >= 0x20 && *byte != b'\\' => {
                    let run = self
                        .rest
                        .iter()
                        .position(|b| *b < 0x20 || *b == b'"' || *b == b'\\')
                        .ok_or("the end of a string")?;
                    let (text, rest) = self.rest.split_at(run);
                    owned.push_str(std::str::from_utf8(text).map_err(|_| "valid UTF-8")?);
                    self.rest = rest;
                }
                _ => return Err("the end of a string"),
            }
        }
    }

    /// Reads an escape: only those that are written, each in the one form in which it is.
    fn escape(&mut self, code: u8) -> Result<char, Expected> {
        const WHAT: Expected = "an escape in its shortest form";
        Ok(match code {
            b'"' => '"',
            b'\\' => '\\',
            b'b' => '\u{8}',
            b't' => '\t',
            b'n' => '\n',
            b'f' => '\u{c}',
            b'r' => '\r',
            b'u' => {
                let (digits, rest) = self.rest.split_first_chunk::<4>().ok_or(WHAT)?;
                let &[b'0', b'0', high @ (b'0' | b'1'), low] = digits else {
                    return Err(WHAT);
                };
                let low = match low {
                    b'0'..=b'9' => low - b'0',
                    b'a'..=b'f' => low - b'a' + 10,
                    _ => return Err(WHAT),
                };
                let code = (high - b'0') * 16 + low;
                if matches!(code, 0x08 | 0x09 | 0x0a | 0x0c | 0x0d) {
                    return Err(WHAT);
                }
                self.rest = rest;
                char::from(code)
            }
            _ => return Err(WHAT),
        })
    }

    /// Reads past any value.
    pub(super) fn skip(&mut self) -> Result<(), Expected> {
        self.skip_below(DEPTH_MAX)
    }

    fn skip_below(&mut self, depth: usize) -> Result<(), Expected> {
        let deeper = depth.checked_sub(1).ok_or("a shallower value")?;
        match self.rest.first() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => self.object(|_, r| r.skip_below(deeper)),
            Some(b'[') => self.array(|r| r.skip_below(deeper)),
            Some(b't' | b'f') => self.boolean().map(drop),
            Some(b'n') => self.literal(b"null", "null"),
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
