//! Readers of stored bytes, one by one, for tests that give them any bytes: only with the feature
//! `planted-faults`.
//!
//! A checksum keeps such bytes from a reader, so it is put right here first: what is behind the
//! checksums must be as sound as what is before them.

use super::{
    anchor,
    chunk::{self, Chunk},
    code::{self, Torn},
    entry::Place,
    log, tables,
};
use crate::bytes::Bytes;

/// What bytes are read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stored {
    /// The identity of a journal.
    Genesis,
    /// How far the tables go.
    State,
    /// The row of a thread.
    Row,
    /// A list of extents.
    Extents,
    /// A message that nobody has consumed.
    Message,
    /// Records of a thread.
    Chunk,
    /// The entries of a frame of the log.
    Frame,
    /// A slot of the anchor.
    Anchor,
}

impl Stored {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Genesis,
        Self::State,
        Self::Row,
        Self::Extents,
        Self::Message,
        Self::Chunk,
        Self::Frame,
        Self::Anchor,
    ];
}

const PLACE: Place = Place { leaf: 7, sub: 1 };
const ROW: &[u8] = b"thread";
const LIST: (u64, u64) = (3, 0);

/// Reads bytes, checksum apart, and writes again what was read.
///
/// # Errors
/// Why they are refused.
pub fn again(stored: Stored, bytes: &[u8]) -> Result<Vec<u8>, Torn> {
    let sealed = |table: &str, key: &[u8]| code::seal(table, key, bytes.to_vec());
    let written = match stored {
        Stored::Genesis => {
            let read = tables::read_genesis(&sealed("meta", tables::GENESIS.as_bytes()))?;
            tables::write_genesis(&read.map_err(|_| "another version")?)
        }
        Stored::State => {
            let read = tables::read_settled(&sealed("meta", tables::STATE.as_bytes()))?;
            tables::write_settled(&read)
        }
        Stored::Row => {
            tables::write_thread(ROW, &tables::read_thread(ROW, &sealed("threads", ROW))?)
        }
        Stored::Extents => {
            let key = tables::extents_key(LIST);
            tables::write_extents(LIST, &tables::read_extents(LIST, &sealed("extents", &key))?)
        }
        Stored::Message => {
            let (to, message) = tables::read_message(PLACE, &sealed("inbox", &PLACE.bound()))?;
            tables::write_message(PLACE, &to, &message)
        }
        Stored::Chunk => chunk_again(bytes)?,
        Stored::Frame => return log::entries_again(bytes),
        Stored::Anchor => anchor::again(bytes)?,
    };
    let end = written.len().checked_sub(code::SUM_BYTES);
    Ok(end.and_then(|end| written.get(..end)).unwrap_or_default().to_vec())
}

fn chunk_again(bytes: &[u8]) -> Result<Vec<u8>, Torn> {
    let mut stored = bytes.to_vec();
    chunk::seal(PLACE, &mut stored);
    chunk::extent(&stored)?;
    let (head, body) = chunk::parse(PLACE, &stored)?;
    let records = chunk::unpack(&head, &Bytes::from(stored), body).map_err(|(_, why)| why)?;
    let records: Vec<_> = head.shapes.iter().map(|s| s.leaf).zip(&records).collect();
    let mut again = Vec::new();
    Chunk::again(&head, &records).encode(PLACE, &mut again);
    Ok(again)
}

/// A frame to be written into a file of the log: its checksums will fit.
#[derive(Debug, Clone, Copy)]
pub struct Forged<'b> {
    /// The byte for its kind.
    pub kind: u8,
    /// Whether it says the hash of the frame before.
    pub follows: bool,
    /// How far its first place is from where the frame before ended.
    pub away: u8,
    /// How many entries it says to have.
    pub entries: u32,
    /// Its entries.
    pub body: &'b [u8],
}

/// Puts frames at the end of a file of the log that was not closed.
///
/// # Errors
/// It is no file of a log.
pub fn forge(file: &mut Vec<u8>, journal: &[u8; 16], frames: &[Forged<'_>]) -> Result<(), Torn> {
    log::forge(file, journal, frames)
}

/// Whether both readers of headers say the same of the header that these bytes are.
///
/// # Errors
/// What differs.
pub fn gist_agrees(bytes: &[u8]) -> Result<(), String> {
    crate::record::gist_agrees(bytes)
}
