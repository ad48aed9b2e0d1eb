//! Guarded steps for programs in any language: tickets that belong to a connection.
//!
//! A connection that ends lets go of what it holds, as if its process had died: the recorded
//! policy says what may follow, and nobody has to wait for a lease to run out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    failure::Failure,
    guard::{self, After, Answered, Claimed, GuardError, Settled, Switch, Ticket, Wanted, Within},
    history::{Answer, Doubt},
    id::ThreadId,
    limits::ValueLimits,
    policy::{Policy, Terms},
    value::{canonical, view},
};
use serde_json::value::RawValue;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{Server, answer::args, connection::Client};
use crate::{
    limits::{GUARD_LEASE_DEFAULT, GUARD_LOOK_EVERY, TICKETS_MAX},
    place,
    wire::{
        self, AnswerValue, Fault, GuardClaim, Kind, OffValue, OutcomeValue, ScopeValue,
        SettledValue, Standing, Thread, TicketValue, Time, nanos,
    },
};

type Line = Result<Vec<u8>, Fault>;

/// The shortest wait for another look.
const BREATH: Duration = Duration::from_millis(10);

/// The tickets of one connection.
#[derive(Default)]
pub(super) struct Tickets(Mutex<Held>);

#[derive(Default)]
struct Held {
    tickets: HashMap<u64, Ticket>,
    next: u64,
}

impl Tickets {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, ticket: Ticket) -> u64 {
        let mut held = self.held();
        held.next += 1;
        let number = held.next;
        held.tickets.insert(number, ticket);
        number
    }

    fn take(&self, number: u64) -> Result<Ticket, Fault> {
        let ticket = self.held().tickets.remove(&number);
        ticket.ok_or_else(|| Fault::bad_request(&format!("there is no ticket {number} here")))
    }

    fn is_full(&self) -> bool {
        self.held().tickets.len() >= TICKETS_MAX
    }

    /// Lets go of everything: the connection has ended.
    pub(super) async fn let_go(&self, server: &Server) {
        let tickets: Vec<_> = self.held().tickets.drain().map(|(_, ticket)| ticket).collect();
        for mut ticket in tickets {
            // A lease that cannot be released runs out by itself.
            let _ = ticket.renew(&**server.holding.home(), Duration::ZERO).await;
            server.waiting.changed(ticket.thread());
        }
    }
}

/// Who waits for a step that somebody is at.
#[derive(Default)]
pub(super) struct Waiting(Mutex<HashMap<ThreadId, Weak<Notify>>>);

impl Waiting {
    fn on(&self, thread: &ThreadId) -> Arc<Notify> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = all.get(thread).and_then(Weak::upgrade) {
            return waiting;
        }
        all.retain(|_, waiting| waiting.strong_count() > 0);
        let waiting = Arc::new(Notify::new());
        all.insert(thread.clone(), Arc::downgrade(&waiting));
        waiting
    }

    /// Something has become of the step: whoever waits looks again.
    fn changed(&self, thread: &ThreadId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = all.remove(thread).and_then(|waiting| waiting.upgrade()) {
            waiting.notify_waiters();
        }
    }
}

/// Carries out an operation of the guard.
pub(super) async fn answer(
    server: &Server,
    client: &Client,
    id: u64,
    op: &str,
    given: &str,
) -> Line {
    let home = &**server.holding.home();
    let standing = match op {
        "guard.claim" => claim(server, client, args(given)?).await?,
        "guard.complete" => {
            let asked: wire::GuardComplete = args(given)?;
            let bytes = asked.result.as_deref().map(|json| value_of("result", json));
            let ticket = client.tickets.take(asked.ticket)?;
            let thread = ticket.thread().clone();
            let settled = match (asked.unstored, bytes.unwrap_or(Ok(vec![0xc0]))) {
                (Some(why), _) => ticket.complete_without(home, &cut(why)).await,
                (None, Ok(bytes)) => ticket.complete(home, bytes).await,
                // It has happened all the same, and that is what must not be lost.
                (None, Err(why)) => {
                    ticket.complete_without(home, &Failure::new(&why.message)).await
                }
            };
            told(server, &thread);
            Standing::Settled(settled_value(&settled.map_err(fault)?)?)
        }
        "guard.fail" => {
            let asked: wire::GuardFail = args(given)?;
            let ticket = client.tickets.take(asked.ticket)?;
            let thread = ticket.thread().clone();
            let after = ticket.fail(home, &cut(asked.failure), asked.finally).await;
            told(server, &thread);
            stands_after(after.map_err(fault)?)?
        }
        "guard.unknown" => {
            let asked: wire::GuardUnknown = args(given)?;
            let word = asked.why.as_deref().unwrap_or("unlabelled");
            let why = Doubt::from_word(word).filter(|why| Doubt::OF_ATTEMPTS.contains(why));
            let why = why.ok_or_else(|| {
                let words = Doubt::OF_ATTEMPTS.map(Doubt::as_str).join(", ");
                Fault::bad_request(&format!("`why` is one of {words}"))
            })?;
            let ticket = client.tickets.take(asked.ticket)?;
            let thread = ticket.thread().clone();
            let after = ticket.unknown(home, why, &cut(asked.failure)).await;
            told(server, &thread);
            stands_after(after.map_err(fault)?)?
        }
        "guard.answer" => {
            let asked: wire::GuardAnswer = args(given)?;
            let answer = match asked.answer {
                AnswerValue::Happened(json) => Answered::Happened(value_of("result", &json)?),
                AnswerValue::DidNotHappen => Answered::DidNotHappen,
                AnswerValue::Inconclusive => Answered::Inconclusive,
            };
            let ticket = client.tickets.take(asked.ticket)?;
            let thread = ticket.thread().clone();
            let claimed = ticket.answer(home, answer).await;
            told(server, &thread);
            stands(client, claimed.map_err(fault)?, None)?
        }
        "guard.renew" => return renew(home, client, id, args(given)?).await,
        "guard.reset" => return reset(server, id, args(given)?).await,
        _ => return Err(Fault::bad_request("there is no such operation of the guard")),
    };
    wire::answer(id, &standing)
}

async fn renew(home: &dyn Checkpointer, client: &Client, id: u64, asked: wire::GuardRenew) -> Line {
    let mut ticket = client.tickets.take(asked.ticket)?;
    let renewed = ticket.renew(home, Duration::from_nanos(asked.lease_ns)).await;
    let until = Time(ticket.until());
    renewed.map_err(fault)?;
    client.tickets.held().tickets.insert(asked.ticket, ticket);
    wire::answer(id, &wire::GuardRenewed { until })
}

async fn reset(server: &Server, id: u64, asked: wire::GuardReset) -> Line {
    let home = &**server.holding.home();
    let Thread(thread) = asked.thread;
    let reset = guard::reset(home, &thread, &asked.by, &asked.reason, random()?).await;
    let position = reset.map_err(fault)?;
    told(server, &thread);
    wire::answer(id, &wire::WasReset { position })
}

/// Whoever waits for the step, here or in the owner's own program, is told.
fn told(server: &Server, thread: &ThreadId) {
    server.waiting.changed(thread);
    server.holding.noticed(thread);
}

async fn claim(server: &Server, client: &Client, asked: GuardClaim) -> Result<Standing, Fault> {
    let home = &**server.holding.home();
    let mut wanted = wanted(&asked)?;
    let off = is_off(server, home).await?;
    if off.is_some() {
        wanted = wanted.unguarded(random()?);
    }
    let thread = wanted.thread(home.identity()).map_err(fault)?;
    let holder = asked.holder.unwrap_or_else(|| client.name());
    let lease = asked.lease_ns.map_or(GUARD_LEASE_DEFAULT, Duration::from_nanos);
    let over = Instant::now() + Duration::from_nanos(asked.wait_ns);
    loop {
        if client.tickets.is_full() {
            let why = format!("a connection holds at most {TICKETS_MAX} tickets; settle some");
            return Err(Fault::refused(why));
        }
        // Listening before looking: an end in between is not missed.
        let waiting = server.waiting.on(&thread);
        let mut ended = std::pin::pin!(waiting.notified());
        ended.as_mut().enable();
        let claimed = guard::claim(home, &wanted, &holder, lease, random()?).await;
        let claimed = claimed.map_err(fault)?;
        let again = match &claimed {
            Claimed::InFlight(flight) if asked.take_over => {
                guard::take_over(home, flight).await.map_err(fault)?;
                continue;
            }
            // The owner's own program may be at it, and does not tell.
            Claimed::InFlight(_) => Some(GUARD_LOOK_EVERY),
            Claimed::InDoubt(doubt) => doubt.retry_after.map(|after| after.max(BREATH)),
            _ => None,
        };
        let Some(again) = again.filter(|_| Instant::now() < over) else {
            return stands(client, claimed, off);
        };
        let _ = timeout_at(over.min(Instant::now() + again), ended).await;
    }
}

/// Whether somebody has turned guards off.
async fn is_off(server: &Server, home: &dyn Checkpointer) -> Result<Option<OffValue>, Fault> {
    let mut switch: Switch = server.switch.lock().await.clone();
    let off = switch.look(home).await?.map(|off| OffValue {
        by: (*off.by).into(),
        reason: off.reason.clone(),
        since: Time(off.since),
    });
    *server.switch.lock().await = switch;
    Ok(off)
}

fn wanted(asked: &GuardClaim) -> Result<Wanted, Fault> {
    let bad = |why: &str| Fault::bad_request(why);
    let within = match &asked.scope {
        ScopeValue::Journal => Within::Journal,
        ScopeValue::Thread(Thread(thread)) => Within::Thread(thread.clone()),
    };
    let policy = Policy::from_word(&asked.policy)
        .ok_or_else(|| bad("`policy` is one of read, idempotent, reconcile and at_most_once"))?;
    let mut wanted = Wanted::new(within, &asked.step, policy).map_err(|e| bad(&e.to_string()))?;
    let mut terms = Terms { attempts_max: u32::MAX, ..Terms::of(policy) };
    if let Some(timeout) = asked.timeout_ns.map(Duration::from_nanos) {
        terms.timeout = timeout;
        terms.quiet = terms.usual_quiet();
    }
    terms.quiet = asked.quiet_ns.map_or(terms.quiet, Duration::from_nanos);
    terms.window = asked.window_ns.map(Duration::from_nanos);
    terms.attempts_max = asked.attempts_max.unwrap_or(u32::MAX);
    wanted = wanted.terms(terms);
    if let Some(json) = &asked.arguments {
        let encoded = value_of("arguments", json)?;
        wanted = wanted.encoded(encoded).map_err(|e| bad(&e.to_string()))?;
    }
    if let Some(key) = &asked.key {
        wanted = wanted.key(key.as_str()).map_err(|e| bad(&e.to_string()))?;
    }
    if let Some(json) = &asked.identified_by {
        if asked.key.is_some() {
            return Err(bad("`key` and `identified_by` exclude each other"));
        }
        let chosen = canonical::of_msgpack(&value_of("identified_by", json)?, &ValueLimits::new());
        wanted = wanted.identified_by_canonical(chosen.map_err(|e| bad(&e.to_string()))?);
    }
    wanted = wanted.occurrence(asked.occurrence);
    if let Some(time) = asked.valid_for_ns {
        wanted = wanted.valid_for(Duration::from_nanos(time));
    }
    if asked.any_content {
        wanted = wanted.any_content();
    }
    for pointer in &asked.redact {
        wanted = wanted.redact(pointer.as_str());
    }
    Ok(wanted)
}

/// A value in MessagePack.
fn value_of(what: &str, json: &RawValue) -> Result<Vec<u8>, Fault> {
    view::from_json(json.get(), &ValueLimits::new())
        .map_err(|e| Fault::bad_request(&e.of(&format!("`{what}`"))))
}

fn stands(client: &Client, claimed: Claimed, off: Option<OffValue>) -> Result<Standing, Fault> {
    Ok(match claimed {
        Claimed::Fresh(ticket) => Standing::Fresh(ticket_value(client, *ticket, off)),
        Claimed::Ask(ticket) => Standing::Ask(ticket_value(client, *ticket, off)),
        Claimed::Settled(settled) => Standing::Settled(settled_value(&settled)?),
        Claimed::InFlight(flight) => Standing::InFlight {
            thread: Thread(flight.thread),
            owner: (*flight.owner).into(),
            since: flight.since.map(Time),
            age_ns: nanos(flight.age),
            key: flight.key.as_deref().map(Into::into),
            retry_after_ns: nanos(flight.retry_after),
        },
        Claimed::InDoubt(doubt) => in_doubt(doubt),
        Claimed::Conflict(conflict) => Standing::Conflict {
            thread: Thread(conflict.thread),
            step: conflict.step,
            recorded: conflict.recorded.map(|print| print.to_string()),
            given: conflict.given.to_string(),
            fields: conflict.fields,
        },
    })
}

fn in_doubt(doubt: guard::InDoubt) -> Standing {
    Standing::InDoubt {
        thread: Thread(doubt.thread),
        step: doubt.step,
        doubt: doubt.doubt.as_str(),
        since: doubt.since.map(Time),
        key: doubt.key.as_deref().map(Into::into),
        attempts: doubt.attempts,
        retry_after_ns: doubt.retry_after.map(nanos),
    }
}

fn stands_after(after: After) -> Result<Standing, Fault> {
    Ok(match after {
        After::Settled(settled) => Standing::Settled(settled_value(&settled)?),
        After::Open => Standing::Open,
        After::InDoubt(doubt) => in_doubt(doubt),
    })
}

fn ticket_value(client: &Client, ticket: Ticket, off: Option<OffValue>) -> TicketValue {
    let operation = ticket.operation();
    let (thread, until, timeout) = (ticket.thread().clone(), ticket.until(), ticket.timeout());
    TicketValue {
        ticket: client.tickets.keep(ticket),
        thread: Thread(thread),
        key: operation.key.as_deref().map(Into::into),
        attempt: operation.attempt,
        first_started_at: Time(operation.first_started_at),
        timeout_ns: nanos(timeout),
        until: Time(until),
        off,
    }
}

fn settled_value(settled: &Settled) -> Result<SettledValue, Fault> {
    let failure = || settled.failure().unwrap_or_else(|| Failure::new("it cannot be read"));
    let outcome = match &settled.answer {
        Answer::Value(bytes) => {
            let mut json = String::new();
            let read = view::to_json(bytes, &mut json).map_err(|e| Fault::refused(e.to_string()));
            let raw = read.and_then(|()| {
                RawValue::from_string(json).map_err(|e| Fault::internal(&e.to_string()))
            });
            OutcomeValue::Result(raw?)
        }
        _ if settled.failed() => OutcomeValue::Failed(failure()),
        Answer::Unstored(_) => OutcomeValue::Unstored(failure()),
        _ => OutcomeValue::Erased,
    };
    Ok(SettledValue {
        thread: Thread(settled.thread.clone()),
        outcome,
        position: settled.position,
        at: Time(settled.at),
        key: settled.key.as_deref().map(Into::into),
        attempts: settled.attempts,
    })
}

/// The failure that a client tells, within the limits of what is recorded.
fn cut(failure: Failure) -> Failure {
    let mut kept = Failure::new(&failure.message).code(Failure::new(&failure.code).message);
    let causes = failure.causes.iter().take(deedbook_journal::limits::ERROR_CAUSES_MAX);
    kept.causes = causes.map(|cause| Failure::new(cause).message).collect();
    kept
}

fn fault(error: GuardError) -> Fault {
    match error {
        GuardError::Store(error) => error.into(),
        GuardError::Lost { .. } => Fault::new(Kind::Lost, error.to_string()),
        GuardError::Refused { why } => Fault::refused(why),
        other => Fault::bad_request(&other.to_string()),
    }
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    place::random().map_err(|e| Fault::internal(&e.to_string()))
}
