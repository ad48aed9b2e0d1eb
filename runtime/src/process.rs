//! Process facts, once a start: `run.start` and `run.end` in the journal's system thread.
//!
//! An auditor asks when the journal was at work, and which code was: every `thread.start` and
//! `thread.resume` points to the `run.start` of its process. A `run.start` without a `run.end`
//! behind it is a crash.

use std::sync::Arc;

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, Lease, StoreError},
    id::{Position, StoreTime, ThreadId},
    pen::{Draft, Pen},
    record::{Kind, Role},
    row::{Row, Status},
    value,
};
use serde::Serialize;

use crate::{options::Options, random::Random};

/// The name under which the system thread is listed.
const WORKFLOW: &str = "deedbook:system";

/// What is recorded of a process.
#[derive(Serialize)]
struct Facts<'a> {
    deedbook: &'a str,
    pid: u32,
    program: Option<String>,
    host: Option<String>,
    workflows: Vec<&'a str>,
}

/// Records that this process begins, and gives the position of the record.
pub(crate) async fn start(
    store: &Arc<dyn Checkpointer>,
    options: &Options,
    workflows: Vec<&str>,
) -> Result<Position, StoreError> {
    let program = std::env::current_exe().ok();
    let facts = Facts {
        deedbook: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        program: program.map(|p| p.display().to_string()),
        host: std::env::var("HOSTNAME").ok(),
        workflows,
    };
    let draft = Draft::new(&ThreadId::system(), Kind::RunStart).with(|h| {
        h.by = Some(options.holder.clone());
        h.build = options.build.clone();
    });
    // Texts of this size always fit.
    let note = value::encode(&facts, &options.values).unwrap_or_else(|_| vec![0xc0]);
    append(store, options, draft.payload(Role::Note, note)).await
}

/// Records that this process ends in good order.
pub(crate) async fn end(
    store: &Arc<dyn Checkpointer>,
    options: &Options,
    start: Position,
) -> Result<(), StoreError> {
    let draft = Draft::new(&ThreadId::system(), Kind::RunEnd).with(|h| h.process = Some(start));
    append(store, options, draft).await.map(drop)
}

/// Appends one record to the system thread. The thread is held only for that: processes that
/// share a store take turns.
async fn append(
    store: &Arc<dyn Checkpointer>,
    options: &Options,
    draft: Draft,
) -> Result<Position, StoreError> {
    let now = store.now().await?;
    let row = Row::new(WORKFLOW, Status::Running, now);
    let which = Claim::Thread { id: ThreadId::system(), create: Some(row) };
    let leases = store.claim(which, &options.holder, options.lease).await?;
    let lease = leases.into_iter().next().ok_or(StoreError::NoSuchThread)?;
    let hold = [(lease.thread.clone(), lease.epoch)];
    let appended = write(store, lease, draft, now).await;
    // A lease that cannot be released runs out by itself.
    let _ = store.renew(&hold, std::time::Duration::ZERO).await;
    appended
}

async fn write(
    store: &Arc<dyn Checkpointer>,
    lease: Lease,
    draft: Draft,
    now: StoreTime,
) -> Result<Position, StoreError> {
    let log_id = store.identity().log_id;
    let mut random = Random::new();
    let mut pen = Pen::new(log_id, lease.thread.clone(), lease.epoch, lease.next, lease.head);
    let (header, record) = pen.write(draft, now, &mut || random.salt());
    let append = Append {
        thread: lease.thread,
        epoch: lease.epoch,
        at: lease.next,
        records: vec![record].into(),
        consumes: Vec::new(),
        row: Row { since: now, ..lease.row },
    };
    let mut results = store.append(vec![append]).await;
    let result = results.pop();
    result.unwrap_or(Err(StoreError::NoSuchThread)).map(|_| header.n)
}
