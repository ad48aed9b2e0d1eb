//! The executor: carries out, for one thread under one hold, what
//! [`deedbook_journal::turn::next`] decides.
//!
//! A turn: poll the workflow, append what its bodies brought, offer one outcome, poll again; and
//! when there is nothing to offer, append what new calls need and submit everything as one batch.
//! Bodies with an effect start when the batch with their intent is durable; reads start at once.
//! While a batch is being committed the workflow goes on: only *outputs* wait.

mod batch;
mod end;
mod replay;
mod turn;

pub(crate) use replay::replay;

use std::{collections::HashSet, sync::Arc, time::Duration};

use deedbook_journal::{
    bytes::Bytes,
    checkpointer::{BoxFuture, Checkpointer, Lease, StoreError},
    failure::Failure,
    history::{Divergence, DivergenceKind, Doubt, End},
    id::{Epoch, MessageId, Position, StepId, StoreTime, ThreadId},
    message::admit,
    pen::Draft,
    record::{Kind, Records, Role},
    row::{Row, Status},
};
use tokio::task::coop::{Unconstrained, unconstrained};

use crate::{
    clock::Clock,
    context::Context,
    control::Control,
    desk::{Desk, Shared, Trouble},
    error::{Error, ErrorKind},
    guard::Gate,
    load::load,
    notice::{Notice, Notices},
    options::Options,
    planted::{Broken, planted},
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
    pub(crate) input: Bytes,
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
    /// Whom to tell that a thread waits for a person.
    pub(crate) notices: Notices,
    /// Where guarded calls meet.
    pub(crate) gate: Arc<Gate>,
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
    /// The doubts that were told of.
    told: HashSet<(StepId, Doubt)>,
    /// When bodies that still run at a shutdown or a cancellation are given up.
    grace: Option<StoreTime>,
}

type Root = Unconstrained<BoxFuture<'static, Result<Vec<u8>, Stop>>>;

/// A batch on its way.
struct Inflight {
    result: BoxFuture<'static, Result<Position, StoreError>>,
    /// What it holds, for the case that somebody has taken the thread over.
    records: Records,
    /// Of what to tell once it is durable.
    notices: Vec<Notice>,
}

/// What to do after a turn.
enum After {
    /// It could go on: what there is comes first, and others.
    GoOn,
    /// Nothing runs or waits that would need the batch yet.
    Wait { until: Option<StoreTime>, row: Option<Row> },
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
        let cancelled = desk.cancelled();
        let counted = lease.row.status == Status::InDoubt;
        let doubts = desk.history.doubts(now).filter(|_| counted);
        let told = doubts.map(|(call, doubt)| (call.id.clone(), doubt)).collect();
        let shared = Shared::new(desk, control.wakeups.clone(), house.gate.clone());
        control.opened(&shared);
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
            told,
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
            if self.control.is_stopping() {
                // No turn while bodies come to their end: it would begin attempts, which are given
                // back at once and would begin again.
                continue;
            }
            let now = self.house.store.now().await?;
            self.shared.lock().now = now;
            self.still_held(now).await?;
            if self.control.take_nudge() {
                self.listen().await?;
            }
            match self.turn() {
                After::GoOn => self.hand_over().await?,
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
                    return self.stop_with(Status::Stalled, ErrorKind::Panicked, why).await;
                }
                After::Input(why) => {
                    let why = format!("the recorded input cannot be read: {why}");
                    return self.stop_with(Status::Diverged, ErrorKind::Diverged, why).await;
                }
            }
        }
    }

    /// A shutdown, or a lost lease.
    async fn interrupted(&mut self) -> Result<Option<Report>, StoreError> {
        if self.control.is_lost(self.epoch) && !planted(Broken::IgnoreFence) {
            let held = Epoch(self.epoch.0 + 1);
            return Ok(Some(Report::Lost(StoreError::Fenced { held })));
        }
        if !self.control.is_stopping() {
            return Ok(None);
        }
        // Let what runs come to its end, for a while: a finished effect should be recorded.
        let now = self.house.store.now().await?;
        self.shared.lock().now = now;
        let grace = *self.grace.get_or_insert(now.after(self.house.options.shutdown_grace));
        let expires = {
            let mut desk = self.shared.lock();
            desk.give_back();
            desk.expire()
        };
        self.poll_bodies();
        if self.shared.lock().running() && now < grace {
            self.submit(None);
            self.wait(earlier(Some(grace), expires)).await?;
            return Ok(None);
        }
        self.tear_down();
        self.flush(None).await?;
        Ok(Some(Report::Stopped))
    }

    /// Makes sure of a hold that was not renewed in time, before anything begins under it: whoever
    /// slept through its end, or was cut off, may not know of a takeover. What it records would be
    /// refused; what it sends would not.
    async fn still_held(&mut self, now: StoreTime) -> Result<(), StoreError> {
        if !self.control.is_over(now) || planted(Broken::IgnoreFence) {
            return Ok(());
        }
        let hold = [(self.thread.clone(), self.epoch)];
        let renewed = self.house.store.renew(&hold, self.house.options.lease).await?;
        match renewed.into_iter().next().flatten() {
            Some(until) => {
                self.control.renewed(self.epoch, until);
                Ok(())
            }
            None => Err(StoreError::Fenced { held: Epoch(self.epoch.0 + 1) }),
        }
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
                let position = desk.append(draft);
                if planted(Broken::AdmitTwice) {
                    let again = admit(&desk.history, &message, desk.now);
                    desk.append(again);
                }
                desk.consumes.push((position, message.id));
            }
        }
        Ok(())
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
    Some(unconstrained(hosted.run(Context::new(shared.clone()), input, limits)))
}

fn ended_early(desk: &Desk, unmade: Position) -> Divergence {
    let call = desk.history.opened_at(unmade).map(|c| c.id.to_string()).unwrap_or_default();
    Divergence { call, at: unmade, kind: DivergenceKind::EndedEarly }
}

fn begin_record(
    thread: &ThreadId,
    begin: Option<Begin>,
    first: bool,
    house: &House,
) -> Option<Draft> {
    let kind = if first { Kind::ThreadStart } else { Kind::ThreadResume };
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
    let since = if row.status == Status::Running { row.since } else { desk.now };
    Row {
        status: Status::Running,
        since,
        // If this run dies, the thread is due at once.
        wake_at: Some(StoreTime(0)),
        detail: desk.shared_doubts.values().next().cloned(),
        open_doubts: open_doubts(desk),
        ..row.clone()
    }
}

fn parked_row(
    row: &Row,
    (status, detail): (Status, String),
    until: Option<StoreTime>,
    desk: &Desk,
) -> Row {
    let detail: Option<Arc<str>> = Some(detail.into());
    let same = row.status == status && row.detail == detail;
    let since = if same { row.since } else { desk.now };
    Row { status, since, wake_at: until, detail, open_doubts: open_doubts(desk), ..row.clone() }
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
