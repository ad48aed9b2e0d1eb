//! The executor: carries out, for one thread under one hold, what
//! [`deedbook_journal::turn::next`] decides.
//!
//! A turn: poll the workflow, append what its bodies brought, offer one outcome, poll again; and
//! when there is nothing to offer, append what new calls need and submit everything as one batch.
//! Bodies with an effect start when the batch with their intent is durable; reads start at once.
//! While a batch is being committed the workflow goes on: only *outputs* wait.

use std::{
    collections::HashSet,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context as Cx, Poll, Waker},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Append, BoxFuture, Checkpointer, Lease, Message, StoreError},
    failure::Failure,
    history::{Divergence, DivergenceKind, End},
    id::{Epoch, MessageId, Position, StoreTime, ThreadId},
    message::{self, admit},
    pen::Draft,
    record::{Header, Kind, Record, Role},
    row::{Row, Status},
    turn::{Blocked, Next, State, next},
    value,
};
use tokio::task::coop::{Unconstrained, unconstrained};

use crate::{
    clock::Clock,
    context::Context,
    control::Control,
    desk::{Desk, Shared, Trouble},
    error::{Error, ErrorKind},
    load::load,
    options::Options,
    step::panic_message,
    wake::Wakeups,
    workflow::{Hosted, Stop},
};

/// How often a workflow may wake itself in one turn before it counts as spinning.
const SPINS_MAX: u32 = 10_000;

/// A thread that waits longer than this is parked; one that waits less stays loaded.
const PARK_BEYOND: Duration = Duration::from_secs(2);

/// What a new thread begins with.
#[derive(Debug, Clone)]
pub(crate) struct Begin {
    pub(crate) workflow: Arc<str>,
    pub(crate) input: Arc<[u8]>,
}

/// What became of a hold.
#[derive(Debug)]
pub(crate) enum Report {
    /// The thread ended, durably.
    Ended(End),
    /// Nothing runs; the row says what the thread waits for.
    Parked(Row),
    /// The run cannot go on: in doubt, diverged, stalled.
    Blocked(Row, Error),
    /// The book is shutting down; the thread goes on at the next start.
    Stopped,
    /// The hold or the journal is lost.
    Lost(StoreError),
}

/// Whatever a hold needs of the book.
#[derive(Clone)]
pub(crate) struct House {
    pub(crate) store: Arc<dyn Checkpointer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Arc<Options>,
    /// The position of this process's `run.start`, if it runs anything.
    pub(crate) process: Option<Position>,
}

/// Holds a thread until it ends, parks, or is lost.
pub(crate) async fn hold(
    house: House,
    control: Arc<Control>,
    lease: Lease,
    begin: Option<Begin>,
    hosted: Option<Arc<dyn Hosted>>,
) -> Report {
    let report = match Run::load(house, control, lease, begin, hosted).await {
        Ok(Loaded::Run(mut run)) => {
            let report = run.drive().await;
            run.tear_down();
            report
        }
        Ok(Loaded::Ended(end)) => Ok(Report::Ended(end)),
        Err(error) => Err(error),
    };
    report.unwrap_or_else(Report::Lost)
}

enum Loaded {
    Run(Box<Run>),
    Ended(End),
}

/// One hold on one thread.
struct Run {
    house: House,
    control: Arc<Control>,
    thread: ThreadId,
    epoch: Epoch,
    shared: Arc<Shared>,
    hosted: Option<Arc<dyn Hosted>>,
    root: Option<Root>,
    /// The root's result, while open doubts keep the thread from ending.
    finished: Option<Result<Vec<u8>, Failure>>,
    polled: bool,
    /// The row as last submitted.
    row: Row,
    inflight: Option<Inflight>,
    admitted: HashSet<MessageId>,
    /// When bodies that still run at a shutdown or a cancellation are given up.
    grace: Option<StoreTime>,
}

type Root = Unconstrained<BoxFuture<'static, Result<Vec<u8>, Stop>>>;

/// A batch on its way.
struct Inflight {
    result: BoxFuture<'static, Result<Position, StoreError>>,
    /// What it holds, for the case that somebody has taken the thread over.
    records: Vec<Record>,
}

/// What to do after a turn.
enum After {
    /// Nothing runs or waits that would need the batch yet.
    Wait {
        until: Option<StoreTime>,
        row: Option<Row>,
    },
    /// The root has its result.
    Finish,
    /// The thread is cancelled and nothing runs any more.
    Cancel,
    /// The run cannot go on.
    Trouble(Trouble),
    /// The workflow's code panicked.
    Panicked(String),
    /// The recorded input is not what the workflow takes.
    Input(String),
}

impl Run {
    async fn load(
        house: House,
        control: Arc<Control>,
        lease: Lease,
        begin: Option<Begin>,
        hosted: Option<Arc<dyn Hosted>>,
    ) -> Result<Loaded, StoreError> {
        let store = &house.store;
        let identity = store.identity().clone();
        let thread = lease.thread.clone();
        let (mut history, pen) = load(&**store, &lease).await?;
        if let Some(end) = history.end() {
            return Ok(Loaded::Ended(end.clone()));
        }
        history.loaded();
        let now = store.now().await?;
        history.believe(&lease.row, now);
        let first = lease.next == 0;
        let limits = house.options.values;
        let mut desk = Desk::new(history, pen, identity, limits, now);
        let start = begin_record(&thread, begin, first, &house);
        desk.begin(start.ok_or(StoreError::NoSuchThread)?, first);
        let cancelled = desk.history.cancelled();
        let shared = Shared::new(desk, control.wakeups.clone());
        let hosted = hosted.filter(|_| !cancelled);
        let root = hosted.clone().and_then(|hosted| root(hosted, &shared));
        Ok(Loaded::Run(Box::new(Self {
            house,
            control,
            thread,
            epoch: lease.epoch,
            shared,
            hosted,
            root,
            finished: None,
            polled: false,
            row: lease.row,
            inflight: None,
            admitted: HashSet::new(),
            grace: None,
        })))
    }

    async fn drive(&mut self) -> Result<Report, StoreError> {
        // Whoever posted before the hold began did not know whom to nudge.
        self.control.nudge();
        loop {
            if let Some(report) = self.interrupted().await? {
                return Ok(report);
            }
            let now = self.house.store.now().await?;
            self.shared.lock().now = now;
            if self.control.take_nudge() {
                self.listen().await?;
            }
            match self.turn() {
                After::Wait { until, row } => {
                    if let Some(report) = self.rest(until, row).await? {
                        return Ok(report);
                    }
                }
                After::Finish => {
                    if let Some(report) = self.finish().await? {
                        return Ok(report);
                    }
                }
                After::Cancel => {
                    if let Some(report) = self.cancel().await? {
                        return Ok(report);
                    }
                }
                After::Trouble(trouble) => return self.block(trouble).await,
                After::Panicked(message) => {
                    let why = format!("the workflow's code panicked: {message}");
                    return self
                        .stop_with(Status::Stalled, ErrorKind::Panicked, why)
                        .await;
                }
                After::Input(why) => {
                    let why = format!("the recorded input cannot be read: {why}");
                    return self
                        .stop_with(Status::Diverged, ErrorKind::Diverged, why)
                        .await;
                }
            }
        }
    }

    /// A shutdown, or a lost lease.
    async fn interrupted(&mut self) -> Result<Option<Report>, StoreError> {
        if self.control.is_lost(self.epoch) {
            let held = Epoch(self.epoch.0 + 1);
            return Ok(Some(Report::Lost(StoreError::Fenced { held })));
        }
        if !self.control.is_stopping() {
            return Ok(None);
        }
        // Let what runs come to its end, for a while: a finished effect should be recorded.
        let now = self.house.store.now().await?;
        self.shared.lock().now = now;
        let grace = *self
            .grace
            .get_or_insert(now.after(self.house.options.shutdown_grace));
        self.shared.lock().give_back();
        self.poll_bodies();
        if self.shared.lock().running() && now < grace {
            self.submit(None);
            self.wait(Some(grace)).await?;
            return Ok(None);
        }
        self.tear_down();
        self.flush(None).await?;
        Ok(Some(Report::Stopped))
    }

    /// Takes in what was said to the thread.
    async fn listen(&mut self) -> Result<(), StoreError> {
        let messages = match self.house.store.inbox(&self.thread).await {
            // A new thread exists for others from its first append on.
            Err(StoreError::NoSuchThread) => return Ok(()),
            inbox => inbox?,
        };
        let mut desk = self.shared.lock();
        for message in messages {
            if self.admitted.insert(message.id) {
                let draft = admit(&desk.history, &message, desk.now);
                desk.append(draft);
                desk.consumes.push(message.id);
            }
        }
        Ok(())
    }

    /// Polls, offers and acts until there is nothing to do but wait.
    fn turn(&mut self) -> After {
        loop {
            let expires = {
                let mut desk = self.shared.lock();
                let expires = desk.expire();
                desk.wake_bodies(&self.shared.wakeups.take_bodies());
                expires
            };
            if self.shared.lock().history.cancelled() {
                return self.wind_down(expires);
            }
            if self.finished.is_some() {
                return After::Finish;
            }
            if self.root.is_none() {
                return After::Input("it was erased".to_owned());
            }
            match self.poll_root() {
                Polled::Pending => {}
                Polled::Ready(Ok(result)) => self.finished = Some(Ok(result)),
                Polled::Ready(Err(Stop::Failed(error))) => {
                    self.finished = Some(Err(error.into_failure()));
                }
                Polled::Ready(Err(Stop::InputUnreadable(why))) => return After::Input(why),
                Polled::Panicked(message) => return After::Panicked(message),
            }
            if let Some(trouble) = self.shared.lock().trouble.take() {
                return After::Trouble(trouble);
            }
            let continues = self.shared.lock().continues_with.take();
            if let Some(input) = continues {
                match self.next_episode(input) {
                    Ok(()) => continue,
                    Err(trouble) => return After::Trouble(trouble),
                }
            }
            if self.finished.is_some() {
                self.shared.lock().history.set_code_is_over(true);
                return After::Finish;
            }
            let after = self.decide(expires);
            match after {
                Some(after) if !self.shared.wakeups.peek_root() => return after,
                Some(after @ After::Trouble(_)) => return after,
                _ => {}
            }
        }
    }

    /// Carries out what `next` says until it says to wait; `None` to poll again.
    fn decide(&self, expires: Option<StoreTime>) -> Option<After> {
        let mut desk = self.shared.lock();
        loop {
            let (numbers, decided) = {
                let (numbers, live) = desk.live();
                let decided = next(&State {
                    history: &desk.history,
                    live: &live,
                    first_unmade: desk.first_unmade(),
                    delivered: desk.delivered(),
                    now: desk.now,
                });
                (numbers, decided)
            };
            let number = |call: usize| numbers.get(call).copied().unwrap_or(u64::MAX);
            match decided {
                // Something that woke the workflow meanwhile is not from here: a poll without an
                // offer shows whether it drives the code.
                Next::Offer { .. } if self.shared.wakeups.peek_root() => return None,
                Next::Offer { call, .. } => {
                    desk.offer(number(call));
                    return None;
                }
                Next::Act(acts) => {
                    for act in &acts {
                        desk.act(act, number(act.call()));
                    }
                }
                Next::Wait(until) => {
                    let until = earlier(until, expires);
                    return Some(After::Wait { until, row: None });
                }
                Next::Park { until, blocked } => {
                    let row = Some(parked_row(&self.row, &blocked, until, &desk));
                    return Some(After::Wait { until, row });
                }
                Next::Diverged(divergence) => {
                    return Some(After::Trouble(Trouble::Diverged(divergence)));
                }
                Next::Stalled => {
                    return Some(After::Trouble(Trouble::Misused(stalled(&desk))));
                }
            }
        }
    }

    /// One poll of the workflow, and again as long as it wakes itself.
    fn poll_root(&mut self) -> Polled {
        let Some(root) = &mut self.root else {
            return Polled::Pending;
        };
        let waker = Waker::from(self.shared.wakeups.clone());
        let mut cx = Cx::from_waker(&waker);
        {
            let mut desk = self.shared.lock();
            desk.turn = crate::desk::TurnMarks::default();
            desk.begin_poll();
        }
        let mut spins = 0;
        let polled = loop {
            self.shared.wakeups.take_root();
            match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut *root).poll(&mut cx))) {
                Ok(Poll::Ready(result)) => break Polled::Ready(result),
                Ok(Poll::Pending) => {}
                Err(panic) => break Polled::Panicked(panic_message(&*panic)),
            }
            spins += 1;
            if spins == SPINS_MAX {
                let why = "the workflow keeps waking itself without waiting for anything; it may \
                           wait only for calls of its context";
                self.shared.lock().trouble(Trouble::Misused(why.to_owned()));
            }
            if !self.shared.wakeups.take_root() || spins == SPINS_MAX {
                break Polled::Pending;
            }
        };
        let mut desk = self.shared.lock();
        desk.end_poll();
        desk.withdraw();
        if !matches!(polled, Polled::Pending) {
            // Whatever the future still holds is dropped outside of a poll: not a decision.
            desk.torn_down = matches!(polled, Polled::Panicked(_));
            drop(desk);
            self.root = None;
            desk = self.shared.lock();
        }
        if self.polled && !desk.turn.taken {
            let went_on = match (&desk.turn.made, &polled) {
                (Some(call), _) => Some(format!("went on to {call}")),
                (None, Polled::Ready(_)) => Some("ended".to_owned()),
                _ => None,
            };
            if let Some(went_on) = went_on {
                let why = format!(
                    "the workflow {went_on} without an outcome from its context: something that \
                     deedbook does not know drove it (a channel, a real sleep, a task); put it \
                     into a step, or use `ctx.sleep` and `ctx.signal`"
                );
                desk.trouble(Trouble::Misused(why));
            }
        }
        self.polled = true;
        polled
    }

    /// Begins the next episode, if nothing of this one is open.
    fn next_episode(&mut self, input: Vec<u8>) -> Result<(), Trouble> {
        let mut desk = self.shared.lock();
        if let Some(unmade) = desk.first_unmade() {
            return Err(Trouble::Diverged(ended_early(&desk, unmade)));
        }
        desk.history.set_code_is_over(true);
        let open = if desk.at_work() {
            Some("a body is under way; await it before".to_owned())
        } else {
            desk.doubts()
                .first()
                .map(|(id, _)| format!("step {id} is in doubt; settle it before"))
        };
        let wrong = self
            .hosted
            .as_ref()
            .map(|h| h.check_input(&input, &desk.limits));
        let wrong = wrong
            .and_then(Result::err)
            .map(|why| format!("its input is wrong: {why}"));
        if let Some(why) = open.or(wrong) {
            return Err(Trouble::Misused(format!(
                "the thread cannot continue as new: {why}"
            )));
        }
        desk.history.set_code_is_over(false);
        desk.torn_down = true;
        drop(desk);
        let root_before = self.root.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(root_before)));
        let build = self.house.options.build.clone();
        self.shared.lock().next_episode(input, build);
        self.root = self
            .hosted
            .clone()
            .and_then(|hosted| root(hosted, &self.shared));
        self.polled = false;
        Ok(())
    }

    /// Polls the workflow for its bodies' sake: nothing is offered, so its code does not go on.
    fn poll_bodies(&mut self) {
        let bodies = self.shared.wakeups.take_bodies();
        self.shared.lock().wake_bodies(&bodies);
        if self.polled {
            self.poll_root();
        }
    }

    /// A cancelled thread: nothing new begins; what runs may come to its end, for a while.
    fn wind_down(&mut self, expires: Option<StoreTime>) -> After {
        self.poll_bodies();
        let mut desk = self.shared.lock();
        let now = desk.now;
        let grace = *self
            .grace
            .get_or_insert(now.after(self.house.options.cancel_grace));
        if desk.running() && now < grace {
            return After::Wait {
                until: earlier(Some(grace), expires),
                row: None,
            };
        }
        desk.abandon_running();
        After::Cancel
    }

    /// Waits: submits what is pending, and parks the thread if nothing runs.
    async fn rest(
        &mut self,
        until: Option<StoreTime>,
        row: Option<Row>,
    ) -> Result<Option<Report>, StoreError> {
        let now = self.shared.lock().now;
        let far = until.is_none_or(|t| t.since(now) > PARK_BEYOND);
        let late = self.shared.lock().late_until();
        let parks = row.is_some() && far && late.is_none();
        self.submit(row.clone());
        if let (true, Some(row), None) = (parks, row, &self.inflight) {
            let pending = self.shared.lock().pending.len();
            if pending == 0 && same_state(&row, &self.row) && !self.control.is_nudged() {
                return Ok(Some(self.parked(row)));
            }
        }
        self.wait(earlier(until, late)).await?;
        Ok(None)
    }

    fn parked(&self, row: Row) -> Report {
        if row.status == Status::InDoubt {
            let detail = row.detail.as_deref().unwrap_or_default();
            let why = format!(
                "a step is in doubt: {detail}; find out what happened and settle it with \
                 `deedbook resolve`"
            );
            let error = Error::new(ErrorKind::InDoubt, why).thread(&self.thread);
            return Report::Blocked(row, error);
        }
        Report::Parked(row)
    }

    /// Submits what is pending, unless a batch is on its way: one batch a turn, and what comes
    /// meanwhile goes with the next.
    fn submit(&mut self, row: Option<Row>) {
        if self.inflight.is_some() {
            return;
        }
        let mut desk = self.shared.lock();
        let row = row.unwrap_or_else(|| running_row(&self.row, &desk));
        let says_new = row.status != Status::Running && !same_state(&row, &self.row);
        if desk.pending.is_empty() && !says_new {
            return;
        }
        let (at, records, consumes) = desk.take_pending();
        drop(desk);
        let kept = records.clone();
        let append = Append {
            thread: self.thread.clone(),
            epoch: self.epoch,
            at,
            records,
            consumes,
            row: row.clone(),
        };
        self.row = row;
        let store = self.house.store.clone();
        let result = Box::pin(async move {
            let results = store.append(vec![append]).await;
            results.into_iter().next().unwrap_or_else(|| {
                Err(StoreError::Failed {
                    why: "the store gave no result".into(),
                })
            })
        });
        self.inflight = Some(Inflight {
            result,
            records: kept,
        });
    }

    /// Submits everything and waits until it is durable.
    async fn flush(&mut self, row: Option<&Row>) -> Result<(), StoreError> {
        loop {
            if self.inflight.is_none() {
                self.submit(row.cloned());
            }
            let Some(inflight) = &mut self.inflight else {
                return Ok(());
            };
            let result = inflight.result.as_mut().await;
            self.committed(result).await?;
        }
    }

    /// A batch has its result.
    async fn committed(&mut self, result: Result<Position, StoreError>) -> Result<(), StoreError> {
        let inflight = self.inflight.take();
        match result {
            Ok(durable) => {
                self.shared.lock().made_durable(durable);
                self.control.durable.send_replace(true);
                Ok(())
            }
            Err(error @ (StoreError::Fenced { .. } | StoreError::Moved { .. })) => {
                self.testify(inflight.map(|i| i.records).unwrap_or_default())
                    .await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Posts outcomes that came after a takeover to the thread's inbox: evidence, not outcomes.
    async fn testify(&mut self, records: Vec<Record>) {
        let late: Vec<_> = records
            .iter()
            .filter_map(|r| self.late_message(r))
            .collect();
        for message in late {
            // The hold is lost either way; the takeover has its own view of the attempt.
            let _ = self.house.store.post(&self.thread, message).await;
        }
    }

    fn late_message(&self, record: &Record) -> Option<Message> {
        let header = Header::parse(&record.header).ok()?;
        if !matches!(
            header.kind,
            Kind::StepDone | Kind::StepFail | Kind::StepUnknown
        ) {
            return None;
        }
        let desk = self.shared.lock();
        let call = desk.history.opened_at(header.call?)?;
        let outcome = match (record.payload(Role::Result), record.payload(Role::Error)) {
            (Some(result), _) => Ok(message::Bytes(result.bytes.to_vec())),
            (None, Some(error)) => {
                Err(value::decode(&error.bytes, &self.house.options.values).ok()?)
            }
            (None, None) => return None,
        };
        let late = message::Late {
            attempt: header.attempt?,
            outcome,
        };
        let body = value::encode(&late, &self.house.options.values).ok()?;
        let mut id = [0; 16];
        id.copy_from_slice(record.hash.0.get(..16)?);
        Some(Message {
            id: MessageId(id),
            kind: message::LATE,
            name: call.id.to_string().into(),
            by: self.house.options.holder.clone(),
            body: body.into(),
        })
    }

    /// Ends the thread with the workflow's result, if no doubt keeps it open.
    async fn finish(&mut self) -> Result<Option<Report>, StoreError> {
        let unmade = self.shared.lock().first_unmade();
        if let Some(unmade) = unmade {
            let divergence = ended_early(&self.shared.lock(), unmade);
            return self.block(Trouble::Diverged(divergence)).await.map(Some);
        }
        if let Some(row) = self.doubtful_row() {
            return self.rest(None, Some(row)).await;
        }
        let (status, word) = match &self.finished {
            Some(Ok(_)) => (Status::Done, "done"),
            _ => (Status::Failed, "failed"),
        };
        let finished = self.finished.take();
        self.end(status, word, finished).await.map(Some)
    }

    /// Ends a cancelled thread, if no doubt keeps it open.
    async fn cancel(&mut self) -> Result<Option<Report>, StoreError> {
        self.tear_down();
        if let Some(row) = self.doubtful_row() {
            return self.rest(None, Some(row)).await;
        }
        self.end(Status::Cancelled, "cancelled", None)
            .await
            .map(Some)
    }

    /// The row of a thread that would end but for its doubts.
    fn doubtful_row(&self) -> Option<Row> {
        let desk = self.shared.lock();
        let doubts = desk.doubts();
        let blocked: Vec<_> = doubts
            .into_iter()
            .map(|(id, d)| Blocked::Doubt(id, d))
            .collect();
        (!blocked.is_empty()).then(|| parked_row(&self.row, &blocked, None, &desk))
    }

    async fn end(
        &mut self,
        status: Status,
        word: &str,
        finished: Option<Result<Vec<u8>, Failure>>,
    ) -> Result<Report, StoreError> {
        let row = {
            let mut desk = self.shared.lock();
            let doubts = open_doubts(&desk);
            let draft = Draft::new(&self.thread, Kind::ThreadEnd).with(|h| {
                h.verdict = Some(word.into());
                h.doubts = Some(doubts);
            });
            match finished {
                Some(Ok(result)) => {
                    desk.append(draft.payload(Role::Result, result));
                }
                Some(Err(failure)) => {
                    desk.append_with(draft, Role::Error, &failure);
                }
                None => {
                    desk.append(draft);
                }
            }
            Row {
                status,
                since: desk.now,
                wake_at: None,
                detail: None,
                open_doubts: doubts,
                ..self.row.clone()
            }
        };
        self.flush(Some(&row)).await?;
        let end = self.shared.lock().history.end().cloned();
        end.map(Report::Ended).ok_or(StoreError::Failed {
            why: "the end was not recorded".into(),
        })
    }

    /// The run cannot go on.
    async fn block(&mut self, trouble: Trouble) -> Result<Report, StoreError> {
        match trouble {
            Trouble::Diverged(divergence) => {
                let row = self.stopped_row(Status::Diverged, &divergence.to_string());
                self.tear_down();
                self.flush(Some(&row)).await?;
                Ok(Report::Blocked(
                    row,
                    Error::diverged(&self.thread, divergence),
                ))
            }
            Trouble::Misused(why) => {
                self.stop_with(Status::Stalled, ErrorKind::Stalled, why)
                    .await
            }
        }
    }

    async fn stop_with(
        &mut self,
        status: Status,
        kind: ErrorKind,
        why: String,
    ) -> Result<Report, StoreError> {
        self.tear_down();
        let row = self.stopped_row(status, &why);
        self.flush(Some(&row)).await?;
        Ok(Report::Blocked(
            row,
            Error::new(kind, why).thread(&self.thread),
        ))
    }

    fn stopped_row(&self, status: Status, why: &str) -> Row {
        let desk = self.shared.lock();
        let detail = Some(why.into());
        let open_doubts = open_doubts(&desk);
        Row {
            status,
            since: desk.now,
            wake_at: None,
            detail,
            open_doubts,
            ..self.row.clone()
        }
    }

    /// Waits for a wake-up, the batch on its way, or a time.
    async fn wait(&mut self, until: Option<StoreTime>) -> Result<(), StoreError> {
        let wakeups: Arc<Wakeups> = self.shared.wakeups.clone();
        let now = self.shared.lock().now;
        let mut sleep = until.map(|until| self.house.clock.sleep(now, until));
        let changed = wakeups.changed.notified();
        let mut changed = std::pin::pin!(changed);
        let inflight = &mut self.inflight;
        let committed = poll_fn(|cx| {
            if let Some(inflight) = inflight
                && let Poll::Ready(result) = inflight.result.as_mut().poll(cx)
            {
                return Poll::Ready(Some(result));
            }
            if changed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            match &mut sleep {
                Some(sleep) => sleep.as_mut().poll(cx).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await;
        match committed {
            Some(result) => self.committed(result).await,
            None => Ok(()),
        }
    }

    /// Drops the workflow's future; what it drops is no decision of the program.
    fn tear_down(&mut self) {
        {
            let mut desk = self.shared.lock();
            if !desk.torn_down {
                desk.give_back();
                desk.torn_down = true;
            }
        }
        let root = self.root.take();
        // A drop of the user's values may panic; the thread is over either way.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(root)));
    }
}

/// Why a workflow that waits for nothing known cannot go on.
fn stalled(desk: &Desk) -> String {
    let (last, _) = desk.last_taken();
    let place = if last.is_empty() {
        "before its first outcome".to_owned()
    } else {
        format!("after {last}")
    };
    format!(
        "{place} the workflow waits for something that deedbook does not know (a channel, a real \
         sleep, a task); put it into a step, or use `ctx.sleep` and `ctx.signal`"
    )
}

enum Polled {
    Pending,
    Ready(Result<Vec<u8>, Stop>),
    Panicked(String),
}

/// The workflow's future, from the beginning of the episode; `None` if its input was erased.
fn root(hosted: Arc<dyn Hosted>, shared: &Arc<Shared>) -> Option<Root> {
    let (input, limits) = {
        let desk = shared.lock();
        (desk.history.input().cloned()?, desk.limits)
    };
    Some(unconstrained(hosted.run(
        Context::new(shared.clone()),
        input,
        limits,
    )))
}

fn ended_early(desk: &Desk, unmade: Position) -> Divergence {
    let call = desk
        .history
        .opened_at(unmade)
        .map(|c| c.id.to_string())
        .unwrap_or_default();
    Divergence {
        call,
        at: unmade,
        kind: DivergenceKind::EndedEarly,
    }
}

fn begin_record(
    thread: &ThreadId,
    begin: Option<Begin>,
    first: bool,
    house: &House,
) -> Option<Draft> {
    let kind = if first {
        Kind::ThreadStart
    } else {
        Kind::ThreadResume
    };
    let draft = Draft::new(thread, kind).with(|h| {
        h.build = house.options.build.clone();
        h.by = Some(house.options.holder.clone());
        h.process = house.process;
    });
    if !first {
        return Some(draft);
    }
    let begin = begin?;
    let draft = draft.with(|h| h.workflow = Some(begin.workflow));
    Some(draft.payload(Role::Input, begin.input.to_vec()))
}

fn running_row(row: &Row, desk: &Desk) -> Row {
    let since = if row.status == Status::Running {
        row.since
    } else {
        desk.now
    };
    Row {
        status: Status::Running,
        since,
        // If this run dies, the thread is due at once.
        wake_at: Some(StoreTime(0)),
        detail: None,
        open_doubts: open_doubts(desk),
        ..row.clone()
    }
}

fn parked_row(row: &Row, blocked: &[Blocked], until: Option<StoreTime>, desk: &Desk) -> Row {
    let (status, detail) = Blocked::status(blocked);
    let detail: Option<Arc<str>> = Some(detail.into());
    let same = row.status == status && row.detail == detail;
    let since = if same { row.since } else { desk.now };
    Row {
        status,
        since,
        wake_at: until,
        detail,
        open_doubts: open_doubts(desk),
        ..row.clone()
    }
}

fn open_doubts(desk: &Desk) -> u32 {
    u32::try_from(desk.history.doubts(desk.now).count()).unwrap_or(u32::MAX)
}

/// Whether two rows say the same but for the time since when.
fn same_state(a: &Row, b: &Row) -> bool {
    (a.status, a.wake_at, &a.detail, a.open_doubts)
        == (b.status, b.wake_at, &b.detail, b.open_doubts)
}

fn earlier(a: Option<StoreTime>, b: Option<StoreTime>) -> Option<StoreTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
