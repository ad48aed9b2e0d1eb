//! A home behind a socket passes the suite that every home passes.

use std::{
    any::Any,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use deedbook_conformance::{Made, Outcome, Subject, cases, run_case};
use deedbook_control::{Remote, Serving, serve, serve_at};
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

/// What a served home keeps: everything on the other side of the socket.
struct Kept<H>(Mutex<Option<(Serving, H, tempfile::TempDir)>>, Arc<Wall>);

fn made<H: Send + 'static>(
    remote: Remote,
    serving: Serving,
    home: H,
    folder: tempfile::TempDir,
    wall: Arc<Wall>,
) -> Made {
    let set_wall = Some(wall.setter());
    let kept = Kept(Mutex::new(Some((serving, home, folder))), wall);
    Made { home: Arc::new(remote), set_wall, keep: Arc::new(kept) as Arc<dyn Any + Send + Sync> }
}

struct Memory;

async fn memory(
    snapshot: Option<MemorySnapshot>,
    folder: tempfile::TempDir,
    wall: Arc<Wall>,
) -> Made {
    let home = Arc::new(match snapshot {
        Some(snapshot) => MemoryHome::from_snapshot(snapshot, Some(wall.source())),
        None => MemoryHome::new(MemoryOptions::new().time(wall.source())),
    });
    let socket = folder.path().join("memory.control");
    let held: Arc<dyn deedbook_journal::checkpointer::Checkpointer> = home.clone();
    let serving = serve_at(held, &socket).unwrap();
    let remote = Remote::connect_to(&socket).await.unwrap();
    made(remote, serving, home, folder, wall)
}

impl Subject for Memory {
    fn make(&self) -> BoxFuture<'_, Made> {
        Box::pin(async { memory(None, tempfile::tempdir().unwrap(), Wall::new()).await })
    }

    fn reopen(&self, was: Made) -> BoxFuture<'_, Option<Made>> {
        Box::pin(async move {
            let kept = was.keep.downcast::<Kept<Arc<MemoryHome>>>().ok()?;
            let (serving, home, folder) = kept.0.lock().unwrap().take()?;
            drop(serving);
            Some(memory(Some(home.snapshot()), folder, Arc::clone(&kept.1)).await)
        })
    }
}

struct File;

async fn file(home: Embedded, folder: tempfile::TempDir, wall: Arc<Wall>) -> Made {
    let serving = serve(Arc::new(home)).unwrap();
    let remote = Remote::connect(folder.path().join("book.redb")).await.unwrap();
    made(remote, serving, (), folder, wall)
}

impl Subject for File {
    fn make(&self) -> BoxFuture<'_, Made> {
        Box::pin(async {
            let folder = tempfile::tempdir().unwrap();
            let wall = Wall::new();
            let open = OpenOptions::new().time(wall.source());
            let options = CreateOptions::new().open(open);
            let home = Embedded::create(folder.path().join("book.redb"), options).unwrap();
            file(home, folder, wall).await
        })
    }

    fn reopen(&self, was: Made) -> BoxFuture<'_, Option<Made>> {
        Box::pin(async move {
            let kept = was.keep.downcast::<Kept<()>>().ok()?;
            let (serving, (), folder) = kept.0.lock().unwrap().take()?;
            drop(serving);
            let wall = Arc::clone(&kept.1);
            let options = OpenOptions::new().time(wall.source());
            let home = Embedded::open(folder.path().join("book.redb"), options).unwrap();
            Some(file(home, folder, wall).await)
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
async fn the_home_in_memory_passes_behind_a_socket() {
    passes(&Memory).await;
}

#[tokio::test]
async fn the_embedded_home_passes_behind_a_socket() {
    passes(&File).await;
}
