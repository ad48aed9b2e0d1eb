//! What each operation does.

use std::{convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use deedbook_journal::{
    checkpointer::{self, Checkpointer, Page, Posted},
    embedded::{BackupError, Finding, Progress, Stage},
    hex,
    id::{Epoch, MessageId, Name, ThreadId},
    limits::ValueLimits,
    operator,
    value::view,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{
    Server,
    connection::{self, Client},
    guard,
};
use crate::{
    First, first,
    limits::{
        IN_FLIGHT_MAX, INBOX_BYTES_MAX, LINE_BYTES_MAX, LIST_THREADS_MAX, LOG_ENTRIES_MAX,
        PROTOCOL_VERSION, READ_BYTES_MAX,
    },
    place,
    wire::{
        self, AppendResult, AppendValue, Fault, Hex, Kind, MessageValue, PostedWord, RecordValue,
        Thread, Time, Word,
    },
};

type Line = Result<Vec<u8>, Fault>;

/// The answer to the first line of a client.
pub(super) fn hello(server: &Server, text: &str) -> Result<(Vec<u8>, Option<String>), Fault> {
    let asked = connection::read(text).map_err(|(_, fault)| fault)?;
    if asked.op != "hello" {
        return Err(Fault::new(Kind::NoHello, "the first line of a client is its hello"));
    }
    let hello: wire::Hello = args(asked.args.map_or("{}", |args| args.get()))?;
    if hello.v != PROTOCOL_VERSION {
        return Err(Fault::version(hello.v));
    }
    let identity = server.holding.home().identity();
    if hello.log_id.is_some_and(|wanted| wanted.0 != identity.log_id) {
        let log_id = hex::encode(&identity.log_id);
        let said = format!("this is another journal: its log id is {log_id}");
        return Err(Fault::new(Kind::OtherJournal, said));
    }
    let answer = wire::HelloAnswer {
        v: PROTOCOL_VERSION,
        log_id: Hex(identity.log_id),
        namespace: Hex(identity.namespace),
        secret: Hex(identity.secret),
        pid: std::process::id(),
        program: server.program.clone(),
        runs: server.holding.runs(),
        file: server.file,
        limits: wire::Limits { line_bytes: LINE_BYTES_MAX, in_flight: IN_FLIGHT_MAX },
    };
    Ok((wire::answer(asked.id, &answer)?, hello.client))
}

/// Carries out a request.
pub(super) async fn answer(
    server: &Server,
    out: &Arc<Client>,
    id: u64,
    op: &str,
    given: &str,
    room: &mut Option<OwnedSemaphorePermit>,
) -> Line {
    let home = &**server.holding.home();
    match op {
        "now" => {
            let _: wire::Now = args(given)?;
            wire::answer(id, &wire::NowAnswer { now: Time(home.now().await?) })
        }
        "append" => append(home, id, args(given)?).await,
        "read" => {
            server.room(room).await;
            read(home, id, args(given)?).await
        }
        "post" => post(server, id, args(given)?).await,
        "signal" => signal(server, id, args(given)?).await,
        "inbox" => {
            server.room(room).await;
            inbox(home, id, &args(given)?).await
        }
        "claim" => claim(home, out, id, args(given)?).await,
        "renew" => renew(server, out, id, args(given)?).await,
        "list" => {
            server.room(room).await;
            list(home, id, args(given)?).await
        }
        "log" => {
            server.room(room).await;
            log(home, id, &args(given)?).await
        }
        "erase" => erase(home, id, args(given)?).await,
        "backup" => backup(server, out, id, args(given)?).await,
        "examine" => {
            let _: wire::Examine = args(given)?;
            examine(server, out, id).await
        }
        "leave" => {
            let _: wire::Leave = args(given)?;
            let leaves = server.leaves()?;
            wire::answer(id, &wire::Leaving { leaves })
        }
        op if op.starts_with("guard.") => Box::pin(guard::answer(server, out, id, op, given)).await,
        "hello" => Err(Fault::bad_request("the hello was said")),
        other => {
            let other: String = other.chars().take(40).collect();
            Err(Fault::bad_request(&format!("there is no operation {other:?}")))
        }
    }
}

/// Reads what an operation is given.
pub(super) fn args<'a, T: Deserialize<'a>>(given: &'a str) -> Result<T, Fault> {
    serde_json::from_str(given).map_err(|error| Fault::bad_request(&error.to_string()))
}

async fn append(home: &dyn Checkpointer, id: u64, asked: wire::Append<'_>) -> Line {
    let group: Vec<_> = asked.group.into_iter().map(Into::into).collect();
    let results = home.append(group).await;
    let result = |result| match result {
        Ok(next) => AppendResult::Next(next),
        Err(error) => AppendResult::Error(Fault::from(error)),
    };
    wire::answer(id, &wire::Appended { results: results.into_iter().map(result).collect() })
}

async fn read(home: &dyn Checkpointer, id: u64, asked: wire::Read) -> Line {
    let bytes_max = asked.bytes_max.min(READ_BYTES_MAX);
    let page = home.read(&asked.thread.0, asked.from, bytes_max).await?;
    let mut records = Vec::with_capacity(page.items.len());
    for (n, record) in &page.items {
        records.push((*n, RecordValue::try_from(record)?));
    }
    wire::answer(id, &wire::ReadAnswer { records, next: page.next })
}

async fn post(server: &Server, id: u64, asked: wire::Post<'_>) -> Line {
    let posted = say(server, &asked.thread.0, asked.message.into()).await?;
    wire::answer(id, &wire::PostAnswer { posted: Word(PostedWord(posted)) })
}

async fn signal(server: &Server, id: u64, asked: wire::Signal) -> Line {
    let name = Name::new(&asked.name).map_err(|e| Fault::bad_request(&e.to_string()))?;
    let value = view::from_json(asked.value.get(), &ValueLimits::new());
    let value = value.map_err(|e| Fault::bad_request(&e.of("the value")))?;
    let message_id = match asked.id {
        Some(Hex(id)) => id,
        None => place::random().map_err(|e| Fault::internal(&e.to_string()))?,
    };
    let message = operator::signal(MessageId(message_id), name.as_str(), value, &asked.by);
    let posted = say(server, &asked.thread.0, message).await?;
    let answer = wire::SignalAnswer { posted: Word(PostedWord(posted)), id: Hex(message_id) };
    wire::answer(id, &answer)
}

/// Posts a message, and has the thread taken up.
async fn say(
    server: &Server,
    thread: &ThreadId,
    message: checkpointer::Message,
) -> Result<Posted, Fault> {
    let posted = server.holding.home().post(thread, message).await?;
    if matches!(posted, Posted::Stored | Posted::AlreadyThere) {
        server.holding.noticed(thread);
    }
    Ok(posted)
}

/// The messages behind `after`, as many as fit.
async fn inbox(home: &dyn Checkpointer, id: u64, asked: &wire::Inbox) -> Line {
    let all = home.inbox(&asked.thread.0).await?;
    let after = asked.after.and_then(|Hex(after)| all.iter().position(|m| m.id.0 == after));
    let again = asked.after.is_some() && after.is_none();
    let rest = all.get(after.map_or(0, |at| at + 1)..).unwrap_or_default();
    let (mut bytes, mut fit) = (0, 0);
    for message in rest {
        bytes += message.body.len() + 6 * (message.name.len() + message.by.len()) + 100;
        if fit > 0 && bytes > INBOX_BYTES_MAX {
            break;
        }
        fit += 1;
    }
    let messages = rest.iter().take(fit).map(MessageValue::from).collect();
    wire::answer(id, &wire::InboxAnswer { messages, more: fit < rest.len(), again })
}

async fn claim(home: &dyn Checkpointer, client: &Client, id: u64, asked: wire::Claim) -> Line {
    let ttl = Duration::from_nanos(asked.ttl_ns);
    let leases = home.claim(asked.which.into(), &asked.holder, ttl).await?;
    let held = leases.iter().map(|lease| (lease.thread.clone(), lease.epoch));
    client.leases().extend(held);
    wire::answer(id, &wire::Claimed { leases: leases.iter().map(Into::into).collect() })
}

async fn renew(server: &Server, client: &Client, id: u64, asked: wire::Renew) -> Line {
    let held = |hold: wire::HoldValue| (hold.thread.0, Epoch(hold.epoch));
    let leases: Vec<_> = asked.leases.into_iter().map(held).collect();
    let ttl = Duration::from_nanos(asked.ttl_ns);
    let until = server.holding.home().renew(&leases, ttl).await?;
    if ttl.is_zero() {
        // Whoever lets go of a thread has most likely given it something to do.
        for (thread, epoch) in &leases {
            let mut held = client.leases();
            if held.get(thread) == Some(epoch) {
                held.remove(thread);
            }
            drop(held);
            server.holding.noticed(thread);
        }
    }
    wire::answer(id, &wire::Renewed { until: until.into_iter().map(|t| t.map(Time)).collect() })
}

async fn list(home: &dyn Checkpointer, id: u64, asked: wire::List) -> Line {
    let (filter, after) = (asked.filter.into(), asked.after.map(|thread| thread.0));
    let max = asked.max.min(LIST_THREADS_MAX);
    let page = home.list(&filter, after.as_ref(), max).await?;
    fit(
        page,
        |info| info.id.clone(),
        |page| {
            let threads = page.items.iter().map(Into::into).collect();
            let next = page.next.clone().map(Thread);
            wire::answer(id, &wire::ListAnswer { threads, next })
        },
    )
}

async fn log(home: &dyn Checkpointer, id: u64, asked: &wire::Log) -> Line {
    let page = home.log(asked.from, asked.max.min(LOG_ENTRIES_MAX)).await?;
    fit(
        page,
        |entry| entry.index + 1,
        |page| {
            let entries = page.items.iter().map(Into::into).collect();
            wire::answer(id, &wire::LogAnswer { entries, next: page.next })
        },
    )
}

/// As much of a page as a line holds. `behind` says where to go on behind an item.
fn fit<T, C>(
    mut page: Page<T, C>,
    behind: impl Fn(&T) -> C,
    write: impl Fn(&Page<T, C>) -> Line,
) -> Line {
    loop {
        let line = write(&page)?;
        if line.len() <= LINE_BYTES_MAX || page.items.len() <= 1 {
            return Ok(line);
        }
        page.items.truncate(page.items.len() / 2);
        page.next = page.items.last().map(&behind);
    }
}

async fn erase(home: &dyn Checkpointer, id: u64, asked: wire::Erase<'_>) -> Line {
    let note: AppendValue<'_> = asked.note;
    let next = home.erase(&asked.thread.0, asked.n, asked.role.0.0, note.into()).await?;
    wire::answer(id, &wire::Erased { next })
}

/// Copies the journal, and says how far that has come.
async fn backup(server: &Server, out: &Arc<Client>, id: u64, asked: wire::Backup) -> Line {
    let Some(file) = server.holding.file() else {
        let why = "this journal lives in no file of its own; back up its home as that is backed up";
        return Err(Fault::refused(why));
    };
    let to = PathBuf::from(&asked.to);
    if !to.is_absolute() {
        return Err(Fault::bad_request("the name of the copy begins at the root"));
    }
    let (watch, mut tells) = telling();
    let made = match first(file.backup(&to, watch), tell(out, id, &mut tells)).await {
        First::This(made) => made,
        First::That(never) => match never {},
    };
    let made = made.map_err(|error| match error {
        BackupError::Journal(error) => error.into(),
        other => Fault::refused(other.to_string()),
    })?;
    let answer = wire::BackupMade {
        log_id: Hex(made.log_id),
        threads: made.threads,
        records: made.records,
        head: made.head.map(|(leaf, hash)| (leaf, Hex(hash.0))),
        file_bytes: made.file_bytes,
    };
    wire::answer(id, &answer)
}

/// Reads everything of the journal, and says how far that has come.
async fn examine(server: &Server, out: &Arc<Client>, id: u64) -> Line {
    let Some(file) = server.holding.file() else {
        let why = "this journal lives in no file of its own; examine its home as that is examined";
        return Err(Fault::refused(why));
    };
    let (watch, mut tells) = telling();
    let seen = match first(file.examine_open(watch), tell(out, id, &mut tells)).await {
        First::This(seen) => seen?,
        First::That(never) => match never {},
    };
    // What was over at once has come as far as this at least.
    if let Ok(progress) = tells.try_recv() {
        out.send(&wire::progress(id, &progress_of(&progress))?).await;
    }
    let finding = |finding: Finding| wire::FindingValue {
        about: finding.about.into_owned(),
        verdict: finding.verdict.as_str().into(),
        said: finding.said,
        next: finding.next,
    };
    let answer = wire::Examined {
        records: seen.records,
        rolled_back_from: seen.rolled_back_from,
        findings: seen.findings.into_iter().map(finding).collect(),
    };
    wire::answer(id, &answer)
}

/// What watches over something that takes its time, and what it tells: what comes faster than it
/// is read is not worth telling.
fn telling() -> (impl FnMut(Progress) + Send + 'static, mpsc::Receiver<Progress>) {
    let (told, tells) = mpsc::channel(1);
    let watch = move |progress: Progress| {
        let _ = told.try_send(progress);
    };
    (watch, tells)
}

/// Tells the client, for as long as there is somebody who wants that told.
async fn tell(client: &Client, id: u64, tells: &mut mpsc::Receiver<Progress>) -> Infallible {
    while let Some(progress) = tells.recv().await {
        if let Ok(line) = wire::progress(id, &progress_of(&progress)) {
            client.send(&line).await;
        }
    }
    std::future::pending().await
}

fn progress_of(progress: &Progress) -> impl Serialize + use<> {
    let stage = match progress.stage {
        Stage::Verify => "verify",
        _ => "copy",
    };
    wire::ProgressValue {
        stage: stage.into(),
        records: progress.records,
        of: progress.of,
        bytes: progress.bytes,
    }
}
