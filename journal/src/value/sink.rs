//! Where values are written: the seam between what produces a value (a Rust type, MessagePack
//! bytes, JSON text) and what it becomes (MessagePack, canonical form).
//!
//! One serializer and one walker feed every form, so the forms cannot disagree on what a value is.

use std::ops::Range;

use super::{
    error::{ValueError, ValueErrorKind},
    walk::{self, Int, Reader, Token},
};
use crate::limits::ValueLimits;

pub(crate) type Written = Result<(), ValueError>;

/// A form that values are written in.
pub(crate) trait Sink {
    fn buffer(&mut self) -> &mut Buffer;

    fn nil(&mut self) -> Written;
    fn boolean(&mut self, value: bool) -> Written;
    fn int(&mut self, value: Int) -> Written;
    fn f32(&mut self, value: f32) -> Written;
    fn f64(&mut self, value: f64) -> Written;
    fn text(&mut self, value: &str) -> Written;
    fn bytes(&mut self, value: &[u8]) -> Written;
    fn ext(&mut self, kind: i8, value: &[u8]) -> Written;

    /// Opens a container of `hint` elements, if that is known.
    fn open_array(&mut self, hint: Option<usize>) -> Result<Open, ValueError>;
    fn close_array(&mut self, open: Open, count: usize) -> Written;
    fn open_map(&mut self, hint: Option<usize>) -> Result<Open, ValueError>;
    /// Closes a map; `distinct` says that its keys are known to differ.
    fn close_map(&mut self, open: Open, count: usize, distinct: bool) -> Written;

    /// A written key as a part of a JSON pointer.
    fn shown_key(key: &[u8]) -> String;
}

/// A container that is being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    /// Where its head begins.
    pub(crate) at: usize,
    /// The count in its head.
    pub(crate) hint: Option<usize>,
    /// Its first mark.
    pub(crate) marks: usize,
}

/// One entry of an open map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) key: usize,
    pub(crate) value: usize,
    /// Set when the map is closed.
    pub(crate) end: usize,
}

impl Mark {
    #[inline]
    pub(crate) fn key(&self) -> Range<usize> {
        self.key..self.value
    }
}

/// Bytes under construction, with the limits that hold while they grow.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) out: Vec<u8>,
    /// The entries of all open maps, innermost last.
    marks: Vec<Mark>,
    depth: usize,
    depth_max: usize,
    bytes_max: usize,
}

impl Buffer {
    pub(crate) fn new(depth_max: usize, bytes_max: usize) -> Self {
        Self { out: Vec::with_capacity(256), marks: Vec::new(), depth: 0, depth_max, bytes_max }
    }

    pub(crate) fn depth_max(&self) -> usize {
        self.depth_max
    }

    /// Writes `head` and `body`, unless the limit is reached: it is checked first, so that an
    /// oversized value costs no memory.
    #[inline]
    pub(crate) fn put(&mut self, head: &[u8], body: &[u8]) -> Written {
        self.room(head.len().saturating_add(body.len()))?;
        self.out.extend_from_slice(head);
        self.out.extend_from_slice(body);
        Ok(())
    }

    /// Refuses `more` bytes that would pass the limit.
    #[inline]
    pub(crate) fn room(&self, more: usize) -> Written {
        if more > self.bytes_max.saturating_sub(self.out.len()) {
            return Err(ValueError::too_large(self.bytes_max));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn enter(&mut self, hint: Option<usize>) -> Result<Open, ValueError> {
        if self.depth >= self.depth_max {
            return Err(ValueError::too_deep(self.depth_max));
        }
        self.depth += 1;
        Ok(Open { at: self.out.len(), hint, marks: self.marks.len() })
    }

    /// Leaves a container without entries.
    #[inline]
    pub(crate) fn leave(&mut self, open: Open) {
        self.depth = self.depth.saturating_sub(1);
        self.marks.truncate(open.marks);
    }

    /// A key begins here.
    #[inline]
    pub(crate) fn key(&mut self) {
        let at = self.out.len();
        if self.marks.capacity() == 0 {
            self.marks.reserve(8);
        }
        self.marks.push(Mark { key: at, value: at, end: at });
    }

    /// The key ends and its value begins here. Answers where the key is.
    #[inline]
    pub(crate) fn value(&mut self) -> Range<usize> {
        let at = self.out.len();
        match self.marks.last_mut() {
            Some(mark) => {
                mark.value = at;
                mark.key()
            }
            None => at..at,
        }
    }

    /// The entries of the innermost open map, with their ends.
    pub(crate) fn entries(&mut self, open: Open) -> (&mut Vec<u8>, &mut [Mark]) {
        let marks = self.marks.get_mut(open.marks..).unwrap_or_default();
        let mut end = self.out.len();
        for mark in marks.iter_mut().rev() {
            mark.end = end;
            end = mark.key;
        }
        (&mut self.out, marks)
    }
}

pub(crate) fn slice(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or_default()
}

/// The error for a repeated key.
pub(crate) fn duplicate(key: String) -> ValueError {
    let message = "a map holds this key twice and one entry would be lost; \
                   give each entry its own key";
    ValueError::new(ValueErrorKind::DuplicateKey, message).at(key)
}

/// The limits of a sink that writes MessagePack.
pub(crate) fn buffer(limits: &ValueLimits) -> Buffer {
    Buffer::new(walk::depth_max(limits), limits.bytes_max)
}

/// Writes the next value of `reader` into `sink`.
///
/// Recursion is bounded: `sink` refuses to open a container beyond its depth.
pub(crate) fn copy(reader: &mut Reader<'_>, sink: &mut impl Sink) -> Written {
    match reader.next()? {
        Token::Nil => sink.nil(),
        Token::Bool(value) => sink.boolean(value),
        Token::Int(value) => sink.int(value),
        Token::F32(value) => sink.f32(value),
        Token::F64(value) => sink.f64(value),
        Token::Text(value) => sink.text(value),
        Token::BadText(_) => Err(bad_text()),
        Token::Bytes(value) => sink.bytes(value),
        Token::Ext(kind, value) => sink.ext(kind, value),
        Token::Array(count) => {
            let open = sink.open_array(Some(count))?;
            for i in 0..count {
                copy(reader, sink).map_err(|e| e.at(i))?;
            }
            sink.close_array(open, count)
        }
        Token::Map(count) => copy_map(reader, sink, count),
    }
}

fn copy_map<S: Sink>(reader: &mut Reader<'_>, sink: &mut S, count: usize) -> Written {
    let open = sink.open_map(Some(count))?;
    for _ in 0..count {
        sink.buffer().key();
        copy(reader, sink)?;
        let key = sink.buffer().value();
        copy(reader, sink).map_err(|e| e.at(S::shown_key(slice(&sink.buffer().out, key))))?;
    }
    sink.close_map(open, count, false)
}

pub(crate) fn bad_text() -> ValueError {
    let message = "it holds text that is not UTF-8; the writer is wrong, or it should be bytes";
    ValueError::new(ValueErrorKind::Malformed, message)
}
