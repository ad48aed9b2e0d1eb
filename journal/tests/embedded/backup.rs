//! Backups of a journal that is written to.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, LogEntry, StoreError},
    embedded::{
        BackupError, CreateOptions, Embedded, FaultKind, OpenError, OpenOptions, Progress, Stage,
    },
    id::{MessageId, ThreadId},
    record::Role,
};

use crate::desk::{Folder, Pen, counting, create, message, open, payloads, put, read_all, wait};

fn id(name: &str) -> ThreadId {
    ThreadId::new(name).unwrap()
}

/// A log that is drained all the time.
fn small_log() -> OpenOptions {
    OpenOptions::new().log_bytes(64 << 10)
}

async fn leaves(book: &Embedded) -> Vec<LogEntry> {
    let (mut all, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page = book.log(from, 1000).await.unwrap();
        all.extend(page.items);
        next = page.next;
    }
    all
}

/// Opens a copy; its log must be a prefix of the journal's. How many records it has.
async fn is_prefix(copy: &Embedded, of: &Embedded) -> usize {
    assert_eq!(copy.identity(), of.identity());
    let (copy, of) = (leaves(copy).await, leaves(of).await);
    assert_eq!(copy, of[..copy.len()]);
    copy.len()
}

struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_backup_under_writers_is_a_prefix_that_goes_on_by_itself() {
    let folder = Folder::new();
    let options = CreateOptions::new().open(small_log());
    let book = Arc::new(Embedded::create(folder.book(), options).unwrap());
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // The writers end with this scope, also where the test fails.
        let _end = Stop(&stop);
        for writer in 0..4 {
            let (book, stop, written) = (&book, &stop, &written);
            scope.spawn(move || {
                wait(async {
                    // Threads come and go: every eighth record begins another one.
                    for k in 0_u64.. {
                        let name = format!("{writer}-{:04}", k * 7919 % 500);
                        let mut pen = Pen::claim(&**book, &name).await.unwrap();
                        let released = [(id(&name), pen.epoch)];
                        for _ in 0..8 {
                            put(&**book, pen.write(1, &[k as u8; 700])).await.unwrap();
                            written.fetch_add(1, Ordering::SeqCst);
                        }
                        book.renew(&released, Duration::ZERO).await.unwrap();
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                    }
                });
            });
        }
        wait(async {
            for round in 0..3 {
                while written.load(Ordering::SeqCst) < 3000 * (round + 1) {
                    std::thread::yield_now();
                }
                let before = written.load(Ordering::SeqCst);
                let to = folder.path().join(format!("copy-{round}.redb"));
                let made = book.backup(&to, |_| {}).await.unwrap();
                assert!(made.records >= before, "{made:?}: {before} were acknowledged before");
                let mode = fs::metadata(&to).unwrap().permissions().mode();
                assert_eq!(
                    (mode & 0o777, made.file_bytes),
                    (0o600, fs::metadata(&to).unwrap().len())
                );
            }
        });
    });
    let names = folder.names();
    assert!(names.iter().all(|name| !name.ends_with(".new")), "{names:?}");
    wait(async {
        for round in 0..3 {
            let path = folder.path().join(format!("copy-{round}.redb"));
            let copy = Embedded::open(&path, OpenOptions::new()).unwrap();
            assert_eq!(copy.info().recovery, None, "it was not closed");
            let records = is_prefix(&copy, &book).await;
            let mut found = 0;
            for thread in copy.list(&Filter::default(), None, 10_000).await.unwrap().items {
                found += payloads(&copy, &thread.id).await.unwrap().len();
            }
            assert_eq!(found, records);
            // It goes on by itself.
            let mut pen = Pen::claim(&copy, "0-0000").await.unwrap();
            put(&copy, pen.write(1, b"more")).await.unwrap();
            copy.close().await.unwrap();
        }
    });
}

/// What is done to the journal at each step of a backup: so much happens between any two looks of
/// it at the tables.
struct Meanwhile {
    book: Arc<Embedded>,
    steps: u64,
    erased: Vec<u64>,
}

impl Meanwhile {
    fn step(&mut self, progress: Progress) {
        if progress.stage != Stage::Copy || self.steps > 12 {
            return;
        }
        self.steps += 1;
        let k = self.steps;
        wait(async {
            let book = &*self.book;
            // A thread before all others, one behind them, one that is there, one that waited.
            for name in [format!("a-{k}"), format!("z-{k}"), "m-1".into()] {
                let mut pen = Pen::claim(book, &name).await.unwrap();
                put(book, pen.write(3, &[k as u8; 9000])).await.unwrap();
                book.renew(&[(id(&name), pen.epoch)], Duration::ZERO).await.unwrap();
            }
            book.post(&id("m-2"), message(100 + k as u8)).await.unwrap();
            let mut pen = Pen::claim(book, "m-2").await.unwrap();
            let mut append = pen.write(1, b"said");
            append.consumes.push(MessageId([k as u8; 16]));
            put(book, append).await.unwrap();
            book.renew(&[(id("m-2"), pen.epoch)], Duration::ZERO).await.unwrap();
            // What was copied long ago changes, too.
            let mut pen = Pen::claim(book, "m-0").await.unwrap();
            let note = pen.write(1, b"erased");
            book.erase(&id("m-0"), k, Role::Value, note).await.unwrap();
            book.renew(&[(id("m-0"), pen.epoch)], Duration::ZERO).await.unwrap();
            self.erased.push(k);
        });
    }
}

#[test]
fn what_changes_behind_a_backup_is_in_it_whole_or_not_at_all() {
    let folder = Folder::new();
    let options = CreateOptions::new().open(small_log());
    let book = Arc::new(Embedded::create(folder.book(), options).unwrap());
    wait(async {
        for k in 0..3 {
            let mut pen = Pen::claim(&*book, &format!("m-{k}")).await.unwrap();
            put(&*book, pen.write(40, &[0xEE; 2000])).await.unwrap();
            let released = [(pen.thread.clone(), pen.epoch)];
            book.renew(&released, Duration::ZERO).await.unwrap();
        }
        for k in 1..20 {
            book.post(&id("m-2"), message(k)).await.unwrap();
        }
        let mut meanwhile = Meanwhile { book: Arc::clone(&book), steps: 0, erased: Vec::new() };
        let to = folder.path().join("copy.redb");
        let made = book.backup(&to, move |progress| meanwhile.step(progress)).await.unwrap();
        let copy = Embedded::open(&to, OpenOptions::new()).unwrap();
        let records = is_prefix(&copy, &book).await;
        assert_eq!(records as u64, made.records);
        assert!(records > 120 + 20, "nothing happened meanwhile");
        // As many payloads are gone as notes say so.
        let all = read_all(&copy, &id("m-0")).await.unwrap();
        let gone = all.iter().filter(|record| record.payloads.is_empty()).count();
        assert_eq!(gone, all.len() - 40);
        assert!(gone > 1);
        // As many messages were consumed as records say so, and all ever posted are known.
        let said = payloads(&copy, &id("m-2")).await.unwrap().len() - 40;
        let waiting: Vec<u8> =
            copy.inbox(&id("m-2")).await.unwrap().iter().map(|m| m.id.0[0]).collect();
        assert!(said > 1);
        let old: Vec<u8> = (said as u8 + 1..20).collect();
        assert_eq!(waiting[..old.len()], old);
        let again = copy.post(&id("m-2"), message(101)).await.unwrap();
        assert_eq!(again, deedbook_journal::checkpointer::Posted::AlreadyThere);
        for name in ["a-1", "m-1", "z-1"] {
            payloads(&copy, &id(name)).await.unwrap();
        }
        copy.close().await.unwrap();
    });
}

/// A journal of twenty threads that was closed.
fn closed(path: &Path) {
    closed_with(path, 20);
}

fn closed_with(path: &Path, threads: u8) {
    let book = create(path);
    wait(async {
        for k in 0..threads {
            let mut pen = Pen::claim(&book, &format!("t{k}")).await.unwrap();
            put(&book, pen.write(5, &[k; 3000])).await.unwrap();
        }
        book.close().await.unwrap();
    });
}

#[test]
fn nothing_that_is_there_is_replaced() {
    let folder = Folder::new();
    closed(&folder.book());
    let book = open(&folder.book());
    let to = folder.path().join("copy.redb");
    wait(async {
        fs::write(&to, "mine").unwrap();
        let error = book.backup(&to, |_| {}).await.unwrap_err();
        assert!(matches!(error, BackupError::AlreadyExists { .. }), "{error}");
        assert_eq!(fs::read(&to).unwrap(), b"mine");
        let error = book.backup(folder.book(), |_| {}).await.unwrap_err();
        assert!(matches!(error, BackupError::AlreadyExists { .. }), "{error}");
        fs::remove_file(&to).unwrap();
        let log = folder.path().join("copy.redb-log1");
        fs::write(&log, "mine").unwrap();
        let error = book.backup(&to, |_| {}).await.unwrap_err();
        assert!(error.to_string().contains("copy.redb-log1"), "{error}");
        fs::remove_file(&log).unwrap();
        // Nor is a name taken that the log of a journal here needs.
        let error = book.backup(folder.path().join("book.redb-log2"), |_| {}).await.unwrap_err();
        assert!(matches!(error, BackupError::InTheWay { .. }), "{error}");
        let error = book.backup(folder.path().join("no/copy.redb"), |_| {}).await.unwrap_err();
        assert!(matches!(error, BackupError::Io { .. }), "{error}");
        assert_eq!(folder.names(), ["book.redb"]);
        // A link that leads nowhere is not followed.
        std::os::unix::fs::symlink(folder.path().join("nowhere"), &to).unwrap();
        let error = book.backup(&to, |_| {}).await.unwrap_err();
        assert!(matches!(error, BackupError::AlreadyExists { .. }), "{error}");
        book.close().await.unwrap();
        let error = book.backup(folder.path().join("late.redb"), |_| {}).await.unwrap_err();
        assert!(matches!(error, BackupError::Journal(StoreError::Closed)), "{error}");
    });
}

#[test]
fn one_at_a_time_and_given_up_it_leaves_nothing() {
    let folder = Folder::new();
    closed(&folder.book());
    let book = open(&folder.book());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    wait(async {
        let (started, begun) = tokio::sync::oneshot::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let mut started = Some(started);
        let mut backup = Box::pin(book.backup(&first, move |_| {
            if let Some(started) = started.take() {
                started.send(()).unwrap();
                // Until the test goes on.
                let _ = gone.recv();
            }
        }));
        tokio::select! {
            ended = &mut backup => panic!("{ended:?}"),
            begun = begun => begun.unwrap(),
        }
        let error = book.backup(&second, |_| {}).await.unwrap_err();
        assert!(matches!(error, BackupError::Busy), "{error}");
        drop(backup);
        drop(go);
        let since = std::time::Instant::now();
        while folder.names() != ["book.redb"] {
            assert!(since.elapsed().as_secs() < 20, "{:?}", folder.names());
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_journal_that_is_only_looked_at_is_backed_up_and_stays_as_it_was() {
    let folder = Folder::new();
    closed(&folder.book());
    let before = fs::read(folder.book()).unwrap();
    let book = Embedded::open(folder.book(), OpenOptions::new().read_only(true)).unwrap();
    let to = folder.path().join("copy.redb");
    wait(async {
        assert_eq!(book.backup(&to, |_| {}).await.unwrap().records, 100);
        book.close().await.unwrap();
        drop(book);
        assert_eq!(fs::read(folder.book()).unwrap(), before);
        let copy = open(&to);
        assert_eq!(is_prefix(&copy, &open(&folder.book())).await, 100);
    });
    // What was not closed must be brought in order first.
    let book = open(&folder.book());
    wait(async {
        let mut pen = Pen::claim(&book, "t1").await.unwrap();
        put(&book, pen.write(1, b"more")).await.unwrap();
    });
    drop(book);
    let book = Embedded::open(folder.book(), OpenOptions::new().read_only(true)).unwrap();
    let to = folder.path().join("other.redb");
    wait(async {
        let error = book.backup(&to, |_| {}).await.unwrap_err();
        assert!(error.to_string().contains("open it for writing"), "{error}");
        drop(book);
        let book = open(&folder.book());
        assert_eq!(book.backup(&to, |_| {}).await.unwrap().records, 101);
    });
}

/// Every operation of a backup fails once: the journal does not care, and nothing is left but,
/// where a name could not be removed, a file aside.
#[test]
fn a_fault_at_any_operation_leaves_the_journal_alone() {
    for (kind, and_later) in [(FaultKind::Device, false), (FaultKind::Full, true)] {
        let folder = Folder::fast();
        closed_with(&folder.book(), 2);
        let disk = counting();
        let book = Embedded::open(folder.book(), OpenOptions::new().disk(disk.clone())).unwrap();
        let to = folder.path().join("copy.redb");
        let before = disk.counts().operations;
        let made = wait(book.backup(&to, |_| {})).unwrap();
        let operations = disk.counts().operations - before;
        fs::remove_file(&to).unwrap();
        assert!(operations > 10, "{operations}");
        let mut done = 0;
        for k in 0..operations {
            disk.fail_at(disk.counts().operations + k, kind, and_later);
            let result = wait(book.backup(&to, |_| {}));
            disk.fail_at(u64::MAX, kind, false);
            let aside = folder.names().into_iter().filter(|name| name.ends_with(".new")).count();
            match result {
                // A name that was not removed, or whose removal is not durable.
                Ok(again) => {
                    assert_eq!(again, made);
                    done += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("copy.redb"), "{k}: {text}");
                    assert!(!to.exists() || text.contains("make its name durable"), "{k}: {text}");
                    assert!(aside == 0 || and_later, "{k}: {text}");
                }
            }
            drop(fs::remove_file(&to));
            assert_eq!(book.info().records, 10);
        }
        assert!(done <= 2, "{done} of {operations} faults were not told");
        // The next one takes away what is left.
        wait(book.backup(&to, |_| {})).unwrap();
        assert_eq!(folder.names(), ["book.redb", "copy.redb"]);
        wait(async {
            let mut pen = Pen::claim(&book, "t0").await.unwrap();
            put(&book, pen.write(1, b"alive")).await.unwrap();
            book.close().await.unwrap();
        });
    }
}

#[test]
fn a_damaged_journal_is_not_backed_up_as_a_whole_one() {
    let folder = Folder::new();
    closed(&folder.book());
    let bytes = fs::read(folder.book()).unwrap();
    let at = bytes.windows(64).position(|w| w == [7; 64]).unwrap();
    let mut changed = bytes.clone();
    changed[at] ^= 1;
    fs::write(folder.book(), &changed).unwrap();
    let book = open(&folder.book());
    let error = wait(book.backup(folder.path().join("copy.redb"), |_| {})).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, BackupError::NotVerified { .. }), "{text}");
    assert!(text.contains("record 0 of thread \"t7\" is damaged"), "{text}");
    assert_eq!(folder.names(), ["book.redb"]);
}

#[test]
fn nothing_can_be_written_where_a_journal_is_only_looked_at() {
    let folder = Folder::new();
    closed(&folder.book());
    let book = open(&folder.book());
    wait(async {
        let mut pen = Pen::claim(&book, "t0").await.unwrap();
        put(&book, pen.write(1, b"not drained")).await.unwrap();
    });
    drop(book);
    let files = || -> BTreeMap<String, Vec<u8>> {
        let read = |name: String| (name.clone(), fs::read(folder.path().join(name)).unwrap());
        folder.names().into_iter().map(read).collect()
    };
    let before = files();
    assert!(before.len() > 1);
    for path in before.keys().map(|name| folder.path().join(name)) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
    }
    let options = || OpenOptions::new().read_only(true);
    let book = Embedded::open(folder.book(), options()).unwrap();
    wait(async {
        assert_eq!(payloads(&book, &id("t0")).await.unwrap().len(), 6);
        assert_eq!(leaves(&book).await.len(), 101);
        let refused = |error: StoreError| assert!(matches!(error, StoreError::Refused { .. }));
        refused(Pen::claim(&book, "t0").await.map(drop).unwrap_err());
        refused(book.post(&id("t0"), message(1)).await.unwrap_err());
        let held = Embedded::open(folder.book(), options()).unwrap_err();
        assert!(matches!(held, OpenError::Locked { .. }), "{held}");
        book.close().await.unwrap();
    });
    drop(book);
    assert_eq!(files(), before);
}

const CHILD: &str = "DEEDBOOK_TEST_BACKUP_CHILD";

/// The child: makes backups for as long as it lives.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let path = PathBuf::from(path);
    let book = open(&path);
    for k in 0.. {
        let to = path.with_file_name(format!("copy-{k}"));
        match wait(book.backup(&to, |_| {})) {
            Ok(_) | Err(BackupError::AlreadyExists { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn killed_at_any_moment_a_backup_is_whole_or_not_there() {
    use std::process::{Command, Stdio};
    let folder = Folder::new();
    closed(&folder.book());
    let (mut whole, mut aside) = (0, 0);
    for kill in 0..20_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["backup::child", "--exact", "--nocapture"])
            .env(CHILD, folder.book())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let since = std::time::Instant::now();
        let made = || folder.names().iter().any(|name| name.starts_with("copy"));
        while kill % 2 == 0 && !made() && since.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(10 + kill * 37 % 60));
        child.kill().unwrap();
        child.wait().unwrap();
        for name in folder.names().into_iter().filter(|name| name.starts_with("copy")) {
            let copy = open(&folder.path().join(&name));
            assert_eq!(wait(leaves(&copy)).len(), 100, "{name}");
            whole += 1;
            drop(copy);
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        aside += folder.names().iter().filter(|name| name.ends_with(".new")).count();
    }
    println!("{whole} backups, {aside} files aside");
    assert!(whole > 0 && aside > 0, "{whole} backups, {aside} files aside");
    // Whoever makes one of the same name takes them away.
    let book = open(&folder.book());
    for k in 0..10_000 {
        let to = folder.path().join(format!("copy-{k}"));
        wait(book.backup(&to, |_| {})).unwrap();
        fs::remove_file(to).unwrap();
        if folder.names().iter().all(|name| !name.ends_with(".new")) {
            return;
        }
    }
    panic!("{:?}", folder.names());
}

#[test]
fn a_damaged_tree_does_not_lead_a_backup_in_a_circle() {
    let folder = Folder::new();
    wait(async {
        let book = create(&folder.book());
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        put(&book, pen.write(40, &[7; 9000])).await.unwrap();
        book.close().await.unwrap();
    });
    // Keys of one page stand side by side: two of them change places.
    let mut bytes = fs::read(folder.book()).unwrap();
    let key = |sub: u32| [&0_u64.to_le_bytes()[..], &sub.to_le_bytes()].concat();
    let mut changed = 0;
    for sub in 0..400 {
        let (pair, swapped) =
            ([key(sub), key(sub + 1)].concat(), [key(sub + 1), key(sub)].concat());
        let at: Vec<_> = (0..bytes.len() - 24).filter(|at| bytes[*at..*at + 24] == pair).collect();
        for at in at {
            bytes[at..at + 24].copy_from_slice(&swapped);
            changed += 1;
        }
    }
    assert!(changed > 0, "no keys were found");
    fs::write(folder.book(), bytes).unwrap();
    let book = open(&folder.book());
    let error = wait(book.backup(folder.path().join("copy.redb"), |_| {})).unwrap_err().to_string();
    assert!(error.contains("out of order"), "{error}");
}
