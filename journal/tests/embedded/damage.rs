//! Bytes change under a closed and under a crashed journal: an error, or no harm; never a panic
//! and never other data.

use std::{fs, panic::catch_unwind, path::Path};

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, StoreError},
    embedded::{CreateOptions, Embedded, OpenError, OpenOptions},
    id::ThreadId,
    row::Status,
};

use crate::desk::{Folder, Pen, create, message, open, payloads, put, row, wait};

const THREADS: usize = 12;
const TABLES: &str = "copy.redb";
const LOG: &str = "copy.redb-log0";

/// What every thread must hold.
fn content(k: usize) -> Vec<Vec<u8>> {
    (0..20_u8).map(|n| vec![k as u8 ^ n; 40 + k * 3]).collect()
}

fn fill(path: &Path, close: bool) {
    fill_with(create(path), close);
}

fn fill_with(book: Embedded, close: bool) {
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
    // Long enough for the log to be marked: what is unmarked may be taken for torn.
    std::thread::sleep(std::time::Duration::from_millis(400));
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
            OpenError::Damaged { .. }
            | OpenError::Truncated { .. }
            | OpenError::NotAJournal { .. }
            | OpenError::LogMissing { .. },
        ) => {
            tally.refused += 1;
            return;
        }
        Err(OpenError::Newer { .. } | OpenError::Older { .. } | OpenError::Io { .. }) => {
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

/// Damages one file of a journal, at one place after the other.
fn sweep(close: bool, of: &str, stride: usize, damage: impl Fn(&mut [u8], usize)) -> Tally {
    let folder = Folder::fast();
    fill(&folder.book(), close);
    let names: Vec<_> = folder.names().into_iter().filter(|n| n.starts_with("book.redb")).collect();
    assert_eq!(names.len() == 1, close, "{names:?}");
    let whole: Vec<_> = names
        .iter()
        .map(|name| (name.replace("book", "copy"), fs::read(folder.path().join(name)).unwrap()))
        .collect();
    let (_, bytes) = whole.iter().find(|(name, _)| name == of).unwrap();
    let mut tally = Tally::default();
    // The header in full, the rest in a stride, up to what was filled ahead.
    let header = (0..320).step_by(stride.min(7));
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for at in header.chain((4096..end).step_by(stride)) {
        for name in folder.names().iter().filter(|n| n.starts_with("copy")) {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        for (name, bytes) in &whole {
            let mut changed = bytes.clone();
            if name == of {
                damage(&mut changed, at);
            }
            fs::write(folder.path().join(name), &changed).unwrap();
        }
        let what = format!("byte {at} of {of}, {} bytes", bytes.len());
        let copy = folder.path().join("copy.redb");
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
    let tally = sweep(true, TABLES, stride(997), |bytes, at| bytes[at] ^= 1 << (at % 8));
    judge("closed, a bit", &tally);
}

#[test]
fn a_flipped_bit_in_a_crashed_journal() {
    let tally = sweep(false, TABLES, stride(997), |bytes, at| bytes[at] ^= 1 << (at % 8));
    judge("crashed, a bit", &tally);
}

#[test]
fn zeroed_sectors_in_a_closed_journal() {
    let tally = sweep(true, TABLES, stride(2048), |bytes, at| {
        let end = bytes.len().min(at + 512);
        bytes[at..end].fill(0);
    });
    judge("closed, 512 zeroed bytes", &tally);
}

#[test]
fn a_flipped_bit_in_the_log() {
    let tally = sweep(false, LOG, stride(211), |bytes, at| bytes[at] ^= 1 << (at % 8));
    judge("log, a bit", &tally);
}

#[test]
fn zeroed_sectors_in_the_log() {
    let tally = sweep(false, LOG, stride(1024), |bytes, at| {
        let end = bytes.len().min(at + 512);
        bytes[at..end].fill(0);
    });
    judge("log, 512 zeroed bytes", &tally);
}

#[test]
fn a_log_that_is_gone() {
    let folder = Folder::fast();
    fill(&folder.book(), false);
    fs::remove_file(folder.path().join("book.redb-log0")).unwrap();
    let before = fs::read(folder.book()).unwrap();
    match Embedded::open(folder.book(), OpenOptions::new()) {
        Err(OpenError::LogMissing { log, .. }) => assert!(log.ends_with("book.redb-log")),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read(folder.book()).unwrap(), before);
    // Another journal's log is not its log.
    let other = Folder::fast();
    drop(Embedded::create(other.book(), CreateOptions::new()).unwrap());
    fill_with(open(&other.book()), false);
    let name = "book.redb-log0";
    fs::copy(other.path().join(name), folder.path().join(name)).unwrap();
    match Embedded::open(folder.book(), OpenOptions::new()) {
        Err(OpenError::LogMissing { .. }) => {}
        other => panic!("{other:?}"),
    }
}
