//! Giving back space.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter},
    embedded::{CompactError, Embedded, FaultKind, OpenError, OpenOptions},
    record::{Record, Role},
};

use crate::desk::{Folder, Pen, counting, create, message, open, put, read_all, wait};

const SECRET: &[u8] = b"what must go, and be nowhere any more";

/// Everything that can be read of a journal.
async fn everything(book: &Embedded) -> Vec<(String, Vec<Record>, usize)> {
    let mut all = Vec::new();
    for info in book.list(&Filter::default(), None, 10_000).await.unwrap().items {
        let records = read_all(book, &info.id).await.unwrap();
        let waiting = book.inbox(&info.id).await.unwrap().len();
        all.push((info.id.as_str().to_owned(), records, waiting));
    }
    all
}

/// A journal with much in it, a secret that was erased, and messages; not closed.
fn much(path: &Path) -> Embedded {
    let book = create(path);
    wait(async {
        for k in 0..30_u8 {
            let mut pen = Pen::claim(&book, &format!("t{k}")).await.unwrap();
            for _ in 0..4 {
                put(&book, pen.write(5, &[k; 2000])).await.unwrap();
            }
            book.post(&pen.thread, message(k)).await.unwrap();
        }
        let mut pen = Pen::claim(&book, "secret").await.unwrap();
        put(&book, pen.write(1, SECRET)).await.unwrap();
        let note = pen.write(1, b"erased");
        book.erase(&pen.thread.clone(), 0, Role::Value, note).await.unwrap();
    });
    book
}

fn holds(path: &Path, what: &[u8]) -> bool {
    fs::read(path).unwrap().windows(what.len()).any(|bytes| bytes == what)
}

#[test]
fn nothing_changes_but_the_space() {
    let folder = Folder::new();
    let path = folder.book();
    let book = much(&path);
    let before = wait(everything(&book));
    let identity = book.identity().clone();
    wait(book.close()).unwrap();
    drop(book);
    let length = fs::metadata(&path).unwrap().len();
    let done = Embedded::compact(&path, &OpenOptions::new(), |_| {}).unwrap();
    assert_eq!((done.bytes_before, done.records), (length, 602));
    assert_eq!(done.bytes_after, fs::metadata(&path).unwrap().len());
    assert!(done.bytes_after < done.bytes_before, "{done:?}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(folder.names(), ["book.redb"]);
    assert!(!holds(&path, SECRET));
    let book = open(&path);
    assert_eq!(book.info().recovery, None);
    assert_eq!((wait(everything(&book)), book.identity()), (before, &identity));
    // It goes on, and a second time there is nothing to give back.
    wait(async {
        let mut pen = Pen::claim(&book, "t0").await.unwrap();
        put(&book, pen.write(1, b"more")).await.unwrap();
        book.close().await.unwrap();
    });
    drop(book);
    let again = Embedded::compact(&path, &OpenOptions::new(), |_| {}).unwrap();
    assert_eq!(again.records, 603);
}

#[test]
fn one_that_is_open_is_refused_and_one_that_was_not_closed_is_recovered_first() {
    let folder = Folder::new();
    let book = much(&folder.book());
    match Embedded::compact(folder.book(), &OpenOptions::new(), |_| {}) {
        Err(CompactError::Open(OpenError::Locked { .. })) => {}
        other => panic!("{other:?}"),
    }
    let before = wait(everything(&book));
    drop(book);
    assert_eq!(Embedded::compact(folder.book(), &OpenOptions::new(), |_| {}).unwrap().records, 602);
    assert_eq!(folder.names(), ["book.redb"]);
    assert_eq!(wait(everything(&open(&folder.book()))), before);
}

#[test]
fn whoever_waits_for_it_gets_the_new_file() {
    let folder = Folder::new();
    let path = folder.book();
    wait(much(&path).close()).unwrap();
    std::thread::scope(|scope| {
        let mut waiting = None;
        let mut wait_for_it = || {
            let path: PathBuf = path.clone();
            waiting.get_or_insert_with(|| scope.spawn(move || open(&path)));
        };
        Embedded::compact(&path, &OpenOptions::new(), |_| wait_for_it()).unwrap();
        let book = waiting.unwrap().join().unwrap();
        wait(async {
            let mut pen = Pen::claim(&book, "new").await.unwrap();
            put(&book, pen.write(1, b"kept")).await.unwrap();
            book.close().await.unwrap();
        });
    });
    let book = open(&path);
    let all = wait(everything(&book));
    assert!(all.iter().any(|(id, ..)| id == "new"), "it was written into a file without a name");
}

#[test]
fn a_fault_at_any_operation_leaves_one_of_the_two_files() {
    let folder = Folder::fast();
    let path = folder.book();
    let book = create(&path);
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        put(&book, pen.write(5, &[1; 3000])).await.unwrap();
        book.close().await.unwrap();
    });
    drop(book);
    let expected = wait(everything(&open(&path)));
    let disk = counting();
    let options = OpenOptions::new().disk(disk.clone());
    Embedded::compact(&path, &options, |_| {}).unwrap();
    let operations = disk.counts().operations;
    assert!(operations > 10, "{operations}");
    for k in 0..operations {
        disk.fail_at(disk.counts().operations + k, FaultKind::Full, true);
        let result = Embedded::compact(&path, &options, |_| {});
        disk.fail_at(u64::MAX, FaultKind::Full, false);
        let text = result.expect_err("it was told that it is done").to_string();
        assert!(text.contains("book.redb"), "{k}: {text}");
        assert_eq!(wait(everything(&open(&path))), expected, "{k}: {text}");
    }
    Embedded::compact(&path, &options, |_| {}).unwrap();
    assert_eq!(folder.names(), ["book.redb"]);
}

/// A chunk that fills sixteen pages as one part becomes shorter, and then has more parts: none of
/// them may stand where the next chunk begins.
#[test]
fn an_erasure_may_leave_a_chunk_in_more_parts() {
    let folder = Folder::new();
    let path = folder.book();
    let book = create(&path);
    let payload = |k: u8| vec![k; if k == 40 { 20_000 } else { 700 }];
    wait(async {
        for id in ["a", "b", "c"] {
            let mut pen = Pen::claim(&book, id).await.unwrap();
            for k in 0..130 {
                put(&book, pen.write(1, &payload(k))).await.unwrap();
            }
        }
        book.close().await.unwrap();
    });
    let book = open(&path);
    let mut before = wait(everything(&book));
    let leaves = wait(book.log(0, 10_000)).unwrap().items;
    wait(async {
        for id in ["a", "b"] {
            let mut pen = Pen::claim(&book, id).await.unwrap();
            let note = pen.write(1, b"erased");
            book.erase(&pen.thread.clone(), 40, Role::Value, note).await.unwrap();
        }
    });
    for (_, records, _) in &mut before[..2] {
        records[40].payloads.clear();
    }
    let check = |book: &Embedded| {
        let mut now = wait(everything(book));
        for (_, records, _) in &mut now[..2] {
            assert_eq!(records.pop().unwrap().payloads.len(), 1);
        }
        assert!(now == before);
        assert_eq!(wait(book.log(0, 10_000)).unwrap().items[..390], leaves);
    };
    check(&book);
    wait(book.close()).unwrap();
    check(&open(&path));
    Embedded::compact(&path, &OpenOptions::new(), |_| {}).unwrap();
    check(&open(&path));
}
