//! Examinations of a journal that is open.

use std::{
    fs,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    task::Poll,
    time::{Duration, Instant},
};

use deedbook_journal::{
    checkpointer::{Checkpointer, StoreError},
    embedded::{CreateOptions, Embedded, Examination, OpenOptions, Progress, Verdict},
    id::{MessageId, ThreadId},
    record::Role,
    row::Status,
};

use crate::desk::{Folder, Pen, create, message, open, put, row, wait};

fn id(name: &str) -> ThreadId {
    ThreadId::new(name).unwrap()
}

fn examine(book: &Embedded) -> Examination {
    wait(book.examine_open(|_| {})).unwrap()
}

fn closed(path: &Path) -> Examination {
    Embedded::examine(path, &OpenOptions::new(), |_| true).unwrap()
}

/// What was looked at, and how it stands.
fn verdicts(seen: &Examination) -> Vec<(&str, Verdict)> {
    seen.findings.iter().map(|finding| (&*finding.about, finding.verdict)).collect()
}

fn said<'e>(seen: &'e Examination, what: &str) -> Vec<&'e str> {
    let about = seen.findings.iter().filter(|finding| finding.about == what);
    about.map(|finding| &*finding.said).collect()
}

async fn let_go(book: &Embedded, pen: &Pen) {
    book.renew(&[(pen.thread.clone(), pen.epoch)], Duration::ZERO).await.unwrap();
}

async fn fill(book: &Embedded) {
    for k in 0..5_u8 {
        let mut pen = Pen::claim(book, &format!("t{k}")).await.unwrap();
        put(book, pen.write(5, &[k + 1; 3000])).await.unwrap();
        book.post(&pen.thread, message(k)).await.unwrap();
        let_go(book, &pen).await;
    }
}

#[test]
fn an_open_journal_is_examined_like_a_closed_one() {
    let folder = Folder::new();
    let book = create(&folder.book());
    wait(async {
        fill(&book).await;
        book.close().await.unwrap();
    });
    drop(book);
    let before = closed(&folder.book());
    let book = open(&folder.book());
    let seen = examine(&book);
    let mut like = verdicts(&before);
    for (about, verdict) in &mut like {
        if *about == "pages" {
            *verdict = Verdict::Note;
        }
    }
    assert_eq!(verdicts(&seen), like, "{:#?}", seen.findings);
    for same in ["file", "anchor", "records"] {
        assert_eq!(said(&seen, same), said(&before, same));
    }
    assert_eq!((seen.records, before.records), (25, 25));
    let pid = format!("process {} is at work", std::process::id());
    assert!(said(&seen, "opening")[0].contains(&pid), "{:#?}", seen.findings);
    // About as much of it is free.
    let free = |seen: &Examination| -> u64 {
        let words = said(seen, "space")[0].split_once("bytes, ").unwrap().1;
        words.split_once(' ').unwrap().0.parse().unwrap()
    };
    let (now, then) = (free(&seen), free(&before));
    assert!(now.abs_diff(then) < 256 << 10, "{now} {then}");
    // What only its log has is read as well, and the anchor may be behind it.
    wait(async {
        let mut pen = Pen::claim(&book, "t1").await.unwrap();
        put(&book, pen.write(2, b"more")).await.unwrap();
    });
    let seen = examine(&book);
    assert_eq!((seen.worst(), seen.records), (Verdict::Note, 27), "{:#?}", seen.findings);
    assert!(said(&seen, "opening")[0].contains("1 entries with 2 records"));
    assert!(said(&seen, "log")[0].contains("book.redb-log0 follows the tables"));
    // Without it, the next crash would lose something.
    fs::remove_file(folder.path().join("book.redb-log0")).unwrap();
    for ready in ["book.redb-log1", "book.redb-log2"] {
        let _ = fs::remove_file(folder.path().join(ready));
    }
    let seen = examine(&book);
    assert_eq!(seen.worst(), Verdict::Warning, "{:#?}", seen.findings);
    assert!(said(&seen, "log")[0].contains("removed"));
}

struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes until told to stop: threads come, are said something, hear it, forget it, and end. How
/// long the slowest append took.
async fn write(book: &Embedded, writer: u64, stop: &AtomicBool, written: &AtomicU64) -> Duration {
    let mut slowest = Duration::ZERO;
    for k in 0_u64.. {
        let name = match k % 3 {
            0 => format!("{writer}-ends-{k:06}"),
            _ => format!("{writer}-{:04}", k * 7919 % 700),
        };
        let mut pen = Pen::claim(book, &name).await.unwrap();
        let first = pen.next;
        for _ in 0..4 {
            let since = Instant::now();
            put(book, pen.write(1, &[k as u8; 700])).await.unwrap();
            slowest = slowest.max(since.elapsed());
            written.fetch_add(1, Ordering::SeqCst);
        }
        let mut message = message(0);
        message.id =
            MessageId([&k.to_be_bytes()[..], &writer.to_be_bytes()].concat().try_into().unwrap());
        book.post(&pen.thread, message.clone()).await.unwrap();
        if k % 2 == 0 {
            let mut append = pen.write(1, b"heard");
            append.consumes.push(message.id);
            put(book, append).await.unwrap();
        }
        if k % 5 == 0 {
            let note = pen.write(1, b"erased");
            book.erase(&pen.thread, first, Role::Value, note).await.unwrap();
        }
        if k % 3 == 0 {
            pen.row = row(Status::Done);
            put(book, pen.write(1, b"over")).await.unwrap();
        }
        let_go(book, &pen).await;
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    slowest
}

#[test]
fn what_is_written_beside_an_examination_is_no_damage_and_goes_on() {
    let folder = Folder::fast();
    // A log that is drained all the time.
    let options = CreateOptions::new().open(OpenOptions::new().log_bytes(64 << 10));
    let book = Embedded::create(folder.book(), options).unwrap();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut rounds, mut meanwhile) = (0, 0);
    let slowest = std::thread::scope(|scope| {
        let _end = Stop(&stop);
        let (book, stop, written) = (&book, &stop, &written);
        let writers: Vec<_> = (0..4)
            .map(|writer| scope.spawn(move || wait(write(book, writer, stop, written))))
            .collect();
        let since = Instant::now();
        while rounds < 20 {
            while written.load(Ordering::SeqCst) < 1000 * rounds {
                std::thread::yield_now();
            }
            let before = written.load(Ordering::SeqCst);
            let seen = examine(book);
            assert!(seen.worst() <= Verdict::Note, "round {rounds}: {:#?}", seen.findings);
            assert!(seen.records >= before, "{} of {before}", seen.records);
            let after = written.load(Ordering::SeqCst);
            meanwhile += after - before;
            rounds += 1;
            assert!(since.elapsed() < Duration::from_secs(120));
        }
        stop.store(true, Ordering::SeqCst);
        writers.into_iter().map(|writer| writer.join().unwrap()).max().unwrap()
    });
    let written = written.into_inner();
    println!("{meanwhile} of {written} written meanwhile, the slowest append in {slowest:?}");
    assert!(meanwhile > 100, "hardly anybody could write meanwhile: {meanwhile}");
    assert!(slowest < Duration::from_secs(5), "an append waited for {slowest:?}");
    let seen = examine(&book);
    assert_eq!(seen.records, book.info().records);
    wait(book.close()).unwrap();
    drop(book);
    assert!(closed(&folder.book()).worst() <= Verdict::Note);
}

#[test]
fn what_changes_at_any_step_of_an_examination_is_no_damage() {
    let folder = Folder::new();
    let book = Arc::new(create(&folder.book()));
    wait(fill(&book));
    let (ours, path) = (Arc::clone(&book), folder.path().to_owned());
    let mut steps = 0_u8;
    let watch = move |_: Progress| {
        steps += 1;
        let book = &*ours;
        if steps > 30 {
            return;
        }
        wait(async {
            // A thread before all others, one behind them, and those that are looked at.
            for name in [format!("a-{steps}"), format!("z-{steps}"), "t1".into()] {
                let mut pen = Pen::claim(book, &name).await.unwrap();
                put(book, pen.write(2, &[steps; 3000])).await.unwrap();
                let_go(book, &pen).await;
            }
            book.post(&id("t3"), message(100 + steps)).await.unwrap();
            let mut pen = Pen::claim(book, "t0").await.unwrap();
            let note = pen.write(1, b"erased");
            book.erase(&id("t0"), u64::from(steps % 5), Role::Value, note).await.ok();
            let_go(book, &pen).await;
            let mut pen = Pen::claim(book, "t2").await.unwrap();
            let mut append = pen.write(1, b"heard");
            append.consumes.push(MessageId([2; 16]));
            put(book, append).await.ok();
            let_go(book, &pen).await;
            // Everything is in the tables then, so that the counts of them are compared.
            book.backup(path.join(format!("copy-{steps}.redb")), |_| {}).await.unwrap();
        });
    };
    let seen = wait(book.examine_open(watch)).unwrap();
    assert_eq!(seen.worst(), Verdict::Note, "{:#?}", seen.findings);
    assert_eq!(seen.records, 25, "what came later does not count");
    assert!(said(&seen, "records")[0].contains("25 of 5 threads"), "{:#?}", seen.findings);
    assert!(book.info().records > 100);
}

#[test]
fn damage_is_found_beside_writers_too_and_named_alike() {
    let folder = Folder::fast();
    let book = create(&folder.book());
    wait(async {
        fill(&book).await;
        book.close().await.unwrap();
    });
    drop(book);
    let mut whole = fs::read(folder.book()).unwrap();
    let place = whole.windows(500).position(|bytes| bytes == [3; 500]).unwrap();
    whole[place] ^= 0x10;
    fs::write(folder.book(), &whole).unwrap();
    let before = closed(&folder.book());
    assert_eq!(before.worst(), Verdict::Fault);
    let book = open(&folder.book());
    let seen = examine(&book);
    assert_eq!(said(&seen, "records"), said(&before, "records"));
    assert!(said(&seen, "records")[0].contains("of thread \"t2\""), "{:#?}", seen.findings);
}

async fn is_pending<F: Future>(mut future: Pin<&mut F>) {
    std::future::poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[test]
fn dropped_it_stops_and_the_next_one_has_its_turn() {
    let folder = Folder::new();
    let book = create(&folder.book());
    wait(fill(&book));
    let (step, steps) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let watch = move |_: Progress| {
        step.send(()).ok();
        // It is let go on, or nobody is there any more.
        may_go.recv().ok();
    };
    wait(async {
        let mut first = std::pin::pin!(book.examine_open(watch));
        is_pending(first.as_mut()).await;
        steps.recv().unwrap();
        // Others wait meanwhile.
        let mut second = std::pin::pin!(book.examine_open(|_| panic!("it is not its turn")));
        is_pending(second.as_mut()).await;
    });
    // The first one was dropped in its first step, and takes no second one.
    drop(go);
    assert_eq!(examine(&book).worst(), Verdict::Note);
    assert!(steps.recv().is_err(), "it went on");
}

#[test]
fn closed_meanwhile_it_says_so() {
    let folder = Folder::new();
    let book = Arc::new(create(&folder.book()));
    wait(fill(&book));
    let ours = Arc::clone(&book);
    let seen = wait(book.examine_open(move |_| drop(wait(ours.close()))));
    assert_eq!(seen, Err(StoreError::Closed));
    assert_eq!(wait(book.examine_open(|_| {})), Err(StoreError::Closed));
}

#[test]
fn what_somebody_is_at_work_on_is_not_left() {
    let folder = Folder::new();
    let book = create(&folder.book());
    let left = folder.path().join(".book.redb.0123456789abcdef.new");
    fs::write(&left, "").unwrap();
    let at_work = fs::File::open(&left).unwrap();
    assert!(at_work.try_lock().is_ok());
    assert_eq!(said(&examine(&book), "leftovers"), [""; 0]);
    drop(at_work);
    assert!(said(&examine(&book), "leftovers")[0].contains("was left by one that was killed"));
}
