//! Frames: what one write of the log holds, and how it is told from what it is not.
//!
//! ```text
//!  0  magic         4   "DBWF"
//!  4  kind          1   1 group, 2 mark, 3 the log goes on in the next generation
//!  5  zero          3
//!  8  body length   4
//! 12  entries       4
//! 16  generation    8   of the file it stands in
//! 24  first place  12   leaf number, entries without records before it
//! 36  zero          4
//! 40  frame before 32   its hash
//! 72  hash         32   of the log id, bytes 0..72 and the body
//! 104 body              entries, each behind its length
//! ```
//!
//! Numbers are little-endian. A frame begins at a multiple of [`ALIGN`] and is padded with zeros.
//! At most one frame is not acknowledged at a time, so that a frame also says that everything
//! before it was synced; a mark says only that.

use std::sync::LazyLock;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};

use crate::embedded::{
    code::{In, Out, Torn},
    entry::{Entry, Place},
};

/// Where frames may begin: at multiples of this many bytes.
pub(super) const ALIGN: usize = 16;
const MAGIC: [u8; 4] = *b"DBWF";
pub(super) const HEADER_BYTES: usize = 104;
const HASHED_BYTES: usize = 72;

static FRAME_KEY: LazyLock<ContextKey> =
    LazyLock::new(|| hash_derive_key_context("deedbook 2026-11-30 v1 log frame"));

/// The hash of a frame, which chains it to the one before.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct FrameHash(pub(in super::super) [u8; 32]);

impl std::fmt::Debug for FrameHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        crate::hex::write(f, &self.0)
    }
}

fn hash(log_id: &[u8; 16], front: &[u8], body: &[u8]) -> FrameHash {
    let mut hasher = blake3::Hasher::new_from_context_key(&FRAME_KEY);
    hasher.update(log_id).update(front).update(body);
    FrameHash(*hasher.finalize().as_bytes())
}

/// What a frame is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// It holds entries.
    #[default]
    Group,
    /// It says that everything before it was synced.
    Mark,
    /// It is the last one of its file: the next generation has the rest.
    Next,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Self::Group => 1,
            Self::Mark => 2,
            Self::Next => 3,
        }
    }

    fn from_byte(byte: u8) -> Result<Self, Torn> {
        match byte {
            1 => Ok(Self::Group),
            2 => Ok(Self::Mark),
            3 => Ok(Self::Next),
            _ => Err("a frame of no known kind"),
        }
    }
}

/// What a frame says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Title {
    pub(super) kind: Kind,
    pub(super) generation: u64,
    pub(super) first: Place,
    pub(super) prev: FrameHash,
}

/// Writes a frame into `out`, which is emptied first; returns its hash.
pub(super) fn write<'e>(
    out: &mut Vec<u8>,
    log_id: &[u8; 16],
    title: &Title,
    entries: impl Iterator<Item = &'e Entry>,
) -> FrameHash {
    out.clear();
    out.resize(HEADER_BYTES, 0);
    let mut count: u32 = 0;
    let mut entry_out = Out::default();
    for entry in entries {
        count = count.saturating_add(1);
        entry_out.0.clear();
        entry.write(&mut entry_out);
        let mut body = Out(std::mem::take(out));
        body.integer(entry_out.0.len() as u64).fixed(&entry_out.0);
        *out = body.0;
    }
    finish(out, log_id, title.kind.byte(), count, title)
}

/// Writes the header before a body that stands there, and pads.
pub(super) fn finish(
    out: &mut Vec<u8>,
    log_id: &[u8; 16],
    kind: u8,
    count: u32,
    title: &Title,
) -> FrameHash {
    let length = out.len().saturating_sub(HEADER_BYTES);
    let mut front = Vec::with_capacity(HASHED_BYTES);
    front.extend_from_slice(&MAGIC);
    front.extend_from_slice(&[kind, 0, 0, 0]);
    // A group is bounded far below four gigabytes.
    front.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    front.extend_from_slice(&count.to_le_bytes());
    front.extend_from_slice(&title.generation.to_le_bytes());
    front.extend_from_slice(&title.first.bound());
    front.extend_from_slice(&[0; 4]);
    front.extend_from_slice(&title.prev.0);
    let frame_hash = match out.split_at_checked(HEADER_BYTES) {
        Some((_, body)) => hash(log_id, &front, body),
        None => FrameHash::default(),
    };
    for (to, from) in out.iter_mut().zip(front.iter().chain(&frame_hash.0)) {
        *to = *from;
    }
    out.resize(out.len().next_multiple_of(ALIGN), 0);
    frame_hash
}

/// A frame as read.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) title: Title,
    pub(super) hash: FrameHash,
    count: u32,
    body: &'a [u8],
    /// With its padding.
    pub(super) length: usize,
}

/// The frame at the beginning of `bytes`, if one of this log and generation stands there whole.
pub(super) fn read<'a>(log_id: &[u8; 16], generation: u64, bytes: &'a [u8]) -> Option<Frame<'a>> {
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let (front, rest) = bytes.split_at_checked(HASHED_BYTES)?;
    let mut input = In(front);
    input.take(MAGIC.len()).ok()?;
    let [kind, ..] = input.fixed::<4>().ok()?;
    let length = u32::from_le_bytes(input.fixed().ok()?) as usize;
    let count = u32::from_le_bytes(input.fixed().ok()?);
    if u64::from_le_bytes(input.fixed().ok()?) != generation {
        return None;
    }
    let leaf = u64::from_le_bytes(input.fixed().ok()?);
    let sub = u32::from_le_bytes(input.fixed().ok()?);
    input.take(4).ok()?;
    let prev = FrameHash(input.fixed().ok()?);
    let mut rest = In(rest);
    let said = FrameHash(rest.fixed().ok()?);
    let body = rest.take(length).ok()?;
    if hash(log_id, front, body) != said {
        return None;
    }
    let kind = Kind::from_byte(kind).ok()?;
    let title = Title { kind, generation, first: Place { leaf, sub }, prev };
    let length = (HEADER_BYTES + length).next_multiple_of(ALIGN);
    Some(Frame { title, hash: said, count, body, length })
}

#[cfg(feature = "planted-faults")]
impl<'a> Frame<'a> {
    /// A body that is read as so many entries.
    pub(super) fn of(body: &'a [u8], count: u32) -> Self {
        Self {
            title: Title::default(),
            hash: FrameHash::default(),
            count,
            body,
            length: body.len(),
        }
    }
}

impl Frame<'_> {
    /// Its entries, each with its place.
    pub(super) fn entries(&self) -> Result<Vec<(Place, Entry)>, Torn> {
        let mut input = In(self.body);
        let mut place = self.title.first;
        let mut entries = Vec::new();
        for _ in 0..self.count {
            let length = input.count()?;
            let mut one = In(input.take(length)?);
            let entry = Entry::read(&mut one)?;
            one.end()?;
            let at = place;
            place = place.after(entry.count());
            entries.push((at, entry));
        }
        input.end()?;
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        checkpointer::Message,
        id::{MessageId, ThreadId},
    };

    const LOG: [u8; 16] = [3; 16];

    fn frame(generation: u64) -> Vec<u8> {
        let message = |k: u8| {
            let (name, by, body) = ("go".into(), "user:kim".into(), vec![k; 40].into());
            let message = Message { id: MessageId([k; 16]), kind: 1, name, by, body };
            Entry::Message(ThreadId::new("t").unwrap(), Arc::new(message))
        };
        let entries = [message(1), message(2)];
        let first = Place { leaf: 9, sub: 4 };
        let title = Title { kind: Kind::Group, generation, first, prev: FrameHash([7; 32]) };
        let mut out = Vec::new();
        let hash = write(&mut out, &LOG, &title, entries.iter());
        assert_eq!(read(&LOG, generation, &out).unwrap().hash, hash);
        out
    }

    #[test]
    fn a_frame_round_trips() {
        let bytes = frame(5);
        assert_eq!(bytes.len() % ALIGN, 0);
        let frame = read(&LOG, 5, &bytes).unwrap();
        assert_eq!((frame.length, frame.title.prev), (bytes.len(), FrameHash([7; 32])));
        let entries = frame.entries().unwrap();
        let places: Vec<_> = entries.iter().map(|(place, _)| place.sub).collect();
        assert_eq!(places, [4, 5]);
        let Entry::Message(to, message) = &entries[1].1 else { panic!("{entries:?}") };
        assert_eq!((to.as_str(), message.id), ("t", MessageId([2; 16])));
    }

    #[test]
    fn nothing_else_is_a_frame() {
        let bytes = frame(5);
        assert!(read(&LOG, 6, &bytes).is_none());
        assert!(read(&[4; 16], 5, &bytes).is_none());
        for at in 0..bytes.len() {
            assert!(read(&LOG, 5, &bytes[..at]).is_none() || bytes[at..].iter().all(|b| *b == 0));
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let padding = at >= read(&LOG, 5, &bytes).map_or(0, |f| HEADER_BYTES + f.body.len());
            assert_eq!(read(&LOG, 5, &changed).is_some(), padding, "byte {at}");
        }
    }
}
