//! Both homes of this workspace pass the suite.
#![expect(clippy::unwrap_used, reason = "this is a test")]

use std::{
    any::Any,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use deedbook_conformance::{Made, Outcome, Subject, cases, run_case};
use deedbook_journal::{
    checkpointer::BoxFuture,
    embedded::{CreateOptions, Embedded, OpenOptions, TimeSource},
};
use deedbook_memory::{MemoryHome, MemoryOptions, MemorySnapshot};

/// A wall clock that tests turn.
#[derive(Debug, Default)]
struct Wall(AtomicU64);

impl Wall {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_795_953_600_000_000_000)))
    }

    fn source(self: &Arc<Self>) -> TimeSource {
        let wall = Arc::clone(self);
        Arc::new(move || wall.0.load(Ordering::SeqCst))
    }

    fn setter(self: &Arc<Self>) -> Arc<dyn Fn(u64) + Send + Sync> {
        let wall = Arc::clone(self);
        Arc::new(move |nanos| wall.0.store(nanos, Ordering::SeqCst))
    }
}

struct Memory;

/// What a memory home under test keeps: itself, to be copied as a crash leaves it.
struct KeptMemory(Arc<MemoryHome>, Arc<Wall>);

fn memory(wall: Arc<Wall>, snapshot: Option<MemorySnapshot>) -> Made {
    let home = Arc::new(match snapshot {
        Some(snapshot) => MemoryHome::from_snapshot(snapshot, Some(wall.source())),
        None => MemoryHome::new(MemoryOptions::new().time(wall.source())),
    });
    Made {
        home: Arc::clone(&home) as _,
        set_wall: Some(wall.setter()),
        keep: Arc::new(KeptMemory(home, wall)),
    }
}

impl Subject for Memory {
    fn make(&self) -> BoxFuture<'_, Made> {
        Box::pin(async { memory(Wall::new(), None) })
    }

    fn reopen(&self, made: Made) -> BoxFuture<'_, Option<Made>> {
        Box::pin(async move {
            let kept = made.keep.downcast::<KeptMemory>().ok()?;
            Some(memory(Arc::clone(&kept.1), Some(kept.0.snapshot())))
        })
    }
}

struct File;

struct KeptFile(Mutex<Option<tempfile::TempDir>>, Arc<Wall>);

fn made(home: Embedded, folder: tempfile::TempDir, wall: Arc<Wall>) -> Made {
    Made {
        home: Arc::new(home),
        set_wall: Some(wall.setter()),
        keep: Arc::new(KeptFile(Mutex::new(Some(folder)), wall)) as Arc<dyn Any + Send + Sync>,
    }
}

impl Subject for File {
    fn make(&self) -> BoxFuture<'_, Made> {
        Box::pin(async {
            let folder = tempfile::tempdir().unwrap();
            let wall = Wall::new();
            let open = OpenOptions::new().time(wall.source());
            let options = CreateOptions::new().open(open);
            let home = Embedded::create(folder.path().join("book.redb"), options).unwrap();
            made(home, folder, wall)
        })
    }

    fn reopen(&self, was: Made) -> BoxFuture<'_, Option<Made>> {
        Box::pin(async move {
            drop(was.home);
            let kept = was.keep.downcast::<KeptFile>().ok()?;
            let folder = kept.0.lock().unwrap().take()?;
            let wall = Arc::clone(&kept.1);
            let options = OpenOptions::new().time(wall.source());
            let home = Embedded::open(folder.path().join("book.redb"), options).unwrap();
            Some(made(home, folder, wall))
        })
    }
}

async fn passes(subject: &dyn Subject) {
    let mut failed = Vec::new();
    let only = std::env::var("CASE").unwrap_or_default();
    for case in cases().iter().filter(|c| c.name.contains(&only)) {
        match run_case(subject, case).await {
            Outcome::Passed => {}
            other => failed.push(format!("{}: {other:?}", case.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[tokio::test]
async fn the_home_in_memory_passes() {
    passes(&Memory).await;
}

#[tokio::test]
async fn the_embedded_home_passes() {
    passes(&File).await;
}
