//! Making, opening, refusing, locking, closing.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::Barrier,
    time::{Duration, Instant},
};

use deedbook_journal::{
    checkpointer::{Checkpointer, Claim, Filter, StoreError},
    embedded::{CommitBy, CreateError, CreateOptions, Embedded, OpenError, OpenOptions, files_of},
    id::ThreadId,
    row::Status,
};

use crate::desk::{
    Folder, LONG, Pen, counting, create, message, open, payloads, put, read_all, row, wait,
};

fn refused(path: &Path) -> OpenError {
    let before = fs::read(path).ok();
    let error = Embedded::open(path, OpenOptions::new()).expect_err("opened");
    assert_eq!(fs::read(path).ok(), before, "{error}: the file was changed");
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    error
}

/// Writes some threads, one of them ended, and closes.
fn some(path: &Path) {
    let book = create(path);
    wait(async {
        for k in 0..5 {
            let mut pen = Pen::claim(&book, &format!("t{k}")).await.unwrap();
            pen.row = row(if k == 0 { Status::Done } else { Status::Waiting });
            put(&book, pen.write(k + 1, b"payload")).await.unwrap();
        }
        book.close().await.unwrap();
    });
}

#[test]
fn a_new_journal_is_private_and_alone_in_its_folder() {
    let folder = Folder::new();
    let book = create(&folder.book());
    assert_eq!(folder.names(), ["book.redb"]);
    let mode = fs::metadata(folder.book()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let info = book.info();
    assert_eq!((info.threads, info.records, info.recovery), (0, 0, None));
    assert_eq!(info.log_id, [3; 16]);
    assert!(info.file_bytes > 0);
}

#[test]
fn creating_touches_nothing_that_is_there() {
    let folder = Folder::new();
    let path = folder.book();
    let mut checked = 0;
    let mut check = |path: &Path| {
        let before = fs::symlink_metadata(path).unwrap().modified().unwrap();
        let error = Embedded::create(path, CreateOptions::new()).expect_err("created");
        assert!(matches!(error, CreateError::AlreadyExists { .. }), "{error}");
        assert_eq!(fs::symlink_metadata(path).unwrap().modified().unwrap(), before);
        checked += 1;
    };
    fs::write(&path, b"").unwrap();
    check(&path);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    check(&path);
    fs::remove_dir(&path).unwrap();
    symlink(folder.path().join("nowhere"), &path).unwrap();
    check(&path);
    fs::remove_file(&path).unwrap();
    some(&path);
    check(&path);
    assert_eq!(checked, 4);
    assert_eq!(folder.names(), ["book.redb"]);
    let nowhere = folder.path().join("no/such/folder/book.redb");
    let error = Embedded::create(nowhere, CreateOptions::new()).expect_err("created");
    assert!(matches!(error, CreateError::Io { .. }), "{error}");
}

#[test]
fn of_twenty_who_create_at_once_one_does() {
    let folder = Folder::new();
    let path = folder.book();
    let barrier = Barrier::new(20);
    let made: usize = std::thread::scope(|scope| {
        let attempt = || {
            barrier.wait();
            match Embedded::create(&path, CreateOptions::new()) {
                Ok(book) => {
                    wait(book.close()).unwrap();
                    1
                }
                Err(CreateError::AlreadyExists { .. }) => 0,
                Err(error) => panic!("{error}"),
            }
        };
        let attempts: Vec<_> = (0..20).map(|_| scope.spawn(attempt)).collect();
        attempts.into_iter().map(|a| a.join().unwrap()).sum()
    });
    assert_eq!(made, 1);
    assert_eq!(folder.names(), ["book.redb"]);
    open(&path);
}

#[test]
fn opening_never_creates() {
    let folder = Folder::new();
    let error = Embedded::open(folder.book(), OpenOptions::new()).expect_err("opened");
    assert!(matches!(error, OpenError::NotFound { .. }), "{error}");
    assert!(folder.names().is_empty());
}

#[test]
fn what_is_not_a_journal_is_refused_and_left_as_it_was() {
    let folder = Folder::new();
    let path = folder.path().join("x");
    fs::write(&path, b"").unwrap();
    assert!(matches!(refused(&path), OpenError::Empty { .. }));
    let mut sqlite = b"SQLite format 3\0".to_vec();
    sqlite.resize(8192, 0);
    for foreign in [&b"hello"[..], &[0; 100_000], &sqlite, b"redb"] {
        fs::write(&path, foreign).unwrap();
        assert!(matches!(refused(&path), OpenError::NotAJournal { .. }), "{foreign:?}");
    }
    fs::create_dir(folder.path().join("d")).unwrap();
    assert!(matches!(refused(&folder.path().join("d")), OpenError::Refused { .. }));
}

#[test]
fn the_database_of_another_program_is_refused_closed_or_not() {
    let folder = Folder::new();
    let path = folder.path().join("other.redb");
    const TABLE: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("deedbook.meta");
    for mismatched in [false, true] {
        let db = redb::Database::create(&path).unwrap();
        let transaction = db.begin_write().unwrap();
        let other: redb::TableDefinition<'_, u64, u64> = redb::TableDefinition::new("other");
        transaction.open_table(other).unwrap().insert(1, 2).unwrap();
        if mismatched {
            transaction.open_table(TABLE).unwrap().insert("genesis", 2).unwrap();
        }
        transaction.commit().unwrap();
        // As a crash leaves it: redb would repair this one as soon as it opens it.
        let unclean = folder.path().join("unclean.redb");
        fs::copy(&path, &unclean).unwrap();
        drop(db);
        let error = refused(&unclean);
        assert!(matches!(error, OpenError::NotAJournal { .. }), "{error}");
        let error = refused(&path);
        assert!(matches!(error, OpenError::NotAJournal { .. }), "{error}");
        fs::remove_file(&path).unwrap();
    }
}

/// Has a journal say another version of its format, as the program of that version would.
fn set_version(path: &Path, version: u8) {
    let meta: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("deedbook.meta");
    let db = redb::Database::open(path).unwrap();
    let transaction = db.begin_write().unwrap();
    let mut genesis = vec![version, 1, 2, 3];
    let key = blake3::derive_key("deedbook 2026-11-29 v1 embedded checksum", &[]);
    let mut hasher = blake3::Hasher::new_keyed(&key);
    hasher.update(&4_u64.to_le_bytes()).update(&7_u64.to_le_bytes());
    hasher.update(b"meta").update(b"genesis").update(&genesis);
    genesis.extend_from_slice(&hasher.finalize().as_bytes()[..16]);
    transaction.open_table(meta).unwrap().insert("genesis", &genesis[..]).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn a_newer_and_an_older_journal_are_refused() {
    let folder = Folder::new();
    some(&folder.book());
    set_version(&folder.book(), 9);
    let error = refused(&folder.book());
    assert!(matches!(error, OpenError::Newer { found: 9, known: 3, .. }), "{error}");
    for version in [1, 2] {
        set_version(&folder.book(), version);
        let error = refused(&folder.book());
        let OpenError::Older { found, known: 3, .. } = error else { panic!("{error}") };
        assert_eq!(found, version);
    }
}

#[test]
fn a_truncated_journal_is_refused_with_its_sizes() {
    let folder = Folder::new();
    some(&folder.book());
    let whole = fs::read(folder.book()).unwrap();
    let path = folder.path().join("cut.redb");
    for thousandths in [1, 10, 100, 500, 900, 999] {
        let length = whole.len() * thousandths / 1000;
        fs::write(&path, &whole[..length]).unwrap();
        let error = refused(&path);
        match error {
            OpenError::Truncated { have, want, .. } => {
                assert_eq!(have, length as u64);
                assert!(want > have && want <= whole.len() as u64, "{want}");
            }
            other => panic!("{length}: {other}"),
        }
    }
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(refused(&path), OpenError::Truncated { .. }));
}

#[test]
fn symbolic_links_are_followed_only_when_asked() {
    let folder = Folder::new();
    some(&folder.book());
    let link = folder.path().join("link.redb");
    symlink(folder.book(), &link).unwrap();
    let error = refused(&link);
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
    Embedded::open(&link, OpenOptions::new().follow_symlinks(true)).unwrap();
}

#[test]
fn the_second_one_is_told_who_has_it() {
    let folder = Folder::new();
    let book = create(&folder.book());
    let error = refused(&folder.book());
    let text = error.to_string();
    let OpenError::Locked { holder, .. } = error else {
        panic!("{text}");
    };
    assert_eq!(holder.pid, Some(std::process::id()), "{text}");
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    // Waiting ends with success when the holder goes, and with the same error when it stays.
    let since = Instant::now();
    let short = OpenOptions::new().wait(Duration::from_millis(60));
    let error = Embedded::open(folder.book(), short).expect_err("opened");
    assert!(matches!(error, OpenError::Locked { .. }) && since.elapsed().as_millis() >= 60);
    std::thread::scope(|scope| {
        let path = folder.book();
        let patient = OpenOptions::new().wait(Duration::from_secs(60));
        let waiting = scope.spawn(move || Embedded::open(path, patient).map(drop));
        drop(book);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn opening_and_closing_without_a_write_leaves_every_byte() {
    let folder = Folder::new();
    some(&folder.book());
    let before = fs::read(folder.book()).unwrap();
    let disk = counting();
    let book = Embedded::open(folder.book(), OpenOptions::new().disk(disk.clone())).unwrap();
    assert_eq!(book.info().recovery, None);
    wait(async {
        let page = book.list(&Filter::default(), None, 99).await.unwrap();
        assert_eq!(page.items.len(), 5);
        assert_eq!(read_all(&book, &ThreadId::new("t4").unwrap()).await.unwrap().len(), 5);
        // A claim that writes nothing is no write.
        let id = ThreadId::new("t3").unwrap();
        book.claim(Claim::Thread { id, create: None }, "x", LONG).await.unwrap();
        book.close().await.unwrap();
    });
    assert_eq!(disk.counts().operations, 0);
    assert_eq!(fs::read(folder.book()).unwrap(), before);
}

#[test]
fn a_commit_is_one_sync_of_the_log() {
    let folder = Folder::new();
    let disk = counting();
    let open = OpenOptions::new().disk(disk.clone());
    let book = Embedded::create(folder.book(), CreateOptions::new().open(open)).unwrap();
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        for _ in 0..10 {
            put(&book, pen.write(1, b"x")).await.unwrap();
        }
        // The keeper fills the log ahead and marks it when it is idle.
        pause(400);
        let before = disk.counts();
        for _ in 0..50 {
            put(&book, pen.write(1, b"x")).await.unwrap();
        }
        let after = disk.counts();
        // One each; where this thread was held up, a mark.
        assert!((50..=53).contains(&(after.syncs - before.syncs)), "{after:?} {before:?}");
        assert_eq!(after.syncs - before.syncs, after.writes - before.writes);
        // A group of elements costs what one does.
        let before = disk.counts();
        let group = (0..50).map(|_| pen.write(2, b"x")).collect();
        assert!(book.append(group).await.iter().all(Result::is_ok));
        assert!((1..=2).contains(&(disk.counts().syncs - before.syncs)));
        // Claims, renewals and reads cost none.
        pause(400);
        let before = disk.counts();
        Pen::claim(&book, "u").await.unwrap();
        book.renew(&[(pen.thread.clone(), pen.epoch)], LONG).await.unwrap();
        payloads(&book, &pen.thread).await.unwrap();
        assert_eq!(disk.counts().syncs, before.syncs);
    });
}

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

#[test]
fn writers_wait_for_drains() {
    let folder = Folder::new();
    let open = OpenOptions::new().log_bytes(64 << 10);
    let book = Embedded::create(folder.book(), CreateOptions::new().open(open)).unwrap();
    let payload = vec![5; 60 << 10];
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        for _ in 0..150 {
            put(&book, pen.write(1, &payload)).await.unwrap();
            let undrained = book.info().undrained_bytes;
            assert!(undrained <= (128 + 64) << 10, "{undrained} bytes are not drained");
        }
        assert_eq!(payloads(&book, &pen.thread).await.unwrap().len(), 150);
        book.close().await.unwrap();
    });
}

#[test]
fn the_log_turns_also_after_an_erasure() {
    let folder = Folder::new();
    let open = OpenOptions::new().log_bytes(64 << 10);
    let book = Embedded::create(folder.book(), CreateOptions::new().open(open)).unwrap();
    let payload = vec![5; 20 << 10];
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        for _ in 0..2 {
            put(&book, pen.write(1, &payload)).await.unwrap();
        }
        // By now the next file is ready, which the erasure passes over.
        pause(400);
        let note = pen.write(1, b"note");
        let role = deedbook_journal::record::Role::Value;
        book.erase(&pen.thread.clone(), 0, role, note).await.unwrap();
        for _ in 0..60 {
            put(&book, pen.write(1, &payload)).await.unwrap();
            // Files are made ready and freed beside the writers, who do not wait for that.
            while book.info().undrained_bytes > 32 << 10 {
                std::thread::yield_now();
            }
        }
    });
    for file in files_of(folder.book()).into_iter().skip(1).filter(|file| file.exists()) {
        let length = fs::metadata(&file).unwrap().len();
        assert!(length < 400 << 10, "{} has {length} bytes", file.display());
    }
}

/// The keeper came for a claim, found the first write behind it, and tried to write it into a log
/// that it was still to begin: the handle was dead.
#[test]
fn a_first_write_waits_for_its_log_whoever_is_served_before() {
    let folder = Folder::fast();
    for round in 0..100 {
        let path = folder.path().join(format!("{round}.redb"));
        let open = OpenOptions::new().commit_by(CommitBy::Thread);
        let book = Embedded::create(path, CreateOptions::new().open(open)).unwrap();
        wait(async {
            let mut pen = Pen::claim(&book, "t").await.unwrap();
            let claim = || Pen::claim(&book, "u");
            let write = put(&book, pen.write(1, b"x"));
            let (_, _, written, _) = tokio::join!(claim(), claim(), write, claim());
            assert_eq!(written, Ok(1), "in round {round}");
        });
    }
}

#[test]
fn dropping_without_close_is_a_crash_that_is_recovered() {
    let folder = Folder::new();
    let path = folder.book();
    let mut expected = 0;
    drop(create(&path));
    for round in 0..4_u8 {
        let book = open(&path);
        assert_eq!(book.info().recovery.is_some(), round > 0);
        wait(async {
            let mut pen = Pen::claim(&book, "t").await.unwrap();
            assert_eq!(pen.next, expected);
            for _ in 0..700 {
                put(&book, pen.write(2, &[round])).await.unwrap();
            }
            expected = pen.next;
            book.post(&pen.thread, message(round)).await.unwrap();
            assert_eq!(book.inbox(&pen.thread).await.unwrap().len(), usize::from(round) + 1);
            let found = payloads(&book, &pen.thread).await.unwrap();
            assert_eq!(found.len() as u64, expected);
        });
    }
    let book = open(&path);
    wait(book.close()).unwrap();
    assert_eq!(wait(book.now()), Err(StoreError::Closed));
    let book = open(&path);
    assert_eq!(book.info().recovery, None);
    assert_eq!(book.info().records, expected);
    let found = wait(payloads(&book, &ThreadId::new("t").unwrap())).unwrap();
    assert!(found.iter().enumerate().all(|(n, p)| p == &[(n / 1400) as u8]));
}

#[test]
fn threads_of_the_system_write_at_once_without_gaps() {
    let folder = Folder::new();
    let book = create(&folder.book());
    std::thread::scope(|scope| {
        for worker in 0..16 {
            let book = &book;
            scope.spawn(move || {
                wait(async {
                    for k in 0..4 {
                        let mut pen = Pen::claim(book, &format!("{worker}.{k}")).await.unwrap();
                        for step in 0..25_u64 {
                            assert_eq!(put(book, pen.write(1, b"x")).await, Ok(step + 1));
                        }
                    }
                });
            });
        }
    });
    wait(async {
        let page = book.log(0, 10_000).await.unwrap();
        assert_eq!(page.items.len(), 1600);
        assert!((0..).zip(&page.items).all(|(k, leaf)| leaf.index == k));
        for worker in 0..16 {
            for k in 0..4 {
                let id = ThreadId::new(format!("{worker}.{k}")).unwrap();
                assert_eq!(payloads(&book, &id).await.unwrap().len(), 25);
            }
        }
    });
}

#[test]
fn erased_bytes_are_served_to_nobody_after_reopening() {
    let folder = Folder::new();
    let book = create(&folder.book());
    let secret = b"the-secret-that-goes".repeat(4);
    let mut pen = wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        put(&book, pen.write(3, &secret)).await.unwrap();
        let note = pen.write(1, b"note");
        let role = deedbook_journal::record::Role::Value;
        book.erase(&pen.thread.clone(), 1, role, note).await.unwrap();
        pen
    });
    drop(book);
    let book = open(&folder.book());
    let found = wait(payloads(&book, &pen.thread)).unwrap();
    assert_eq!(found, [secret.clone(), Vec::new(), secret, b"note".to_vec()]);
    pen.epoch = wait(Pen::claim(&book, "t")).unwrap().epoch;
    wait(put(&book, pen.write(1, b"on"))).unwrap();
}
