//! The world outside: what bodies do to it, and when it answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context as Cx, Poll, Waker},
    time::Duration,
};

use deedbook::{Operation, StepError, StoreTime, VirtualClock};

use crate::{check::Check, durable::Durable, random::Random};

/// A request that left before a crash arrives at most this much later: after the hold of a dead
/// process is over, and within the quiet that a probe waits for.
const ON_ITS_WAY_MAX: Duration = Duration::from_secs(85);

/// The world, as somebody sees it. Cheap to clone; outlives every crash.
#[derive(Debug, Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    /// For whom it acts: a thread, where there are several.
    who: Arc<str>,
    /// In which process.
    process: u64,
}

#[derive(Debug)]
struct State {
    random: Random,
    clock: VirtualClock,
    /// What is durable of each thread; of the only one, under no name.
    durable: BTreeMap<String, Arc<Mutex<Durable>>>,
    /// Whose each operation key is.
    owners: BTreeMap<String, Arc<str>>,
    /// Keys and attempts of what has failed for good.
    closed: BTreeSet<(String, u32)>,
    seed: u64,
    /// What was counted, in all incarnations.
    counts: BTreeMap<String, u64>,
    /// Requests sent, by operation key: arguments and attempt.
    sent: BTreeMap<String, Vec<(String, u32)>>,
    /// Requests that arrived and had their effect, by operation key.
    landed: BTreeMap<String, u32>,
    /// Requests whose sender is gone, and when they arrive.
    on_their_way: Vec<(StoreTime, String)>,
    gates: BTreeMap<u64, Waiting>,
    gates_made: u64,
    opened: Vec<u64>,
    /// What each workflow noted since its last start.
    traces: BTreeMap<(Arc<str>, u64), Vec<String>>,
    /// What was checked, and how often.
    checks: BTreeMap<Check, u64>,
    /// Nothing may be executed: everything is recorded.
    replaying: bool,
    executions: u64,
    wrongs: Vec<String>,
}

/// Somebody who waits at a gate.
#[derive(Debug)]
struct Waiting {
    waker: Waker,
    process: u64,
    /// The operation key of a request that arrives when the gate opens.
    arrives: Option<String>,
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
    pub(crate) fn new(seed: u64, clock: VirtualClock) -> Self {
        let state = State {
            random: Random::new(seed),
            clock,
            durable: BTreeMap::new(),
            owners: BTreeMap::new(),
            closed: BTreeSet::new(),
            seed,
            counts: BTreeMap::new(),
            sent: BTreeMap::new(),
            landed: BTreeMap::new(),
            on_their_way: Vec::new(),
            gates: BTreeMap::new(),
            gates_made: 0,
            opened: Vec::new(),
            traces: BTreeMap::new(),
            checks: BTreeMap::new(),
            replaying: false,
            executions: 0,
            wrongs: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), who: "".into(), process: 0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is durable of the thread of this name is kept here.
    pub(crate) fn records(&self, who: &str, durable: Arc<Mutex<Durable>>) {
        self.state().durable.insert(format!("{}{who}", self.who), durable);
    }

    /// The world as a thread sees it: behind whoever sees it already.
    #[must_use]
    pub fn of(&self, who: &str) -> Self {
        Self { who: format!("{}{who}", self.who).into(), ..self.clone() }
    }

    /// The world as a process sees it.
    #[must_use]
    pub fn in_process(&self, process: u64) -> Self {
        Self { process, ..self.clone() }
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
        self.state().send(&self.who, &key, &args, operation.attempt());
        let happens = !matches!(fate, Fate::FailsUnlabelled | Fate::NotApplied | Fate::Terminal);
        let mut gate = self.gate();
        // It arrives when the gate opens, whether or not its sender goes on.
        gate.arrives = happens.then(|| (key.clone(), operation.attempt()));
        gate.await;
        if fate == Fate::Terminal {
            self.state().closed.insert((key.clone(), operation.attempt()));
        }
        if happens {
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

    /// The step with this id, as shown, or the read of this name looks at the world.
    pub fn looked(&self, step: &str) {
        self.state().look(&self.who, step);
    }

    /// A look at the world by the step with this id, as shown: another answer below `most` each
    /// time.
    pub async fn read(&self, step: &str, most: u64) -> u64 {
        self.looked(step);
        self.gate().await;
        self.state().random.below(most)
    }

    /// Whether this attempt under this key was told that it failed for good.
    #[must_use]
    pub fn is_closed(&self, key: &str, attempt: u32) -> bool {
        self.state().closed.contains(&(key.to_owned(), attempt))
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

    /// The attempts whose requests were sent under this key, in that order.
    #[must_use]
    pub fn attempts(&self, key: &str) -> Vec<u32> {
        let state = self.state();
        state.sent.get(key).map(|sent| sent.iter().map(|(_, n)| *n).collect()).unwrap_or_default()
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

    /// How often this was counted, this time included, in all incarnations.
    #[must_use]
    pub fn count(&self, what: &str) -> u64 {
        let mut state = self.state();
        let count = state.counts.entry(format!("{} {what}", self.who)).or_insert(0);
        *count += 1;
        *count
    }

    /// The workflow's code starts from its beginning: what it noted before is forgotten.
    pub fn started(&self) {
        self.state().traces.remove(&(self.who.clone(), self.process));
    }

    /// Notes what the workflow's code saw.
    pub fn note(&self, line: impl Into<String>) {
        let at = (self.who.clone(), self.process);
        self.state().traces.entry(at).or_default().push(line.into());
    }

    /// What the workflow's code saw since it was last started.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        let at = (self.who.clone(), self.process);
        self.state().traces.get(&at).cloned().unwrap_or_default()
    }

    /// Checks that something holds, and counts it.
    pub fn check(&self, what: Check, holds: bool, why: impl FnOnce() -> String) {
        let who = self.who.clone();
        self.state().check(what, holds, || format!("{who}: {}", why()));
    }

    /// What was checked, and how often.
    #[must_use]
    pub fn checks(&self) -> BTreeMap<Check, u64> {
        self.state().checks.clone()
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
        Gate { world: self.clone(), number: state.gates_made, arrives: None }
    }

    /// Opens some of the gates that are waited at, and says whether there were any.
    pub(crate) fn open_some(&self, random: &mut Random) -> bool {
        self.open_some_of(random, |_| true)
    }

    /// As [`Self::open_some`], in the processes that `may` go on; requests arrive in any case.
    pub(crate) fn open_some_of(&self, random: &mut Random, may: impl Fn(u64) -> bool) -> bool {
        let mut wakers = Vec::new();
        {
            let mut state = self.state();
            let open = |(number, at): (&u64, &Waiting)| {
                (at.arrives.is_some() || may(at.process)).then_some(*number)
            };
            let mut waiting: Vec<_> = state.gates.iter().filter_map(open).collect();
            let count = 1 + random.index(waiting.len());
            for _ in 0..count.min(waiting.len()) {
                let number = waiting.swap_remove(random.index(waiting.len()));
                wakers.extend(state.open(number));
            }
        }
        let some = !wakers.is_empty();
        wakers.into_iter().for_each(Waker::wake);
        some
    }

    /// Whether a request has left and neither arrived nor been lost.
    #[must_use]
    pub fn under_way(&self) -> bool {
        self.state().gates.values().any(|at| at.arrives.is_some())
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
        let mut wakers = Vec::new();
        {
            let mut state = self.state();
            for (at, on_its_way) in &mut state.on_their_way {
                if on_its_way == key {
                    *at = StoreTime(0);
                }
            }
            let arrives = |(number, at): (&u64, &Waiting)| {
                at.arrives.as_deref().is_some_and(|arrives| arrives == key).then_some(*number)
            };
            let here: Vec<_> = state.gates.iter().filter_map(arrives).collect();
            wakers.extend(here.into_iter().filter_map(|number| state.open(number)));
        }
        wakers.into_iter().for_each(Waker::wake);
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
    fn check(&mut self, what: Check, holds: bool, why: impl FnOnce() -> String) {
        *self.checks.entry(what).or_insert(0) += 1;
        if !holds {
            self.wrongs.push(format!("{}: {}", what.name(), why()));
        }
    }

    fn durable(&self, who: &str) -> Option<Arc<Mutex<Durable>>> {
        self.durable.get(who).or_else(|| self.durable.get("")).cloned()
    }

    fn send(&mut self, who: &Arc<str>, key: &str, args: &str, attempt: u32) {
        self.executions += 1;
        let durable = self.durable(who);
        let durable = durable.as_ref().map(|durable| durable.lock().unwrap());
        let settled = durable.as_ref().is_some_and(|durable| durable.is_settled(key));
        let intended = durable.as_ref().is_some_and(|durable| durable.has_intent(key, attempt));
        drop(durable);
        let sent = |why: &str| format!("{who}: {key} ({args}) was sent {why}");
        let replaying = self.replaying;
        self.check(Check::Replay, !replaying, || sent("by a replay"));
        self.check(Check::Settled, !settled, || sent("again after its outcome was durable"));
        self.check(Check::Intent, intended, || sent("before its intent was durable"));
        let owner = self.owners.entry(key.to_owned()).or_insert_with(|| who.clone()).clone();
        self.check(Check::Keys, owner == *who, || sent(&format!("and is of {owner}")));
        let first = self.sent.get(key).and_then(|sent| sent.first()).map(|(args, _)| args.clone());
        let same = first.as_ref().is_none_or(|first| first == args);
        self.check(Check::Keys, same, || sent(&format!("and before with {first:?}")));
        self.sent.entry(key.to_owned()).or_default().push((args.to_owned(), attempt));
    }

    fn look(&mut self, who: &str, step: &str) {
        self.executions += 1;
        let replaying = self.replaying;
        self.check(Check::Replay, !replaying, || format!("{who}: {step} was read by a replay"));
        let durable = self.durable(who);
        let settled = durable.is_some_and(|durable| durable.lock().unwrap().is_settled(step));
        let why = || format!("{who}: {step} was read again after its outcome was durable");
        self.check(Check::Settled, !settled, why);
    }

    fn land(&mut self, key: &str) {
        *self.landed.entry(key.to_owned()).or_insert(0) += 1;
    }

    /// Opens a gate, and says whom to wake.
    fn open(&mut self, number: u64) -> Option<Waker> {
        let at = self.gates.remove(&number)?;
        if let Some(key) = at.arrives {
            self.land(&key);
        }
        self.opened.push(number);
        Some(at.waker)
    }

    /// The sender of a request is gone before it arrived: it is lost, or arrives later.
    fn left(&mut self, key: &str, attempt: u32) {
        // In whichever order senders go, the same becomes of each.
        let mut random = Random::new(answer(key, &attempt.to_string()) ^ self.seed);
        if random.once_in(2) {
            let most = u64::try_from(ON_ITS_WAY_MAX.as_nanos()).unwrap_or(u64::MAX);
            let later = Duration::from_nanos(random.below(most));
            let at = self.clock.now().after(later);
            self.on_their_way.push((at, key.to_owned()));
        }
    }
}

/// Waits until the seed lets it through.
#[derive(Debug)]
pub struct Gate {
    world: World,
    number: u64,
    /// The operation key and the attempt of the request that arrives when it opens.
    arrives: Option<(String, u32)>,
}

impl Future for Gate {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        let mut state = self.world.state();
        if let Some(at) = state.opened.iter().position(|n| *n == self.number) {
            state.opened.swap_remove(at);
            return Poll::Ready(());
        }
        let arrives = self.arrives.as_ref().map(|(key, _)| key.clone());
        let (waker, process) = (cx.waker().clone(), self.world.process);
        state.gates.insert(self.number, Waiting { waker, process, arrives });
        Poll::Pending
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut state = self.world.state();
        let closed = state.gates.remove(&self.number);
        if let (Some(_), Some((key, attempt))) = (&closed, &self.arrives) {
            state.left(key, *attempt);
        }
        // What a waker holds may come here.
        drop(state);
        drop(closed);
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
