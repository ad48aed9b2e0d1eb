//! What is older than it was, put back or cut, is noticed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CreateOptions, Embedded, OpenError, OpenOptions, files_of},
    id::ThreadId,
};

use crate::desk::{Folder, Pen, counting, message, open, payloads, put, wait};

fn anchor(path: &Path) -> PathBuf {
    files_of(path).pop().unwrap()
}

/// Writes so many records more, and closes or crashes.
fn more(path: &Path, count: usize, close: bool) {
    let book = open(path);
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        for _ in 0..count {
            put(&book, pen.write(1, b"x")).await.unwrap();
        }
        if close {
            book.close().await.unwrap();
        }
    });
}

fn count(path: &Path) -> usize {
    let book = open(path);
    wait(payloads(&book, &ThreadId::new("t").unwrap())).unwrap().len()
}

fn closed(records: usize) -> Folder {
    let folder = Folder::new();
    drop(Embedded::create(folder.book(), CreateOptions::new()).unwrap());
    more(&folder.book(), records, true);
    folder
}

/// How many records there are and were, where that is refused.
fn rolled_back(path: &Path) -> (u64, u64) {
    let before = fs::read(path).unwrap();
    match Embedded::open(path, OpenOptions::new()) {
        Err(error @ OpenError::RolledBack { .. }) => {
            let text = error.to_string();
            assert!(text.contains("doctor --accept-rollback"), "{text}");
            assert_eq!(fs::read(path).unwrap(), before);
            let OpenError::RolledBack { records, anchored, .. } = error else { unreachable!() };
            (records, anchored)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_older_copy_that_is_put_back_is_refused_until_that_is_accepted() {
    let folder = closed(5);
    let older = fs::read(folder.book()).unwrap();
    more(&folder.book(), 3, true);
    let newer = fs::read(folder.book()).unwrap();
    fs::write(folder.book(), &older).unwrap();
    assert_eq!(rolled_back(&folder.book()), (5, 8));
    let looked = Embedded::open(folder.book(), OpenOptions::new().read_only(true));
    assert!(matches!(looked, Err(OpenError::RolledBack { .. })));
    // The newer one back, and all is well.
    fs::write(folder.book(), &newer).unwrap();
    assert_eq!(count(&folder.book()), 8);
    // Or on purpose, once.
    fs::write(folder.book(), &older).unwrap();
    let accept = OpenOptions::new().accept_rollback(true);
    drop(Embedded::open(folder.book(), accept).unwrap());
    assert_eq!(count(&folder.book()), 5);
    more(&folder.book(), 1, true);
    fs::write(folder.book(), &older).unwrap();
    assert_eq!(rolled_back(&folder.book()), (5, 6));
}

#[test]
fn a_log_whose_end_is_lost_is_noticed_once_it_was_idle() {
    let folder = closed(5);
    let path = folder.book();
    let before = fs::read(anchor(&path)).unwrap();
    let book = open(&path);
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        for _ in 0..3 {
            put(&book, pen.write(1, b"x")).await.unwrap();
        }
    });
    let since = Instant::now();
    while fs::read(anchor(&path)).unwrap() == before {
        assert!(since.elapsed() < Duration::from_secs(20), "the anchor is not written");
        std::thread::yield_now();
    }
    // Let it finish.
    std::thread::sleep(Duration::from_millis(100));
    drop(book);
    let log = folder.path().join("book.redb-log0");
    let bytes = fs::read(&log).unwrap();
    assert_eq!(count(&path), 8);
    fs::write(&log, &bytes).unwrap();
    // The last frames, mark and all, as if they had never been written.
    let frames: Vec<_> =
        (4096..bytes.len()).filter(|at| bytes[*at..].starts_with(b"DBWF")).collect();
    let mut cut = bytes.clone();
    cut[frames[frames.len() - 2]..].fill(0);
    fs::write(&log, &cut).unwrap();
    assert_eq!(rolled_back(&path), (7, 8));
}

#[test]
fn messages_count_too() {
    let folder = closed(2);
    let older = fs::read(folder.book()).unwrap();
    let book = open(&folder.book());
    wait(async {
        book.post(&ThreadId::new("t").unwrap(), message(1)).await.unwrap();
        book.close().await.unwrap();
    });
    drop(book);
    fs::write(folder.book(), &older).unwrap();
    assert_eq!(rolled_back(&folder.book()), (2, 2));
}

#[test]
fn without_an_anchor_it_opens_and_has_one_when_it_was_written_to() {
    let folder = closed(5);
    fs::remove_file(anchor(&folder.book())).unwrap();
    assert_eq!(count(&folder.book()), 5);
    assert!(!anchor(&folder.book()).exists(), "looking changes nothing");
    more(&folder.book(), 1, true);
    assert!(anchor(&folder.book()).exists());
    // One of another journal, or what is none, says nothing of it.
    let other = closed(9);
    fs::copy(anchor(&other.book()), anchor(&folder.book())).unwrap();
    assert_eq!(count(&folder.book()), 6);
    fs::write(anchor(&folder.book()), "my notes").unwrap();
    more(&folder.book(), 1, true);
    assert_eq!(fs::read(anchor(&folder.book())).unwrap(), b"my notes");
    assert_eq!(count(&folder.book()), 7);
    // Nor does what a journal has left that was removed keep another one from being made.
    let path = other.book();
    fs::remove_file(&path).unwrap();
    drop(Embedded::create(&path, CreateOptions::new()).unwrap());
    more(&path, 1, true);
    assert_eq!(count(&path), 1);
}

#[test]
fn no_commit_writes_to_it() {
    let folder = closed(1);
    let disk = counting();
    let book = Embedded::open(folder.book(), OpenOptions::new().disk(disk.clone())).unwrap();
    let before = fs::read(anchor(&folder.book())).unwrap();
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        put(&book, pen.write(1, b"x")).await.unwrap();
        let syncs = disk.counts().syncs;
        for _ in 0..20 {
            put(&book, pen.write(1, b"x")).await.unwrap();
        }
        // An idle log is marked after 100 ms, which a busy machine may give it.
        assert!(disk.counts().syncs <= syncs + 20 + 8);
        assert!(
            fs::read(anchor(&folder.book())).unwrap() == before || disk.counts().syncs > syncs + 20
        );
        book.close().await.unwrap();
    });
    assert_ne!(fs::read(anchor(&folder.book())).unwrap(), before);
}
