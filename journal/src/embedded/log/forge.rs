//! Frames that tests make up: see [`super::super::bare`].

use super::{
    FRAMES_AT,
    frame::{self, ALIGN, Frame, FrameHash, HEADER_BYTES, Title},
    segment,
};
use crate::embedded::{
    bare::Forged,
    code::{In, Out, Torn},
    entry::Place,
};

/// Reads the entries of a frame, behind a byte that says how many, and writes them again.
pub(in super::super) fn entries_again(bytes: &[u8]) -> Result<Vec<u8>, Torn> {
    let mut input = In(bytes);
    let count = input.byte()?;
    let entries = Frame::of(input.0, count.into()).entries()?;
    let mut out = Out::default();
    out.byte(count);
    for (_, entry) in entries {
        let mut one = Out::default();
        entry.write(&mut one);
        out.integer(one.0.len() as u64).fixed(&one.0);
    }
    Ok(out.0)
}

/// Puts frames behind the last one of a file.
pub(in super::super) fn forge(
    file: &mut Vec<u8>,
    journal: &[u8; 16],
    frames: &[Forged<'_>],
) -> Result<(), Torn> {
    let (log, generation) = segment::read_title(journal, file).ok_or("it is no file of a log")?;
    let mut at = FRAMES_AT as usize;
    let (mut prev, mut place) = (FrameHash::default(), Place::default());
    while let Some(frame) = file.get(at..).and_then(|b| frame::read(&log, generation, b)) {
        prev = frame.hash;
        place = frame.title.first;
        for (at, entry) in frame.entries()? {
            place = at.after(entry.count());
        }
        at += frame.length;
    }
    for forged in frames {
        let first = Place { leaf: place.leaf.saturating_add(forged.away.into()), sub: place.sub };
        let prev_said = if forged.follows { prev } else { FrameHash::default() };
        let title = Title { generation, first, prev: prev_said, ..Title::default() };
        let mut out = vec![0; HEADER_BYTES];
        out.extend_from_slice(forged.body);
        prev = frame::finish(&mut out, &log, forged.kind, forged.entries, &title);
        place = Frame::of(forged.body, forged.entries)
            .entries()
            .map_or(place, |all| all.iter().fold(first, |place, (_, e)| place.after(e.count())));
        file.resize(file.len().max(at + out.len()), 0);
        for (to, from) in file.iter_mut().skip(at).zip(&out) {
            *to = *from;
        }
        at = (at + out.len()).next_multiple_of(ALIGN);
    }
    Ok(())
}
