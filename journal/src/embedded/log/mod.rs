//! The write-ahead log: what a group is made durable in.
//!
//! One write and one sync to a file that is filled with zeros ahead of use: nothing that a disk
//! does to make bytes durable is cheaper. The log alone fixes order and durability; the tables
//! are its settled part and follow in drains ([`super::drain`]).
//!
//! The rules, as `docs/internals/log.md` explains them, and where they are kept:
//!
//! - **W1 one authority.** A record's place in the log is its leaf number: [`super::state`].
//! - **W2** The tables never hold what was not synced: a drain takes what [`super::state`] has,
//!   and that is told of a group behind its sync.
//! - **W3** A drain writes records and the settled mark in one transaction; opening applies what
//!   is behind the mark by the function that follows a sync.
//! - **W4** A frame is bound to its log, generation and place, and chained: [`frame`].
//! - **W5** Only the last frame may be torn: [`recover`]. An idle log gets a mark.
//! - **W6** Nothing is appended behind frames that were found: the last one is made durable where
//!   it stands before anybody hears of it, the first write after an open begins a new generation,
//!   and what was found is drained with the commit that says so.
//! - **W7** After a failed write or sync nothing more is written through this handle.
//! - **W8** The tables say that the journal is not clean, and the generation, before the first
//!   append; a generation that is missing then is an error.
//! - **W9** At most one frame is not acknowledged.

#[cfg(feature = "planted-faults")]
mod forge;
mod frame;
mod recover;
mod segment;

use std::{io, sync::Arc};

#[cfg(feature = "planted-faults")]
pub(super) use self::forge::{entries_again, forge};
pub use self::segment::files_of;
pub(super) use self::{
    frame::FrameHash,
    recover::{Problem, Tail, newer, recover},
    segment::{Segment, Segments},
};
use self::{
    frame::{Kind, Title},
    segment::FRAMES_AT,
};
use super::entry::{Entry, Place};

/// Marks begin at multiples of this many bytes.
const MARK_ALIGN: u64 = 4096;

/// The end of the log that is written to.
#[derive(Debug)]
pub(super) struct Log {
    /// Its own id.
    log: [u8; 16],
    segment: Arc<Segment>,
    /// Where the next frame goes.
    at: u64,
    last: FrameHash,
    /// Whether the last frame says that everything is synced.
    marked: bool,
    buffer: Vec<u8>,
}

impl Log {
    /// Begins a generation: its first frame follows the frame `last`.
    pub(super) fn begin(log: [u8; 16], segment: Arc<Segment>, last: FrameHash) -> Self {
        Self { log, segment, at: FRAMES_AT, last, marked: true, buffer: Vec::new() }
    }

    /// Goes on behind frames that were found: a fault that is planted.
    pub(super) fn behind(log: [u8; 16], tail: &Tail, last: FrameHash) -> io::Result<Self> {
        let segment = Segment::again(&tail.file, tail.generation)?;
        Ok(Self { log, segment, at: tail.end, last, marked: true, buffer: Vec::new() })
    }

    /// Writes a group and makes it durable: its hash. After an error nobody knows what is there.
    pub(super) fn append<'e>(
        &mut self,
        first: Place,
        entries: impl Iterator<Item = &'e Entry>,
    ) -> io::Result<FrameHash> {
        self.frame(Kind::Group, first, entries)
    }

    /// Says durably that everything before was synced, if the log does not say so yet.
    pub(super) fn mark(&mut self, place: Place) -> io::Result<Option<FrameHash>> {
        if self.marked {
            return Ok(None);
        }
        // In a sector of its own: one that goes bad must not take a frame and its mark together.
        self.at = self.at.next_multiple_of(MARK_ALIGN);
        self.frame(Kind::Mark, place, [].iter()).map(Some)
    }

    /// Goes on in the next file, if this one has reached `most` bytes and the next one is ready.
    pub(super) fn turn(
        &mut self,
        segments: &Segments,
        place: Place,
        most: u64,
    ) -> io::Result<Option<FrameHash>> {
        if self.at < most {
            return Ok(None);
        }
        let Some(next) = segments.take_ready(self.generation() + 1) else {
            return Ok(None);
        };
        let hash = self.frame(Kind::Next, place, [].iter())?;
        self.segment = next;
        self.at = FRAMES_AT;
        self.marked = true;
        Ok(Some(hash))
    }

    fn frame<'e>(
        &mut self,
        kind: Kind,
        first: Place,
        entries: impl Iterator<Item = &'e Entry>,
    ) -> io::Result<FrameHash> {
        let title = Title { kind, generation: self.generation(), first, prev: self.last };
        let hash = frame::write(&mut self.buffer, &self.log, &title, entries);
        self.segment.write(self.at, &self.buffer)?;
        self.at = self.at.saturating_add(self.buffer.len() as u64);
        self.last = hash;
        self.marked = kind != Kind::Group;
        // A large group must not keep its memory for good.
        self.buffer.shrink_to(1 << 20);
        Ok(hash)
    }

    pub(super) fn generation(&self) -> u64 {
        self.segment.generation
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Where the next frame goes.
    pub(super) fn at(&self) -> u64 {
        self.at
    }
}
