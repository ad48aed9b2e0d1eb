//! The world outside: what bodies do to it, and when it answers.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context as Cx, Poll, Waker},
    time::Duration,
};

use deedbook::{Operation, StepError, StoreTime, VirtualClock};

use crate::{durable::Durable, random::Random};

/// A request that left before a crash arrives at most this much later: well within the quiet
/// that a probe waits for.
const ON_ITS_WAY_MAX: Duration = Duration::from_secs(50);

/// The world. Cheap to clone; outlives every crash.
#[derive(Debug, Clone)]
pub struct World(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    random: Random,
    clock: VirtualClock,
    durable: Arc<Mutex<Durable>>,
    /// Requests sent, by operation key: arguments and attempt.
    sent: BTreeMap<String, Vec<(String, u32)>>,
    /// Requests that arrived and had their effect, by operation key.
    landed: BTreeMap<String, u32>,
    /// Requests whose sender is gone, and when they arrive.
    on_their_way: Vec<(StoreTime, String)>,
    gates: BTreeMap<u64, Waker>,
    gates_made: u64,
    opened: Vec<u64>,
    /// What the workflow noted since its last start.
    trace: Vec<String>,
    /// Nothing may be executed: everything is recorded.
    replaying: bool,
    executions: u64,
    wrongs: Vec<String>,
}

/// How an effect goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It happens, and the answer arrives.
    Happens,
    /// It happens, and its answer is an error that does not say so.
    HappensUnlabelled,
    /// It does not happen, and the error does not say so.
    FailsUnlabelled,
    /// It does not happen, and the error says so.
    NotApplied,
    /// It does not happen, and never will.
    Terminal,
    /// It happens, and the body panics.
    Panics,
    /// It happens, and the answer never arrives.
    Hangs,
}

impl World {
    pub(crate) fn new(seed: u64, clock: VirtualClock, durable: Arc<Mutex<Durable>>) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random::new(seed),
            clock,
            durable,
            sent: BTreeMap::new(),
            landed: BTreeMap::new(),
            on_their_way: Vec::new(),
            gates: BTreeMap::new(),
            gates_made: 0,
            opened: Vec::new(),
            trace: Vec::new(),
            replaying: false,
            executions: 0,
            wrongs: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// An effect under this operation: sent, on its way, had, answered. The answer follows from
    /// key and arguments alone, as that of a downstream that honours keys does.
    ///
    /// # Errors
    /// As `fate` says.
    ///
    /// # Panics
    /// If `fate` says so.
    pub async fn effect(
        &self,
        operation: &Operation,
        args: impl Debug,
        fate: Fate,
    ) -> Result<u64, StepError> {
        let args = format!("{args:?}");
        let key = operation.key().to_owned();
        self.state().send(&key, &args, operation.attempt());
        let happens = !matches!(fate, Fate::FailsUnlabelled | Fate::NotApplied | Fate::Terminal);
        {
            let mut request = Request { world: self, key: &key, open: happens };
            self.gate().await;
            request.open = false;
        }
        if happens {
            self.state().land(&key);
            let answered_at_once = self.state().random.once_in(2);
            if !answered_at_once {
                self.gate().await;
            }
        }
        match fate {
            Fate::Happens => Ok(answer(&key, &args)),
            Fate::HappensUnlabelled => Err(StepError::new("connection reset by peer")),
            Fate::FailsUnlabelled => Err(StepError::new("connection reset on the way out")),
            Fate::NotApplied => Err(StepError::new("too many requests").not_applied()),
            Fate::Terminal => Err(StepError::new("account closed").terminal().code("closed")),
            // Without the hook, which would print each of thousands.
            Fate::Panics => std::panic::resume_unwind(Box::new("a bug in the body")),
            Fate::Hangs => std::future::pending().await,
        }
    }

    /// A look at the world by the step with this id, as shown: another answer below `most` each
    /// time.
    pub async fn read(&self, step: &str, most: u64) -> u64 {
        self.state().look(step);
        self.gate().await;
        self.state().random.below(most)
    }

    /// What a probe by key finds: whether the effect happened, and its answer under `args`.
    #[must_use]
    pub fn find(&self, key: &str, args: impl Debug) -> Option<u64> {
        let happened = self.state().landed.contains_key(key);
        happened.then(|| answer(key, &format!("{args:?}")))
    }

    /// How often the effect under this key happened.
    #[must_use]
    pub fn landed(&self, key: &str) -> u32 {
        self.state().landed.get(key).copied().unwrap_or(0)
    }

    /// The answer that the effect under this key gave or would have given to the first request.
    #[must_use]
    pub fn answer(&self, key: &str) -> Option<u64> {
        let state = self.state();
        let (args, _) = state.sent.get(key)?.first()?;
        Some(answer(key, args))
    }

    /// Requests sent, by operation key: how often.
    #[must_use]
    pub fn sent(&self) -> BTreeMap<String, usize> {
        let sent = &self.state().sent;
        sent.iter().map(|(k, v)| (k.clone(), v.len())).collect()
    }

    /// How many bodies began, reads included.
    #[must_use]
    pub fn executions(&self) -> u64 {
        self.state().executions
    }

    /// A decision of the seed.
    #[must_use]
    pub fn below(&self, most: u64) -> u64 {
        self.state().random.below(most)
    }

    /// The workflow's code starts from its beginning: what it noted before is forgotten.
    pub fn started(&self) {
        self.state().trace.clear();
    }

    /// Notes what the workflow's code saw.
    pub fn note(&self, line: impl Into<String>) {
        self.state().trace.push(line.into());
    }

    /// What the workflow's code saw since it was last started.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.state().trace.clone()
    }

    /// Says that something happened that must not.
    pub fn wrong(&self, what: impl Into<String>) {
        self.state().wrongs.push(what.into());
    }

    /// What happened that must not.
    #[must_use]
    pub fn wrongs(&self) -> Vec<String> {
        self.state().wrongs.clone()
    }

    /// A gate that opens when the seed wants.
    #[must_use]
    pub fn gate(&self) -> Gate {
        let mut state = self.state();
        state.gates_made += 1;
        Gate { world: self.clone(), number: state.gates_made }
    }

    /// Opens some of the gates that are waited at, and says whether there were any.
    pub(crate) fn open_some(&self, random: &mut Random) -> bool {
        let mut wakers = Vec::new();
        {
            let mut state = self.state();
            let mut waiting: Vec<_> = state.gates.keys().copied().collect();
            let count = 1 + random.index(waiting.len());
            for _ in 0..count.min(waiting.len()) {
                let number = waiting.swap_remove(random.index(waiting.len()));
                wakers.extend(state.gates.remove(&number));
                state.opened.push(number);
            }
        }
        let some = !wakers.is_empty();
        wakers.into_iter().for_each(Waker::wake);
        some
    }

    /// An incarnation begins.
    pub(crate) fn begin(&self, replaying: bool) {
        let mut state = self.state();
        state.gates.clear();
        state.opened.clear();
        state.replaying = replaying;
    }

    /// Lets the requests under this key arrive, however long they have been on their way.
    pub(crate) fn arrive_at_last(&self, key: &str) {
        let mut state = self.state();
        for (at, on_its_way) in &mut state.on_their_way {
            if on_its_way == key {
                *at = StoreTime(0);
            }
        }
        drop(state);
        self.arrive();
    }

    /// Lets requests arrive whose time has come.
    pub(crate) fn arrive(&self) {
        let mut state = self.state();
        let now = state.clock.now();
        let (arrived, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.on_their_way).into_iter().partition(|(at, _)| *at <= now);
        state.on_their_way = waiting;
        for (_, key) in arrived {
            state.land(&key);
        }
    }
}

impl State {
    fn send(&mut self, key: &str, args: &str, attempt: u32) {
        self.executions += 1;
        let durable = self.durable.lock().unwrap();
        if self.replaying {
            self.wrongs.push(format!("{key} was sent by a replay"));
        }
        if durable.is_settled(key) {
            let why = format!("{key} ({args}) was sent again after its outcome was durable");
            self.wrongs.push(why);
        }
        if !durable.has_intent(key, attempt) {
            let why = format!("{key} ({args}) was sent before its intent was durable");
            self.wrongs.push(why);
        }
        drop(durable);
        let sent = self.sent.entry(key.to_owned()).or_default();
        if let Some((first, _)) = sent.first().filter(|(first, _)| first != args) {
            let why = format!("{key} was sent with {first} and then with {args}");
            self.wrongs.push(why);
        }
        sent.push((args.to_owned(), attempt));
    }

    fn look(&mut self, step: &str) {
        self.executions += 1;
        if self.replaying {
            self.wrongs.push(format!("{step} was read by a replay"));
        }
        if self.durable.lock().unwrap().is_settled(step) {
            let why = format!("{step} was read again after its outcome was durable");
            self.wrongs.push(why);
        }
    }

    fn land(&mut self, key: &str) {
        *self.landed.entry(key.to_owned()).or_insert(0) += 1;
    }
}

/// A request on its way. If its sender goes away before it arrives, it is lost or arrives later.
struct Request<'a> {
    world: &'a World,
    key: &'a str,
    open: bool,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if self.open {
            let mut state = self.world.state();
            if state.random.once_in(2) {
                let most = u64::try_from(ON_ITS_WAY_MAX.as_nanos()).unwrap_or(u64::MAX);
                let later = Duration::from_nanos(state.random.below(most));
                let at = state.clock.now().after(later);
                state.on_their_way.push((at, self.key.to_owned()));
            }
        }
    }
}

/// Waits until the seed lets it through.
#[derive(Debug)]
pub struct Gate {
    world: World,
    number: u64,
}

impl Future for Gate {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        let mut state = self.world.state();
        if let Some(at) = state.opened.iter().position(|n| *n == self.number) {
            state.opened.swap_remove(at);
            return Poll::Ready(());
        }
        state.gates.insert(self.number, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let waker = self.world.state().gates.remove(&self.number);
        drop(waker);
    }
}

fn answer(key: &str, args: &str) -> u64 {
    // FNV-1a: any function of both will do.
    let bytes = key.bytes().chain(args.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash >> 20
}
