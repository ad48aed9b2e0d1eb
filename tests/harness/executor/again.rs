//! Threads that have ended, once more: the whole record, a part of it, and other code.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use deedbook::{Clock, Deedbook, Error, ErrorKind, Status, VirtualClock};
use deedbook_journal::record::{Header, Kind, Record};
use deedbook_memory::MemoryHome;

use super::{
    life::{Journal, Life, Thread},
    records::recorded,
};
use crate::{
    check::Check,
    home::{GatedHome, Way},
    program::Interpreter,
    random::Random,
    replay,
    simulation::poll_once,
    world::World,
};

/// Rounds in which a replay comes to its end, or to where nothing more is recorded.
const ROUNDS: usize = 60;
/// The process that replays.
const NOBODY: u64 = u64::MAX;

/// What came of a replay.
struct Replayed {
    result: Option<Result<u64, Error>>,
    trace: Vec<String>,
    /// What it recorded beyond what it was given, without times.
    more: Vec<String>,
}

/// Replays every thread.
pub(super) async fn check(life: &mut Life, random: &mut Random) {
    life.world.begin(true);
    for thread in &life.threads {
        let journal = &life.journals[thread.journal];
        let world = journal.world.of(thread.id.as_str());
        let records = replay::records(&journal.home, &thread.id, 0);
        let end = thread.durable.lock().unwrap().history.end().cloned();
        let status = end.map_or(Status::Running, |end| end.status);
        if !matches!(status, Status::Done | Status::Failed) {
            continue;
        }
        let seen = world.in_process(last_process(&records)).trace();
        whole(journal, thread, &records, &seen, &life.clock).await;
        signals_seen(&world, &records, &seen);
        part(journal, thread, &records, &seen, random).await;
        changed(journal, thread, &records, &life.clock).await;
    }
}

/// The whole record but its end: nothing is done, and the same is seen.
async fn whole(
    journal: &Journal,
    thread: &Thread,
    records: &[Record],
    seen: &[String],
    clock: &VirtualClock,
) {
    let code = Interpreter::new(journal.world.in_process(NOBODY));
    let again = run(journal, thread, records, code, &journal.world, clock).await;
    let world = journal.world.of(thread.id.as_str());
    let recorded = thread.told.iter().find_map(|told| told.as_ref().ok().copied());
    let result = again.result.as_ref().and_then(|result| result.as_ref().ok().copied());
    let same = recorded.is_none() || result == recorded;
    world.check(Check::Replay, same, || {
        format!("the replay gives {:?}, and the first run gave {recorded:?}", again.result)
    });
    let differ = again.trace.iter().zip(seen).position(|(a, b)| a != b);
    let same = differ.is_none() && again.trace.len() == seen.len();
    world.check(Check::Replay, same, || {
        format!("the replay sees {:?}, and the first run saw {seen:?}", again.trace)
    });
}

/// Signals of a name come in the order of their records.
fn signals_seen(world: &World, records: &[Record], seen: &[String]) {
    let mut queues: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (name, value) in recorded(records) {
        queues.entry(name).or_default().push(value);
    }
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, value) in seen.iter().filter_map(|line| line.split_once(' ')) {
        if let Some(queue) = queues.get(name) {
            let nth = next.entry(name).or_insert(0);
            let sent = queue.get(*nth).map(ToString::to_string);
            let same = sent.as_deref() == Some(value);
            let why = || format!("{name} is given {value}, and {sent:?} is next in {queue:?}");
            world.check(Check::Signals, same, why);
            *nth += 1;
        }
    }
}

/// A part of the record: the code sees the beginning of what it saw, and asks for the same twice.
async fn part(
    journal: &Journal,
    thread: &Thread,
    records: &[Record],
    seen: &[String],
    random: &mut Random,
) {
    let count = 1 + random.index(records.len().saturating_sub(1));
    let Some(records) = records.get(..count) else { return };
    let mut more = Vec::new();
    for _ in 0..2 {
        // Bodies do not come back here, and time stands still.
        let clock = VirtualClock::new();
        let world = World::new(0, clock.clone());
        let code = Interpreter::new(world.in_process(NOBODY));
        let again = run(journal, thread, records, code, &world, &clock).await;
        let world = journal.world.of(thread.id.as_str());
        let differ = again.trace.iter().zip(seen).find(|(a, b)| a != b);
        // What no record has needs no record: it is the first that is new.
        let new = |line: &str| ["now", "sleep", "unanswered"].iter().any(|n| line.starts_with(n));
        let same = differ.is_none_or(|(line, _)| new(line));
        let why = || format!("{count} records show {differ:?}");
        world.check(Check::Prefix, same, why);
        more.push(again.more);
    }
    let world = journal.world.of(thread.id.as_str());
    let why = || format!("{count} records lead to {more:?}");
    world.check(Check::Prefix, more.windows(2).all(|two| two[0] == two[1]), why);
}

/// Code with other arguments is told so, and does nothing.
async fn changed(journal: &Journal, thread: &Thread, records: &[Record], clock: &VirtualClock) {
    let compared = |record: &Record| {
        let header = Header::parse(&record.header).ok()?;
        let name = header.place.filter(|_| header.kind == Kind::StepIntent)?.name.to_string();
        // These have arguments of their own.
        (!name.starts_with("same") && !name.starts_with("repeat")).then_some(())
    };
    if !records.iter().any(|record| compared(record).is_some()) {
        return;
    }
    let code = Interpreter::new(journal.world.in_process(NOBODY)).changed();
    let again = run(journal, thread, records, code, &journal.world, clock).await;
    let kind = again.result.as_ref().and_then(|result| result.as_ref().err()).map(Error::kind);
    let world = journal.world.of(thread.id.as_str());
    let why = || format!("changed code ends with {:?}", again.result);
    world.check(Check::Changed, kind == Some(ErrorKind::Diverged), why);
}

/// Runs code against records in a home of its own, until it ends or nothing moves.
async fn run(
    journal: &Journal,
    thread: &Thread,
    records: &[Record],
    code: Interpreter,
    world: &World,
    clock: &VirtualClock,
) -> Replayed {
    let copy = replay::without_end("interpreter", &journal.identity, &thread.id, records);
    let inner = Arc::new(MemoryHome::from_snapshot(copy, clock.source()));
    let home = Arc::new(GatedHome {
        inner: inner.clone(),
        world: world.in_process(NOBODY),
        gated: false,
        durable: BTreeMap::new(),
        way: Way::default(),
    });
    let starting = Deedbook::on(home)
        .clock(clock.clone())
        .host(code)
        .look_every(Duration::from_secs(3600))
        .start();
    let mut result = None;
    if let Ok(book) = starting.await {
        let id = thread.id.as_str().to_owned();
        let mut ends = Box::pin(book.run::<Interpreter>(id, thread.seed));
        for _ in 0..ROUNDS {
            result = poll_once(&mut ends).await;
            if result.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(ends);
        drop(book);
        // What it was at is dropped before somebody else replays.
        tokio::task::yield_now().await;
    }
    let kept = records.len() as u64 - u64::from(has_end(records));
    let more = replay::records(&inner, &thread.id, kept);
    let trace = world.of(thread.id.as_str()).in_process(NOBODY).trace();
    let more = more.iter().filter_map(|record| Header::parse(&record.header).ok());
    let said = |h: Header| format!("{} {:?} {:?} {:?}", h.kind.as_str(), h.place, h.attempt, h.key);
    Replayed { result, trace, more: more.map(said).collect() }
}

fn has_end(records: &[Record]) -> bool {
    let last = records.last().and_then(|record| Header::parse(&record.header).ok());
    last.is_some_and(|header| header.kind == Kind::ThreadEnd)
}

/// The process that wrote the end.
fn last_process(records: &[Record]) -> u64 {
    let headers = records.iter().rev().filter_map(|record| Header::parse(&record.header).ok());
    let mut runs =
        headers.filter(|header| matches!(header.kind, Kind::ThreadStart | Kind::ThreadResume));
    let by = runs.next().and_then(|header| header.by);
    by.and_then(|by| by.strip_prefix('p').and_then(|n| n.parse().ok())).unwrap_or(0)
}
