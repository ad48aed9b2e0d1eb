//! The worker: claims threads, runs them, parks them, and recovers what a crash left behind.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Claim, Filter, Lease, StoreError},
    history::End,
    id::{Epoch, Position, StoreTime, ThreadId},
    limits::DEADLINES_KNOWN_MAX,
    row::{Row, Status},
};
use tokio::{
    sync::{Notify, RwLock, oneshot},
    task::JoinHandle,
};
use tracing::{debug, info, warn};

use crate::{
    control::Control,
    error::{Error, ErrorKind},
    executor::{Begin, House, Report, hold},
    workflow::Hosted,
};

/// What a waiter is told: the thread's end, or why it does not come by itself.
pub(crate) type Settled = Result<End, Error>;

/// Claims, runs, parks and recovers threads.
pub(crate) struct Worker {
    pub(crate) house: House,
    hosted: HashMap<Arc<str>, Arc<dyn Hosted>>,
    state: Mutex<State>,
    /// Held shared while a task claims its own thread, and alone while due threads are claimed:
    /// otherwise the two could take a thread from each other.
    claiming: RwLock<()>,
    changed: Notify,
    stopping: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The threads that are loaded.
    loaded: HashMap<ThreadId, Loaded>,
    /// When parked threads have something to do: all that is kept of them.
    wakes: BTreeSet<(StoreTime, ThreadId)>,
    /// When threads that an earlier process parked have something to do: the next ones.
    deadlines: BTreeSet<StoreTime>,
    /// There are later ones than those.
    more_deadlines: bool,
    waiters: HashMap<ThreadId, Vec<oneshot::Sender<Settled>>>,
    round: Option<JoinHandle<()>>,
}

struct Loaded {
    control: Arc<Control>,
    task: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn new(house: House, hosted: HashMap<Arc<str>, Arc<dyn Hosted>>) -> Arc<Self> {
        Arc::new(Self {
            house,
            hosted,
            state: Mutex::default(),
            claiming: RwLock::new(()),
            changed: Notify::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Recovers everything unfinished, and goes on looking for due threads.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), Error> {
        self.recover().await?;
        let worker = self.clone();
        let round = spawn(async move { worker.keep_going().await });
        self.state().round = Some(round);
        Ok(())
    }

    /// Whether this workflow is hosted here.
    pub(crate) fn hosts(&self, workflow: &str) -> bool {
        self.hosted.contains_key(workflow)
    }

    /// Registers a waiter for the thread's next settlement.
    pub(crate) fn watch(&self, thread: &ThreadId) -> oneshot::Receiver<Settled> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        let waiters = state.waiters.entry(thread.clone()).or_default();
        waiters.retain(|w| !w.is_closed());
        waiters.push(sender);
        receiver
    }

    /// What the thread was begun with, if it is loaded and was begun here.
    pub(crate) fn begun(&self, thread: &ThreadId) -> Option<Begin> {
        self.state().loaded.get(thread).and_then(|l| l.control.begin.clone())
    }

    /// Whether the code of the thread, if it is loaded, was given what a person said of the step
    /// opened at this position.
    pub(crate) fn was_given(&self, thread: &ThreadId, opened: Position) -> bool {
        let control = self.state().loaded.get(thread).map(|l| l.control.clone());
        let desk = control.and_then(|control| control.desk());
        desk.is_some_and(|desk| desk.lock().history.was_given(opened))
    }

    /// Resolves when the first record of a thread that is loaded is durable, or when it is loaded
    /// no more.
    pub(crate) async fn durable(&self, thread: &ThreadId) {
        let receiver = self.state().loaded.get(thread).map(|l| l.control.durable.subscribe());
        if let Some(mut receiver) = receiver {
            // The sender is gone when the thread is loaded no more.
            let _ = receiver.wait_for(|durable| *durable).await;
        }
    }

    /// Takes the thread up, or reaches it if it is loaded.
    pub(crate) fn reach(self: &Arc<Self>, thread: &ThreadId, begin: Option<Begin>) {
        self.take_up(thread, begin, None);
    }

    /// Somebody else has done something to this thread: its run, if there is one, looks at its
    /// inbox, and else the search for due threads begins now. It may be called on any OS thread.
    pub(crate) fn notice(&self, thread: &ThreadId) {
        // It may be a guarded step that somebody here waits for.
        self.house.gate.ended(thread);
        match self.state().loaded.get(thread) {
            Some(loaded) => loaded.control.nudge(),
            None => self.changed.notify_one(),
        }
    }

    fn take_up(self: &Arc<Self>, thread: &ThreadId, begin: Option<Begin>, lease: Option<Lease>) {
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state();
        if let Some(loaded) = state.loaded.get(thread) {
            match lease {
                Some(lease) => loaded.control.hand(lease),
                None => loaded.control.nudge(),
            }
            return;
        }
        let control = Control::new(begin);
        let worker = self.clone();
        let (id, theirs) = (thread.clone(), control.clone());
        let task = spawn(async move { worker.run(id, theirs, lease).await });
        let options = &self.house.options;
        if state.loaded.is_empty() && options.look_every > options.lease / 3 {
            // From now on there is a lease to renew, before the next look.
            self.changed.notify_one();
        }
        state.loaded.insert(thread.clone(), Loaded { control, task: Some(task) });
    }

    /// Runs one thread until it ends or parks.
    async fn run(
        self: Arc<Self>,
        thread: ThreadId,
        control: Arc<Control>,
        mut lease: Option<Lease>,
    ) {
        loop {
            let report = match self.claimed(&thread, &control, lease.take()).await {
                Ok(lease) => self.hold(lease, &control).await,
                Err(error) => Report::Lost(error),
            };
            if let Some(settled) = self.settle(&thread, &control, report) {
                for waiter in settled.waiters {
                    // A waiter that is gone needs no answer.
                    let _ = waiter.send(settled.with.clone());
                }
                return;
            }
        }
    }

    async fn claimed(
        &self,
        thread: &ThreadId,
        control: &Control,
        lease: Option<Lease>,
    ) -> Result<Lease, StoreError> {
        if let Some(lease) = lease {
            return Ok(lease);
        }
        let _claiming = self.claiming.read().await;
        if let Some(lease) = control.take_handed() {
            return Ok(lease);
        }
        let now = self.house.store.now().await?;
        let create = control.begin.as_ref().map(|begin| Row {
            wake_at: Some(StoreTime(0)),
            ..Row::new(begin.workflow.clone(), Status::Running, now)
        });
        let which = Claim::Thread { id: thread.clone(), create };
        let options = &self.house.options;
        let leases = self.house.store.claim(which, &options.holder, options.lease).await?;
        leases.into_iter().next().ok_or(StoreError::NoSuchThread)
    }

    async fn hold(&self, lease: Lease, control: &Arc<Control>) -> Report {
        let thread = lease.thread.clone();
        let epoch = lease.epoch;
        control.held_under(epoch, lease.until);
        let hosted = self.hosted.get(&lease.row.workflow).cloned();
        let ended = lease.row.status.is_ended();
        if hosted.is_none() && !ended {
            self.release(&thread, epoch).await;
            let why = format!(
                "workflow {:?} is not hosted here; host it with `.host(..)`",
                lease.row.workflow
            );
            return Report::Blocked(
                lease.row,
                Error::new(ErrorKind::NotFound, why).thread(&thread),
            );
        }
        debug!(thread = %thread, epoch = epoch.0, "holding");
        let begin = control.begin.clone().filter(|_| lease.next == 0);
        let report = hold(self.house.clone(), control.clone(), lease, begin, hosted).await;
        if !matches!(report, Report::Lost(_)) {
            self.release(&thread, epoch).await;
        }
        report
    }

    async fn release(&self, thread: &ThreadId, epoch: Epoch) {
        // A lease that cannot be released runs out by itself.
        let _ = self.house.store.renew(&[(thread.clone(), epoch)], Duration::ZERO).await;
    }

    /// Takes the thread out of the loaded ones and says whom to tell; `None` if something was
    /// said to it meanwhile, so that it has to be taken up again.
    fn settle(&self, thread: &ThreadId, control: &Control, report: Report) -> Option<Told> {
        let mut state = self.state();
        let stopping = self.stopping.load(Ordering::Acquire);
        let again =
            matches!(report, Report::Parked(_) | Report::Blocked(..)) && control.take_nudge();
        if again && !stopping {
            return None;
        }
        state.loaded.remove(thread);
        let with = match report {
            Report::Ended(end) => {
                info!(thread = %thread, status = %end.status, "thread ended");
                Ok(end)
            }
            Report::Parked(row) => {
                debug!(thread = %thread, status = %row.status, "parked");
                if let Some(wake) = row.wake_at {
                    state.wakes.insert((wake, thread.clone()));
                    self.changed.notify_one();
                }
                return Some(Told { waiters: Vec::new(), with: Err(closed()) });
            }
            Report::Blocked(row, error) => {
                // The error itself may quote arguments: they are in the row, and in no trace.
                warn!(thread = %thread, status = %row.status, kind = ?error.kind(), "thread stopped");
                if let Some(wake) = row.wake_at.filter(|_| row.status == Status::InDoubt) {
                    state.wakes.insert((wake, thread.clone()));
                    self.changed.notify_one();
                }
                Err(error)
            }
            Report::Stopped => Err(closed().thread(thread)),
            Report::Lost(error) => {
                warn!(thread = %thread, why = %error, "hold lost");
                Err(Error::from(error).thread(thread))
            }
        };
        let waiters = state.waiters.remove(thread).unwrap_or_default();
        Some(Told { waiters, with })
    }

    /// Takes up what a crash left running, what is due, and what stopped for a reason that a new
    /// build or a restart may have removed.
    async fn recover(self: &Arc<Self>) -> Result<(), Error> {
        let filter = Filter {
            statuses: vec![Status::InDoubt, Status::Diverged, Status::Stalled],
            ..Filter::default()
        };
        let mut after: Option<ThreadId> = None;
        let mut found = 0usize;
        loop {
            let page = self.house.store.list(&filter, after.as_ref(), 1000).await?;
            for info in &page.items {
                if self.hosted.contains_key(&info.row.workflow) {
                    self.reach(&info.id, None);
                    found += 1;
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        found += self.take_due().await?;
        if found > 0 {
            info!(threads = found, "resuming what was unfinished");
        }
        Ok(())
    }

    /// Takes up due threads, as many as fit.
    async fn take_due(self: &Arc<Self>) -> Result<usize, Error> {
        let mut taken = 0;
        loop {
            let loaded = self.state().loaded.len();
            let room = self.house.options.loaded_max.saturating_sub(loaded).min(256);
            if room == 0 || self.hosted.is_empty() {
                return Ok(taken);
            }
            let workflows = self.hosted.keys().cloned().collect();
            let options = &self.house.options;
            let _claiming = self.claiming.write().await;
            let which = Claim::Due { workflows, max: room };
            let leases = self.house.store.claim(which, &options.holder, options.lease).await?;
            if leases.is_empty() {
                return Ok(taken);
            }
            taken += leases.len();
            for lease in leases {
                let thread = lease.thread.clone();
                self.take_up(&thread, None, Some(lease));
            }
        }
    }

    /// Renews leases, wakes parked threads when their time comes, and looks for due ones now and
    /// then, until the book or the journal is gone.
    async fn keep_going(self: Arc<Self>) {
        let options = self.house.options.clone();
        let mut renew_at = StoreTime(0);
        let mut learns = true;
        loop {
            let Ok(now) = self.house.store.now().await else {
                return;
            };
            if learns && self.learn_deadlines(now).await.is_err() {
                return;
            }
            // First of all: after a suspend, expired holds of our own must not look like due
            // threads to ourselves.
            if now >= renew_at {
                if self.renew().await.is_err() {
                    return;
                }
                renew_at = now.after(options.lease / 3);
            }
            for thread in self.awake(now) {
                self.reach(&thread, None);
            }
            if self.take_due().await.is_err() {
                return;
            }
            learns = self.pass_deadlines(now);
            if learns {
                continue;
            }
            let idle = self.state().loaded.is_empty();
            let look = now.after(options.look_every);
            let look = if idle { look } else { look.min(renew_at) };
            let next = self.next_wake().map_or(look, |time| look.min(time));
            let changed = self.changed.notified();
            let sleep = self.house.clock.sleep(now, next);
            either(changed, sleep).await;
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Learns when threads that were parked by somebody else have something to do: as many of the
    /// next deadlines as there is room for. A look at each finds the threads, whoever holds them
    /// by then.
    async fn learn_deadlines(&self, now: StoreTime) -> Result<(), StoreError> {
        let statuses = vec![Status::Sleeping, Status::Waiting, Status::InDoubt];
        let filter = Filter { statuses, ..Filter::default() };
        let (mut deadlines, mut more) = (BTreeSet::new(), false);
        let mut after: Option<ThreadId> = None;
        loop {
            let page = self.house.store.list(&filter, after.as_ref(), 1000).await?;
            let hosted = page.items.iter().filter(|info| self.hosts(&info.row.workflow));
            for time in hosted.filter_map(|info| info.row.wake_at).filter(|time| *time > now) {
                deadlines.insert(time);
                if deadlines.len() > DEADLINES_KNOWN_MAX {
                    deadlines.pop_last();
                    more = true;
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut state = self.state();
        (state.deadlines, state.more_deadlines) = (deadlines, more);
        Ok(())
    }

    /// Forgets deadlines that are over. Says whether further ones are to be learnt.
    fn pass_deadlines(&self, now: StoreTime) -> bool {
        let mut state = self.state();
        state.deadlines = state.deadlines.split_off(&StoreTime(now.0.saturating_add(1)));
        state.deadlines.is_empty() && state.more_deadlines
    }

    /// When the next thread has something to do, as far as it is known.
    fn next_wake(&self) -> Option<StoreTime> {
        let state = self.state();
        let parked_here = state.wakes.first().map(|(time, _)| *time);
        parked_here.into_iter().chain(state.deadlines.first().copied()).min()
    }

    /// The parked threads whose time has come.
    fn awake(&self, now: StoreTime) -> Vec<ThreadId> {
        let mut state = self.state();
        let later = state.wakes.split_off(&(StoreTime(now.0.saturating_add(1)), least()));
        let due = std::mem::replace(&mut state.wakes, later);
        due.into_iter().map(|(_, thread)| thread).collect()
    }

    /// Renews the leases of loaded threads.
    async fn renew(&self) -> Result<(), StoreError> {
        let held: Vec<_> = {
            let state = self.state();
            let held = state.loaded.iter().filter_map(|(id, loaded)| {
                let epoch = loaded.control.epoch()?;
                Some((id.clone(), epoch, loaded.control.clone()))
            });
            held.collect()
        };
        let leases: Vec<_> = held.iter().map(|(id, epoch, _)| (id.clone(), *epoch)).collect();
        let renewed = self.house.store.renew(&leases, self.house.options.lease).await?;
        for ((_, epoch, control), until) in held.iter().zip(renewed) {
            // A thread that was released and claimed again meanwhile has another epoch.
            match until {
                Some(until) => control.renewed(*epoch, until),
                None => control.lose(*epoch),
            }
        }
        Ok(())
    }

    /// Stops taking threads up, lets bodies come to their end for a while, and lets go of all.
    pub(crate) async fn shut_down(&self) {
        self.stopping.store(true, Ordering::Release);
        self.changed.notify_one();
        let (tasks, round) = {
            let mut state = self.state();
            for loaded in state.loaded.values() {
                loaded.control.stop();
            }
            let tasks: Vec<_> = state.loaded.values_mut().filter_map(|l| l.task.take()).collect();
            (tasks, state.round.take())
        };
        if let Some(round) = round {
            round.abort();
        }
        for task in tasks {
            // A task that panicked has nothing to wait for.
            let _ = task.await;
        }
        // Nobody needs to watch.
        let _ = self.house.notices.send(None);
        let waiters: Vec<_> = self.state().waiters.drain().collect();
        for (thread, waiters) in waiters {
            for waiter in waiters {
                let _ = waiter.send(Err(closed().thread(&thread)));
            }
        }
    }

    /// Lets go of all at once, as a crash would.
    pub(crate) fn abandon(&self) {
        self.stopping.store(true, Ordering::Release);
        let state = std::mem::take(&mut *self.state());
        let tasks = state.loaded.into_values().filter_map(|l| l.task);
        for task in tasks.chain(state.round) {
            task.abort();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom to tell what.
struct Told {
    waiters: Vec<oneshot::Sender<Settled>>,
    with: Settled,
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the book is shut down; the thread goes on at the next start")
}

/// The least thread id, for ranges of (time, id).
fn least() -> ThreadId {
    // Ids are not empty, and no id is below a single NUL.
    ThreadId::any("\0").unwrap_or_else(|_| ThreadId::system())
}

/// Resolves when either does.
pub(crate) async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() {
            return std::task::Poll::Ready(());
        }
        b.as_mut().poll(cx)
    })
    .await;
}

#[expect(clippy::disallowed_methods, reason = "the worker owns tasks")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(task)
}

/// Lets a last word be said after its speaker was dropped; without a runtime there is nobody to
/// say it.
pub(crate) fn leave_behind(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(task));
    }
}
