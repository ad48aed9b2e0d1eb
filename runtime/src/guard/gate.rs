//! The gate: where the guarded calls of one process meet.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Poll,
    time::Duration,
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    failure::Failure,
    guard::{
        self, After, Answered, Claimed, Forgotten, GuardError, InDoubt, Settled, Ticket, Wanted,
    },
    history::Doubt,
    id::{StoreTime, ThreadId},
    policy::Policy,
    turn::Waits,
};
use tokio::sync::Notify;

use super::{CallError, Duplicates, switch::Switch};
use crate::{
    clock::Clock,
    notice::{Notice, Notices},
    options::Options,
    random::Random,
    worker::{self, either},
};

/// How many steps are listed at once.
const LISTED_MAX: usize = 1000;

/// Where the guarded calls of one process meet: who waits for whom, and what is known already.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) store: Arc<dyn Checkpointer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Arc<Options>,
    pub(crate) switch: Switch,
    random: Mutex<Random>,
    /// Whom to wake when a step's attempt is over. Only those that somebody waits for.
    waited: Mutex<HashMap<ThreadId, Weak<Notify>>>,
    known: Mutex<Known>,
    notices: Notices,
    /// The doubts that were told of.
    told: Mutex<HashSet<(ThreadId, Doubt)>>,
    /// In which module a step's name is declared, where that is told.
    declared: Mutex<HashMap<String, &'static str>>,
}

/// Outcomes that need not be read again; never anything that is under way.
#[derive(Debug, Default)]
struct Known {
    outcomes: HashMap<ThreadId, (Wanted, Settled)>,
    order: VecDeque<ThreadId>,
}

/// What a caller may do.
pub(crate) enum Entry {
    /// Run the body.
    Run(Box<Ticket>),
    /// Ask the downstream.
    Ask(Box<Ticket>),
    /// It has its outcome.
    Settled(Settled),
}

impl Gate {
    pub(crate) fn new(
        store: Arc<dyn Checkpointer>,
        clock: Arc<dyn Clock>,
        options: Arc<Options>,
        notices: Notices,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            options,
            switch: Switch::default(),
            random: Mutex::new(Random::new()),
            waited: Mutex::default(),
            known: Mutex::default(),
            notices,
            told: Mutex::default(),
            declared: Mutex::default(),
        })
    }

    /// Claims a step, and deals with whoever else is at it as the caller wants.
    pub(crate) async fn enter(
        &self,
        wanted: &Wanted,
        duplicates: Duplicates,
    ) -> Result<Entry, CallError> {
        let thread = wanted.thread(self.store.identity())?;
        if let Some(settled) = self.known(&thread, wanted).await? {
            return Ok(Entry::Settled(settled));
        }
        let started = self.store.now().await?;
        loop {
            // Listening before looking: an end in between is not missed.
            let waiting = self.waiting(&thread);
            let ended = waiting.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            let claimed = self.claim(wanted).await?;
            let (wait, refusal) = match (claimed, duplicates) {
                (Claimed::Fresh(ticket), _) => return Ok(Entry::Run(ticket)),
                (Claimed::Ask(ticket), _) => return Ok(Entry::Ask(ticket)),
                (Claimed::Settled(settled), _) => {
                    self.learn(&thread, wanted, &settled);
                    return Ok(Entry::Settled(settled));
                }
                (Claimed::Conflict(conflict), _) => return Err(conflict.into()),
                (Claimed::InFlight(flight), Duplicates::TakeOver) => {
                    guard::take_over(&*self.store, &flight).await?;
                    continue;
                }
                (Claimed::InFlight(flight), _) => {
                    // Others wake us; whoever is in another process does not.
                    (Some(self.options.look_every), flight.into())
                }
                (Claimed::InDoubt(doubt), _) => {
                    self.tell(&doubt).await;
                    (doubt.retry_after, doubt.into())
                }
            };
            let (Duplicates::Wait(patience), Some(wait)) = (duplicates, wait) else {
                return Err(refusal);
            };
            let now = self.store.now().await?;
            let over = started.after(patience);
            if now >= over {
                return Err(refusal);
            }
            let sleep = self.clock.sleep(now, now.after(wait).min(over));
            either(ended, sleep).await;
        }
    }

    /// Resolves when something may have changed about a step that nobody may carry on now.
    pub(crate) async fn change(&self, thread: &ThreadId) -> Result<(), CallError> {
        let waiting = self.waiting(thread);
        let now = self.store.now().await?;
        let sleep = self.clock.sleep(now, now.after(self.options.look_every));
        either(waiting.notified(), sleep).await;
        Ok(())
    }

    async fn claim(&self, wanted: &Wanted) -> Result<Claimed, CallError> {
        let seed = self.seed();
        let options = &self.options;
        Ok(guard::claim(&*self.store, wanted, &options.holder, options.lease, seed).await?)
    }

    /// 32 fresh random bytes.
    pub(crate) fn seed(&self) -> [u8; 32] {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).salt()
    }

    pub(crate) async fn complete(
        &self,
        ticket: Ticket,
        wanted: &Wanted,
        result: Result<Vec<u8>, Failure>,
    ) -> Result<Settled, GuardError> {
        let thread = ticket.thread().clone();
        let settled = match result {
            Ok(bytes) => ticket.complete(&*self.store, bytes).await,
            Err(why) => ticket.complete_without(&*self.store, &why).await,
        };
        if let Ok(settled) = &settled {
            self.learn(&thread, wanted, settled);
        }
        self.ended(&thread);
        settled
    }

    pub(crate) async fn fail(
        &self,
        ticket: Ticket,
        failure: &Failure,
        finally: bool,
    ) -> Result<After, GuardError> {
        let thread = ticket.thread().clone();
        let after = ticket.fail(&*self.store, failure, finally).await;
        self.ended(&thread);
        after
    }

    pub(crate) async fn unknown(
        &self,
        ticket: Ticket,
        why: Doubt,
        failure: &Failure,
    ) -> Result<After, GuardError> {
        let thread = ticket.thread().clone();
        let after = ticket.unknown(&*self.store, why, failure).await;
        self.ended(&thread);
        if let Ok(After::InDoubt(doubt)) = &after {
            self.tell(doubt).await;
        }
        after
    }

    /// What the downstream says; the ticket for the next attempt if it did not happen.
    pub(crate) async fn answer(
        &self,
        ticket: Ticket,
        answer: Answered,
    ) -> Result<Entry, CallError> {
        let thread = ticket.thread().clone();
        let claimed = ticket.answer(&*self.store, answer).await;
        let entry = match claimed? {
            Claimed::Fresh(ticket) => return Ok(Entry::Run(ticket)),
            Claimed::Ask(ticket) => return Ok(Entry::Ask(ticket)),
            Claimed::Settled(settled) => Ok(Entry::Settled(settled)),
            Claimed::InDoubt(doubt) => Err(doubt.into()),
            Claimed::InFlight(flight) => Err(flight.into()),
            Claimed::Conflict(conflict) => Err(conflict.into()),
        };
        self.ended(&thread);
        entry
    }

    /// Lets a settled step happen anew.
    pub(crate) async fn reset(
        &self,
        thread: &ThreadId,
        by: &str,
        reason: &str,
    ) -> Result<(), GuardError> {
        let reset = guard::reset(&*self.store, thread, by, reason, self.seed()).await;
        self.unlearn(thread);
        reset.map(drop)
    }

    /// Erases what steps were given and brought that were settled before that time.
    pub(crate) async fn forget(
        &self,
        before: StoreTime,
        by: &str,
        reason: &str,
    ) -> Result<Forgotten, GuardError> {
        let filter = guard::listed(None);
        let (mut sum, mut after) = (Forgotten::default(), None);
        loop {
            let page = self.store.list(&filter, after.as_ref(), LISTED_MAX).await?;
            let old = page.items.iter().filter(|info| guard::may_be_forgotten(info, before));
            for info in old {
                let seed = self.seed();
                match guard::forget(&*self.store, &info.id, before, by, reason, seed).await {
                    Ok(forgotten) => sum += forgotten,
                    // Somebody has come for it meanwhile.
                    Err(GuardError::Refused { .. }) => {}
                    Err(error) => return Err(error),
                }
                self.unlearn(&info.id);
            }
            after = page.next;
            if after.is_none() {
                return Ok(sum);
            }
        }
    }

    /// Tells those who watch of a doubt that only a person can settle, once.
    async fn tell(&self, doubt: &InDoubt) {
        let Ok(since) = self.store.now().await else { return };
        let told = (doubt.thread.clone(), doubt.doubt);
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if doubt.retry_after.is_none() && all.insert(told) {
            let waits = Waits::Doubt { step: doubt.step.as_str().into(), doubt: doubt.doubt };
            let notice = Notice { thread: doubt.thread.clone(), waits, since };
            // Nobody needs to watch.
            let _ = self.notices.send(Some(notice));
        }
    }

    /// A person has said something about a step: a doubt that comes after that is another one.
    pub(crate) fn settled_by_person(&self, thread: &ThreadId) {
        self.unlearn(thread);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|(of, _)| of != thread);
        drop(told);
        self.ended(thread);
    }

    /// An attempt is over, or something was said about the step: whoever waits looks again.
    pub(crate) fn ended(&self, thread: &ThreadId) {
        let waiting = self.waited().remove(thread);
        if let Some(waiting) = waiting.and_then(|weak| weak.upgrade()) {
            waiting.notify_waiters();
        }
    }

    fn waiting(&self, thread: &ThreadId) -> Arc<Notify> {
        let mut waited = self.waited();
        if let Some(waiting) = waited.get(thread).and_then(Weak::upgrade) {
            return waiting;
        }
        waited.retain(|_, waiting| waiting.strong_count() > 0);
        let waiting = Arc::new(Notify::new());
        waited.insert(thread.clone(), Arc::downgrade(&waiting));
        waiting
    }

    fn waited(&self) -> MutexGuard<'_, HashMap<ThreadId, Weak<Notify>>> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an outcome, if outcomes are to be remembered.
    fn learn(&self, thread: &ThreadId, wanted: &Wanted, settled: &Settled) {
        let max = self.options.outcomes_kept;
        if max == 0 {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let told = (wanted.clone(), settled.clone());
        if known.outcomes.insert(thread.clone(), told).is_none() {
            known.order.push_back(thread.clone());
        }
        while known.order.len() > max {
            let oldest = known.order.pop_front();
            oldest.and_then(|oldest| known.outcomes.remove(&oldest));
        }
    }

    /// What is known of a step holds no longer: it may happen anew, or was erased.
    pub(crate) fn unlearn(&self, thread: &ThreadId) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.outcomes.remove(thread).is_some() {
            known.order.retain(|kept| kept != thread);
        }
    }

    /// The outcome of a step, if it is known, valid, and was asked for in the same way.
    async fn known(
        &self,
        thread: &ThreadId,
        wanted: &Wanted,
    ) -> Result<Option<Settled>, CallError> {
        if self.options.outcomes_kept == 0 {
            return Ok(None);
        }
        let now = self.store.now().await?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let told = known.outcomes.get(thread);
        let told = told.filter(|(before, settled)| wanted.takes(before, settled, now));
        Ok(told.map(|(_, settled)| settled.clone()))
    }

    /// A name belongs to one module, where modules are told.
    pub(crate) fn declare(&self, name: &str, module: &'static str) -> Result<(), CallError> {
        let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *declared.entry(name.to_owned()).or_insert(module);
        if first == module {
            return Ok(());
        }
        Err(CallError::invalid(format!(
            "step {name:?} is declared in {first} and in {module}: their calls would be taken for \
             each other; give each a name of its own"
        )))
    }
}

/// An attempt that is under way in this process. Dropped, nobody knows what became of it, and
/// that is recorded.
pub(crate) struct Attempt {
    gate: Arc<Gate>,
    ticket: Option<Box<Ticket>>,
    /// The downstream is asked; nothing is sent.
    asks: bool,
}

/// How a body ended.
pub(crate) enum Ended<T> {
    /// It returned.
    Returned(T),
    /// It panicked, and said this.
    Panicked(String),
    /// Its time is over.
    TimedOut,
}

impl Attempt {
    pub(crate) fn new(gate: &Arc<Gate>, ticket: Box<Ticket>) -> Self {
        Self { gate: gate.clone(), ticket: Some(ticket), asks: false }
    }

    /// A question about the last attempt.
    pub(crate) fn asking(gate: &Arc<Gate>, ticket: Box<Ticket>) -> Self {
        Self { gate: gate.clone(), ticket: Some(ticket), asks: true }
    }

    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_deref()
    }

    /// The ticket; the attempt is over.
    pub(crate) fn over(mut self) -> Option<Ticket> {
        self.ticket.take().map(|ticket| *ticket)
    }

    /// Polls a body to its end, for as long as it may take, and holds the step meanwhile.
    pub(crate) async fn drive<F: Future>(
        &mut self,
        body: F,
    ) -> Result<Ended<F::Output>, CallError> {
        let gate = self.gate.clone();
        let timeout = self.ticket.as_ref().map_or(Duration::MAX, |ticket| ticket.timeout());
        let deadline = gate.store.now().await?.after(timeout);
        let mut body = std::pin::pin!(body);
        loop {
            let now = gate.store.now().await?;
            if now >= deadline {
                return Ok(Ended::TimedOut);
            }
            let mut sleep = gate.clock.sleep(now, next_look(&gate, now, deadline));
            let polled = std::future::poll_fn(|cx| {
                let polling = std::panic::AssertUnwindSafe(|| body.as_mut().poll(cx));
                match std::panic::catch_unwind(polling) {
                    Ok(Poll::Ready(output)) => return Poll::Ready(Some(Ended::Returned(output))),
                    Ok(Poll::Pending) => {}
                    Err(panic) => {
                        let said = crate::step::panic_message(&*panic);
                        return Poll::Ready(Some(Ended::Panicked(said)));
                    }
                }
                sleep.as_mut().poll(cx).map(|()| None)
            });
            if let Some(ended) = polled.await {
                return Ok(ended);
            }
            if let Some(ticket) = &mut self.ticket {
                // A step that was lost meanwhile takes no outcome: what the body brings is
                // evidence then, and worth having.
                let _ = ticket.renew(&*gate.store, gate.options.lease).await;
            }
        }
    }
}

/// When a hold is renewed next, or the body's time is over.
fn next_look(gate: &Gate, now: StoreTime, deadline: StoreTime) -> StoreTime {
    now.after(gate.options.lease / 3).min(deadline)
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (gate, asks) = (self.gate.clone(), self.asks);
        worker::leave_behind(async move {
            if asks {
                let thread = ticket.thread().clone();
                ticket.let_go(&*gate.store).await;
                return gate.ended(&thread);
            }
            let why = Failure::new("the call was dropped while its body ran").code("dropped");
            // If this fails too, it is as if the process had died.
            let _ = gate.unknown(*ticket, Doubt::Dropped, &why).await;
        });
    }
}

/// Whether a policy allows to take a step from somebody who may still be at it.
pub(crate) fn may_take_over(policy: Policy) -> bool {
    policy != Policy::AtMostOnce
}
