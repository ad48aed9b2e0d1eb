//! The desk: what the workflow's code and the executor share about one thread.
//!
//! The code makes calls on it ([`Desk::make`]) and asks for their outcomes ([`Desk::ask`]); the
//! executor looks at it between polls, appends what [`deedbook_journal::turn::next`] decides, and
//! offers outcomes. Both sides hold its lock only for moments and never over a body's poll.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    thread::ThreadId as OsThread,
    time::Duration,
};

use deedbook_journal::{
    checkpointer::StoreIdentity,
    failure::Failure,
    history::{
        Answer, AttemptEnd, CallKind, Declared, Divergence, DivergenceKind, Doubt, Ended, History,
        ended,
    },
    id::{Branch, Identity, MessageId, Name, Position, StepId, StoreTime},
    key::{KeyIdentity, KeyScope, Namespace, OperationKey},
    limits::ValueLimits,
    pen::{Draft, Pen},
    policy::Terms,
    record::{Kind, Place, Record, Role},
    turn::{Act, Live},
    value,
};
use serde::Serialize;

use crate::{
    error::{Class, StepError},
    operation::Operation,
    policy::Probe,
    random::Random,
    retry::Retry,
    wake::Wakeups,
};

/// A desk and its lock.
#[derive(Debug)]
pub(crate) struct Shared {
    desk: Mutex<Desk>,
    pub(crate) wakeups: Arc<Wakeups>,
}

impl Shared {
    pub(crate) fn new(mut desk: Desk, wakeups: Arc<Wakeups>) -> Arc<Self> {
        desk.wakeups = Some(wakeups.clone());
        Arc::new(Self {
            desk: Mutex::new(desk),
            wakeups,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Desk> {
        // A panic while the lock is held is caught around the poll and stops the thread; what the
        // desk holds then is only read.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the workflow's code and the executor share about one thread.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) history: History,
    pub(crate) limits: ValueLimits,
    pen: Pen,
    /// The `thread.resume` of this run, until it is written.
    resume: Option<Draft>,
    identity: StoreIdentity,
    random: Random,
    /// The store's clock at the beginning of the turn.
    pub(crate) now: StoreTime,
    /// Appended, and not submitted yet.
    pub(crate) pending: Vec<Record>,
    /// Messages that pending records give a position to.
    pub(crate) consumes: Vec<MessageId>,
    /// Positions below this are durable.
    pub(crate) durable: Position,
    /// Calls that were made and not given their outcome, by the order in which they were made.
    live: BTreeMap<u64, Call>,
    made: u64,
    occurrences: HashMap<(CallKind, Branch, Name), u32>,
    derivations: HashMap<(Branch, String), u32>,
    /// Loaded records that open a call which the code has not made yet.
    unmade: BTreeSet<Position>,
    /// How many signals of a name were delivered.
    delivered: HashMap<Arc<str>, usize>,
    /// What the code did in this turn.
    pub(crate) turn: TurnMarks,
    /// The OS thread that polls the workflow's future right now.
    polling: Option<OsThread>,
    /// Whom to tell of trouble that did not come from a poll.
    wakeups: Option<Arc<Wakeups>>,
    /// The call whose body is being polled right now.
    in_body: Option<Arc<str>>,
    /// The call whose outcome was taken last, and the outcome's position.
    last_taken: (Arc<str>, Position),
    /// Late bodies still running (timed out, kept for their evidence), and until when they keep
    /// the thread loaded.
    late: u32,
    late_until: StoreTime,
    /// The input of the next episode, once the code asked for one.
    pub(crate) continues_with: Option<Vec<u8>>,
    /// Drops are not decisions of the program any more.
    pub(crate) torn_down: bool,
    /// Why this run cannot go on.
    pub(crate) trouble: Option<Trouble>,
}

/// What the code did in a turn.
#[derive(Debug, Default)]
pub(crate) struct TurnMarks {
    /// An offer was taken.
    pub(crate) taken: bool,
    /// The first call that was made.
    pub(crate) made: Option<Arc<str>>,
}

/// Why a run cannot go on. Nothing is recorded: the thread stays where it was.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// The code disagrees with the records.
    Diverged(Divergence),
    /// The code misused its context.
    Misused(String),
}

/// A live call.
#[derive(Debug)]
struct Call {
    kind: CallKind,
    id: StepId,
    shown: Arc<str>,
    terms: Option<Terms>,
    retry: Retry,
    args: Option<Arc<[u8]>>,
    /// Under [`Identity::Arguments`]: what the operation key is derived from.
    canonical: Option<Vec<u8>>,
    /// How long a timer runs.
    runs: Duration,
    asked: bool,
    waker: Option<Waker>,
    offer: Option<(Answer, Position)>,
    work: Work,
}

/// What is being done about a call.
#[derive(Debug)]
enum Work {
    Idle,
    /// It may begin once everything below `needs` is durable.
    Granted {
        operation: Option<Operation>,
        attempt: u32,
        probe: bool,
        needs: Position,
    },
    /// It is under way.
    Running {
        attempt: u32,
        probe: bool,
        deadline: StoreTime,
        expired: bool,
    },
}

/// A call about to be made.
#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) kind: CallKind,
    pub(crate) branch: Branch,
    pub(crate) name: Name,
    pub(crate) identity: Identify,
    pub(crate) terms: Option<Terms>,
    pub(crate) retry: Retry,
    pub(crate) args: Option<Vec<u8>>,
    pub(crate) runs: Duration,
    pub(crate) redact: Vec<String>,
}

/// How a call is identified, as declared.
#[derive(Debug, Clone)]
pub(crate) enum Identify {
    Positional,
    Arguments { canonical: Vec<u8>, occurrence: u32 },
    Key(String),
}

/// What a future that asks is told.
pub(crate) enum Told {
    /// Nothing yet.
    Wait,
    /// Its outcome.
    Outcome(Answer),
    /// Start the body.
    Start {
        attempt: u32,
        operation: Option<Operation>,
    },
    /// Ask the downstream.
    Probe(Operation),
    /// The body's time is over.
    TimedOut { keep: bool },
}

/// How a body ended that did not return a storable value.
pub(crate) enum BodyEnd {
    Failed(StepError),
    Panicked(String),
    TimedOut,
    /// It returned, and the result cannot be stored.
    Unstorable(Failure),
}

impl Desk {
    pub(crate) fn new(
        history: History,
        pen: Pen,
        identity: StoreIdentity,
        limits: ValueLimits,
        now: StoreTime,
    ) -> Self {
        let episode = history.episode_from();
        let unmade = history
            .calls()
            .iter()
            .map(|c| c.opened)
            .filter(|o| *o >= episode)
            .collect();
        Self {
            durable: pen.next(),
            history,
            limits,
            pen,
            resume: None,
            identity,
            random: Random::new(),
            now,
            pending: Vec::new(),
            consumes: Vec::new(),
            live: BTreeMap::new(),
            made: 0,
            occurrences: HashMap::new(),
            derivations: HashMap::new(),
            unmade,
            delivered: HashMap::new(),
            turn: TurnMarks::default(),
            polling: None,
            wakeups: None,
            in_body: None,
            last_taken: (Arc::default(), 0),
            late: 0,
            late_until: StoreTime(0),
            continues_with: None,
            torn_down: false,
            trouble: None,
        }
    }

    /// Begins the run: a new thread's first record at once, a `thread.resume` only once there is
    /// something to record behind it.
    pub(crate) fn begin(&mut self, draft: Draft, first: bool) {
        if first {
            self.append(draft);
        } else {
            self.resume = Some(draft);
        }
    }

    /// Appends a record: gives it its position, and takes it into the history.
    pub(crate) fn append(&mut self, draft: Draft) -> Position {
        if let Some(resume) = self.resume.take() {
            self.append(resume);
        }
        let position = self.pen.next();
        let random = &mut self.random;
        let (header, record) = self.pen.write(draft, self.now, &mut || random.salt());
        if let Err(error) = self.history.apply(&header, &record.payloads) {
            // The rules that write records and the rules that read them disagree: our fault, and
            // nothing may follow from it.
            self.trouble(Trouble::Misused(format!(
                "deedbook wrote a wrong record: {error}"
            )));
            return position;
        }
        self.pending.push(record);
        position
    }

    fn draft(&self, kind: Kind) -> Draft {
        Draft::new(self.history.thread(), kind)
    }

    pub(crate) fn trouble(&mut self, trouble: Trouble) {
        self.trouble.get_or_insert(trouble);
        if let (false, Some(wakeups)) = (self.polled_here(), &self.wakeups) {
            wakeups.changed.notify_one();
        }
    }

    /// Whether this is inside a poll of the workflow's future, and not in a task beside it.
    fn polled_here(&self) -> bool {
        self.polling == Some(std::thread::current().id())
    }

    /// Whether the workflow's own code may speak now: not a body, for bodies are not replayed;
    /// not a task that the workflow spawned, for its pace is not replayed either.
    fn may_speak(&mut self, what: impl FnOnce() -> String) -> bool {
        if self.torn_down || self.trouble.is_some() {
            return false;
        }
        let why = if !self.polled_here() {
            format!(
                "{} was made outside the workflow's own future (a spawned task?); make it in the \
                 workflow",
                what()
            )
        } else if let Some(body) = &self.in_body {
            format!(
                "the body of {body} made {}; a body is one effect: make the call in the workflow, \
                 before or after the step",
                what()
            )
        } else {
            return true;
        };
        self.trouble(Trouble::Misused(why));
        false
    }

    // ---- the code's side ----

    /// Makes a call: claims its identity and compares it with the records. `None` if the run
    /// cannot go on; the future of the call then never resolves.
    pub(crate) fn make(&mut self, making: Making) -> Option<u64> {
        let name = &making.name;
        if !self.may_speak(|| format!("the durable call {name:?}")) {
            return None;
        }
        let id = self.identify(&making)?;
        let shown: Arc<str> = id.to_string().into();
        self.turn.made.get_or_insert_with(|| shown.clone());
        let args: Option<Arc<[u8]>> = making.args.map(Into::into);
        let declared = Declared {
            kind: making.kind,
            id: &id,
            terms: making.terms.as_ref(),
            args: args.as_deref(),
            redact: &making.redact,
        };
        let decision = deedbook_journal::history::decide(&self.history, &declared, self.now);
        if let deedbook_journal::history::Decision::Diverged(divergence) = decision {
            self.trouble(Trouble::Diverged(divergence));
            return None;
        }
        if let Some(call) = self
            .history
            .number(making.kind, &id)
            .and_then(|number| self.history.calls().get(number))
        {
            self.unmade.remove(&call.opened);
        }
        let number = self.made;
        self.made += 1;
        let canonical = match making.identity {
            Identify::Arguments { canonical, .. } => Some(canonical),
            Identify::Positional | Identify::Key(_) => None,
        };
        let call = Call {
            kind: making.kind,
            id,
            shown,
            terms: making.terms,
            retry: making.retry,
            args,
            canonical,
            runs: making.runs,
            asked: false,
            waker: None,
            offer: None,
            work: Work::Idle,
        };
        self.live.insert(number, call);
        Some(number)
    }

    fn identify(&mut self, making: &Making) -> Option<StepId> {
        let name = making.name.clone();
        match &making.identity {
            Identify::Key(key) => match Identity::key(key) {
                Ok(identity) => Some(StepId::scoped(name, identity)),
                Err(error) => {
                    self.trouble(Trouble::Misused(format!("step {name:?}: {error}")));
                    None
                }
            },
            Identify::Arguments {
                canonical,
                occurrence,
            } => {
                let fingerprint = value::Fingerprint::of(&self.identity.secret, canonical);
                let identity = Identity::Arguments {
                    fingerprint,
                    occurrence: *occurrence,
                };
                Some(StepId::scoped(name, identity))
            }
            Identify::Positional => self.next_occurrence(making.kind, &making.branch, name),
        }
    }

    fn next_occurrence(&mut self, kind: CallKind, branch: &Branch, name: Name) -> Option<StepId> {
        let twin = self.live.values().find(|c| {
            kind != CallKind::Signal
                && c.kind == kind
                && c.id.name == name
                && c.id.branch == *branch
                && matches!(c.id.identity, Identity::Positional { .. })
        });
        if let Some(twin) = twin {
            let why = format!(
                "{} {name:?} is called again while {} is undelivered, so the two could swap their \
                 outcomes; tell them apart with `.id(\"order-7\")`, or give each its own \
                 `ctx.branch(\"left\")`",
                kind.as_str(),
                twin.shown,
            );
            self.trouble(Trouble::Misused(why));
            return None;
        }
        let episode = self.history.episode();
        let counter = self
            .occurrences
            .entry((kind, branch.clone(), name.clone()))
            .or_insert(0);
        let occurrence = *counter;
        *counter += 1;
        Some(StepId::positional(
            episode,
            branch.clone(),
            name,
            occurrence,
        ))
    }

    /// A future of the call is polled.
    pub(crate) fn ask(&mut self, number: u64, waker: &Waker) -> Told {
        let durable = self.durable;
        if !self.polled_here() {
            let call = self.live.get(&number).map(|c| c.shown.clone());
            self.may_speak(|| format!("a poll of {}", call.unwrap_or_default()));
            return Told::Wait;
        }
        let Some(call) = self.live.get_mut(&number) else {
            return Told::Wait;
        };
        call.asked = true;
        match &mut call.waker {
            Some(known) => known.clone_from(waker),
            None => call.waker = Some(waker.clone()),
        }
        if let Some((answer, position)) = call.offer.take() {
            self.last_taken = (call.shown.clone(), position);
            tracing::debug!(
                thread = %self.history.thread(),
                step = %call.shown,
                position,
                replayed = position < self.history.live_from(),
                durable = position < durable,
                "outcome delivered",
            );
            if call.kind == CallKind::Signal {
                *self
                    .delivered
                    .entry(call.id.name.as_str().into())
                    .or_insert(0) += 1;
            }
            self.turn.taken = true;
            self.live.remove(&number);
            return Told::Outcome(answer);
        }
        match call.work {
            // Nothing new begins in a thread that is being cancelled.
            Work::Granted { .. } if self.history.cancelled() => Told::Wait,
            Work::Granted { needs, .. } if durable >= needs => self.begin_work(number),
            Work::Running {
                probe,
                expired: true,
                ..
            } => {
                use deedbook_journal::policy::Policy::{AtMostOnce, Reconcile};
                let doubtful = |t: &Terms| matches!(t.policy, AtMostOnce | Reconcile);
                Told::TimedOut {
                    keep: !probe && call.terms.as_ref().is_some_and(doubtful),
                }
            }
            _ => Told::Wait,
        }
    }

    /// Everything that a granted call waited for is durable.
    fn begin_work(&mut self, number: u64) -> Told {
        let too_late = self.too_late(number);
        let Some(call) = self.live.get_mut(&number) else {
            return Told::Wait;
        };
        match std::mem::replace(&mut call.work, Work::Idle) {
            Work::Granted {
                attempt,
                probe: false,
                ..
            } if too_late => {
                self.not_started(number, attempt);
                Told::Wait
            }
            Work::Granted {
                operation,
                attempt,
                probe,
                ..
            } => {
                let timeout = call.terms.map_or(Duration::MAX, |t| t.timeout);
                let deadline = self.now.after(timeout);
                call.work = Work::Running {
                    attempt,
                    probe,
                    deadline,
                    expired: false,
                };
                match operation {
                    Some(operation) if probe => Told::Probe(operation),
                    operation => Told::Start { attempt, operation },
                }
            }
            work => {
                call.work = work;
                Told::Wait
            }
        }
    }

    /// Whether the downstream may have forgotten the key by the time that this attempt, which was
    /// granted a while ago, would be over.
    fn too_late(&self, number: u64) -> bool {
        let recorded = self.live.get(&number).and_then(|c| self.recorded(c));
        recorded.is_some_and(|c| {
            let terms = c.terms.as_ref();
            c.attempts.len() > 1 && terms.is_some_and(|t| !c.key_honoured(t, self.now))
        })
    }

    /// An attempt whose body never began.
    fn not_started(&mut self, number: u64, attempt: u32) {
        let Some(opened) = self.live.get(&number).and_then(|c| self.opened(c)) else {
            return;
        };
        let draft = self.draft(Kind::StepFail).with(|h| {
            h.call = Some(opened);
            h.attempt = Some(attempt);
            h.why = Some("not_started".into());
        });
        self.append(draft);
    }

    /// What is shown of an attempt in traces: thread, step, operation key.
    pub(crate) fn span(&self, number: u64, attempt: u32, probe: bool) -> tracing::Span {
        let Some(call) = self.live.get(&number) else {
            return tracing::Span::none();
        };
        let key = self.recorded(call).and_then(|c| c.key.clone());
        tracing::info_span!(
            "step",
            thread = %self.history.thread(),
            step = %call.shown,
            operation_key = key.as_deref().unwrap_or(""),
            attempt,
            probe,
        )
    }

    /// A body is polled between these two.
    pub(crate) fn enter_body(&mut self, number: u64) {
        self.in_body = self.live.get(&number).map(|c| c.shown.clone());
    }

    pub(crate) fn leave_body(&mut self) {
        self.in_body = None;
    }

    /// A body returned a value.
    pub(crate) fn body_returned(&mut self, number: u64, result: Vec<u8>) {
        if self.trouble.is_some() && self.is_read(number) {
            // It may have misused the context: let it say so again.
            return;
        }
        if let Some((opened, attempt)) = self.attempt_of(number) {
            let draft = self.draft(Kind::StepDone).with(|h| {
                h.call = Some(opened);
                h.attempt = Some(attempt);
            });
            self.append(draft.payload(Role::Result, result));
        }
    }

    /// A body ended without a storable value.
    pub(crate) fn body_ended(&mut self, number: u64, end: BodyEnd) {
        let Some((opened, attempt)) = self.attempt_of(number) else {
            return;
        };
        let (ended_as, failure) = match end {
            BodyEnd::Unstorable(failure) => {
                let draft = self.draft(Kind::StepDone).with(|h| {
                    h.call = Some(opened);
                    h.attempt = Some(attempt);
                    h.why = Some("result_not_stored".into());
                });
                self.append_with(draft, Role::Error, &failure);
                return;
            }
            BodyEnd::Failed(error) => {
                let ended = match error.class {
                    Class::Terminal => Ended::Terminal,
                    Class::NotApplied => Ended::NotApplied,
                    Class::Unlabelled => Ended::Ambiguous(Doubt::Unlabelled),
                };
                (ended, error.failure)
            }
            BodyEnd::Panicked(message) => {
                let failure = Failure::new(format!("the body panicked: {message}")).code("panic");
                (Ended::Ambiguous(Doubt::Panic), failure)
            }
            BodyEnd::TimedOut => {
                let failure = Failure::new("the body took longer than its timeout").code("timeout");
                (Ended::Ambiguous(Doubt::Timeout), failure)
            }
        };
        self.end_attempt(opened, attempt, number, ended_as, Some(&failure));
    }

    fn end_attempt(
        &mut self,
        opened: Position,
        attempt: u32,
        number: u64,
        ended_as: Ended,
        failure: Option<&Failure>,
    ) {
        let retry = self
            .live
            .get(&number)
            .map_or_else(Retry::default, |c| c.retry);
        let due = self
            .now
            .after(self.random.jitter(retry.wait_after(attempt)));
        let Some(call) = self.history.opened_at(opened) else {
            return;
        };
        let Some(terms) = &call.terms else { return };
        let record = ended(call, terms, ended_as, due);
        let draft = self.draft(record.kind.into()).with(|h| {
            h.call = Some(opened);
            h.attempt = Some(attempt);
            h.why = Some(record.why.into());
            h.due = record.due;
        });
        match failure {
            Some(failure) => self.append_with(draft, Role::Error, failure),
            None => self.append(draft),
        };
    }

    /// A probe answered.
    pub(crate) fn probe_ended(&mut self, number: u64, answer: Result<Probe<Vec<u8>>, BodyEnd>) {
        let Some((opened, _)) = self.attempt_of(number) else {
            return;
        };
        let again = self
            .live
            .get(&number)
            .map_or_else(Retry::default, |c| c.retry);
        let recorded = self.history.opened_at(opened);
        let probes = recorded.map_or(0, |c| c.probes);
        // A person was faster. Only that it did happen is still news, if the person said no.
        let settled = recorded.is_some_and(|c| c.outcome.is_some());
        let cleared = recorded
            .and_then(|c| c.attempts.last())
            .is_some_and(|a| matches!(a.end, AttemptEnd::Cleared { .. }));
        if settled || (cleared && !matches!(answer, Ok(Probe::Happened(_)))) {
            return;
        }
        let draft = self.draft(Kind::StepResolve).with(|h| {
            h.call = Some(opened);
            h.by = Some("probe".into());
        });
        let verdict = |draft: Draft, word: &str| draft.with(|h| h.verdict = Some(word.into()));
        match answer {
            Ok(Probe::Happened(value)) => {
                let draft = verdict(draft, "happened");
                self.append(draft.payload(Role::Result, value));
            }
            Ok(Probe::DidNotHappen) => {
                self.append(verdict(draft, "did_not_happen"));
            }
            other => {
                let wait = again.wait_after(probes + 1).max(Duration::from_secs(1));
                let due = self.now.after(self.random.jitter(wait));
                let draft = verdict(draft, "inconclusive").with(|h| h.due = Some(due));
                match other {
                    Err(BodyEnd::Failed(error)) => {
                        self.append_with(draft, Role::Error, &error.failure);
                    }
                    Err(BodyEnd::Panicked(message)) => {
                        let failure = Failure::new(format!("the probe panicked: {message}"));
                        self.append_with(draft, Role::Error, &failure);
                    }
                    Err(BodyEnd::Unstorable(failure)) => {
                        self.append_with(draft, Role::Error, &failure);
                    }
                    _ => {
                        self.append(draft);
                    }
                }
            }
        }
    }

    /// A body that was out of time ended after all: kept as evidence.
    pub(crate) fn late(&mut self, number: u64, attempt: u32, result: Result<Vec<u8>, Failure>) {
        self.late = self.late.saturating_sub(1);
        let Some(opened) = self.live.get(&number).and_then(|c| self.opened(c)) else {
            return;
        };
        let draft = self.draft(Kind::StepLate).with(|h| {
            h.call = Some(opened);
            h.attempt = Some(attempt);
        });
        match result {
            Ok(bytes) => {
                self.append(draft.payload(Role::Result, bytes));
            }
            Err(failure) => {
                self.append_with(draft, Role::Error, &failure);
            }
        }
    }

    /// A late body runs on.
    pub(crate) fn keep_late(&mut self) {
        self.late += 1;
        self.late_until = self.now.after(Terms::QUIET_BEYOND_TIMEOUT);
    }

    /// A late body was dropped.
    pub(crate) fn drop_late(&mut self) {
        self.late = self.late.saturating_sub(1);
    }

    /// The future of a call was dropped. Only drops inside a poll of the workflow that returns
    /// normally are decisions of the program; everything else equals a crash.
    pub(crate) fn dropped(&mut self, number: u64) {
        if self.torn_down || !self.polled_here() || std::thread::panicking() {
            return;
        }
        let Some(call) = self.live.get(&number) else {
            return;
        };
        let attempt = match call.work {
            Work::Running {
                attempt,
                probe: false,
                ..
            } => Some((attempt, true)),
            Work::Granted {
                attempt,
                probe: false,
                ..
            } => Some((attempt, false)),
            _ => None,
        };
        let opened = self.opened(call);
        if let (Some((attempt, entered)), Some(opened)) = (attempt, opened) {
            if entered {
                let ended_as = Ended::Ambiguous(Doubt::Dropped);
                self.end_attempt(opened, attempt, number, ended_as, None);
            } else {
                self.not_started(number, attempt);
            }
        }
        self.live.remove(&number);
    }

    /// Begins the next episode: the code starts anew, with other input.
    pub(crate) fn next_episode(&mut self, input: Vec<u8>, build: Option<Arc<str>>) {
        let mut carry: Vec<_> = self.undelivered().collect();
        carry.sort_unstable();
        let draft = self.draft(Kind::ThreadContinue).with(|h| {
            h.build = build;
            h.carry = carry;
        });
        self.append(draft.payload(Role::Input, input));
        self.live.clear();
        self.occurrences.clear();
        self.derivations.clear();
        self.delivered.clear();
        self.turn = TurnMarks::default();
        self.torn_down = false;
    }

    /// The positions of signals that nobody was given.
    fn undelivered(&self) -> impl Iterator<Item = Position> {
        self.history.all_signals().flat_map(|(name, signals)| {
            let delivered = self.delivered.get(name).copied().unwrap_or(0);
            signals.iter().skip(delivered).map(|s| s.position)
        })
    }

    /// The code does not make calls of this name any more, and says so.
    pub(crate) fn retired(&mut self, name: &str) {
        let history = &self.history;
        self.unmade.retain(|opened| {
            history
                .opened_at(*opened)
                .is_none_or(|call| call.id.name.as_str() != name)
        });
    }

    /// The outcome of a call cannot be read as the type that the code expects.
    pub(crate) fn unreadable(&mut self, call: String, kind: DivergenceKind, at: Position) {
        self.trouble(Trouble::Diverged(Divergence { call, at, kind }));
    }

    /// The answer to `patched(name)`.
    pub(crate) fn patched(&mut self, name: &str) -> bool {
        if let Some(recorded) = self.history.marker(name) {
            return recorded;
        }
        if !self.may_speak(|| format!("`patched({name:?})`")) {
            return false;
        }
        // New code may be taken only where the old code cannot have been: when every loaded
        // record was delivered or belongs to a call already made.
        let undelivered = self.live.values().any(|c| {
            self.opened(c).is_some_and(|opened| {
                opened < self.history.live_from()
                    && self.history.opened_at(opened).is_some_and(|c| {
                        c.outcome
                            .as_ref()
                            .is_some_and(|o| o.position < self.history.live_from())
                    })
            })
        });
        let answer = self.unmade.is_empty() && !undelivered && !self.signals_waiting();
        let word = format!("patch:{name}");
        let draft = self.draft(Kind::Marker).with(|h| {
            h.why = Some(word.into());
            h.verdict = Some(if answer { "true" } else { "false" }.into());
        });
        self.append(draft);
        answer
    }

    /// Whether a loaded signal was not delivered to anybody who waits for it.
    fn signals_waiting(&self) -> bool {
        self.live
            .values()
            .filter(|c| c.kind == CallKind::Signal)
            .any(|c| {
                let name = c.id.name.as_str();
                let delivered = self.delivered.get(name).copied().unwrap_or(0);
                self.history
                    .signals(name)
                    .get(delivered)
                    .is_some_and(|s| s.position < self.history.live_from())
            })
    }

    /// A value that is equal in every execution and differs between places in the program.
    pub(crate) fn derived(&mut self, branch: &Branch, what: &str) -> uuid::Uuid {
        // A body's own call would not be repeated by a replay, and so shift those after it.
        let counts = self.may_speak(|| format!("`{}()`", what.trim_start_matches("deedbook:")));
        let counter = self
            .derivations
            .entry((branch.clone(), what.to_owned()))
            .or_insert(0);
        let occurrence = *counter;
        *counter += u32::from(counts);
        let namespace = Namespace(self.identity.namespace);
        let episode = self.history.episode();
        let identity = KeyIdentity::Positional {
            episode,
            branch,
            occurrence,
        };
        let scope = KeyScope::Thread(self.history.thread());
        OperationKey::derive(&namespace, scope, what, identity, 0).to_uuid()
    }

    // ---- the executor's side ----

    pub(crate) fn begin_poll(&mut self) {
        self.polling = Some(std::thread::current().id());
    }

    pub(crate) fn end_poll(&mut self) {
        self.polling = None;
    }

    /// The live calls, for [`deedbook_journal::turn::next`].
    pub(crate) fn live(&self) -> (Vec<u64>, Vec<Live<'_>>) {
        let live = self.live.iter().map(|(number, call)| {
            let declared = Declared {
                kind: call.kind,
                id: &call.id,
                terms: call.terms.as_ref(),
                // Compared when the call was made.
                args: None,
                redact: &[],
            };
            let busy = !matches!(call.work, Work::Idle);
            (
                *number,
                Live {
                    declared,
                    asked: call.asked,
                    busy,
                },
            )
        });
        live.unzip()
    }

    pub(crate) fn first_unmade(&self) -> Option<Position> {
        self.unmade.first().copied()
    }

    pub(crate) fn delivered(&self) -> &HashMap<Arc<str>, usize> {
        &self.delivered
    }

    /// Offers a call its outcome, and wakes its future.
    pub(crate) fn offer(&mut self, number: u64) {
        let Some(call) = self.live.get(&number) else {
            return;
        };
        let answer = if call.kind == CallKind::Signal {
            let name = call.id.name.as_str();
            let next = self.delivered.get(name).copied().unwrap_or(0);
            let signal = self.history.signals(name).get(next);
            signal.map(|s| {
                (
                    s.value.clone().map_or(Answer::Erased, Answer::Value),
                    s.position,
                )
            })
        } else {
            let recorded = self.history.number(call.kind, &call.id);
            let recorded = recorded.and_then(|n| self.history.calls().get(n));
            recorded
                .and_then(|c| c.outcome.as_ref())
                .map(|o| (o.answer.clone(), o.position))
        };
        if let Some(call) = self.live.get_mut(&number) {
            call.offer = answer;
            wake(call);
        }
    }

    /// Withdraws offers that were not taken.
    pub(crate) fn withdraw(&mut self) {
        for call in self.live.values_mut().filter(|c| c.offer.is_some()) {
            call.offer = None;
            call.asked = false;
        }
    }

    /// Appends what an act needs. Says whether the batch must be waited for.
    pub(crate) fn act(&mut self, act: &Act, number: u64) {
        match act {
            Act::Open(_) => self.open(number),
            Act::Start { attempt, .. } => self.start(number, *attempt),
            Act::Probe(_) => self.probe(number),
            Act::Fire(_) => {
                let opened = self.live.get(&number).and_then(|c| self.opened(c));
                let draft = self.draft(Kind::TimerFired).with(|h| h.call = opened);
                self.append(draft);
            }
        }
    }

    fn open(&mut self, number: u64) {
        let Some(call) = self.live.get(&number) else {
            return;
        };
        let (kind, due) = match call.kind {
            CallKind::Timer => (Kind::TimerSet, Some(self.now.after(call.runs))),
            CallKind::Approval => (Kind::ApprovalRequest, None),
            _ => (Kind::Clock, None),
        };
        let place = place(&call.id);
        let shown = call.args.clone();
        let draft = self.draft(kind).with(|h| {
            h.place = Some(place);
            h.due = due;
        });
        let draft = match shown {
            Some(shown) => draft.payload(Role::Shown, shown.to_vec()),
            None => draft,
        };
        self.append(draft);
    }

    fn start(&mut self, number: u64, attempt: u32) {
        let Some(call) = self.live.get(&number) else {
            return;
        };
        let Some(declared) = call.terms else { return };
        let recorded = self.recorded(call);
        let terms = recorded.and_then(|c| c.terms).unwrap_or(declared);
        let opened = recorded.map(|c| c.opened);
        let first = recorded.and_then(deedbook_journal::history::Call::first_started);
        let key = match recorded.and_then(|c| c.key.clone()) {
            // The recorded key, whatever rule it was derived by.
            Some(key) => key.parse().ok(),
            None => terms.policy.has_effect().then(|| self.key_of(call)),
        };
        let place = place(&call.id);
        let args = if opened.is_none() {
            call.args.clone()
        } else {
            None
        };
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let shown_key = key.as_ref().map(|k: &OperationKey| k.as_str().into());
        let mut draft = self.draft(Kind::StepIntent).with(|h| {
            h.call = opened;
            h.attempt = Some(attempt);
            h.key = shown_key;
            if opened.is_none() {
                h.place = Some(place);
                h.policy = Some(terms.policy);
                h.timeout_ms = Some(millis(terms.timeout));
                h.window_ms = terms.window.map(millis);
                let reconciles = terms.policy == deedbook_journal::policy::Policy::Reconcile;
                h.quiet_ms = reconciles.then(|| millis(terms.quiet));
                h.abandon = terms.abandon;
                h.attempts_max = Some(terms.attempts_max);
            }
        });
        if let Some(args) = args {
            draft = draft.payload(Role::Args, args.to_vec());
        }
        let intent = self.append(draft);
        let first_started_at = first.unwrap_or(self.now);
        let operation = key.map(|key| Operation {
            key,
            attempt,
            first_started_at,
        });
        let needs = if terms.policy.has_effect() {
            intent + 1
        } else {
            0
        };
        self.grant(
            number,
            Work::Granted {
                operation,
                attempt,
                probe: false,
                needs,
            },
        );
    }

    fn probe(&mut self, number: u64) {
        let Some(call) = self.live.get(&number) else {
            return;
        };
        let Some(recorded) = self.recorded(call) else {
            return;
        };
        let attempt = recorded.attempts.last().map_or(1, |a| a.number);
        let first_started_at = recorded.first_started().unwrap_or(self.now);
        let key = recorded.key.as_deref().and_then(|k| k.parse().ok());
        let key = key.unwrap_or_else(|| self.key_of(call));
        let operation = Some(Operation {
            key,
            attempt,
            first_started_at,
        });
        // A probe is an output: everything before it is durable first.
        let needs = self.pen.next();
        self.grant(
            number,
            Work::Granted {
                operation,
                attempt,
                probe: true,
                needs,
            },
        );
    }

    fn grant(&mut self, number: u64, work: Work) {
        let durable = self.durable;
        if let Some(call) = self.live.get_mut(&number) {
            let ready = matches!(&work, Work::Granted { needs, .. } if durable >= *needs);
            call.work = work;
            if ready {
                wake(call);
            }
        }
    }

    /// More is durable: grants that waited for it may begin.
    pub(crate) fn made_durable(&mut self, durable: Position) {
        self.durable = durable;
        for call in self.live.values() {
            if matches!(&call.work, Work::Granted { needs, .. } if durable >= *needs) {
                wake(call);
            }
        }
    }

    /// Ends bodies whose time is over, and says when the next one's is.
    pub(crate) fn expire(&mut self) -> Option<StoreTime> {
        let mut next: Option<StoreTime> = None;
        for call in self.live.values_mut() {
            if let Work::Running {
                deadline, expired, ..
            } = &mut call.work
            {
                if *deadline <= self.now {
                    *expired = true;
                    if let Some(waker) = &call.waker {
                        waker.wake_by_ref();
                    }
                } else {
                    next = Some(next.map_or(*deadline, |n| n.min(*deadline)));
                }
            }
        }
        next
    }

    /// Whether a body or a probe has begun and not ended.
    pub(crate) fn running(&self) -> bool {
        self.live
            .values()
            .any(|c| matches!(c.work, Work::Running { .. }))
    }

    /// Whether a body or a probe was granted and has not ended.
    pub(crate) fn at_work(&self) -> bool {
        self.live.values().any(|c| !matches!(c.work, Work::Idle))
    }

    /// Until when the thread stays loaded for a timed-out body that is still running.
    pub(crate) fn late_until(&self) -> Option<StoreTime> {
        Some(self.late_until).filter(|until| self.late > 0 && *until > self.now)
    }

    /// Wakes the futures of these calls: their bodies want to be polled.
    pub(crate) fn wake_bodies(&self, numbers: &BTreeSet<u64>) {
        for call in numbers.iter().filter_map(|n| self.live.get(n)) {
            wake(call);
        }
    }

    /// Records the bodies that are still running as unknown: the thread is cancelled.
    pub(crate) fn abandon_running(&mut self) {
        let running: Vec<_> = self
            .live
            .iter()
            .filter(|(_, c)| !matches!(c.work, Work::Idle))
            .map(|(number, _)| *number)
            .collect();
        for number in running {
            let Some(call) = self.live.get_mut(&number) else {
                continue;
            };
            let (attempt, entered) = match std::mem::replace(&mut call.work, Work::Idle) {
                Work::Running {
                    attempt,
                    probe: false,
                    ..
                } => (attempt, true),
                Work::Granted {
                    attempt,
                    probe: false,
                    ..
                } => (attempt, false),
                _ => continue,
            };
            let Some(opened) = self.live.get(&number).and_then(|c| self.opened(c)) else {
                continue;
            };
            if entered {
                let ended_as = Ended::Ambiguous(Doubt::Cancelled);
                self.end_attempt(opened, attempt, number, ended_as, None);
            } else {
                self.not_started(number, attempt);
            }
        }
    }

    /// Records that granted bodies never began: this run stops, and knows that much.
    pub(crate) fn give_back(&mut self) {
        let granted: Vec<_> = self
            .live
            .iter()
            .filter_map(|(number, call)| match call.work {
                Work::Granted {
                    attempt,
                    probe: false,
                    ..
                } => Some((*number, attempt)),
                _ => None,
            })
            .collect();
        for (number, attempt) in granted {
            if let Some(call) = self.live.get_mut(&number) {
                call.work = Work::Idle;
            }
            self.not_started(number, attempt);
        }
    }

    /// The steps that keep the thread from ending: nobody knows whether they had their effect.
    pub(crate) fn doubts(&self) -> Vec<(StepId, Doubt)> {
        self.history
            .doubts(self.now)
            .filter(|(call, _)| !call.terms.is_some_and(|t| t.abandon))
            .map(|(call, doubt)| (call.id.clone(), doubt))
            .collect()
    }

    /// Takes what is pending, to be submitted at this position.
    pub(crate) fn take_pending(&mut self) -> (Position, Vec<Record>, Vec<MessageId>) {
        let records = std::mem::take(&mut self.pending);
        let at = self.pen.next() - records.len() as u64;
        (at, records, std::mem::take(&mut self.consumes))
    }

    /// Appends a record whose payload is `value`.
    pub(crate) fn append_with<T: Serialize>(
        &mut self,
        draft: Draft,
        role: Role,
        value: &T,
    ) -> Position {
        // Failures and texts are bounded where they are made, so that they always fit.
        let bytes = value::encode(value, &ValueLimits::new()).unwrap_or_else(|_| vec![0xc0]);
        self.append(draft.payload(role, bytes))
    }

    fn recorded(&self, call: &Call) -> Option<&deedbook_journal::history::Call> {
        let number = self.history.number(call.kind, &call.id)?;
        self.history.calls().get(number)
    }

    fn opened(&self, call: &Call) -> Option<Position> {
        self.recorded(call).map(|c| c.opened)
    }

    /// The position that opened the call with a running attempt, and the attempt's number. The
    /// call is idle from now on.
    fn attempt_of(&mut self, number: u64) -> Option<(Position, u32)> {
        let opened = self.live.get(&number).and_then(|c| self.opened(c))?;
        let call = self.live.get_mut(&number)?;
        match std::mem::replace(&mut call.work, Work::Idle) {
            Work::Running { attempt, .. } => Some((opened, attempt)),
            work => {
                call.work = work;
                None
            }
        }
    }

    fn is_read(&self, number: u64) -> bool {
        let terms = self.live.get(&number).and_then(|c| c.terms);
        terms.is_some_and(|t| !t.policy.has_effect())
    }

    fn key_of(&self, call: &Call) -> OperationKey {
        let namespace = Namespace(self.identity.namespace);
        let scope = KeyScope::Thread(self.history.thread());
        let id = &call.id;
        let identity = match &id.identity {
            Identity::Positional { occurrence } => KeyIdentity::Positional {
                episode: id.episode,
                branch: &id.branch,
                occurrence: *occurrence,
            },
            Identity::Arguments { occurrence, .. } => KeyIdentity::Arguments {
                canonical: call.canonical.as_deref().unwrap_or_default(),
                occurrence: *occurrence,
            },
            Identity::Key(key) => KeyIdentity::Key(key),
        };
        OperationKey::derive(&namespace, scope, id.name.as_str(), identity, 0)
    }

    /// The call whose outcome was taken last, as shown, and the outcome's position.
    pub(crate) fn last_taken(&self) -> (Arc<str>, Position) {
        self.last_taken.clone()
    }
}

fn wake(call: &Call) {
    if let Some(waker) = &call.waker {
        waker.wake_by_ref();
    }
}

fn place(id: &StepId) -> Place {
    let (occurrence, business_key) = match &id.identity {
        Identity::Positional { occurrence } | Identity::Arguments { occurrence, .. } => {
            (*occurrence, None)
        }
        Identity::Key(key) => (0, Some(key.clone())),
    };
    Place {
        episode: id.episode,
        branch: id.branch.clone(),
        name: id.name.clone(),
        kind: id.identity.kind(),
        occurrence,
        business_key,
    }
}
