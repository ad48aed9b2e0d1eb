//! The world of a test: what survives a crash, and the time that passes in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, pending, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};

use deedbook::{Builder, Clock, Deedbook, StoreTime, VirtualClock, checkpointer::StoreIdentity};
use deedbook_memory::{LastAppend, MemoryHome, MemoryOptions, MemorySnapshot};
use tokio::sync::oneshot;

use crate::{
    downstream::{Downstream, Service},
    home::Noted,
    random::Random,
};

/// Where a run crashes, or what else befalls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Point {
    /// Nothing does.
    Nowhere,
    /// At the journal's write with this number, which is lost.
    WriteLost(u64),
    /// At the journal's write with this number, which is there, but nobody has heard.
    WriteUnheard(u64),
    /// At the request with this number, before it has its effect.
    BeforeEffect(u64),
    /// At the request with this number, which has its effect only after the next run has begun.
    OnItsWay(u64),
    /// At the request with this number, behind its effect and before its answer.
    AfterEffect(u64),
    /// No crash: the request with this number has its effect, and its answer is lost.
    AnswerLost(u64),
}

/// Equal in all worlds, so that operations have the same keys in all of them.
const IDENTITY: StoreIdentity =
    StoreIdentity { log_id: [1; 16], namespace: [2; 16], secret: [3; 32] };

/// The world outside of the code under test: a journal, a clock and [`Downstream`]s, all of which
/// outlive a crash. Cheap to clone.
///
/// Time stands still while anything can go on, and jumps to the next timer when nothing can, so a
/// `ctx.sleep` of three days costs nothing.
#[derive(Clone, Debug)]
pub struct World(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    clock: VirtualClock,
}

#[derive(Debug)]
pub(crate) struct State {
    point: Point,
    crashing: bool,
    random: Random,
    /// What is durable between two runs.
    durable: Option<MemorySnapshot>,
    home: Option<Arc<Noted>>,
    /// What the writes of the last run held.
    writes: Vec<String>,
    pub(crate) services: BTreeMap<String, Service>,
    requests: Vec<String>,
    /// How long a request is on its way whose sender is gone.
    on_its_way: Duration,
    /// Requests and answers that wait for their turn.
    gates: BTreeMap<u64, Gate>,
    gates_made: u64,
    /// Requests whose sender is gone: when they arrive, where, and under which key.
    on_their_way: Vec<(StoreTime, Late)>,
    /// What has been done once, whatever crashed.
    done: BTreeSet<String>,
    /// Those who wait until nothing else can go on.
    idlers: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Gate {
    open: bool,
    waker: Option<Waker>,
}

/// Lets a late request have its effect.
pub(crate) struct Late(pub(crate) Arrival);

/// What a request does where it arrives.
pub(crate) type Arrival = Box<dyn FnOnce(&mut State, StoreTime) + Send>;

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Late").finish_non_exhaustive()
    }
}

impl World {
    pub(crate) fn new(seed: u64, point: Point, on_its_way: Duration) -> Self {
        let state = State {
            point,
            crashing: false,
            random: Random::new(seed),
            durable: None,
            home: None,
            writes: Vec::new(),
            services: BTreeMap::new(),
            requests: Vec::new(),
            on_its_way,
            gates: BTreeMap::new(),
            gates_made: 0,
            on_their_way: Vec::new(),
            done: BTreeSet::new(),
            idlers: Vec::new(),
        };
        Self(Arc::new(Inner { state: Mutex::new(state), clock: VirtualClock::new() }))
    }

    /// A book on the world's journal and clock: host workflows on it and start it, as the program
    /// under test does when its process begins.
    ///
    /// # Panics
    /// Outside of a run.
    #[expect(clippy::expect_used, reason = "a wrong use of a test's own tool ends the test")]
    pub fn book(&self) -> Builder {
        let home = self.state().home.clone();
        let home = home.expect("a book of the world is made within a run");
        // What becomes due without the book knowing comes only with a crash: no need to look.
        Deedbook::on(home).clock(self.0.clock.clone()).look_every(Duration::from_secs(86_400))
    }

    /// The downstream of this name: a ledger that honours operation keys, unless it is told not
    /// to. The same name is the same ledger.
    #[must_use]
    pub fn downstream(&self, name: &str) -> Downstream {
        self.state().services.entry(name.to_owned()).or_default();
        Downstream::new(self.clone(), name)
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> StoreTime {
        self.0.clock.now()
    }

    /// Resolves when nothing else can go on: the workflow waits for a person, or for time to
    /// pass. Time passes only after those who wait here were given their turn.
    pub async fn settled(&self) {
        let (told, when) = oneshot::channel();
        self.state().idlers.push(told);
        // The sender is gone when the run ends, and so is whoever waits here.
        let _ended = when.await;
    }

    /// What a person does once, however often the program is started again: `None` if it was
    /// done in an earlier run. Done for sure only when it is through, as with real people: a
    /// crash in the middle makes it happen again.
    pub async fn once<T>(&self, what: &str, act: impl Future<Output = T>) -> Option<T> {
        if self.state().done.contains(what) {
            return None;
        }
        let done = act.await;
        self.state().done.insert(what.to_owned());
        Some(done)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a run on what is durable. A crash at a write happens in the first one only.
    pub(crate) fn begin(&self) -> Arc<Noted> {
        let mut state = self.state();
        let first = state.durable.is_none();
        let time = self.0.clock.source();
        let home = match state.durable.take() {
            Some(snapshot) => MemoryHome::from_snapshot(snapshot, time),
            None => {
                let options = MemoryOptions::new().identity(IDENTITY);
                MemoryHome::new(match time {
                    Some(time) => options.time(time),
                    None => options,
                })
            }
        };
        match state.point {
            Point::WriteLost(at) if first => home.stop_after_appends(at, LastAppend::Lost),
            Point::WriteUnheard(at) if first => home.stop_after_appends(at, LastAppend::Applied),
            _ => {}
        }
        let home = Arc::new(Noted::new(home));
        state.home = Some(Arc::clone(&home));
        state.crashing = false;
        home
    }

    /// Ends a run: what was durable is what the next one begins with.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        if let Some(home) = state.home.take() {
            state.durable = Some(home.snapshot());
            state.writes = home.writes();
        }
        state.gates.clear();
        state.idlers.clear();
    }

    /// Whether the run has come to the point where it crashes.
    pub(crate) fn is_crashing(&self) -> bool {
        let state = self.state();
        state.crashing || state.home.as_ref().is_some_and(|home| home.has_stopped())
    }

    /// Crashes here: nothing comes back from this.
    pub(crate) async fn crash<T>(&self) -> T {
        self.state().crashing = true;
        pending().await
    }

    /// Nothing goes on by itself: lets one thing happen. Says whether there was one.
    pub(crate) fn step(&self) -> bool {
        let mut state = self.state();
        let shut: Vec<u64> =
            state.gates.iter().filter(|(_, gate)| !gate.open).map(|(id, _)| *id).collect();
        if !shut.is_empty() {
            let at = state.random.index(shut.len());
            let chosen = shut.get(at).and_then(|id| state.gates.get_mut(id));
            if let Some(gate) = chosen {
                gate.open = true;
                if let Some(waker) = gate.waker.take() {
                    waker.wake();
                }
            }
            return true;
        }
        let idlers = std::mem::take(&mut state.idlers);
        let any = !idlers.is_empty();
        drop(state);
        for idler in idlers {
            // Whoever gave up waiting does not want to know.
            let _gone = idler.send(());
        }
        any
    }

    /// Moves the clock to when something is next. Says whether there is anything.
    pub(crate) fn pass(&self) -> bool {
        let arrives = self.state().on_their_way.iter().map(|(at, _)| *at).min();
        let moved = match arrives {
            None => self.0.clock.advance_to_next(),
            Some(at) => {
                // Whoever sleeps until an earlier time comes first.
                let now = self.now();
                let waits = self.0.clock.sleep(now, at);
                let mut waits = std::pin::pin!(waits);
                let mut cx = std::task::Context::from_waker(Waker::noop());
                let _asleep = waits.as_mut().poll(&mut cx);
                self.0.clock.advance_to_next() || at <= now
            }
        };
        self.arrive();
        moved
    }

    /// Lets those requests arrive whose time has come.
    fn arrive(&self) {
        let now = self.now();
        let mut state = self.state();
        let all = std::mem::take(&mut state.on_their_way);
        let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at, _)| *at <= now);
        state.on_their_way = later;
        for (_, late) in due {
            (late.0)(&mut state, now);
        }
    }

    /// What was durable when the last run ended.
    pub(crate) fn durable(&self) -> Option<MemorySnapshot> {
        self.state().durable.clone()
    }

    /// Whether requests are on their way whose sender is gone.
    pub(crate) fn expects(&self) -> bool {
        !self.state().on_their_way.is_empty()
    }

    /// What the writes of the last run held, in their order.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.state().writes.clone()
    }

    /// The requests that came, in the order in which they came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Waits for this turn of a request or an answer: those that wait at the same time are let
    /// through in an order that the seed decides.
    pub(crate) async fn gate(&self) {
        let id = {
            let mut state = self.state();
            state.gates_made += 1;
            let id = state.gates_made;
            state.gates.insert(id, Gate { open: false, waker: None });
            id
        };
        let _leaves = Leaves { world: self, id };
        poll_fn(|cx| {
            let mut state = self.state();
            match state.gates.get_mut(&id) {
                Some(gate) if !gate.open => {
                    gate.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}

struct Leaves<'w> {
    world: &'w World,
    id: u64,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.world.state().gates.remove(&self.id);
    }
}

impl State {
    /// A request has come: what befalls it.
    pub(crate) fn request(&mut self, label: String) -> Befalls {
        let number = self.requests.len() as u64;
        self.requests.push(label);
        match self.point {
            Point::BeforeEffect(at) if at == number => Befalls::CrashBefore,
            Point::OnItsWay(at) if at == number => Befalls::CrashOnItsWay,
            Point::AfterEffect(at) if at == number => Befalls::CrashAfter,
            Point::AnswerLost(at) if at == number => Befalls::AnswerLost,
            _ => Befalls::Nothing,
        }
    }

    /// A request goes on without its sender.
    pub(crate) fn send_late(&mut self, now: StoreTime, late: Late) {
        self.on_their_way.push((now.after(self.on_its_way), late));
    }
}

/// What befalls a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Befalls {
    Nothing,
    CrashBefore,
    CrashOnItsWay,
    CrashAfter,
    AnswerLost,
}
