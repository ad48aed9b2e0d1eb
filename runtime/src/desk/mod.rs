//! The desk: what the workflow's code and the executor share about one thread.
//!
//! The code makes calls on it ([`Desk::make`]) and asks for their outcomes ([`Desk::ask`]); the
//! executor looks at it between polls, appends what [`deedbook_journal::turn::next`] decides, and
//! offers outcomes. Both sides hold its lock only for moments and never over a body's poll.

mod acts;
mod calls;
mod ends;
mod program;
mod unmade;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    thread::ThreadId as OsThread,
    time::Duration,
};

use deedbook_journal::{
    checkpointer::StoreIdentity,
    failure::Failure,
    history::{self, Answer, CallKind, Declared, Divergence, Doubt, History},
    id::{Branch, MessageId, Name, Position, StepId, StoreTime, ThreadId},
    keyed::Keyed,
    limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, ValueLimits},
    pen::{Draft, Pen},
    policy::Terms,
    record::{Header, Kind, Record, Records, Role, Written},
    turn::{Made, Queue, Sorted, Waits},
    value,
};
use serde::Serialize;

pub(crate) use ends::Reused;
use unmade::Unmade;

use crate::{
    error::StepError,
    guard::Gate,
    operation::Operation,
    planted::{Broken, planted},
    random::Random,
    replay::OtherPolicy,
    retry::Retry,
    wake::Wakeups,
};

/// A desk and its lock.
#[derive(Debug)]
pub(crate) struct Shared {
    desk: Mutex<Desk>,
    /// What values may be recorded.
    pub(crate) limits: ValueLimits,
    pub(crate) wakeups: Arc<Wakeups>,
    /// Where guarded calls meet.
    pub(crate) gate: Arc<Gate>,
}

impl Shared {
    pub(crate) fn new(mut desk: Desk, wakeups: Arc<Wakeups>, gate: Arc<Gate>) -> Arc<Self> {
        desk.wakeups = Some(wakeups.clone());
        Arc::new(Self { limits: desk.limits, desk: Mutex::new(desk), wakeups, gate })
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
    pub(crate) pending: Vec<Written>,
    /// How many bytes they have.
    pending_bytes: usize,
    /// Messages that pending records give a position to, each with that position.
    pub(crate) consumes: Vec<(Position, MessageId)>,
    /// Positions below this are durable.
    pub(crate) durable: Position,
    /// Calls that were made and not given their outcome, by the order in which they were made.
    calls: Queue<Box<Call>>,
    made: u64,
    /// The call that was offered its outcome.
    offered: Option<u64>,
    /// Granted calls, by what has to be durable before they begin.
    granted: Sorted<(Position, u64)>,
    /// Running bodies and probes whose time is not over, by when it is.
    deadlines: Sorted<(StoreTime, u64)>,
    running: usize,
    /// How often a place was called, and the last call of it.
    occurrences: HashMap<(CallKind, Branch, Name), (u32, u64), Keyed>,
    derivations: HashMap<(Branch, String), u32>,
    /// Recorded calls that the code has not made yet.
    unmade: Unmade,
    /// How many signals of a name were delivered.
    delivered: HashMap<Arc<str>, usize>,
    /// What the code did in this turn.
    pub(crate) turn: TurnMarks,
    /// The OS thread that polls the workflow's future right now.
    polling: Option<OsThread>,
    /// Whom to tell of trouble that did not come from a poll.
    wakeups: Option<Arc<Wakeups>>,
    /// The call whose body is being polled right now.
    in_body: Option<StepId>,
    /// The call whose outcome was taken last.
    taken: Option<Taken>,
    /// Requests to people that were appended and not submitted yet.
    asked_people: Vec<Waits>,
    /// A record was appended and not submitted yet after which a step may be in doubt.
    doubtful: bool,
    /// The changes that the code asked about.
    patches: HashSet<Arc<str>>,
    /// The calls that were made under another policy than is recorded, where somebody asks.
    pub(crate) other_policies: Option<Vec<OtherPolicy>>,
    /// Late bodies still running (timed out, kept for their evidence), and until when they keep
    /// the thread loaded.
    late: u32,
    late_until: StoreTime,
    /// The input of the next episode, once the code asked for one.
    pub(crate) continues_with: Option<Vec<u8>>,
    /// Steps of the whole journal that calls of this thread wait for, as nobody knows whether they
    /// happened: the threads of these steps, and what to tell.
    pub(crate) shared_doubts: BTreeMap<ThreadId, Arc<str>>,
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
    pub(crate) made: Option<StepId>,
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
    terms: Option<Terms>,
    retry: Retry,
    /// Its arguments, unless they are recorded.
    args: Option<Vec<u8>>,
    /// Under [`Identity::Arguments`]: what the operation key is derived from.
    canonical: Option<Vec<u8>>,
    /// How long a timer runs.
    runs: Duration,
    /// It is a step of the whole journal: its attempts are in its own thread.
    shared: bool,
    waker: Option<Waker>,
    offer: Option<(Answer, Position)>,
    /// Changed by [`Desk::set_work`] only.
    work: Work,
}

impl Made for Call {
    fn declared(&self) -> Declared<'_> {
        Declared {
            kind: self.kind,
            id: &self.id,
            terms: self.terms.as_ref(),
            // Compared when the call was made.
            args: None,
            redact: &[],
        }
    }
}

/// A call that was given its outcome; it may find that it cannot read it.
#[derive(Debug)]
struct Taken {
    number: u64,
    call: Box<Call>,
    /// Its number among the recorded calls.
    recorded: Option<usize>,
    /// The position of its outcome.
    position: Position,
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
    /// It is a step of the whole journal.
    pub(crate) shared: bool,
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
    Start { attempt: u32, operation: Option<Operation> },
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
        let unmade = Unmade::of(&history);
        let keyed = history.keyed();
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
            pending_bytes: 0,
            consumes: Vec::new(),
            calls: Queue::new(keyed),
            made: 0,
            offered: None,
            granted: Sorted::new(),
            deadlines: Sorted::new(),
            running: 0,
            occurrences: HashMap::with_hasher(keyed),
            derivations: HashMap::new(),
            unmade,
            delivered: HashMap::new(),
            turn: TurnMarks::default(),
            polling: None,
            wakeups: None,
            in_body: None,
            taken: None,
            asked_people: Vec::new(),
            doubtful: false,
            patches: HashSet::new(),
            other_policies: None,
            late: 0,
            late_until: StoreTime(0),
            continues_with: None,
            shared_doubts: BTreeMap::new(),
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
        let applied = self.history.apply(&header, &record.payloads);
        let unchecked = planted(Broken::SettleTwice) || planted(Broken::WriteUnchecked);
        if let Err(error) = applied.or_else(|error| if unchecked { Ok(()) } else { Err(error) }) {
            // The rules that write records and the rules that read them disagree: our fault, and
            // nothing may follow from it.
            self.trouble(Trouble::Misused(format!("deedbook wrote a wrong record: {error}")));
            return position;
        }
        self.noticed(&header);
        self.pending_bytes += record.size();
        self.pending.push(record);
        position
    }

    /// A record was appended: what it is about is looked at again.
    fn noticed(&mut self, header: &Header) {
        let ends = [Kind::StepUnknown, Kind::StepFail, Kind::StepResolve];
        self.doubtful |= ends.contains(&header.kind);
        if let (Kind::Signal, Some(name)) = (&header.kind, &header.why) {
            self.calls.signalled(name);
        } else if let Some(recorded) = header.call.and_then(|n| self.history.number_at(n)) {
            self.calls.written(recorded);
        }
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

    /// Whether the thread is cancelled: nothing new begins.
    pub(crate) fn cancelled(&self) -> bool {
        self.history.cancelled() && !planted(Broken::IgnoreCancellation)
    }

    pub(crate) fn begin_poll(&mut self) {
        self.polling = Some(os_thread());
    }

    pub(crate) fn end_poll(&mut self) {
        self.polling = None;
    }

    /// The steps that keep the thread from ending: nobody knows whether they had their effect.
    pub(crate) fn doubts(&self) -> Vec<(StepId, Doubt)> {
        self.history
            .doubts(self.now)
            .filter(|(call, _)| !call.terms.is_some_and(|t| t.abandon))
            .map(|(call, doubt)| (call.id.clone(), doubt))
            .collect()
    }

    /// Whether as much is pending as goes into one batch.
    pub(crate) fn has_a_batch(&self) -> bool {
        self.pending.len() >= BATCH_RECORDS_MAX || self.pending_bytes >= BATCH_BYTES_MAX
    }

    /// Takes what is pending, up to a batch, to be submitted at this position; with the messages
    /// that its records give a position to.
    pub(crate) fn take_batch(&mut self) -> (Position, Records, Vec<MessageId>) {
        let at = self.pen.next() - self.pending.len() as u64;
        let mut bytes = 0;
        let fits = self.pending.iter().take(BATCH_RECORDS_MAX).take_while(|record| {
            let first = bytes == 0;
            bytes += record.size();
            first || bytes <= BATCH_BYTES_MAX
        });
        let count = fits.count();
        let rest = self.pending.split_off(count);
        let records: Records = std::mem::replace(&mut self.pending, rest).into_iter().collect();
        self.pending_bytes -= records.iter().map(Record::size).sum::<usize>();
        let before = at + count as u64;
        let (here, later) = std::mem::take(&mut self.consumes)
            .into_iter()
            .partition::<Vec<_>, _>(|(position, _)| *position < before);
        self.consumes = later;
        (at, records, here.into_iter().map(|(_, id)| id).collect())
    }

    /// What people are to be told of what is pending: the requests to them, and whether a step
    /// may be in doubt now that was not before.
    pub(crate) fn take_told(&mut self) -> (Vec<Waits>, bool) {
        (std::mem::take(&mut self.asked_people), std::mem::take(&mut self.doubtful))
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

    /// Appends a record that is about a live call, and opens it if it is not recorded.
    fn append_about(&mut self, number: u64, draft: Draft) -> Position {
        let opens = draft.header.call.is_none();
        let position = self.append(draft);
        if let Some(recorded) = self.history.number_at(position).filter(|_| opens) {
            self.calls.opened(number, recorded);
        }
        position
    }

    /// What is recorded of a live call.
    fn recorded(&self, number: u64) -> Option<&history::Call> {
        self.history.calls().get(self.calls.recorded(number)?)
    }

    /// The position that opened a live call.
    fn opened(&self, number: u64) -> Option<Position> {
        self.recorded(number).map(|call| call.opened)
    }
}

/// The OS thread that asks. Asked of the system once a thread: every call of a workflow asks.
fn os_thread() -> OsThread {
    thread_local!(static HERE: OsThread = std::thread::current().id());
    HERE.with(|id| *id)
}

fn wake(call: &Call) {
    if let Some(waker) = &call.waker {
        waker.wake_by_ref();
    }
}
