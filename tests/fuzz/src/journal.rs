//! Journals whose files were changed by accident.

use std::path::PathBuf;

use deedbook_journal::{checkpointer::Checkpointer, record::RecordHash};

use crate::{
    Broken, Target,
    fixture::{self, BOOK, LOG_ID, Which},
    input::Input,
};

pub(crate) const TARGET: Target = Target {
    name: "journal",
    promise: "a changed journal is refused, or gives records that were written, and no others",
    run,
    seeds,
    words: &["DBWF", "deedlog\u{1}", "deedanc\u{1}", "redb", "\u{0}\u{0}\u{0}\u{0}"],
    bytes_max: 256,
};

const FILES: [&str; 5] = ["", "-log0", "-log1", "-log2", "-anchor"];

/// A byte for the journal, then changes: the file, what is done, where, and how many bytes, which
/// follow.
fn run(input: &[u8]) -> Result<(), Broken> {
    let mut input = Input(input);
    let how = input.byte();
    let which = if how & 1 == 0 { Which::Closed } else { Which::Crashed };
    let journal = fixture::journal(which);
    let disk = journal.copy();
    let there = disk.names();
    for _ in 0..16 {
        if input.is_over() {
            break;
        }
        let name = FILES[usize::from(input.byte()) % FILES.len()];
        let path = PathBuf::from(format!("{BOOK}{name}"));
        let (what, at, count) = (input.byte(), input.word() as usize, input.byte());
        let bytes = input.take(count.into());
        if there.contains(&path) {
            disk.edit(&path, |file| change(file, what, at, bytes));
        }
    }
    let read_only = how & 2 != 0;
    let Ok(book) = fixture::open(&disk, read_only) else {
        return Ok(());
    };
    let found = fixture::wait(async {
        let found = fixture::everything(&book).await;
        let _ = book.close().await;
        found
    });
    drop(book);
    for (id, records) in found? {
        let written =
            journal.threads.get(&id).ok_or_else(|| format!("{id:?} was never written"))?;
        let mut prev = RecordHash::ZERO;
        for (n, record) in (0..).zip(&records) {
            record.verify(&LOG_ID, &prev).map_err(|why| format!("record {n} of {id:?}: {why}"))?;
            prev = record.hash;
            if written.get(n).is_none_or(|written| written.hash != record.hash) {
                return Err(format!("record {n} of {id:?} was never written"));
            }
        }
    }
    Ok(())
}

fn change(file: &mut Vec<u8>, what: u8, at: usize, bytes: &[u8]) {
    let at = at % file.len().max(1);
    match what % 7 {
        0 => overwrite(file, at, bytes),
        1 => file.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to ^= from),
        2 => file.truncate(at),
        // A sector.
        3 => file.iter_mut().skip(at / 512 * 512).take(512).for_each(|byte| *byte = 0),
        // A page in the place of another.
        4 => {
            let from = Input(bytes).word() as usize % file.len().max(1) / 4096 * 4096;
            let page = file[from..].iter().copied().take(4096).collect::<Vec<_>>();
            overwrite(file, at / 4096 * 4096, &page);
        }
        5 => file.resize(file.len() + bytes.len() * 64, bytes.first().copied().unwrap_or(0)),
        _ => file.clear(),
    }
}

fn overwrite(file: &mut [u8], at: usize, bytes: &[u8]) {
    file.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
}

fn seeds() -> Vec<Vec<u8>> {
    let edit = |file: u8, what: u8, at: u32, bytes: &[u8]| {
        [&[file, what][..], &at.to_le_bytes(), &[bytes.len() as u8], bytes].concat()
    };
    let mut seeds = vec![vec![0], vec![1], vec![2], vec![3]];
    for (file, at) in [(0, 0), (0, 64), (0, 9), (0, 4096), (0, 8200), (1, 30), (1, 4100), (3, 40)] {
        for (what, bytes) in
            [(0, &b"\0\0\0\0"[..]), (1, b"\x01"), (2, b""), (3, b""), (4, b"\0\x10\0\0")]
        {
            for which in [0, 1] {
                seeds.push([&[which][..], &edit(file, what, at, bytes)].concat());
            }
        }
    }
    seeds
}
