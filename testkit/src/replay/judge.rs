//! One thread: what the code makes of its records, beside how it ended.

use std::sync::Arc;

use deedbook::{
    Builder, Deedbook, DivergenceKind, Error, ErrorKind, Failure, Replayed, ReplayedTo, Row,
    Status, StoreTime, ThreadId, ValueLimits, checkpointer::StoreIdentity,
};
use deedbook_journal::{
    history::{End, History},
    record::Role,
    value::{canonical, view},
};

use super::{
    file::Thread,
    home::Recorded,
    report::{Verdict, WasReplayed},
};

pub(super) fn verdict(
    runtime: &tokio::runtime::Runtime,
    identity: &StoreIdentity,
    id: &ThreadId,
    mut thread: Thread,
    hosts: &impl Fn(Builder) -> Builder,
) -> WasReplayed {
    let mut was = WasReplayed {
        thread: id.as_str().to_owned(),
        workflow: thread.workflow.as_deref().unwrap_or_default().to_owned(),
        verdict: Verdict::Replays,
        other_policies: Vec::new(),
    };
    let end = match (&thread.damaged, &thread.workflow) {
        (Some(why), _) => Err(Verdict::Damaged(why.clone())),
        (None, None) => Err(Verdict::Damaged("its first record begins no thread".to_owned())),
        (None, Some(_)) => cut(identity, id, &mut thread),
    };
    was.verdict = match end {
        Err(verdict) => verdict,
        Ok(end) => {
            let erased = std::mem::take(&mut thread.erased);
            let home = home(identity, id, thread);
            let builder = hosts(Deedbook::on(Arc::new(home)));
            match runtime.block_on(builder.replay(id.as_str())) {
                Ok(Replayed { to, other_policies, .. }) => {
                    was.other_policies = other_policies;
                    end.map_or(Verdict::Replays, |end| ended(&end, to))
                }
                Err(error) => stopped(&error, erased.first().is_some_and(|(n, _)| *n == 0)),
            }
        }
    };
    was
}

/// Cuts off how the thread ended, and what was done because it was cancelled: the code had no
/// part in that. Gives the end, if the code brought it about.
fn cut(
    identity: &StoreIdentity,
    id: &ThreadId,
    thread: &mut Thread,
) -> Result<Option<End>, Verdict> {
    let mut history = History::new(id.clone(), identity.secret);
    for (at, record) in thread.records.iter().enumerate() {
        if let Err(error) = history.replay(record) {
            let erased =
                thread.erased.iter().any(|(n, role)| *n == at as u64 && *role == Role::Args);
            let why = format!("record {at} does not fit: {error}");
            return Err(if erased { Verdict::Erased(why) } else { Verdict::Damaged(why) });
        }
        let end = history.end().cloned();
        if end.is_some() || history.cancelled() {
            thread.records.truncate(at);
            return Ok(end);
        }
    }
    Ok(None)
}

fn home(identity: &StoreIdentity, id: &ThreadId, thread: Thread) -> Recorded {
    let now = thread.last().map_or(StoreTime(0), |header| header.time);
    let row = Row {
        since: now,
        ..Row::new(thread.workflow.unwrap_or_default(), Status::Running, StoreTime(0))
    };
    let (identity, thread, records) = (identity.clone(), id.clone(), thread.records);
    Recorded { identity, thread, records, row, now }
}

/// How the code ends beside how it ended then.
fn ended(then: &End, now: ReplayedTo) -> Verdict {
    let recorded = match (&then.result, &then.failure) {
        (Some(result), _) => shown(result),
        (None, Some(failure)) => failed(failure),
        (None, None) => {
            let word = if then.status == Status::Done { "result" } else { "failure" };
            return match now {
                ReplayedTo::Ended(_) => {
                    Verdict::Erased(format!("it ends, and its {word} was erased"))
                }
                other => Verdict::OtherResult { recorded: "the end".into(), now: on(other) },
            };
        }
    };
    let now = match now {
        ReplayedTo::Ended(Ok(result)) => {
            if then.result.as_deref().is_some_and(|then| same(then, &result)) {
                return Verdict::Replays;
            }
            shown(&result)
        }
        ReplayedTo::Ended(Err(failure)) => {
            if then.failure.as_ref() == Some(&failure) {
                return Verdict::Replays;
            }
            failed(&failure)
        }
        other => on(other),
    };
    Verdict::OtherResult { recorded, now }
}

/// Code that does not end where it ended then.
fn on(to: ReplayedTo) -> String {
    match to {
        ReplayedTo::Call(call) => format!("it goes on with {call}"),
        ReplayedTo::Waits(what) => format!("it waits: {what}"),
        _ => "it does not end".to_owned(),
    }
}

fn failed(failure: &Failure) -> String {
    format!("the failure {failure}")
}

/// The same bytes as a rule; maps may have another order.
fn same(then: &[u8], now: &[u8]) -> bool {
    let limits = ValueLimits::new();
    let canonical = |bytes| canonical::of_msgpack(bytes, &limits).ok();
    then == now || canonical(then).is_some_and(|then| Some(then) == canonical(now))
}

/// How much of a value is shown.
const SHOWN_CHARS_MAX: usize = 300;

fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    if view::to_json(bytes, &mut text).is_err() {
        return "a value that cannot be read".to_owned();
    }
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text,
    }
}

/// Why a replay did not come to where the record ends.
fn stopped(error: &Error, input_erased: bool) -> Verdict {
    // The thread is named beside the verdict.
    let text = error.to_string();
    let prefix = error.thread_id().map(|id| format!("thread {id:?}: ")).unwrap_or_default();
    let why = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
    match (error.kind(), error.divergence()) {
        (_, Some(divergence)) if divergence.kind == DivergenceKind::Erased => Verdict::Erased(why),
        (_, Some(divergence)) => Verdict::Diverges(divergence.clone()),
        (ErrorKind::Diverged, None) if input_erased => Verdict::Erased(why),
        (ErrorKind::NotFound, _) => Verdict::NoSuchWorkflow,
        (ErrorKind::Damaged, _) => Verdict::Damaged(why),
        _ => Verdict::Stops(why),
    }
}
