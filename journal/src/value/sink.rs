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

/// The entries of all open maps, innermost last. Most values have few, which take no memory of
/// their own.
#[derive(Debug)]
struct Marks {
    few: [Mark; FEW],
    count: usize,
    /// All of them, once they are more than few.
    many: Vec<Mark>,
}

/// So many entries are few.
const FEW: usize = 8;

impl Marks {
    #[inline]
    fn new() -> Self {
        Self { few: [Mark { key: 0, value: 0, end: 0 }; FEW], count: 0, many: Vec::new() }
    }

    #[inline]
    fn push(&mut self, mark: Mark) {
        match self.few.get_mut(self.count) {
            Some(few) => *few = mark,
            None => {
                if self.count == FEW {
                    self.many.clear();
                    self.many.extend_from_slice(&self.few);
                }
                self.many.push(mark);
            }
        }
        self.count += 1;
    }

    /// Those behind the first `count` of them.
    #[inline]
    fn behind(&mut self, count: usize) -> &mut [Mark] {
        let all = if self.count > FEW { self.many.as_mut_slice() } else { &mut self.few };
        all.get_mut(count..self.count).unwrap_or_default()
    }

    /// Keeps the first `count` of them.
    #[inline]
    fn truncate(&mut self, count: usize) {
        if self.count > FEW {
            self.many.truncate(count);
            if let (true, Some(few)) = (count <= FEW, self.few.get_mut(..count)) {
                few.copy_from_slice(&self.many);
            }
        }
        self.count = self.count.min(count);
    }
}

/// Bytes under construction, with the limits that hold while they grow.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) out: Vec<u8>,
    marks: Marks,
    depth: usize,
    depth_max: usize,
    bytes_max: usize,
}

impl Buffer {
    pub(crate) fn new(depth_max: usize, bytes_max: usize) -> Self {
        Self { out: Vec::with_capacity(256), marks: Marks::new(), depth: 0, depth_max, bytes_max }
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
        Ok(Open { at: self.out.len(), hint, marks: self.marks.count })
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
        self.marks.push(Mark { key: at, value: at, end: at });
    }

    /// The key ends and its value begins here. Answers where the key is.
    #[inline]
    pub(crate) fn value(&mut self) -> Range<usize> {
        let at = self.out.len();
        match self.marks.behind(self.marks.count.saturating_sub(1)).first_mut() {
            Some(mark) => {
                mark.value = at;
                mark.key()
            }
            None => at..at,
        }
    }

    /// The entries of the innermost open map, with their ends.
    pub(crate) fn entries(&mut self, open: Open) -> (&mut Vec<u8>, &mut [Mark]) {
        let marks = self.marks.behind(open.marks);
        let mut end = self.out.len();
        for mark in marks.iter_mut().rev() {
            mark.end = end;
            end = mark.key;
        }
        (&mut self.out, marks)
    }
}

#[inline]
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn few_marks_and_many_are_kept_alike(acts in prop::collection::vec(0usize..24, 0..80)) {
            let (mut marks, mut all) = (Marks::new(), Vec::new());
            for (n, act) in acts.into_iter().enumerate() {
                // Most acts add one; the others drop those behind some place.
                if act < 8 {
                    marks.truncate(act * 2);
                    all.truncate(act * 2);
                } else {
                    let mark = Mark { key: n, value: n + 1, end: act };
                    marks.push(mark);
                    all.push(mark);
                }
                for from in [0, act, all.len()] {
                    let behind = all.get_mut(from..).unwrap_or_default();
                    prop_assert_eq!(marks.behind(from), behind);
                }
            }
        }
    }
}
