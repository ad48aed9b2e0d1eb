//! Bytes change under a closed and under a crashed journal: an error, or no harm; never a panic
//! and never other data.

use std::{fs, panic::catch_unwind, path::Path};

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, StoreError},
    embedded::{Embedded, OpenError, OpenOptions},
    id::ThreadId,
    row::Status,
};

use crate::desk::{Folder, Pen, create, message, payloads, put, row, wait};

const THREADS: usize = 12;

/// What every thread must hold.
fn content(k: usize) -> Vec<Vec<u8>> {
    (0..20_u8).map(|n| vec![k as u8 ^ n; 40 + k * 3]).collect()
}

fn fill(path: &Path, close: bool) {
    let book = create(path);
    wait(async {
        let mut pens = Vec::new();
        for k in 0..THREADS {
            pens.push(Pen::claim(&book, &format!("thread-{k}")).await.unwrap());
        }
        for n in 0..20_usize {
            let mut group = Vec::new();
            for (k, pen) in pens.iter_mut().enumerate() {
                if n == 19 {
                    pen.row = row(if k % 2 == 0 { Status::Done } else { Status::Waiting });
                }
                group.push(pen.write(1, &content(k)[n]));
            }
            assert!(book.append(group).await.iter().all(Result::is_ok));
        }
        for k in [1, 3] {
            book.post(&pens[k].thread, message(k as u8)).await.unwrap();
        }
        if close {
            book.close().await.unwrap();
        }
    });
}

#[derive(Default, Debug)]
struct Tally {
    harmless: usize,
    refused: usize,
    reported: usize,
    silent: Vec<String>,
}

/// Opens a damaged copy and reads everything that there is.
fn look(path: &Path, tally: &mut Tally, what: &str) {
    let book = match Embedded::open(path, OpenOptions::new()) {
        Ok(book) => book,
        Err(
            OpenError::Damaged { .. } | OpenError::Truncated { .. } | OpenError::NotAJournal { .. },
        ) => {
            tally.refused += 1;
            return;
        }
        Err(OpenError::Newer { .. } | OpenError::Io { .. }) => {
            tally.refused += 1;
            return;
        }
        Err(other) => panic!("{what}: {other}"),
    };
    let mut errors = 0;
    let mut note = |error: StoreError| match error {
        StoreError::Damaged { .. } | StoreError::Failed { .. } => errors += 1,
        other => tally.silent.push(format!("{what}: {other}")),
    };
    wait(async {
        match book.list(&Filter::default(), None, 99).await {
            Ok(page) if page.items.len() == THREADS => {
                for (k, thread) in page
                    .items
                    .iter()
                    .map(|t| (t.id.as_str()[7..].parse::<usize>().unwrap_or(99), t))
                {
                    let ended = thread.row.status == Status::Done;
                    if ended != (k % 2 == 0) || thread.next != 20 {
                        note(StoreError::Closed);
                    }
                }
            }
            Ok(page) => {
                note(StoreError::Refused { why: format!("{} threads", page.items.len()).into() })
            }
            Err(error) => note(error),
        }
        match book.log(0, 1000).await {
            Ok(page) if page.items.len() == 20 * THREADS => {}
            Ok(page) => {
                note(StoreError::Refused { why: format!("{} leaves", page.items.len()).into() })
            }
            Err(error) => note(error),
        }
        for k in 0..THREADS {
            let id = ThreadId::new(format!("thread-{k}")).unwrap();
            match payloads(&book, &id).await {
                Ok(found) if found == content(k) => {}
                Ok(found) => note(StoreError::Refused {
                    why: format!("other data, {} records", found.len()).into(),
                }),
                Err(error) => note(error),
            }
            let expected = usize::from(k == 1 || k == 3);
            match book.inbox(&id).await {
                Ok(inbox) if inbox.len() == expected => {
                    assert!(inbox.iter().all(|m| *m == message(k as u8)), "{what}");
                }
                Ok(inbox) => {
                    note(StoreError::Refused { why: format!("{} messages", inbox.len()).into() })
                }
                Err(error) => note(error),
            }
        }
        // Whatever the damage: writing on either works or says so.
        if let Ok(mut pen) = Pen::claim(&book, "thread-1").await {
            drop(put(&book, pen.write(1, b"more")).await);
        }
    });
    if errors > 0 {
        tally.reported += 1;
    } else {
        tally.harmless += 1;
    }
}

fn sweep(close: bool, stride: usize, damage: impl Fn(&mut [u8], usize)) -> Tally {
    let folder = Folder::fast();
    let (whole, copy) = (folder.book(), folder.path().join("copy.redb"));
    fill(&whole, close);
    let bytes = fs::read(&whole).unwrap();
    let mut tally = Tally::default();
    // The header in full, the rest in a stride.
    let header = (0..320).step_by(stride.min(7));
    for at in header.chain((4096..bytes.len()).step_by(stride)) {
        let mut changed = bytes.clone();
        damage(&mut changed, at);
        fs::write(&copy, &changed).unwrap();
        let what = format!("byte {at} of {}", bytes.len());
        let looked = catch_unwind(std::panic::AssertUnwindSafe(|| look(&copy, &mut tally, &what)));
        assert!(looked.is_ok(), "{what}: a panic crossed the interface");
    }
    tally
}

fn judge(what: &str, tally: &Tally) {
    println!(
        "{what}: {} harmless, {} refused at open, {} reported on reading, {} silent",
        tally.harmless,
        tally.refused,
        tally.reported,
        tally.silent.len()
    );
    assert!(tally.silent.is_empty(), "{:#?}", tally.silent);
    assert!(tally.refused + tally.reported > 0, "nothing was damaged at all");
}

/// Every how many bytes; `DAMAGE_STRIDE=1` tries them all.
fn stride(default: usize) -> usize {
    std::env::var("DAMAGE_STRIDE").ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

#[test]
fn a_flipped_bit_in_a_closed_journal() {
    let tally = sweep(true, stride(997), |bytes, at| bytes[at] ^= 1 << (at % 8));
    judge("closed, a bit", &tally);
}

#[test]
fn a_flipped_bit_in_a_crashed_journal() {
    let tally = sweep(false, stride(997), |bytes, at| bytes[at] ^= 1 << (at % 8));
    judge("crashed, a bit", &tally);
}

#[test]
fn zeroed_sectors_in_a_closed_journal() {
    let tally = sweep(true, stride(2048), |bytes, at| {
        let end = bytes.len().min(at + 512);
        bytes[at..end].fill(0);
    });
    judge("closed, 512 zeroed bytes", &tally);
}
