//! JSON text, typed by an operator or read from a file, into MessagePack.
//!
//! A parser of our own, since common ones keep the last of two equal members, turn `1e-400` into
//! 0 and round integers: each of these would change what a person asked for.

use std::borrow::Cow;

use super::{
    encode::Msgpack,
    error::{ValueError, ValueErrorKind},
    number::{self, Number},
    sink::{Sink, Written, slice},
    text::read_base64,
};
use crate::limits::ValueLimits;

/// Reads JSON text, with the `$` forms of [`to_json`](super::view::to_json), into MessagePack.
///
/// A number without fraction and exponent is an integer, exact over the 128-bit range; any other
/// is the nearest 64-bit float.
///
/// # Errors
/// Anything but one JSON value (RFC 8259); repeated members, also when spelled with escapes;
/// numbers beyond the range or that would become 0; lone surrogates; members beginning with `$`
/// that are no form of the view; and what is deeper or larger than `limits`.
///
/// ```
/// use deedbook_journal::{limits::ValueLimits, value::view};
/// let limits = ValueLimits::new();
/// assert!(view::from_json(r#"{"amount":4200}"#, &limits).is_ok());
/// let error = view::from_json(r#"{"amount":1,"\u0061mount":2}"#, &limits).unwrap_err();
/// assert_eq!(error.path(), "/amount");
/// ```
pub fn from_json(text: &str, limits: &ValueLimits) -> Result<Vec<u8>, ValueError> {
    let mut sink = Msgpack::new(limits);
    let mut parser = Parser { text, at: 0 };
    parser.space();
    parser.value(&mut sink)?;
    match parser.peek() {
        None => Ok(sink.into_bytes()),
        Some(_) => Err(parser.error("one value was expected and more follows")),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    /// One value and the space behind it. Recursion is bounded by the depth of `sink`.
    fn value(&mut self, sink: &mut Msgpack) -> Written {
        match self.peek() {
            Some(b'{') => self.object(sink)?,
            Some(b'[') => self.array(sink)?,
            Some(b'"') => {
                let text = self.string()?;
                sink.text(&text)?;
            }
            Some(b'-' | b'0'..=b'9') => self.number(sink)?,
            Some(b't') => {
                self.word("true")?;
                sink.boolean(true)?;
            }
            Some(b'f') => {
                self.word("false")?;
                sink.boolean(false)?;
            }
            Some(b'n') => {
                self.word("null")?;
                sink.nil()?;
            }
            _ => return Err(self.error("a value was expected")),
        }
        self.space();
        Ok(())
    }

    fn array(&mut self, sink: &mut Msgpack) -> Written {
        self.take(b'[')?;
        let open = sink.open_array(None)?;
        let mut count = 0;
        if !self.next_is(b']') {
            loop {
                self.value(sink).map_err(|e| e.at(count))?;
                count += 1;
                if !self.next_is(b',') {
                    break;
                }
            }
            self.take(b']')?;
        }
        sink.close_array(open, count)
    }

    fn object(&mut self, sink: &mut Msgpack) -> Written {
        self.take(b'{')?;
        if self.next_is(b'}') {
            let open = sink.open_map(Some(0))?;
            return sink.close_map(open, 0, true);
        }
        let first = self.member()?;
        if first.starts_with('$') {
            self.form(&first, sink)?;
            return self.take(b'}');
        }
        let open = sink.open_map(None)?;
        let mut count = 0;
        let mut name = first;
        loop {
            if name.starts_with('$') {
                return Err(self.unknown_form(&name));
            }
            sink.buffer().key();
            sink.text(&name)?;
            sink.buffer().value();
            self.value(sink).map_err(|e| e.at(&name))?;
            count += 1;
            if !self.next_is(b',') {
                break;
            }
            name = self.member()?;
        }
        self.take(b'}')?;
        sink.close_map(open, count, false)
    }

    /// A member's name and the colon.
    fn member(&mut self) -> Result<Cow<'t, str>, ValueError> {
        let name = self.string()?;
        self.space();
        self.take(b':')?;
        Ok(name)
    }

    /// The content of a `$` form, up to its closing brace.
    fn form(&mut self, name: &str, sink: &mut Msgpack) -> Written {
        match name {
            "$int" => {
                let at = self.at;
                let digits = self.string()?;
                let value = number::integer(&digits).map_err(|why| error(at, why))?;
                sink.int(value)?;
            }
            "$f64" => {
                let at = self.at;
                let bits = crate::hex::decode::<8>(&self.string()?)
                    .ok_or_else(|| error(at, "`$f64` takes 16 lower-case hex digits"))?;
                sink.f64(f64::from_bits(u64::from_be_bytes(bits)))?;
                self.space();
                if self.next_is(b',') {
                    let note = self.member()?;
                    if note != "$is" {
                        return Err(self.unknown_form(&note));
                    }
                    self.string()?;
                }
            }
            "$bytes" => {
                let bytes = self.base64()?;
                sink.bytes(&bytes)?;
                self.space();
                if self.peek() == Some(b',') {
                    return Err(self.error("text that is not UTF-8 is never written"));
                }
            }
            "$ext" => self.ext(sink)?,
            "$map" => self.pairs(sink)?,
            _ => return Err(self.unknown_form(name)),
        }
        self.space();
        Ok(())
    }

    fn ext(&mut self, sink: &mut Msgpack) -> Written {
        self.take(b'[')?;
        let at = self.at;
        let digits = self.digits();
        // What Rust reads as a number is not always one of JSON (`-07`).
        let kind = digits.parse::<i8>().ok().filter(|_| number::integer(digits).is_ok());
        let kind = kind.ok_or_else(|| error(at, "`$ext` takes a type from -128 to 127"))?;
        self.space();
        self.take(b',')?;
        let bytes = self.base64()?;
        self.space();
        self.take(b']')?;
        sink.ext(kind, &bytes)
    }

    fn pairs(&mut self, sink: &mut Msgpack) -> Written {
        self.take(b'[')?;
        let open = sink.open_map(None)?;
        let mut count = 0;
        if !self.next_is(b']') {
            loop {
                self.take(b'[')?;
                sink.buffer().key();
                self.value(sink)?;
                let key = sink.buffer().value();
                self.take(b',')?;
                if let Err(e) = self.value(sink) {
                    return Err(e.at(Msgpack::shown_key(slice(&sink.buffer().out, key))));
                }
                self.take(b']')?;
                count += 1;
                if !self.next_is(b',') {
                    break;
                }
            }
            self.take(b']')?;
        }
        sink.close_map(open, count, false)
    }

    fn base64(&mut self) -> Result<Vec<u8>, ValueError> {
        let at = self.at;
        let text = self.string()?;
        read_base64(&text).ok_or_else(|| error(at, "padded base64 was expected"))
    }

    fn number(&mut self, sink: &mut Msgpack) -> Written {
        let start = self.at;
        match Number::read(self.digits()).map_err(|why| error(start, why))? {
            Number::Int(value) => sink.int(value),
            Number::Float(value) => sink.f64(value),
        }
    }

    /// The characters that numbers are made of.
    fn digits(&mut self) -> &'t str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
            .unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn string(&mut self) -> Result<Cow<'t, str>, ValueError> {
        self.take_exactly(b'"')?;
        let mut owned = String::new();
        loop {
            let rest = self.rest();
            let end = rest
                .find(|c: char| c == '"' || c == '\\' || c < ' ')
                .ok_or_else(|| self.error("the text does not end"))?;
            let plain = rest.get(..end).unwrap_or_default();
            self.at += end;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    if owned.is_empty() {
                        return Ok(Cow::Borrowed(plain));
                    }
                    owned.push_str(plain);
                    return Ok(Cow::Owned(owned));
                }
                Some(b'\\') => {
                    owned.push_str(plain);
                    owned.push(self.escape()?);
                }
                _ => return Err(self.error("a control character must be written as an escape")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ValueError> {
        let start = self.at;
        self.at += 1;
        let kind = self.peek();
        self.at += 1;
        Ok(match kind {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(start),
            _ => return Err(error(start, "this is no escape of JSON")),
        })
    }

    fn unicode(&mut self, start: usize) -> Result<char, ValueError> {
        let alone = || error(start, "half of a surrogate pair is no character; pass bytes instead");
        let high = self.unit(start)?;
        if !(0xd800..0xe000).contains(&high) {
            return char::from_u32(high.into()).ok_or_else(alone);
        }
        if high >= 0xdc00 || !self.rest().starts_with("\\u") {
            return Err(alone());
        }
        self.at += 2;
        let low = self.unit(start)?;
        match char::decode_utf16([high, low]).next() {
            Some(Ok(c)) => Ok(c),
            _ => Err(alone()),
        }
    }

    fn unit(&mut self, start: usize) -> Result<u16, ValueError> {
        let digits = self.rest().get(..4).unwrap_or_default();
        if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(error(start, "`\\u` takes four hex digits"));
        }
        self.at += 4;
        u16::from_str_radix(digits, 16).map_err(|_| error(start, "`\\u` takes four hex digits"))
    }

    fn word(&mut self, word: &str) -> Written {
        if !self.rest().starts_with(word) {
            return Err(self.error("a value was expected"));
        }
        self.at += word.len();
        Ok(())
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Passes over `byte` and the space behind it, if it is next.
    fn next_is(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        if is {
            self.at += 1;
            self.space();
        }
        is
    }

    fn take(&mut self, byte: u8) -> Written {
        if self.next_is(byte) {
            return Ok(());
        }
        Err(self.error(&format!("`{}` was expected", char::from(byte))))
    }

    fn take_exactly(&mut self, byte: u8) -> Written {
        if self.peek() != Some(byte) {
            return Err(self.error(&format!("`{}` was expected", char::from(byte))));
        }
        self.at += 1;
        Ok(())
    }

    fn error(&self, why: &str) -> ValueError {
        error(self.at, why)
    }

    fn unknown_form(&self, name: &str) -> ValueError {
        self.error(&format!(
            "the member `{}` begins with `$` and is no form known here; write the object as \
             {{\"$map\":[[name,value],..]}}",
            name.escape_debug()
        ))
    }
}

fn error(at: usize, why: &str) -> ValueError {
    let message = format!("the JSON text is refused at byte {at}: {why}");
    ValueError::new(ValueErrorKind::Json, message)
}
