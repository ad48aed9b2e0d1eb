//! Examinations.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{Embedded, Examination, OpenError, OpenOptions, Verdict},
};

use crate::desk::{Folder, Pen, create, message, open, put, wait};

fn examine(path: &Path) -> Examination {
    Embedded::examine(path, &OpenOptions::new(), |_| true).unwrap()
}

/// What is said about something, and how it stands.
fn about<'e>(seen: &'e Examination, what: &str) -> Vec<(Verdict, &'e str)> {
    let about = seen.findings.iter().filter(|finding| finding.about == what);
    about.map(|finding| (finding.verdict, &*finding.said)).collect()
}

fn files(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

fn fill(path: &Path, close: bool) {
    let book = create(path);
    wait(async {
        for k in 0..5_u8 {
            let mut pen = Pen::claim(&book, &format!("t{k}")).await.unwrap();
            put(&book, pen.write(5, &[k + 1; 3000])).await.unwrap();
            book.post(&pen.thread, message(k)).await.unwrap();
        }
        if close {
            book.close().await.unwrap();
        }
    });
}

#[test]
fn a_journal_in_order_is_said_to_be_so_and_stays_as_it_was() {
    let folder = Folder::new();
    fill(&folder.book(), true);
    let before = files(&folder);
    let seen = examine(&folder.book());
    assert_eq!(seen.worst(), Verdict::Good, "{:#?}", seen.findings);
    let told: Vec<_> = seen.findings.iter().map(|finding| &*finding.about).collect();
    assert_eq!(told, ["file", "opening", "anchor", "records", "pages", "space"]);
    assert_eq!(seen.records, 25);
    assert!(files(&folder) == before);
}

#[test]
fn one_that_was_not_closed_is_read_with_its_log_and_not_recovered() {
    let folder = Folder::new();
    fill(&folder.book(), false);
    let before = files(&folder);
    let seen = examine(&folder.book());
    assert_eq!(seen.worst(), Verdict::Note, "{:#?}", seen.findings);
    assert!(about(&seen, "opening")[0].1.contains("10 entries with 25 records"));
    assert_eq!((seen.records, about(&seen, "log")[0].0), (25, Verdict::Good));
    assert!(files(&folder) == before);
    // Without its log, the tables are looked at by themselves.
    fs::remove_file(folder.path().join("book.redb-log0")).unwrap();
    let seen = examine(&folder.book());
    let opening = about(&seen, "opening");
    assert_eq!(opening[0].0, Verdict::Fault, "{:#?}", seen.findings);
    assert!(opening[0].1.contains("its log is missing"), "{opening:?}");
    assert!(opening[1].1.contains("the tables by themselves"), "{opening:?}");
    assert_eq!(about(&seen, "records")[0].0, Verdict::Good);
}

#[test]
fn what_is_wrong_around_it_is_said_with_what_to_do() {
    let folder = Folder::new();
    fill(&folder.book(), true);
    let older = fs::read(folder.book()).unwrap();
    fs::set_permissions(folder.book(), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(folder.path().join(".book.redb.0123456789abcdef.new"), "").unwrap();
    fs::write(folder.path().join("book.redb-log1"), "mine").unwrap();
    let seen = examine(&folder.book());
    assert_eq!(seen.worst(), Verdict::Warning);
    assert!(about(&seen, "file")[0].1.contains("mode 644"));
    assert!(about(&seen, "leftovers")[0].1.contains(".book.redb.0123456789abcdef.new"));
    assert_eq!(about(&seen, "log")[0].0, Verdict::Warning);
    assert!(about(&seen, "log")[0].1.contains("book.redb-log1 is none of its log"));
    for finding in seen.findings.iter().filter(|finding| finding.verdict > Verdict::Note) {
        assert!(!finding.next.is_empty(), "{finding:?}");
    }
    // An older copy.
    fs::remove_file(folder.path().join("book.redb-log1")).unwrap();
    let book = open(&folder.book());
    wait(async {
        let mut pen = Pen::claim(&book, "t1").await.unwrap();
        put(&book, pen.write(2, b"more")).await.unwrap();
        book.close().await.unwrap();
    });
    drop(book);
    fs::write(folder.book(), older).unwrap();
    let seen = examine(&folder.book());
    assert_eq!((seen.worst(), seen.rolled_back_from), (Verdict::Fault, Some(27)));
    assert!(about(&seen, "anchor")[0].1.contains("remembers 27 records, and there are 25"));
    // A copy that went its own way.
    drop(Embedded::open(folder.book(), OpenOptions::new().accept_rollback(true)).unwrap());
    let anchor = folder.path().join("book.redb-anchor");
    let other = |payload: &[u8]| {
        let book = open(&folder.book());
        wait(async {
            let mut pen = Pen::claim(&book, "t1").await.unwrap();
            put(&book, pen.write(3, payload)).await.unwrap();
            book.close().await.unwrap();
        });
    };
    let base = (fs::read(folder.book()).unwrap(), fs::read(&anchor).unwrap());
    other(b"one way");
    let one = fs::read(&anchor).unwrap();
    fs::write(folder.book(), base.0).unwrap();
    fs::write(&anchor, base.1).unwrap();
    other(b"the other way");
    fs::write(&anchor, one).unwrap();
    let seen = examine(&folder.book());
    assert!(about(&seen, "anchor")[0].1.contains("went its own way"), "{:#?}", seen.findings);
}

#[test]
fn who_has_it_open_is_named_and_what_is_none_is_refused() {
    let folder = Folder::new();
    let missing = Embedded::examine(folder.book(), &OpenOptions::new(), |_| true);
    assert!(matches!(missing, Err(OpenError::NotFound { .. })));
    let book = create(&folder.book());
    let held = Embedded::examine(folder.book(), &OpenOptions::new(), |_| true);
    assert!(matches!(held, Err(OpenError::Locked { .. })));
    drop(book);
    fs::write(folder.book(), "a text").unwrap();
    let seen = examine(&folder.book());
    assert_eq!(about(&seen, "opening")[0].0, Verdict::Fault);
    assert!(about(&seen, "opening")[0].1.contains("is not a journal"));
}

/// Damage anywhere is a finding and never a panic, and where a record is damaged, it is named.
#[test]
fn damage_anywhere_is_found_and_changes_nothing() {
    let folder = Folder::fast();
    fill(&folder.book(), true);
    let whole = fs::read(folder.book()).unwrap();
    let (mut found, mut named) = (0, 0);
    let place = whole.windows(500).position(|bytes| bytes == [3; 500]).unwrap();
    let places = (0..whole.len()).step_by(whole.len() / 150).chain([place]);
    for at in places {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(folder.book(), &damaged).unwrap();
        let seen = examine(&folder.book());
        if seen.worst() > Verdict::Note {
            found += 1;
        }
        let records = about(&seen, "records");
        named += usize::from(records.iter().any(|(_, said)| said.contains("of thread \"t2\"")));
        assert!(at != place || named > 0, "{:#?}", seen.findings);
        assert_eq!(fs::read(folder.book()).unwrap(), damaged, "byte {at}");
    }
    println!("{found} found, {named} in the records of the thread");
    assert!(found > 20 && named > 1, "{found} {named}");
    for length in [0, 100, 4096, whole.len() / 2, whole.len() - 4096] {
        fs::write(folder.book(), &whole[..length]).unwrap();
        assert_eq!(examine(&folder.book()).worst(), Verdict::Fault, "{length} bytes");
    }
}
