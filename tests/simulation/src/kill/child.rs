//! One life: a process that runs the workflow to its end, to a doubt, or to its point.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use deedbook::{Deedbook, ErrorKind, PolicyKind, Resolution};
use deedbook_journal::{
    checkpointer::BoxFuture,
    embedded::{CommitBy, CreateOptions, Embedded, OpenError, OpenOptions, planted::plant},
};
use harness::watched::{Hook, Place, Watched};
use tokio::sync::Notify;

use super::{
    JOURNAL,
    agent::{Agent, Shape},
    disk::MarkedDisk,
    ledger::{Ledger, Line, THREAD},
    marks::Marks,
};
use crate::planted::Rule;

/// A life that cannot go on because a step is in doubt ends with this.
pub const IN_DOUBT: u8 = 40;
/// A life that takes longer than this hangs.
const LIFE_MAX: Duration = Duration::from_secs(10);
/// The length of a file of the log.
const LOG_BYTES: u64 = 64 << 10;

/// What a life is told.
#[derive(Debug, Clone)]
pub struct Told {
    /// Where its journal and its ledger are.
    pub folder: PathBuf,
    /// What decides.
    pub seed: u64,
    /// The policy of its effects.
    pub policy: PolicyKind,
    /// Where it dies.
    pub point: Option<String>,
    /// Whether a person says what became of steps in doubt.
    pub settle: bool,
    /// A rule that is broken.
    pub plant: Option<Rule>,
}

/// Says to the points and to the ledger what is done with the journal.
#[derive(Debug)]
struct Watching {
    marks: Arc<Marks>,
    ledger: Ledger,
    waits: Notify,
}

impl Hook for Watching {
    fn at<'a>(&'a self, place: Place<'a>) -> BoxFuture<'a, ()> {
        match place {
            Place::Append(group) => {
                self.ledger.stores(group);
                self.marks.at("before append");
            }
            Place::Appended(group) => {
                self.ledger.stored(group);
                self.marks.at("after append");
                let rows = group.iter().filter_map(|append| append.row.detail.as_deref());
                for row in rows {
                    let points = [
                        ("signal", "waiting"),
                        ("timer", "sleeping"),
                        ("next attempt", "retrying"),
                    ];
                    for (_, point) in points.iter().filter(|(begins, _)| row.starts_with(begins)) {
                        self.marks.at(point);
                    }
                    if row.starts_with("signal") {
                        self.waits.notify_one();
                    }
                }
            }
            Place::Claim => self.marks.at("claim"),
            Place::Read => self.marks.at("read"),
            Place::Post => self.marks.at("post"),
            Place::Erase | Place::Erased => {}
            Place::Close => self.marks.at("close"),
            Place::Closed => self.marks.at("closed"),
        }
        Box::pin(std::future::ready(()))
    }
}

/// Lives, and says with which code the process ends.
///
/// # Errors
/// What went wrong.
pub fn live(told: &Told) -> Result<u8, String> {
    if let Some(Rule::Home(fault)) = told.plant {
        plant(Some(fault));
    }
    let ledger = Ledger::in_folder(&told.folder);
    ledger.note(&Line::Life);
    let marks = Marks::new(&told.folder, told.point.clone()).map_err(|e| e.to_string())?;
    let marks = Arc::new(marks);
    marks.at("start");
    let in_runtime = match told.plant {
        Some(Rule::Runtime(fault)) => Some(fault),
        _ => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(move || deedbook::planted::plant(in_runtime.as_slice()))
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    runtime.spawn_blocking(end_with_whoever_started_this);
    let code = runtime.block_on(async {
        let lived = tokio::time::timeout(LIFE_MAX, lived(told, &marks, ledger)).await;
        lived.unwrap_or_else(|_| Err(format!("no end after {} s", LIFE_MAX.as_secs())))
    });
    marks.at("end");
    // Not a return: what waits for the standard input would be waited for.
    std::process::exit(match code {
        Ok(code) => i32::from(code),
        Err(error) => {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), error.as_bytes());
            1
        }
    })
}

/// A rig that was stopped leaves no lives behind.
fn end_with_whoever_started_this() {
    let _nothing = std::io::read_to_string(std::io::stdin());
    std::process::exit(1);
}

async fn lived(told: &Told, marks: &Arc<Marks>, ledger: Ledger) -> Result<u8, String> {
    let failed = |error: deedbook::Error| error.to_string();
    let shape = Shape::of(told.seed);
    let (home, fresh) = open(&told.folder.join(JOURNAL), shape, marks)?;
    marks.at("open");
    let agent =
        Agent { marks: Arc::clone(marks), ledger: ledger.clone(), policy: told.policy, shape };
    let watching =
        Watching { marks: Arc::clone(marks), ledger: ledger.clone(), waits: Notify::new() };
    let watching = Arc::new(watching);
    let store = Watched::new(Arc::new(home), Arc::clone(&watching));
    let book = Deedbook::on(store).host(agent).start().await.map_err(failed)?;
    book.spawn::<Agent>(THREAD, 42).await.map_err(failed)?;
    if told.settle {
        say_what_happened(&book, &ledger).await?;
    }
    let run = book.run::<Agent>(THREAD, 42);
    tokio::pin!(run);
    let mut ran = None;
    if fresh && !shape.early {
        tokio::select! {
            done = &mut run => ran = Some(done),
            () = watching.waits.notified() => {}
        }
    }
    // Once the thread has ended nobody takes it any more.
    let _ = book.signal(THREAD, "go", &()).await;
    let ran = match ran {
        Some(ran) => ran,
        None => run.await,
    };
    match ran {
        Ok(answer) => ledger.note(&Line::Answer(answer)),
        Err(error) if error.kind() == ErrorKind::InDoubt => {
            let doubts = book.doubts().await.map_err(failed)?;
            let mut steps: Vec<_> = doubts.iter().map(|doubt| name_of(&doubt.step)).collect();
            steps.sort();
            ledger.note(&Line::Doubts(steps));
            return Ok(IN_DOUBT);
        }
        Err(error) => return Err(failed(error)),
    }
    marks.at("answer");
    book.shutdown().await.map_err(failed)?;
    Ok(0)
}

/// The name of a step as it is shown, without its branch and its occurrence.
fn name_of(step: &str) -> String {
    let name = step.rsplit('/').next().unwrap_or_default();
    name.split('#').next().unwrap_or_default().to_owned()
}

/// The journal, and whether nothing was written to it before.
fn open(path: &Path, shape: Shape, marks: &Arc<Marks>) -> Result<(Embedded, bool), String> {
    // The one before may take a moment to be gone.
    let options = OpenOptions::new()
        .disk(Arc::new(MarkedDisk::new(marks)))
        .log_bytes(LOG_BYTES)
        .commit_by(if shape.by_thread { CommitBy::Thread } else { CommitBy::default() })
        .wait(Duration::from_secs(5));
    match Embedded::open(path, options.clone()) {
        Ok(home) => {
            let fresh = home.info().records == 0;
            Ok((home, fresh))
        }
        Err(OpenError::NotFound { .. }) => {
            let made = Embedded::create(path, CreateOptions::new().open(options));
            made.map(|home| (home, true)).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A person looks for every step in doubt in the ledger, and says what is there.
async fn say_what_happened(book: &Deedbook, ledger: &Ledger) -> Result<(), String> {
    for doubt in book.doubts().await.map_err(|error| error.to_string())? {
        let receipt = doubt.operation_key.as_deref().and_then(|key| ledger.receipt(key));
        let resolution = match receipt {
            None => Resolution::did_not_happen(),
            Some(receipt) => Resolution::happened(&receipt).map_err(|e| e.to_string())?,
        };
        // It may have been settled by the life before, and only be taken in now.
        let _ = book.resolve(THREAD, &doubt.step, resolution, "user:a", "looked it up").await;
    }
    Ok(())
}
