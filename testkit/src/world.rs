//! The world of a test: what survives a crash, and the time that passes in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::{Future, pending, poll_fn},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use deedbook::{Builder, Clock, Deedbook, StoreTime, VirtualClock};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    downstream::{Downstream, Service},
    home::{Noted, Stop},
    place::Place,
    random::Random,
};

/// Where a run crashes, or what else befalls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl Point {
    /// For a child process.
    pub(crate) fn to_text(self) -> String {
        let (word, at) = match self {
            Self::Nowhere => ("nowhere", 0),
            Self::WriteLost(at) => ("write-lost", at),
            Self::WriteUnheard(at) => ("write-unheard", at),
            Self::BeforeEffect(at) => ("before-effect", at),
            Self::OnItsWay(at) => ("on-its-way", at),
            Self::AfterEffect(at) => ("after-effect", at),
            Self::AnswerLost(at) => ("answer-lost", at),
        };
        format!("{word} {at}")
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (word, at) = text.split_once(' ')?;
        let at = at.parse().ok()?;
        Some(match word {
            "nowhere" => Self::Nowhere,
            "write-lost" => Self::WriteLost(at),
            "write-unheard" => Self::WriteUnheard(at),
            "before-effect" => Self::BeforeEffect(at),
            "on-its-way" => Self::OnItsWay(at),
            "after-effect" => Self::AfterEffect(at),
            "answer-lost" => Self::AnswerLost(at),
            _ => return None,
        })
    }
}

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
    /// What a crash does at once, where it is not made by dropping everything.
    crashes: OnceLock<Crash>,
}

/// Never comes back.
struct Crash(Box<dyn Fn() -> Infallible + Send + Sync>);

impl std::fmt::Debug for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crash").finish_non_exhaustive()
    }
}

/// What outlives a process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// How long the world's clock has run.
    pub(crate) runs_for: Duration,
    pub(crate) services: BTreeMap<String, Service>,
    /// The requests that came, in the order in which they came.
    pub(crate) requests: Vec<String>,
    /// Requests whose sender is gone, and when they arrive.
    late: Vec<(u64, Late)>,
    /// The look-ups that came.
    pub(crate) lookups: Vec<Lookup>,
    /// What has been done once, whatever crashed.
    done: BTreeSet<String>,
}

/// A look-up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lookup {
    pub(crate) service: String,
    pub(crate) key: String,
    /// Whether a request under this key was still on its way.
    pub(crate) early: bool,
}

/// A request that is on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Late {
    pub(crate) service: String,
    pub(crate) key: String,
    pub(crate) answer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct State {
    point: Point,
    crashing: bool,
    random: Random,
    place: Place,
    pub(crate) kept: Kept,
    home: Option<Arc<Noted>>,
    /// What the writes of the last run held.
    writes: Vec<String>,
    /// How long things take.
    times: Times,
    /// Requests and answers that wait for their turn.
    gates: BTreeMap<u64, Gate>,
    gates_made: u64,
    /// Those who wait until nothing else can go on.
    idlers: Vec<oneshot::Sender<()>>,
    /// How many writes there had been when they were told last, if nothing else went on since.
    told: Option<usize>,
}

/// How long things take in a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// A request is on its way whose sender is gone.
    pub(crate) on_its_way: Duration,
    /// A process that crashed is away.
    pub(crate) away: Duration,
}

#[derive(Debug)]
struct Gate {
    open: bool,
    waker: Option<Waker>,
}

impl World {
    /// A world in this place, with what is kept there.
    pub(crate) fn new(seed: u64, point: Point, times: Times, place: Place) -> Self {
        let kept = place.kept();
        let clock = VirtualClock::new();
        clock.advance(kept.runs_for);
        let state = State {
            point,
            crashing: false,
            random: Random::new(seed),
            place,
            kept,
            home: None,
            writes: Vec::new(),
            times,
            gates: BTreeMap::new(),
            gates_made: 0,
            idlers: Vec::new(),
            told: None,
        };
        Self(Arc::new(Inner { state: Mutex::new(state), clock, crashes: OnceLock::new() }))
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
        if self.state().kept.done.contains(what) {
            return None;
        }
        let done = act.await;
        let mut state = self.state();
        state.kept.done.insert(what.to_owned());
        state.keep();
        Some(done)
    }

    /// When every world begins.
    pub(crate) fn born() -> StoreTime {
        VirtualClock::new().now()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when so much of the world's time has passed.
    pub(crate) async fn wait(&self, time: Duration) {
        let now = self.now();
        self.0.clock.sleep(now, now.after(time)).await;
    }

    /// Begins a run on what is durable. A crash at a write happens in the first one only.
    pub(crate) fn begin(&self) -> Result<Arc<Noted>, String> {
        let (again, away) = {
            let state = self.state();
            (state.place.has_begun(), state.times.away)
        };
        if again {
            self.elapse(|clock| clock.advance(away));
        }
        let mut state = self.state();
        let home = state.place.open(self.0.clock.source())?;
        let stop = match state.point {
            Point::WriteLost(at) => Some(Stop { at, kept: false }),
            Point::WriteUnheard(at) => Some(Stop { at, kept: true }),
            _ => None,
        };
        let stop = stop.filter(|_| !state.place.has_begun());
        let home = Arc::new(Noted::new(self.clone(), home, stop));
        state.home = Some(Arc::clone(&home));
        state.crashing = false;
        Ok(home)
    }

    /// Ends a run: what was durable is what the next one begins with.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        if let Some(home) = state.home.take() {
            state.writes = home.writes();
            drop(home);
            state.place.end();
        }
        state.gates.clear();
        state.idlers.clear();
        state.told = None;
    }

    /// Whether the run has come to the point where it crashes.
    pub(crate) fn is_crashing(&self) -> bool {
        let state = self.state();
        state.crashing || state.home.as_ref().is_some_and(|home| home.has_stopped())
    }

    /// Whether the journal is at work, on threads of its own.
    pub(crate) fn is_writing(&self) -> bool {
        self.state().home.as_ref().is_some_and(|home| home.is_at_work())
    }

    /// Crashes here: nothing comes back from this.
    pub(crate) async fn crash<T>(&self) -> T {
        self.state().crashing = true;
        if let Some(crash) = self.0.crashes.get() {
            (crash.0)();
        }
        pending().await
    }

    /// Has a crash do this, on the thread that comes to it.
    pub(crate) fn when_crashing(&self, crash: impl Fn() -> Infallible + Send + Sync + 'static) {
        // Said once, before anything runs.
        let _first = self.0.crashes.set(Crash(Box::new(crash)));
    }

    /// Nothing goes on by itself: lets one thing happen. Says whether there was one.
    pub(crate) fn step(&self) -> bool {
        let mut state = self.state();
        let shut: Vec<u64> =
            state.gates.iter().filter(|(_, gate)| !gate.open).map(|(id, _)| *id).collect();
        if !shut.is_empty() {
            state.told = None;
            let at = state.random.index(shut.len());
            if let Some(gate) = shut.get(at).and_then(|id| state.gates.get_mut(id)) {
                gate.open = true;
                gate.waker.take().into_iter().for_each(Waker::wake);
            }
            return true;
        }
        // Whoever was told and only waits again has to let time pass.
        let writes = state.home.as_ref().map(|home| home.writes().len());
        if writes.is_some() && state.told == writes {
            return false;
        }
        let idlers = std::mem::take(&mut state.idlers);
        let any = !idlers.is_empty();
        state.told = writes.filter(|_| any);
        drop(state);
        for idler in idlers {
            // Whoever gave up waiting does not want to know.
            let _gone = idler.send(());
        }
        any
    }

    /// Moves the clock to when something is next. Says whether there is anything.
    pub(crate) fn pass(&self) -> bool {
        let before = self.now();
        let arrives = self.state().kept.late.iter().map(|(at, _)| StoreTime(*at)).min();
        // The next arrival is waited for like everything else, so that whoever sleeps until an
        // earlier time comes first.
        let mut waits = arrives.map(|at| self.0.clock.sleep(before, at));
        if let Some(waits) = &mut waits {
            let mut cx = Context::from_waker(Waker::noop());
            let _asleep = waits.as_mut().poll(&mut cx);
        }
        let moved = self.elapse(VirtualClock::advance_to_next);
        moved || arrives.is_some_and(|at| at <= before)
    }

    /// Lets the clock go on, and what was on its way arrive.
    fn elapse<T>(&self, go_on: impl FnOnce(&VirtualClock) -> T) -> T {
        let before = self.now();
        let moved = go_on(&self.0.clock);
        let now = self.now();
        let mut state = self.state();
        state.kept.runs_for += now.since(before);
        let all = std::mem::take(&mut state.kept.late);
        let (mut due, later): (Vec<_>, _) = all.into_iter().partition(|(at, _)| *at <= now.0);
        state.kept.late = later;
        state.told = None;
        due.sort_by_key(|(at, _)| *at);
        for (at, late) in due {
            state.receive(late, StoreTime(at));
        }
        state.keep();
        moved
    }

    /// Whether requests are on their way whose sender is gone.
    pub(crate) fn expects(&self) -> bool {
        !self.state().kept.late.is_empty()
    }

    /// What the writes of the last run held, in their order.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.state().writes.clone()
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
    /// Where everything durable is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Keeps what outlives the process.
    pub(crate) fn keep(&self) {
        self.place.keep(&self.kept);
    }

    /// A request has come: what befalls it.
    pub(crate) fn request(&mut self, label: String) -> Befalls {
        let number = self.kept.requests.len() as u64;
        self.kept.requests.push(label);
        self.keep();
        match self.point {
            Point::BeforeEffect(at) if at == number => Befalls::CrashBefore,
            Point::OnItsWay(at) if at == number => Befalls::CrashOnItsWay,
            Point::AfterEffect(at) if at == number => Befalls::CrashAfter,
            Point::AnswerLost(at) if at == number => Befalls::AnswerLost,
            _ => Befalls::Nothing,
        }
    }

    /// A look-up has come.
    pub(crate) fn lookup(&mut self, service: &str, key: &str) {
        let on_its_way = |late: &Late| late.service == service && late.key == key;
        let early = self.kept.late.iter().any(|(_, late)| on_its_way(late));
        self.kept.lookups.push(Lookup { service: service.to_owned(), key: key.to_owned(), early });
        self.keep();
    }

    /// A request arrives.
    pub(crate) fn receive(&mut self, late: Late, now: StoreTime) {
        let Late { service, key, answer } = late;
        self.kept.services.entry(service).or_default().receive(key, answer, now);
        self.keep();
    }

    /// A request goes on without its sender.
    pub(crate) fn send_late(&mut self, now: StoreTime, late: Late) {
        self.kept.late.push((now.after(self.times.on_its_way).0, late));
        self.keep();
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
