//! A thread's life: incarnations, crashes, and the end.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::Future,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use deedbook::{
    Checkpointer, Clock, Deedbook, Doubt, Error, ErrorKind, Filter, Resolution, Row, Status,
    ThreadId, VirtualClock, Workflow, checkpointer::StoreIdentity,
};
use deedbook_journal::record::Record;
use deedbook_memory::{LastAppend, MemoryHome, MemoryOptions, MemorySnapshot};
use futures::{FutureExt, future::BoxFuture};

use crate::{
    durable::Durable,
    home::{GatedHome, Way},
    random::Random,
    replay,
    world::World,
};

/// The thread that every simulation runs.
pub const THREAD: &str = "order-4821";

/// A simulation that makes no end in this many rounds is stuck.
const ROUNDS_MAX: u64 = 50_000;

/// Where an incarnation crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// It does not.
    Never,
    /// After this many appends, at the next one, which is stored or not.
    AtAppend(u64, LastAppend),
    /// After this many rounds of the driver.
    AtRound(u64),
}

/// What became of an incarnation.
#[derive(Debug)]
pub enum Ran<T> {
    /// The thread ended, or cannot go on by itself.
    Ended(Result<T, Error>),
    /// It crashed.
    Crashed,
}

/// Somebody outside, asked when nothing moves: says whether anything was done.
pub type Visitor = Box<dyn for<'a> FnMut(&'a Deedbook) -> BoxFuture<'a, bool>>;

/// The life of one thread under one seed.
#[expect(missing_debug_implementations, reason = "it holds closures")]
pub struct Simulation<W: Workflow> {
    /// The world outside.
    pub world: World,
    /// The clock.
    pub clock: VirtualClock,
    /// Decisions of the driver.
    pub random: Random,
    /// What is durable.
    pub durable: Arc<Mutex<Durable>>,
    /// Whether doubts are settled as a person would who knows the truth.
    pub settles_doubts: bool,
    /// Whether the person first says every other time something that the code cannot read.
    pub misspeaks: bool,
    /// After how many rounds of an incarnation the thread is cancelled.
    pub cancels_at: Option<u64>,
    /// Once in so many rounds time passes though something else could happen; 0 for never.
    pub impatience: u64,
    /// Whether appends take time.
    pub gated: bool,
    /// Doubts that were settled: the step and the doubt.
    pub settled: Vec<(String, Doubt)>,
    workflow: Box<dyn Fn(World) -> W>,
    input: W::Input,
    visitor: Option<Visitor>,
    thread: ThreadId,
    identity: StoreIdentity,
    snapshot: Option<MemorySnapshot>,
    appends: u64,
}

impl<W: Workflow<Input: Clone, Output: Debug>> Simulation<W> {
    /// A thread that has not begun.
    ///
    /// # Panics
    /// Never.
    pub fn new(seed: u64, input: W::Input, workflow: impl Fn(World) -> W + 'static) -> Self {
        let clock = VirtualClock::new();
        let thread = ThreadId::new(THREAD).unwrap();
        let mut identity = StoreIdentity { log_id: [7; 16], namespace: [8; 16], secret: [9; 32] };
        identity.namespace[..8].copy_from_slice(&seed.to_le_bytes());
        let durable = Durable::new(thread.clone(), identity.secret);
        let durable = Arc::new(Mutex::new(durable));
        let world = World::new(seed, clock.clone());
        world.records("", durable.clone());
        Self {
            world,
            clock,
            random: Random::new(!seed),
            durable,
            settles_doubts: false,
            misspeaks: false,
            cancels_at: None,
            impatience: 0,
            gated: true,
            settled: Vec::new(),
            workflow: Box::new(workflow),
            input,
            visitor: None,
            thread,
            identity,
            snapshot: None,
            appends: 0,
        }
    }

    /// Somebody outside, who is asked when nothing moves.
    #[must_use]
    pub fn visitor(mut self, visitor: Visitor) -> Self {
        self.visitor = Some(visitor);
        self
    }

    /// Goes on with other code, as after a deployment.
    pub fn deploy(&mut self, workflow: impl Fn(World) -> W + 'static) {
        self.workflow = Box::new(workflow);
    }

    /// How many groups the last incarnation appended.
    #[must_use]
    pub fn appends(&self) -> u64 {
        self.appends
    }

    /// Runs the thread in a fresh book until it ends or crashes.
    pub fn incarnation(&mut self, crash: Crash) -> Ran<W::Output> {
        let source = self.clock.source();
        let inner = match self.snapshot.take() {
            Some(snapshot) => MemoryHome::from_snapshot(snapshot, source),
            None => {
                let options = MemoryOptions::new().identity(self.identity.clone());
                MemoryHome::new(match source {
                    Some(source) => options.time(source),
                    None => options,
                })
            }
        };
        if let Crash::AtAppend(count, last) = crash {
            inner.stop_after_appends(count, last);
        }
        self.catch_up(&inner);
        self.world.begin(false);
        let home = self.home(inner, self.gated, self.durable.clone());
        let round = match crash {
            Crash::AtRound(round) => round,
            _ => u64::MAX,
        };
        let ran = self.run(&home, round);
        self.appends = home.inner.counts().groups;
        let snapshot = home.inner.snapshot();
        // A home that has stopped answers no more.
        self.catch_up(&MemoryHome::from_snapshot(snapshot.clone(), None));
        self.snapshot = Some(snapshot);
        ran
    }

    /// Crashes up to `most` times wherever the seed says, and then lets the thread end.
    pub fn chain(&mut self, most: u64) -> Result<W::Output, Error> {
        let crashes = self.random.below(most + 1);
        for _ in 0..crashes {
            self.gated = !self.random.once_in(4);
            let spread = 1 + self.random.below(40);
            let at = self.random.below(spread);
            let crash = match self.random.below(4) {
                0 => Crash::AtAppend(at, LastAppend::Applied),
                1 => Crash::AtAppend(at, LastAppend::Lost),
                _ => Crash::AtRound(at),
            };
            if let Ran::Ended(result) = self.incarnation(crash) {
                return result;
            }
        }
        match self.incarnation(Crash::Never) {
            Ran::Ended(result) => result,
            Ran::Crashed => unreachable!("nothing crashed it"),
        }
    }

    /// Runs the code once more against the whole record but its end. Nothing may be executed.
    /// Returns the result and what the code saw.
    pub fn replay(&mut self) -> (Result<W::Output, Error>, Vec<String>) {
        let records = self.records();
        let copy = replay::without_end(W::NAME, &self.identity, &self.thread, &records);
        let source = self.clock.source();
        let home = self.home(MemoryHome::from_snapshot(copy, source), false, {
            let mut durable = self.durable.lock().unwrap().clone();
            durable.freeze();
            Arc::new(Mutex::new(durable))
        });
        self.world.begin(true);
        let Ran::Ended(result) = self.run(&home, u64::MAX) else {
            unreachable!("nothing crashed it")
        };
        (result, self.world.trace())
    }

    /// The thread's row.
    #[must_use]
    pub fn row(&self) -> Option<Row> {
        let home = MemoryHome::from_snapshot(self.snapshot.clone()?, None);
        let filter = Filter::default();
        let listed = home.list(&filter, None, 1).now_or_never()?;
        listed.ok()?.items.into_iter().next().map(|info| info.row)
    }

    /// The thread's status.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.row().map(|row| row.status)
    }

    /// All records of the thread.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let Some(snapshot) = self.snapshot.clone() else {
            return Vec::new();
        };
        replay::records(&MemoryHome::from_snapshot(snapshot, None), &self.thread, 0)
    }

    /// The identity of its journal.
    pub(crate) fn identity(&self) -> &StoreIdentity {
        &self.identity
    }

    fn home(&self, inner: MemoryHome, gated: bool, durable: Arc<Mutex<Durable>>) -> Arc<GatedHome> {
        Arc::new(GatedHome {
            inner: Arc::new(inner),
            world: self.world.clone(),
            gated,
            durable: BTreeMap::from([(self.thread.clone(), durable)]),
            way: Way::default(),
        })
    }

    fn catch_up(&self, home: &MemoryHome) {
        let mut durable = self.durable.lock().unwrap();
        let fresh = replay::records(home, &self.thread, durable.history.next());
        durable.take(&fresh).expect("records that fit their thread");
    }

    fn run(&mut self, home: &Arc<GatedHome>, crash_at: u64) -> Ran<W::Output> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            // One yield of the driver then lasts until nothing else can run.
            .event_interval(1 << 24)
            .enable_time()
            .build()
            .expect("a runtime");
        let ran = runtime.block_on(self.drive(home, crash_at));
        // Whatever still runs is dropped where it stands: a crash.
        drop(runtime);
        ran
    }

    async fn drive(&mut self, home: &Arc<GatedHome>, crash_at: u64) -> Ran<W::Output> {
        let started = Deedbook::on(home.clone())
            .clock(self.clock.clone())
            .host((self.workflow)(self.world.clone()))
            .look_every(Duration::from_secs(3600))
            .start()
            .await;
        let book = match started {
            Ok(book) => book,
            Err(_) if home.inner.has_stopped() => return Ran::Crashed,
            Err(error) => return Ran::Ended(Err(error)),
        };
        let mut running = Box::pin(book.run::<W>(THREAD, self.input.clone()));
        for round in 0..ROUNDS_MAX {
            if let Some(result) = poll_once(&mut running).await {
                if home.inner.has_stopped() {
                    return Ran::Crashed;
                }
                match result {
                    Err(error) if self.settles_doubts && error.kind() == ErrorKind::InDoubt => {
                        self.settle_doubts(&book).await;
                        running = Box::pin(book.run::<W>(THREAD, self.input.clone()));
                        continue;
                    }
                    result => return Ran::Ended(result),
                }
            }
            tokio::task::yield_now().await;
            if home.inner.has_stopped() || round == crash_at {
                return Ran::Crashed;
            }
            if self.cancels_at == Some(round) {
                // It may be over, or cancelled before the crash.
                let _ = book.cancel(THREAD, "user:ada", "enough").await;
            }
            self.go_on(&book).await;
        }
        panic!(
            "no end after {ROUNDS_MAX} rounds: {:?}\n{:#?}",
            self.world.trace(),
            self.durable.lock().unwrap().history
        );
    }

    /// Lets one thing happen.
    async fn go_on(&mut self, book: &Deedbook) {
        let hurries = self.impatience > 0 && self.random.once_in(self.impatience);
        if !hurries && self.world.open_some(&mut self.random) {
            return;
        }
        if let Some(visitor) = &mut self.visitor
            && visitor(book).await
        {
            return;
        }
        self.clock.advance_to_next();
        self.world.arrive();
    }

    /// Settles every doubt by the truth.
    async fn settle_doubts(&mut self, book: &Deedbook) {
        let doubts = book.doubts().await.expect("the home answers");
        assert!(!doubts.is_empty(), "in doubt without a doubt");
        for open in doubts {
            let (step, doubt) = (open.step.to_string(), open.doubt);
            self.settled.push((step.clone(), doubt));
            let key = open.operation_key.as_deref().unwrap_or_default();
            self.world.arrive_at_last(key);
            let answer = self.world.answer(key).filter(|_| self.world.landed(key) > 0);
            let misspeaks = self.misspeaks && doubt != Doubt::Unreadable;
            let resolution = match answer {
                Some(_) if misspeaks && self.random.once_in(2) => {
                    Resolution::happened("it did, trust me").expect("a text")
                }
                Some(answer) => Resolution::happened(&answer).expect("a number"),
                None => Resolution::did_not_happen(),
            };
            let resolved =
                book.resolve(THREAD, &step, resolution, "user:ada", "looked it up").await;
            resolved.expect("a doubt that can be settled");
        }
    }
}

pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = std::pin::Pin::new(future);
    std::future::poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}
