//! Who writes to the log: callers, a thread, or whichever is faster.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CommitBy, CreateOptions, Disk, Embedded, OpenOptions},
    limits::EMBEDDED_CROWD,
    record::Role,
};

use crate::desk::{Folder, Pen, Touch, message, put, touched, wait};

/// How often a thread of each name has synced a file of the log.
type Synced = Arc<Mutex<BTreeMap<String, usize>>>;

/// The real disk, which notes who waits for it.
fn noting(synced: Synced) -> Arc<dyn Disk> {
    touched(move |touch, path| {
        if touch == Touch::Sync && path.contains("-log") {
            let thread = std::thread::current();
            let name = thread.name().filter(|name| name.starts_with("deedbook-"));
            let name = name.unwrap_or("caller").to_owned();
            *synced.lock().unwrap().entry(name).or_default() += 1;
        }
    })
}

const APPENDS: u64 = 50;

/// So many write at once, and one of them erases; who synced how often.
fn run(by: CommitBy, writers: usize) -> BTreeMap<String, usize> {
    let folder = Folder::new();
    let synced = Synced::default();
    let open = OpenOptions::new().commit_by(by).disk(noting(synced.clone()));
    let book = Embedded::create(folder.book(), CreateOptions::new().open(open)).unwrap();
    let book = Arc::new(book);
    let write = |k: usize| {
        let book = Arc::clone(&book);
        tokio::spawn(async move {
            let mut pen = Pen::claim(&*book, &format!("t{k}")).await.unwrap();
            for n in 0..APPENDS {
                assert_eq!(put(&*book, pen.write(1, b"x")).await, Ok(n + 1));
            }
            if k == 0 {
                let note = pen.write(1, b"note");
                book.erase(&pen.thread, 3, Role::Value, note).await.unwrap();
            }
        })
    };
    wait(async {
        let tasks: Vec<_> = (0..writers).map(write).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let log = book.log(0, 10_000).await.unwrap();
        assert_eq!(log.items.len() as u64, APPENDS * writers as u64 + 1);
        book.close().await.unwrap();
    });
    let synced = synced.lock().unwrap().clone();
    println!("{by:?}, {writers} writers: {synced:?}");
    synced
}

fn of(synced: &BTreeMap<String, usize>, name: &str) -> usize {
    synced.get(name).copied().unwrap_or(0)
}

#[test]
fn a_thread_commits_where_callers_must_not_block() {
    for writers in [1, 3 * EMBEDDED_CROWD] {
        let synced = run(CommitBy::Thread, writers);
        assert_eq!(of(&synced, "caller"), 0);
        assert!(of(&synced, "deedbook-commit") > 0);
    }
}

#[test]
fn callers_commit_where_they_are_to() {
    for writers in [1, 3 * EMBEDDED_CROWD] {
        let synced = run(CommitBy::Caller, writers);
        assert_eq!(of(&synced, "deedbook-commit"), 0);
        assert!(of(&synced, "caller") > 0);
    }
}

#[test]
fn few_commit_by_themselves_and_for_a_crowd_a_thread_does() {
    let synced = run(CommitBy::Either, 3);
    assert_eq!(of(&synced, "deedbook-commit"), 0, "handed over for nothing");
    assert!(of(&synced, "caller") > 0);
    let synced = run(CommitBy::Either, 4 * EMBEDDED_CROWD);
    // How often depends on who is faster, the disk or those who write.
    assert!(of(&synced, "deedbook-commit") > 0);
}

const WAYS: [CommitBy; 3] = [CommitBy::Either, CommitBy::Caller, CommitBy::Thread];

fn create(folder: &Folder, by: CommitBy) -> Arc<Embedded> {
    let open = OpenOptions::new().commit_by(by);
    Arc::new(Embedded::create(folder.book(), CreateOptions::new().open(open)).unwrap())
}

/// Waits on an async runtime of one thread, and not for ever.
fn soon<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let soon = async { tokio::time::timeout(Duration::from_secs(30), future).await };
    runtime.block_on(soon).expect("somebody waits for ever")
}

/// Somebody who is told on the thread that commits, and panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        let on = std::thread::current();
        assert!(on.name() != Some("deedbook-commit"), "this panic is the test's own");
    }
}

#[test]
fn a_waker_that_panics_is_nobody_elses_affair() {
    for by in WAYS {
        let folder = Folder::new();
        let book = create(&folder, by);
        let crowd = 2 * EMBEDDED_CROWD;
        let mut pens: Vec<_> =
            (0..crowd).map(|k| soon(Pen::claim(&*book, &format!("t{k}"))).unwrap()).collect();
        soon(put(&*book, pens[0].write(1, b"begins"))).unwrap();
        {
            let puts = pens.iter_mut().map(|pen| Box::pin(put(&*book, pen.write(1, b"x"))));
            let mut puts: Vec<_> = puts.collect();
            let waker = Waker::from(Arc::new(Panics));
            puts.retain_mut(|put| put.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            for put in puts {
                soon(put).unwrap();
            }
        }
        for pen in &mut pens {
            soon(put(&*book, pen.write(1, b"y"))).unwrap();
        }
        soon(book.close()).unwrap();
    }
}

#[test]
fn what_is_held_and_not_polled_holds_up_nobody() {
    for by in WAYS {
        for polls in [1, 2] {
            for first in [false, true] {
                let folder = Folder::new();
                let book = create(&folder, by);
                soon(async {
                    let mut held = Pen::claim(&*book, "held").await.unwrap();
                    let mut other = Pen::claim(&*book, "other").await.unwrap();
                    if first {
                        put(&*book, other.write(1, b"begins")).await.unwrap();
                    }
                    let mut held = Box::pin(put(&*book, held.write(1, b"x")));
                    for _ in 0..polls {
                        let _ = held.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    }
                    // It is in line, or was answered already, and is not polled any more.
                    Pen::claim(&*book, "third").await.unwrap();
                    put(&*book, other.write(1, b"y")).await.unwrap();
                    book.post(&other.thread, message(1)).await.unwrap();
                    drop(held);
                });
            }
        }
    }
}
