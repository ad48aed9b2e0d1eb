//! One operation fails, at every place in turn.

use std::sync::Arc;

use deedbook_journal::{
    checkpointer::{Checkpointer, Posted, StoreError},
    embedded::{CountingDisk, CreateOptions, Embedded, FaultKind, OpenOptions},
    id::ThreadId,
    record::Role,
};

use crate::desk::{Folder, Pen, counting, create, message, open, payloads, put, wait};

const NOTE: u8 = 99;

/// What was acknowledged, and what was answered with an error.
#[derive(Default)]
struct Told {
    records: Vec<u8>,
    messages: Vec<u8>,
    /// Whether the first record was told to have lost its payload.
    erased: bool,
    error: Option<StoreError>,
    /// What the write in flight would have added.
    in_flight: (Vec<u8>, Vec<u8>),
}

/// A small workload: appends in groups, messages, an erasure, a close, until an error.
async fn work(book: &Embedded) -> Told {
    let mut told = Told::default();
    let mut pen = match Pen::claim(book, "t").await {
        Ok(pen) => pen,
        Err(error) => {
            told.error = Some(error);
            return told;
        }
    };
    for k in 0..12_u8 {
        told.in_flight = (vec![k, k], Vec::new());
        match put(book, pen.write(2, &[k])).await {
            Ok(next) => {
                told.records.extend([k, k]);
                assert_eq!(next, told.records.len() as u64);
            }
            Err(error) => {
                told.error = Some(error);
                return told;
            }
        }
        told.in_flight = (Vec::new(), vec![k]);
        match book.post(&pen.thread, message(k)).await {
            Ok(posted) => {
                assert_eq!(posted, Posted::Stored);
                told.messages.push(k);
            }
            Err(error) => {
                told.error = Some(error);
                return told;
            }
        }
    }
    told.in_flight = (vec![NOTE], Vec::new());
    let note = pen.write(1, &[NOTE]);
    match book.erase(&pen.thread.clone(), 0, Role::Value, note).await {
        Ok(_) => {
            told.records.push(NOTE);
            told.erased = true;
        }
        Err(error) => {
            told.error = Some(error);
            return told;
        }
    }
    told.in_flight = Default::default();
    if let Err(error) = book.close().await {
        told.error = Some(error);
    }
    told
}

/// What is there after reopening: of each record the first byte of its payload, of each message
/// that of its id, and whether the first record has lost its payload.
fn there(folder: &Folder) -> (Vec<u8>, Vec<u8>, bool) {
    let book = open(&folder.book());
    wait(async {
        let id = ThreadId::new("t").unwrap();
        let found = match payloads(&book, &id).await {
            Ok(found) => found,
            Err(StoreError::NoSuchThread) => return Default::default(),
            Err(error) => panic!("{error}"),
        };
        let inbox = book.inbox(&id).await.unwrap();
        let erased = found.first().is_some_and(Vec::is_empty);
        // What the first record had is a zero.
        let records = found.iter().map(|p| p.first().copied().unwrap_or(0)).collect();
        (records, inbox.iter().map(|m| m.id.0[0]).collect(), erased)
    })
}

fn on(disk: &Arc<CountingDisk>) -> OpenOptions {
    OpenOptions::new().disk(Arc::clone(disk) as _)
}

#[test]
fn a_fault_at_any_operation_loses_nothing_acknowledged() {
    let whole = {
        let folder = Folder::fast();
        drop(create(&folder.book()));
        let disk = counting();
        let book = Embedded::open(folder.book(), on(&disk)).unwrap();
        let told = wait(work(&book));
        assert!(told.error.is_none());
        disk.counts().operations
    };
    assert!(whole > 100, "{whole}");
    let (mut unknown, mut failed, mut kept, mut silent) = (0, 0, 0, 0);
    for (kind, and_later) in
        [(FaultKind::Device, false), (FaultKind::Device, true), (FaultKind::Full, false)]
    {
        for at in 0..whole {
            let folder = Folder::fast();
            drop(create(&folder.book()));
            let disk = counting();
            disk.fail_at(at, kind, and_later);
            let Ok(book) = Embedded::open(folder.book(), on(&disk)) else {
                // The fault struck in the recovery itself.
                assert_eq!(there(&folder), Default::default());
                continue;
            };
            let told = wait(work(&book));
            let Some(error) = told.error else {
                // It struck when the files of the log were removed or the anchor was written:
                // nothing needs that.
                silent += 1;
                drop(book);
                assert_eq!(there(&folder), (told.records, told.messages, true), "{at}");
                continue;
            };
            // Fail-stop: whatever comes now is refused, though the disk works again.
            if !matches!(error, StoreError::Closed) {
                let again = wait(Pen::claim(&book, "other"));
                assert!(again.is_err(), "{at}: alive after {error}");
                let page = wait(book.read(&ThreadId::new("t").unwrap(), 0, 10));
                assert!(page.is_err(), "{at}: served after {error}");
            }
            drop(book);
            let (records, messages, erased) = there(&folder);
            let note_is_there = records.last() == Some(&NOTE);
            assert_eq!(erased, note_is_there, "{at}: the note and the erasure come together");
            assert!(erased || !told.erased, "{at}");
            let more = (&records[told.records.len()..], &messages[told.messages.len()..]);
            assert_eq!(&records[..told.records.len()], told.records, "{at} {error}");
            assert_eq!(&messages[..told.messages.len()], told.messages, "{at} {error}");
            let in_flight = (&told.in_flight.0[..], &told.in_flight.1[..]);
            let was_kept = more == in_flight && more != (&[][..], &[][..]);
            assert!(was_kept || more == (&[][..], &[][..]), "{at}: a part is there: {more:?}");
            match error {
                StoreError::Unknown { .. } => unknown += 1,
                StoreError::Failed { .. } => {
                    failed += 1;
                    assert!(!was_kept, "{at}: said not to be there, and is");
                }
                other => panic!("{at}: {other}"),
            }
            kept += usize::from(was_kept);
        }
    }
    println!(
        "{whole} operations: {unknown} unknown ({kept} of them kept), {failed} failed, {silent} silent"
    );
    assert!(unknown > 0);
    // A file or two of the log and their folder, and the anchor with its own, three times over.
    assert!((1..=21).contains(&silent), "{silent}");
}

#[test]
fn a_fault_at_any_operation_of_creation_leaves_no_bad_journal() {
    let disk = counting();
    let folder = Folder::fast();
    drop(Embedded::create(folder.book(), CreateOptions::new().open(on(&disk))).unwrap());
    let whole = disk.counts().operations;
    assert!(whole > 10, "{whole}");
    for at in 0..whole {
        for and_later in [false, true] {
            let folder = Folder::fast();
            let disk = counting();
            disk.fail_at(at, FaultKind::Device, and_later);
            let made = Embedded::create(folder.book(), CreateOptions::new().open(on(&disk)));
            let succeeded = made.is_ok();
            drop(made);
            if folder.book().exists() {
                open(&folder.book());
            } else {
                assert!(!succeeded);
                // The next attempt succeeds, whatever the last one left behind.
                create(&folder.book());
            }
        }
    }
}
