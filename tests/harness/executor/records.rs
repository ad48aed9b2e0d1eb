//! What shows in the records of threads that have ended.
//!
//! Read from the headers, and not through the journal's own folding: what it accepts is a thing to
//! be checked, and no measure.

use std::collections::BTreeMap;

use deedbook::{Checkpointer, PolicyKind, Retry, Status, StoreTime};
use deedbook_journal::{
    history::Answer,
    id::{Epoch, Position},
    limits::ValueLimits,
    record::{Header, Kind, Record, Role},
    value,
};
use futures::FutureExt;

use super::life::{Life, Thread};
use crate::{
    check::Check,
    program::{FIRST_WAIT, runs},
    replay,
    world::World,
};

/// Checks every thread.
pub(super) fn check(life: &mut Life) {
    for thread in &life.threads {
        let journal = &life.journals[thread.journal];
        let world = journal.world.of(thread.id.as_str());
        let records = replay::records(&journal.home, &thread.id, 0);
        let mut book = Book::new(&world, thread);
        for record in &records {
            book.read(record);
        }
        book.effects();
        signals(&world, thread, &*journal.home, &records);
        told(&world, thread);
    }
}

/// A call as its records tell of it.
struct Call {
    name: String,
    policy: Option<PolicyKind>,
    key: Option<String>,
    opened: StoreTime,
    due: Option<StoreTime>,
    settled: Settled,
    attempts: Vec<Attempt>,
    /// Somebody found out that nothing happened, since the last attempt.
    cleared: bool,
    /// A person said that it happened, and the code could not read how.
    misread: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    No,
    ByItself,
    ByPerson,
}

struct Attempt {
    number: u32,
    epoch: Epoch,
    end: Option<End>,
}

struct End {
    kind: Kind,
    why: String,
    due: Option<StoreTime>,
}

/// A thread as its records tell of it.
struct Book<'a> {
    world: &'a World,
    thread: &'a Thread,
    calls: BTreeMap<Position, Call>,
    epoch: Epoch,
    cancelled: bool,
}

impl<'a> Book<'a> {
    fn new(world: &'a World, thread: &'a Thread) -> Self {
        Self { world, thread, calls: BTreeMap::new(), epoch: Epoch(0), cancelled: false }
    }

    fn read(&mut self, record: &Record) {
        let Ok(header) = Header::parse(&record.header) else {
            self.world.check(Check::Fence, false, || "a header cannot be read".into());
            return;
        };
        let (n, epoch, before) = (header.n, header.epoch, self.epoch);
        let why = || format!("record {n} has epoch {} behind {}", epoch.0, before.0);
        self.world.check(Check::Fence, epoch >= before, why);
        self.epoch = epoch;
        let begins = [Kind::StepIntent, Kind::TimerSet, Kind::ApprovalRequest, Kind::Clock];
        if begins.contains(&header.kind) {
            let why = || format!("record {n} begins something after the cancellation");
            self.world.check(Check::Cancelled, !self.cancelled, why);
        }
        match header.kind {
            Kind::Marker if header.why.as_deref() == Some("cancel") => self.cancelled = true,
            Kind::StepIntent => self.intent(&header),
            Kind::TimerSet | Kind::ApprovalRequest => self.open(&header),
            Kind::StepDone => self.settles(&header, Settled::ByItself),
            Kind::StepFail | Kind::StepUnknown => self.ends(&header),
            Kind::StepResolve => self.resolves(&header),
            Kind::ApprovalDecide => self.settles(&header, Settled::ByItself),
            Kind::TimerFired => {
                self.settles(&header, Settled::ByItself);
                self.fires(&header);
            }
            Kind::ThreadEnd => {
                let doubts = header.doubts.unwrap_or(0);
                self.world.check(Check::Doubts, doubts == 0, || format!("{doubts} are left open"));
            }
            _ => {}
        }
    }

    fn open(&mut self, header: &Header) {
        let name = header.place.as_ref().map(|p| p.name.to_string()).unwrap_or_default();
        let call = Call {
            name,
            policy: header.policy,
            key: header.key.as_deref().map(str::to_owned),
            opened: header.time,
            due: header.due,
            settled: Settled::No,
            attempts: Vec::new(),
            cleared: false,
            misread: false,
        };
        self.calls.insert(header.n, call);
    }

    fn intent(&mut self, header: &Header) {
        if header.call.is_none() {
            self.open(header);
        }
        let at = header.call.unwrap_or(header.n);
        let Some(call) = self.calls.get_mut(&at) else { return };
        let (world, n, name) = (self.world, header.n, call.name.clone());
        let settled = call.settled != Settled::No;
        world.check(Check::Settled, !settled, || format!("{name} begins again at {n}, settled"));
        if let Some(last) = call.attempts.last() {
            let died = last.end.is_none() && header.epoch > last.epoch;
            let reason = last.end.is_some() || died || call.cleared;
            let why = || format!("{name} begins again at {n} for no reason");
            world.check(Check::Attempts, reason, why);
            let end = last.end.as_ref();
            let unsent = end.is_some_and(|e| ["not_applied", "not_started"].contains(&&*e.why));
            if matches!(call.policy, Some(PolicyKind::AtMostOnce | PolicyKind::Reconcile)) {
                let why = || format!("{name} begins again at {n}, and may have happened");
                world.check(Check::AtMostOnce, unsent || call.cleared, why);
            }
            if let Some(due) = end.and_then(|e| e.due).filter(|_| !call.cleared) {
                let why = || format!("{name} begins again at {n}, early");
                world.check(Check::Time, header.time >= due, why);
            }
        }
        let (number, epoch) = (header.attempt.unwrap_or(0), header.epoch);
        call.attempts.push(Attempt { number, epoch, end: None });
        call.cleared = false;
    }

    fn settles(&mut self, header: &Header, by: Settled) {
        let Some(call) = header.call.and_then(|at| self.calls.get_mut(&at)) else { return };
        // A person may correct what a person said.
        let again = call.settled == Settled::ByPerson && by == Settled::ByPerson;
        let first = call.settled == Settled::No || again;
        let (n, name) = (header.n, call.name.clone());
        self.world.check(Check::OneOutcome, first, || format!("{name} is settled again at {n}"));
        call.settled = by;
    }

    /// An attempt ends without a value.
    fn ends(&mut self, header: &Header) {
        let why = header.why.as_deref().unwrap_or_default().to_owned();
        let terminal = ["terminal", "exhausted"].contains(&why.as_str());
        if header.kind == Kind::StepFail && terminal {
            self.settles(header, Settled::ByItself);
        }
        let Some(call) = header.call.and_then(|at| self.calls.get_mut(&at)) else { return };
        let number = header.attempt.unwrap_or(0);
        let (n, name) = (header.n, call.name.clone());
        let closed = call.key.as_deref().is_some_and(|key| self.world.is_closed(key, number));
        let told =
            ["terminal", "timeout", "not_started", "cancelled", "dropped"].contains(&why.as_str());
        let wrong = || format!("{name} failed for good, and {n} says {why}");
        self.world.check(Check::Attempts, !closed || told, wrong);
        if let Some(due) = header.due {
            // Up to a fifth is taken off at random.
            let own = ["same", "repeat", "key"].iter().any(|line| name.starts_with(line));
            let retry = Retry::attempts(10).first(FIRST_WAIT);
            let retry = if own { Retry::default() } else { retry };
            let wait = retry.wait_after(number).mul_f64(0.79);
            let wrong = || format!("{name}: {n} lets the next attempt begin early");
            self.world.check(Check::Time, due.since(header.time) >= wait, wrong);
        }
        if let Some(attempt) = call.attempts.iter_mut().find(|a| a.number == number) {
            attempt.end = Some(End { kind: header.kind.clone(), why, due: header.due });
        }
    }

    fn resolves(&mut self, header: &Header) {
        let by_probe = header.by.as_deref() == Some("probe");
        match header.verdict.as_deref() {
            Some("happened" | "failed") => {
                let by = if by_probe { Settled::ByItself } else { Settled::ByPerson };
                self.settles(header, by);
            }
            Some("did_not_happen") => self.clears(header),
            Some("unreadable") => {
                if let Some(call) = header.call.and_then(|at| self.calls.get_mut(&at)) {
                    call.settled = Settled::No;
                    call.misread = true;
                }
            }
            _ => {}
        }
    }

    fn clears(&mut self, header: &Header) {
        let Some(call) = header.call.and_then(|at| self.calls.get_mut(&at)) else { return };
        let own = call.settled == Settled::ByItself;
        let (n, name) = (header.n, call.name.clone());
        self.world.check(Check::OneOutcome, !own, || format!("{name} is unsettled at {n}"));
        call.settled = Settled::No;
        call.cleared = true;
    }

    fn fires(&self, header: &Header) {
        let Some(timer) = header.call.and_then(|at| self.calls.get(&at)) else { return };
        let (n, name) = (header.n, &timer.name);
        let due = timer.due.is_none_or(|due| header.time >= due);
        self.world.check(Check::Time, due, || format!("{name} fires at {n}, before it is due"));
        if let Some(time) = runs(&self.thread.program, name) {
            let ran = header.time.since(timer.opened);
            let why = || format!("{name} fires at {n} after {ran:?} of {time:?}");
            self.world.check(Check::Time, ran >= time, why);
        }
    }

    /// What happened outside, beside what is recorded of it.
    fn effects(&self) {
        for call in self.calls.values() {
            let (Some(key), Some(policy)) = (&call.key, call.policy) else { continue };
            let (world, name, landed) = (self.world, &call.name, self.world.landed(key));
            let mut sent = world.attempts(key);
            let count = sent.len();
            sent.sort_unstable();
            sent.dedup();
            let why = || format!("{name} was sent {count} times in {} attempts", sent.len());
            world.check(Check::Attempts, count == sent.len(), why);
            if matches!(policy, PolicyKind::AtMostOnce | PolicyKind::Reconcile) {
                let why = || format!("{name} happened {landed} times");
                world.check(Check::AtMostOnce, landed <= 1, why);
            }
            let in_doubt = call.settled == Settled::No
                && call.attempts.last().is_some_and(|attempt| {
                    let unknown = |end: &End| end.kind == Kind::StepUnknown;
                    attempt.end.as_ref().is_none_or(unknown) && !call.cleared && !call.misread
                });
            let why = || format!("{name} ends in doubt");
            world.check(Check::Doubts, !in_doubt, why);
        }
        let history = &self.thread.durable.lock().unwrap().history;
        for call in history.calls() {
            let value = matches!(call.outcome.as_ref().map(|o| &o.answer), Some(Answer::Value(_)));
            if let (Some(key), true) = (&call.key, value) {
                let landed = self.world.landed(key);
                let why = || format!("{} has an outcome, and never happened", call.id);
                self.world.check(Check::OneOutcome, landed > 0, why);
            }
        }
    }
}

/// Every signal is recorded once, or told to be too late, or was left when the thread ended.
fn signals(world: &World, thread: &Thread, home: &dyn Checkpointer, records: &[Record]) {
    let inbox = home.inbox(&thread.id).now_or_never().and_then(Result::ok).unwrap_or_default();
    let mut there: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for message in &inbox {
        if let Ok(value) = value::decode(&message.body, &ValueLimits::new()) {
            *there.entry((message.name.to_string(), value)).or_insert(0) += 1;
        }
    }
    for (name, value) in recorded(records) {
        *there.entry((name, value)).or_insert(0) += 1;
    }
    for sent in &thread.sent {
        let count = there.remove(&(sent.name.clone(), sent.value)).unwrap_or(0);
        let why =
            || format!("{} {} was sent once and is there {count} times", sent.name, sent.value);
        world.check(Check::Signals, count == 1, why);
    }
    world.check(Check::Signals, there.is_empty(), || format!("nobody sent {there:?}"));
}

/// The signals of a thread, in the order of their records.
pub(super) fn recorded(records: &[Record]) -> Vec<(String, u64)> {
    let signal = |record: &Record| {
        let header = Header::parse(&record.header).ok()?;
        let name = header.why.filter(|_| header.kind == Kind::Signal)?;
        let value = record.payload(Role::Value)?;
        Some((name.to_string(), value::decode(&value.bytes, &ValueLimits::new()).ok()?))
    };
    records.iter().filter_map(signal).collect()
}

/// What callers were told of the end is what is recorded.
fn told(world: &World, thread: &Thread) {
    let end = thread.durable.lock().unwrap().history.end().cloned();
    let Some(end) = end else { return };
    let result = end.result.as_deref().map(|r| value::decode::<u64>(r, &ValueLimits::new()));
    for told in &thread.told {
        let same = match (told, end.status) {
            (Ok(told), Status::Done) => matches!(&result, Some(Ok(result)) if result == told),
            (Err(deedbook::ErrorKind::Cancelled), Status::Cancelled) => true,
            (Err(deedbook::ErrorKind::Failed), Status::Failed) => true,
            _ => false,
        };
        let why = || format!("{told:?} was told, and {:?} is recorded", end.status);
        world.check(Check::Told, same, why);
    }
}
