//! A drain whose disk takes its time keeps nobody waiting.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CommitBy, CreateOptions, Disk, Embedded, OpenOptions},
};

use crate::desk::{Folder, Pen, payloads, put, touched, wait};

/// Whether the tables' file may be written to.
#[derive(Debug, Default)]
struct Hold {
    held: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Hold {
    fn set(&self, held: bool) {
        self.held.lock().unwrap().0 = held;
        self.changed.notify_all();
    }

    /// Waits while it is held.
    fn pass(&self) {
        let mut state = self.held.lock().unwrap();
        while state.0 {
            state.1 = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Waits until somebody waits.
    fn met(&self) {
        let state = self.held.lock().unwrap();
        let minute = Duration::from_secs(60);
        let (state, late) =
            self.changed.wait_timeout_while(state, minute, |(_, met)| !*met).unwrap();
        drop(state);
        assert!(!late.timed_out(), "no drain began");
    }
}

/// The real disk, on which the tables' file can be held.
fn held_by(hold: &Arc<Hold>) -> Arc<dyn Disk> {
    let hold = Arc::clone(hold);
    touched(move |_, path| {
        if !path.contains("-log") && !path.ends_with("-anchor") {
            hold.pass();
        }
    })
}

#[test]
fn commits_and_reads_go_on_beside_a_drain() {
    for by in [CommitBy::Either, CommitBy::Caller, CommitBy::Thread] {
        go_on(by);
    }
}

fn go_on(by: CommitBy) {
    let folder = Folder::new();
    let hold = Arc::new(Hold::default());
    let open = OpenOptions::new().commit_by(by).disk(held_by(&hold)).log_bytes(1 << 20);
    let book = Embedded::create(folder.book(), CreateOptions::new().open(open)).unwrap();
    wait(async {
        let mut pen = Pen::claim(&book, "t").await.unwrap();
        put(&book, pen.write(1, b"first")).await.unwrap();
        hold.set(true);
        // A quarter of a file of the log is worth a drain.
        for _ in 0..30 {
            put(&book, pen.write(1, &[7; 10_000])).await.unwrap();
        }
        hold.met();
        let undrained = book.info().undrained_bytes;
        for _ in 0..20 {
            put(&book, pen.write(1, b"beside a drain")).await.unwrap();
        }
        assert!(book.info().undrained_bytes > undrained);
        // What the drain has in hand, and what came behind it.
        assert_eq!(payloads(&book, &pen.thread).await.unwrap().len(), 51);
        assert_eq!(book.log(0, 1000).await.unwrap().items.len(), 51);
        assert_eq!(book.log(25, 10).await.unwrap().items[9].index, 34);
        hold.set(false);
        assert_eq!(payloads(&book, &pen.thread).await.unwrap().len(), 51);
        book.close().await.unwrap();
    });
}
