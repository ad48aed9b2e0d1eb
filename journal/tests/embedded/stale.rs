//! Files of a log that are not the ones that belong there: older, newer, cut, somebody else's.

use std::{
    fs,
    path::{Path, PathBuf},
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CreateError, CreateOptions, Embedded, OpenError, OpenOptions},
    id::ThreadId,
};

use crate::desk::{Folder, Pen, open, payloads, put, wait};

fn log(folder: &Folder, k: u8) -> PathBuf {
    folder.path().join(format!("book.redb-log{k}"))
}

/// Writes some records more and crashes, or closes.
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

fn damaged(path: &Path) -> String {
    match Embedded::open(path, OpenOptions::new()) {
        Err(error @ OpenError::Damaged { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn missing(path: &Path) {
    match Embedded::open(path, OpenOptions::new()) {
        Err(OpenError::LogMissing { .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// A journal with 5 records that was closed, and its bytes.
fn closed() -> (Folder, Vec<u8>) {
    let folder = Folder::new();
    drop(Embedded::create(folder.book(), CreateOptions::new()).unwrap());
    more(&folder.book(), 5, true);
    let bytes = fs::read(folder.book()).unwrap();
    (folder, bytes)
}

#[test]
fn the_log_of_another_run_from_the_same_copy_is_not_its_log() {
    let (folder, clean) = closed();
    more(&folder.book(), 3, false);
    let stale = fs::read(log(&folder, 0)).unwrap();
    fs::remove_file(log(&folder, 0)).unwrap();
    fs::write(folder.book(), &clean).unwrap();
    more(&folder.book(), 7, false);
    let (book, own) = (fs::read(folder.book()).unwrap(), fs::read(log(&folder, 0)).unwrap());
    // Beside its own it does no harm.
    for k in [1, 2] {
        fs::write(log(&folder, k), &stale).unwrap();
        assert_eq!(count(&folder.book()), 12);
    }
    // In its place it is none.
    fs::write(folder.book(), &book).unwrap();
    fs::write(log(&folder, 0), &stale).unwrap();
    missing(&folder.book());
    fs::write(log(&folder, 0), &own).unwrap();
    assert_eq!(count(&folder.book()), 12);
}

#[test]
fn an_older_copy_beside_a_newer_log_is_refused() {
    let (folder, clean) = closed();
    more(&folder.book(), 3, false);
    let newer = fs::read(folder.book()).unwrap();
    fs::write(folder.book(), &clean).unwrap();
    assert!(damaged(&folder.book()).contains("an older copy of itself"));
    assert_eq!(fs::read(folder.book()).unwrap(), clean);
    fs::write(folder.book(), newer).unwrap();
    assert_eq!(count(&folder.book()), 8);
}

#[test]
fn no_journal_is_made_over_the_log_of_one_that_was_removed() {
    let (folder, _) = closed();
    more(&folder.book(), 3, false);
    let (tables, log) = (fs::read(folder.book()).unwrap(), log(&folder, 0));
    fs::remove_file(folder.book()).unwrap();
    match Embedded::create(folder.book(), CreateOptions::new()) {
        Err(CreateError::LogInTheWay { log: named, .. }) => assert_eq!(named, log),
        other => panic!("{other:?}"),
    }
    assert_eq!(folder.names(), ["book.redb-log0"]);
    fs::write(folder.book(), tables).unwrap();
    assert_eq!(count(&folder.book()), 8);
}

#[test]
fn a_log_that_was_cut_is_noticed_where_it_can_be() {
    let (folder, _) = closed();
    more(&folder.book(), 3, false);
    let file = fs::File::options().write(true).open(log(&folder, 0)).unwrap();
    file.set_len(20_000).unwrap();
    assert!(damaged(&folder.book()).contains("was cut short"));
}

#[test]
fn what_is_somebody_elses_is_left_alone() {
    let (folder, _) = closed();
    let other = Folder::new();
    drop(Embedded::create(other.book(), CreateOptions::new()).unwrap());
    more(&other.book(), 3, false);
    let text = b"\0\0\0\0\0\0\0\0my file".to_vec();
    fs::write(log(&folder, 0), &text).unwrap();
    fs::copy(log(&other, 0), log(&folder, 1)).unwrap();
    more(&folder.book(), 3, true);
    more(&folder.book(), 3, false);
    assert_eq!(count(&folder.book()), 11);
    assert_eq!(fs::read(log(&folder, 0)).unwrap(), text);
    assert_eq!(fs::read(log(&folder, 1)).unwrap(), fs::read(log(&other, 0)).unwrap());
    // With no name left nothing can be written, and everything can be read.
    let (last, _) = closed();
    for k in 0..3 {
        fs::create_dir(log(&last, k)).unwrap();
    }
    let book = open(&last.book());
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        let error = put(&book, pen.write(1, b"x")).await.unwrap_err();
        assert!(error.to_string().contains("is in the way"), "{error}");
    });
    drop(book);
    assert_eq!(count(&last.book()), 5);
}
