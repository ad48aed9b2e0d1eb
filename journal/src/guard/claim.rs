//! Claiming a guarded step: what its caller may do.

use std::{sync::Arc, time::Duration};

use super::{GuardError, WORKFLOW, row_at_rest, step, ticket::Ticket, wanted::Wanted};
use crate::{
    checkpointer::{Checkpointer, Claim, Lease, StoreError, ThreadInfo, thread_info},
    history::{
        self, Answer, AttemptEnd, Call, Decision, Declared, DivergenceKind, Doubt, History, decide,
    },
    id::{Epoch, Position, StoreTime, ThreadId},
    key::OperationKey,
    limits::ValueLimits,
    pen::Draft,
    policy::Policy,
    record::{Kind, Place, Records, Role},
    row::{Row, Status},
    sheet::{self, Read, Sheet},
    value::{self, Fingerprint, canonical},
};

/// How often a claim looks again when somebody else was faster.
const TRIES: u32 = 8;

/// What a caller may do about a guarded step.
#[derive(Debug)]
pub enum Claimed {
    /// Run the body, under this ticket: the intent is durable.
    Fresh(Box<Ticket>),
    /// Ask the downstream first whether the last attempt had its effect, and say what it answers:
    /// [`Ticket::answer`]. Only under [`Policy::Reconcile`].
    Ask(Box<Ticket>),
    /// Nothing: it has its outcome.
    Settled(Settled),
    /// Nothing: somebody is at it.
    InFlight(InFlight),
    /// Nothing: nobody knows whether it happened.
    InDoubt(InDoubt),
    /// Nothing: it is recorded with other arguments.
    Conflict(Conflict),
}

/// The outcome of a guarded step.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The step's thread.
    pub thread: ThreadId,
    /// What it came to: [`Answer::Value`], [`Answer::Failed`], [`Answer::Unstored`] or
    /// [`Answer::Erased`].
    pub answer: Answer,
    /// The position of the record that settled it.
    pub position: Position,
    /// When that was recorded.
    pub at: StoreTime,
    /// The operation key that was sent downstream, unless the step is a read.
    pub key: Option<Arc<str>>,
    /// How many attempts there were.
    pub attempts: u32,
}

/// Somebody is at it.
#[derive(Debug, Clone)]
pub struct InFlight {
    /// The step's thread.
    pub thread: ThreadId,
    /// Who.
    pub owner: Arc<str>,
    /// Under which epoch; see [`take_over`].
    pub epoch: Epoch,
    /// When the attempt began; `None` if its intent is not durable yet, or if somebody holds the
    /// step without one: to ask the other side, or to say something to it.
    pub since: Option<StoreTime>,
    /// For how long it has been under way.
    pub age: Duration,
    /// The operation key, if the step has one and it is known yet.
    pub key: Option<Arc<str>>,
    /// After which time asking again is worth while.
    pub retry_after: Duration,
}

/// Nobody knows whether it happened, and the policy lets nothing more happen now.
#[derive(Debug, Clone)]
pub struct InDoubt {
    /// The step's thread.
    pub thread: ThreadId,
    /// The step, as shown (`charge:ORD-42`): what `deedbook resolve` takes.
    pub step: String,
    /// Why.
    pub doubt: Doubt,
    /// When the first attempt began that may have had its effect.
    pub since: Option<StoreTime>,
    /// The operation key to look for on the other side.
    pub key: Option<Arc<str>>,
    /// How many attempts there were.
    pub attempts: u32,
    /// After which time the downstream may be asked; `None` where only a person can settle it.
    pub retry_after: Option<Duration>,
}

/// The same identity is recorded with other arguments. No value of either is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The step's thread.
    pub thread: ThreadId,
    /// The step, as shown.
    pub step: String,
    /// The fingerprint of the recorded arguments; `None` if they were erased.
    pub recorded: Option<Fingerprint>,
    /// The fingerprint of those given now.
    pub given: Fingerprint,
    /// The places where they differ, as JSON pointers; empty for the value as a whole.
    pub fields: Vec<String>,
}

/// Claims a step for `holder` (for instance `svc:shop`), for so long unless the ticket is renewed.
///
/// What is settled is told without a claim, and without a write.
///
/// **Cancel safety.** Dropped, it may or may not have begun an attempt; what has begun and is not
/// carried on is treated as if its caller had died.
///
/// # Errors
/// [`GuardError::Value`] if the arguments have no canonical form; [`GuardError::Store`].
pub async fn claim(
    home: &dyn Checkpointer,
    wanted: &Wanted,
    holder: &str,
    lease: Duration,
    seed: [u8; 32],
) -> Result<Claimed, GuardError> {
    let thread = wanted.thread(home.identity())?;
    for _ in 1..TRIES {
        match try_claim(home, wanted, &thread, holder, lease, seed).await {
            // Somebody holds it who has not begun an attempt: to say something to it, which takes
            // a moment, or to ask the other side, which may take longer.
            Ok(Claimed::InFlight(flight)) if flight.since.is_none() => {}
            // Somebody took hold of it, or let go of it, in between.
            Err(GuardError::Store(StoreError::Moved { .. } | StoreError::Fenced { .. })) => {}
            claimed => return claimed,
        }
    }
    try_claim(home, wanted, &thread, holder, lease, seed).await
}

async fn try_claim(
    home: &dyn Checkpointer,
    wanted: &Wanted,
    thread: &ThreadId,
    holder: &str,
    lease: Duration,
    seed: [u8; 32],
) -> Result<Claimed, GuardError> {
    let mut read = Read::nothing(home, thread);
    read.catch_up(home, Position::MAX).await?;
    let now = home.now().await?;
    if let Some(told) = settled(home, wanted, &read.history, now)? {
        return Ok(told);
    }
    let create = Row::new(WORKFLOW, Status::Running, now);
    let which = Claim::Thread { id: thread.clone(), create: Some(create) };
    let leases = match home.claim(which, holder, lease).await {
        Err(StoreError::Held { by }) => {
            return in_flight(home, wanted, thread, by, lease).await;
        }
        leases => leases?,
    };
    let held = leases.into_iter().next().ok_or(StoreError::NoSuchThread)?;
    let (name, epoch) = (held.thread.clone(), held.epoch);
    let claimed = under_hold(home, wanted, read, held, holder, seed).await;
    if !matches!(claimed, Ok(Claimed::Fresh(_) | Claimed::Ask(_))) {
        // A lease that cannot be released runs out by itself.
        let _ = home.renew(&[(name, epoch)], Duration::ZERO).await;
    }
    claimed
}

/// What may be told without a hold: the outcome, or that it is another operation's.
fn settled(
    home: &dyn Checkpointer,
    wanted: &Wanted,
    history: &History,
    now: StoreTime,
) -> Result<Option<Claimed>, GuardError> {
    let Some(call) = step(history) else { return Ok(None) };
    if let Some(conflict) = conflict(home, wanted, history, call)? {
        return Ok(Some(Claimed::Conflict(conflict)));
    }
    let valid = call.outcome.as_ref().filter(|outcome| !is_over(wanted, outcome, now));
    Ok(valid.map(|outcome| Claimed::Settled(told(history, call, outcome))))
}

/// Whether an outcome is not valid any more for this caller.
fn is_over(wanted: &Wanted, outcome: &history::Outcome, now: StoreTime) -> bool {
    wanted.valid_for.is_some_and(|time| now >= outcome.time.after(time))
}

pub(super) fn told(history: &History, call: &Call, outcome: &history::Outcome) -> Settled {
    Settled {
        thread: history.thread().clone(),
        answer: outcome.answer.clone(),
        position: outcome.position,
        at: outcome.time,
        key: call.key.clone().filter(|_| has_effect(call)),
        attempts: attempts(call),
    }
}

fn attempts(call: &Call) -> u32 {
    let began = call.attempts.iter().filter(|a| a.end != AttemptEnd::NotStarted);
    u32::try_from(began.count()).unwrap_or(u32::MAX)
}

/// Compares the arguments with the recorded ones, as for every step.
fn conflict(
    home: &dyn Checkpointer,
    wanted: &Wanted,
    history: &History,
    call: &Call,
) -> Result<Option<Conflict>, GuardError> {
    if !wanted.compares {
        return Ok(None);
    }
    // Whoever meets in this thread has the same identity.
    let number = history.number(history::CallKind::Step, &call.id);
    let Some(divergence) = history::diverged(history, &declared(wanted, &call.id), number) else {
        return Ok(None);
    };
    let fields = match divergence.kind {
        DivergenceKind::Arguments(differences) => {
            let shown = differences.into_iter().filter(|d| !wanted.redact.contains(&d.path));
            shown.map(|d| d.path).collect()
        }
        _ => Vec::new(),
    };
    let secret = &home.identity().secret;
    let limits = ValueLimits::new();
    let print =
        |args: &[u8]| Some(Fingerprint::of(secret, &canonical::of_msgpack(args, &limits).ok()?));
    Ok(Some(Conflict {
        thread: history.thread().clone(),
        step: call.id.to_string(),
        recorded: call.args.as_deref().and_then(print),
        given: Fingerprint::of(secret, &canonical::of_msgpack(&wanted.args, &limits)?),
        fields,
    }))
}

fn declared<'a>(wanted: &'a Wanted, id: &'a crate::id::StepId) -> Declared<'a> {
    Declared {
        kind: history::CallKind::Step,
        id,
        terms: Some(&wanted.terms),
        args: Some(&wanted.args),
        redact: &wanted.redact,
    }
}

/// Somebody holds the step: who, since when, and under which key.
async fn in_flight(
    home: &dyn Checkpointer,
    wanted: &Wanted,
    thread: &ThreadId,
    owner: Arc<str>,
    lease: Duration,
) -> Result<Claimed, GuardError> {
    let mut read = Read::nothing(home, thread);
    read.catch_up(home, Position::MAX).await?;
    let now = home.now().await?;
    if let Some(told) = settled(home, wanted, &read.history, now)? {
        return Ok(told);
    }
    let call = step(&read.history);
    let last = call.and_then(|call| call.attempts.last());
    let last = last.filter(|attempt| attempt.end == AttemptEnd::Open);
    let since = last.map(|attempt| attempt.started);
    let age = since.map_or(Duration::ZERO, |since| now.since(since));
    let timeout = call.and_then(|call| call.terms).unwrap_or(wanted.terms).timeout;
    let left = timeout.saturating_sub(age).min(lease).max(Duration::from_secs(1));
    Ok(Claimed::InFlight(InFlight {
        thread: thread.clone(),
        owner,
        epoch: thread_info(home, thread).await?.map_or(Epoch(0), |info| info.epoch),
        since,
        age,
        key: call.and_then(|call| call.key.clone()),
        retry_after: left,
    }))
}

/// Takes the step from whoever holds it, under the epoch in [`InFlight`]: the next [`claim`] fences
/// them, and the policy decides what their attempt is. For callers who know that the owner is
/// stuck, and only where the declared policy can deal with an attempt that may still have its
/// effect.
///
/// # Errors
/// [`GuardError::Refused`] if the step is recorded under `at_most_once`, whatever the caller
/// declares now: what its owner may have done could not be told. [`GuardError::Store`]; it is no
/// error that they have let go meanwhile.
pub async fn take_over(home: &dyn Checkpointer, of: &InFlight) -> Result<(), GuardError> {
    let mut read = Read::nothing(home, &of.thread);
    read.catch_up(home, Position::MAX).await?;
    let recorded = step(&read.history).and_then(|call| call.terms);
    if recorded.is_some_and(|terms| terms.policy == Policy::AtMostOnce) {
        let why = "the step is recorded under at_most_once, and its owner may be at its effect; \
                   wait for it";
        return Err(GuardError::Refused { why: why.to_owned() });
    }
    home.renew(&[(of.thread.clone(), of.epoch)], Duration::ZERO).await?;
    Ok(())
}

/// The step is held: decides as for every step, and begins an attempt if that is due.
async fn under_hold(
    home: &dyn Checkpointer,
    wanted: &Wanted,
    read: Read,
    lease: Lease,
    holder: &str,
    seed: [u8; 32],
) -> Result<Claimed, GuardError> {
    let mut sheet = Sheet::open(home, &lease, read, seed).await?;
    begin_run(&mut sheet, wanted, holder)?;
    sheet.listen(home).await?;
    if let Some(told) = settled(home, wanted, &sheet.history, sheet.now)? {
        return rest(home, sheet, &lease, told).await;
    }
    stricter(wanted, &sheet.history)?;
    if step(&sheet.history).is_some_and(|call| call.outcome.is_some()) {
        // What was recorded of the arguments may have been erased; the caller has them.
        let key = wanted.operation_key(home.identity(), generation(&sheet.history))?;
        sheet.write(fresh_key(&sheet.history, &key, "expiry")).map_err(|e| sheet::refused(&e))?;
    }
    let id = match step(&sheet.history) {
        Some(call) => call.id.clone(),
        None => wanted.step_id(home.identity())?,
    };
    let plain = Declared { args: None, ..declared(wanted, &id) };
    match decide(&sheet.history, &plain, sheet.now) {
        Decision::Open => begin(home, wanted, sheet, lease, 1).await,
        Decision::Start(attempt) => begin(home, wanted, sheet, lease, attempt).await,
        // A question to the downstream is an output: what was said so far is durable first.
        Decision::Ask => Ok(Claimed::Ask(hold(home, sheet, lease).await?)),
        Decision::AskLater(until) | Decision::Later(until) => {
            let doubt = step(&sheet.history).and_then(Call::doubtful).unwrap_or(Doubt::Crash);
            let told = in_doubt(&sheet, doubt, Some(until.since(sheet.now)));
            rest(home, sheet, &lease, told).await
        }
        Decision::Doubt(doubt) => {
            let told = in_doubt(&sheet, doubt, None);
            rest(home, sheet, &lease, told).await
        }
        other => {
            let why = format!("a step of its own cannot be {other:?}");
            Err(StoreError::Refused { why: why.into() }.into())
        }
    }
}

/// What is recorded of a step holds, whoever carries it on. A caller who declares more care than
/// that would be given less than it asked for, and is told so instead.
fn stricter(wanted: &Wanted, history: &History) -> Result<(), GuardError> {
    let recorded = step(history).and_then(|call| call.terms).map(|terms| terms.policy);
    let care = |policy| match policy {
        Policy::Read => 0,
        Policy::Idempotent | Policy::Reconcile => 1,
        Policy::AtMostOnce => 2,
    };
    match recorded.filter(|recorded| care(*recorded) < care(wanted.terms.policy)) {
        None => Ok(()),
        Some(recorded) => Err(GuardError::Refused {
            why: format!(
                "this step is recorded under `{}`, which allows more than `{}`; \
                 declare that until it is settled, or use another key",
                recorded.as_str(),
                wanted.terms.policy.as_str()
            ),
        }),
    }
}

/// The first record of the thread, or of this hold on it.
fn begin_run(sheet: &mut Sheet, wanted: &Wanted, holder: &str) -> Result<(), GuardError> {
    if sheet.history.next() > 0 {
        return resume(sheet, holder);
    }
    let input = value::encode(&wanted.within.recorded(), &ValueLimits::new())?;
    let draft = Draft::new(sheet.history.thread(), Kind::ThreadStart).with(|h| {
        h.by = Some(holder.into());
        h.workflow = Some(WORKFLOW.into());
    });
    sheet.write(draft.payload(Role::Input, input)).map_err(|e| sheet::refused(&e))?;
    Ok(())
}

/// A step that nobody is at, as it is listed: an act that is refused must not even raise the
/// thread's epoch.
pub(super) async fn free(
    home: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<Option<ThreadInfo>, GuardError> {
    let info = thread_info(home, thread).await?;
    match info.as_ref().and_then(|info| info.holder.as_deref()) {
        Some(by) => Err(at_it(by)),
        None => Ok(info),
    }
}

/// Takes hold of a step's thread for an act on it.
pub(super) async fn act_on(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    by: &str,
    time: Duration,
) -> Result<Lease, GuardError> {
    let which = Claim::Thread { id: thread.clone(), create: None };
    let leases = match home.claim(which, by, time).await {
        Err(StoreError::Held { by }) => return Err(at_it(&by)),
        leases => leases?,
    };
    Ok(leases.into_iter().next().ok_or(StoreError::NoSuchThread)?)
}

fn at_it(by: &str) -> GuardError {
    GuardError::Refused { why: format!("{by} is at it; wait for its end") }
}

/// Another hold on the thread begins.
pub(super) fn resume(sheet: &mut Sheet, holder: &str) -> Result<(), GuardError> {
    let draft = Draft::new(sheet.history.thread(), Kind::ThreadResume);
    let draft = draft.with(|h| h.by = Some(holder.into()));
    sheet.write(draft).map_err(|e| sheet::refused(&e))?;
    Ok(())
}

/// The generation of the next fresh key.
pub(super) fn generation(history: &History) -> u64 {
    step(history).map_or(1, |call| call.generation.saturating_add(1))
}

/// A fresh key for a settled step: it may happen anew.
pub(super) fn fresh_key(history: &History, key: &OperationKey, by: &str) -> Draft {
    Draft::new(history.thread(), Kind::Override).with(|h| {
        h.call = step(history).map(|call| call.opened);
        h.verdict = Some("fresh_key".into());
        h.generation = generation(history);
        h.key = Some(key.as_str().into());
        h.by = Some(by.into());
    })
}

/// Lets the step rest: what was said to it is kept, if anything was.
pub(super) async fn rest(
    home: &dyn Checkpointer,
    mut sheet: Sheet,
    lease: &Lease,
    told: Claimed,
) -> Result<Claimed, GuardError> {
    let row = row_at_rest(&sheet.history, &lease.row, sheet.now);
    if sheet.consumes.is_empty() {
        // That somebody looked is no news.
        sheet.records = Records::default();
    }
    if !sheet.records.is_empty()
        || (row.status, &row.detail) != (lease.row.status, &lease.row.detail)
    {
        sheet.submit(home, lease, row).await?;
    }
    Ok(told)
}

/// Begins an attempt: durable before the body may run.
async fn begin(
    home: &dyn Checkpointer,
    wanted: &Wanted,
    mut sheet: Sheet,
    lease: Lease,
    attempt: u32,
) -> Result<Claimed, GuardError> {
    let draft = intent(home, wanted, &sheet.history, attempt)?;
    sheet.write(draft).map_err(|e| sheet::refused(&e))?;
    Ok(Claimed::Fresh(hold(home, sheet, lease).await?))
}

/// Makes durable what is written, and keeps the hold.
async fn hold(
    home: &dyn Checkpointer,
    mut sheet: Sheet,
    mut lease: Lease,
) -> Result<Box<Ticket>, GuardError> {
    let since = sheet.now;
    let row =
        Row { status: Status::Running, since, wake_at: None, detail: None, ..lease.row.clone() };
    sheet.submit(home, &lease, row.clone()).await?;
    lease.row = row;
    Ok(Box::new(Ticket::new(sheet, lease)))
}

/// The intent of this attempt.
fn intent(
    home: &dyn Checkpointer,
    wanted: &Wanted,
    history: &History,
    attempt: u32,
) -> Result<Draft, GuardError> {
    let draft = Draft::new(history.thread(), Kind::StepIntent);
    if let Some(call) = step(history) {
        let draft = again(draft, call, attempt);
        return Ok(match call.args {
            Some(_) => draft,
            // They were erased with what happened before.
            None => draft.payload(Role::Args, wanted.args.clone()),
        });
    }
    let terms = &wanted.terms;
    let key = match terms.policy.has_effect() {
        true => Some(wanted.operation_key(home.identity(), 0)?),
        false => None,
    };
    let id = wanted.step_id(home.identity())?;
    let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let draft = draft.with(|h| {
        h.attempt = Some(attempt);
        h.key = key.map(|key| key.as_str().into());
        h.place = Some(Place::of(&id));
        h.policy = Some(terms.policy);
        h.timeout_ms = Some(millis(terms.timeout));
        h.window_ms = terms.window.map(millis);
        h.quiet_ms = (terms.policy == Policy::Reconcile).then(|| millis(terms.quiet));
        h.attempts_max = Some(terms.attempts_max);
    });
    Ok(draft.payload(Role::Args, wanted.args.clone()))
}

/// A further attempt.
pub(super) fn again(draft: Draft, call: &Call, attempt: u32) -> Draft {
    draft.with(|h| {
        h.call = Some(call.opened);
        h.attempt = Some(attempt);
        h.key = call.key.clone().filter(|_| has_effect(call));
        h.generation = call.generation;
    })
}

pub(super) fn has_effect(call: &Call) -> bool {
    call.terms.is_none_or(|terms| terms.policy.has_effect())
}

pub(super) fn in_doubt(sheet: &Sheet, doubt: Doubt, retry_after: Option<Duration>) -> Claimed {
    let call = step(&sheet.history);
    Claimed::InDoubt(InDoubt {
        thread: sheet.history.thread().clone(),
        step: call.map(|call| call.id.to_string()).unwrap_or_default(),
        doubt,
        since: call.and_then(Call::first_started),
        key: call.and_then(|call| call.key.clone()),
        attempts: call.map_or(0, attempts),
        retry_after,
    })
}
