//! A service on the other side of the wire: a ledger of effects, by operation key.

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use deedbook::{Probe, StoreTime};

use crate::world::{Arrival, Befalls, Late, State, World};

/// A service that the code under test calls: a bank, a mail server, a cluster.
///
/// It honours operation keys, as a serious one does: a second request under the same key gets the
/// first one's answer, and has no effect. [`Downstream::without_keys`] and
/// [`Downstream::forgets_keys_after`] make it one that does not.
///
/// ```no_run
/// # use deedbook::{Operation, StepError};
/// # async fn pay(bank: deedbook_testkit::Downstream, op: Operation) -> Result<String, StepError> {
/// let receipt = bank.perform(op.key(), || "receipt".to_owned()).await?;
/// # Ok(receipt) }
/// ```
#[derive(Clone, Debug)]
pub struct Downstream {
    world: World,
    name: Arc<str>,
}

/// What is behind a downstream.
#[derive(Debug, Default)]
pub(crate) struct Service {
    ignores_keys: bool,
    forgets_after: Option<Duration>,
    refusals: u32,
    silences: u32,
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// What a service knows of a key.
pub(crate) struct Entry {
    answer: Arc<dyn Any + Send + Sync>,
    at: StoreTime,
    /// How often it was done.
    pub(crate) effects: u32,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("effects", &self.effects).finish_non_exhaustive()
    }
}

/// A call of a downstream that brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownstreamError {
    /// The connection is gone. Nobody knows whether it happened.
    AnswerLost,
    /// It said no, and did nothing.
    Refused,
    /// It does not answer under this key what is expected here: it was used for something else.
    OtherAnswer,
}

impl DownstreamError {
    /// Whether it certainly had no effect: for [`StepError::not_applied`](deedbook::StepError).
    #[must_use]
    pub fn is_not_applied(self) -> bool {
        self == Self::Refused
    }
}

impl fmt::Display for DownstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnswerLost => "the connection was lost before the answer came",
            Self::Refused => "refused; nothing was done",
            Self::OtherAnswer => "the key belongs to another request",
        })
    }
}

impl std::error::Error for DownstreamError {}

impl Downstream {
    pub(crate) fn new(world: World, name: &str) -> Self {
        Self { world, name: name.into() }
    }

    fn set(self, set: impl FnOnce(&mut Service)) -> Self {
        self.world.state().service(&self.name, set);
        self
    }

    /// It has never heard of keys: every request has its effect.
    #[must_use]
    pub fn without_keys(self) -> Self {
        self.set(|service| service.ignores_keys = true)
    }

    /// It forgets keys so long after it saw them first, as many providers do after 24 hours.
    #[must_use]
    pub fn forgets_keys_after(self, window: Duration) -> Self {
        self.set(|service| service.forgets_after = Some(window))
    }

    /// It refuses the next requests, without an effect.
    pub fn refuse_next(&self, requests: u32) {
        self.world.state().service(&self.name, |service| service.refusals = requests);
    }

    /// It does what the next requests ask for, and never answers them.
    pub fn silent_next(&self, requests: u32) {
        self.world.state().service(&self.name, |service| service.silences = requests);
    }

    /// Asks for an effect under this operation key, and waits for the answer, which `answer`
    /// makes where the effect is had. Dropped before that, the request may still arrive.
    ///
    /// # Errors
    /// See [`DownstreamError`].
    pub async fn perform<T: Clone + Send + Sync + 'static>(
        &self,
        key: &str,
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DownstreamError> {
        let befalls = self.world.state().request(format!("{} {key}", self.name));
        if befalls == Befalls::CrashBefore {
            return self.world.crash().await;
        }
        let late = Late(self.effect(key, answer));
        let mut travelling = Travelling { world: &self.world, late: Some(late) };
        if befalls == Befalls::CrashOnItsWay {
            travelling.send_late();
            return self.world.crash().await;
        }
        self.world.gate().await;
        let arrived = travelling.late.take();
        let silent = {
            let now = self.world.now();
            let mut state = self.world.state();
            if state.service(&self.name, |s| take_one(&mut s.refusals)) {
                return Err(DownstreamError::Refused);
            }
            if let Some(Late(arrived)) = arrived {
                arrived(&mut state, now);
            }
            state.service(&self.name, |s| take_one(&mut s.silences))
        };
        match befalls {
            Befalls::CrashAfter => return self.world.crash().await,
            Befalls::AnswerLost => return Err(DownstreamError::AnswerLost),
            _ if silent => std::future::pending::<()>().await,
            _ => {}
        }
        self.world.gate().await;
        self.known(key)?.ok_or(DownstreamError::AnswerLost)
    }

    /// Looks an operation up by its key: what a probe asks.
    ///
    /// # Errors
    /// [`DownstreamError::OtherAnswer`] if it answers with something that is no `T`.
    pub async fn find<T: Clone + Send + Sync + 'static>(
        &self,
        key: &str,
    ) -> Result<Probe<T>, DownstreamError> {
        self.world.gate().await;
        Ok(self.known(key)?.map_or(Probe::DidNotHappen, Probe::Happened))
    }

    /// How often something was done under this key.
    #[must_use]
    pub fn effects(&self, key: &str) -> u32 {
        let count = |service: &mut Service| service.entries.get(key).map_or(0, |e| e.effects);
        self.world.state().service(&self.name, count)
    }

    /// How often something was done, in all.
    #[must_use]
    pub fn all_effects(&self) -> u32 {
        let sum = |service: &mut Service| service.entries.values().map(|e| e.effects).sum();
        self.world.state().service(&self.name, sum)
    }

    fn known<T: Clone + 'static>(&self, key: &str) -> Result<Option<T>, DownstreamError> {
        let find = |service: &mut Service| service.entries.get(key).map(|e| Arc::clone(&e.answer));
        let Some(answer) = self.world.state().service(&self.name, find) else {
            return Ok(None);
        };
        let answer = answer.downcast_ref::<T>().cloned();
        answer.map(Some).ok_or(DownstreamError::OtherAnswer)
    }

    /// What happens where the request arrives.
    fn effect<T: Send + Sync + 'static>(
        &self,
        key: &str,
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> Arrival {
        let (name, key) = (Arc::clone(&self.name), key.to_owned());
        Box::new(move |state, now| {
            state.service(&name, |service| service.receive(key, now, || Arc::new(answer())));
        })
    }
}

impl State {
    pub(crate) fn service<T>(&mut self, name: &str, with: impl FnOnce(&mut Service) -> T) -> T {
        with(self.services.entry(name.to_owned()).or_default())
    }
}

impl Service {
    fn receive(
        &mut self,
        key: String,
        now: StoreTime,
        answer: impl FnOnce() -> Arc<dyn Any + Send + Sync>,
    ) {
        let (ignores, window) = (self.ignores_keys, self.forgets_after);
        let Some(known) = self.entries.get_mut(&key) else {
            self.entries.insert(key, Entry { answer: answer(), at: now, effects: 1 });
            return;
        };
        let forgotten = window.is_some_and(|window| now.since(known.at) >= window);
        if ignores || forgotten {
            known.effects += 1;
            known.answer = answer();
            known.at = now;
        }
    }
}

/// A request that has not arrived.
struct Travelling<'w> {
    world: &'w World,
    late: Option<Late>,
}

impl Travelling<'_> {
    fn send_late(&mut self) {
        let now = self.world.now();
        if let Some(late) = self.late.take() {
            self.world.state().send_late(now, late);
        }
    }
}

impl Drop for Travelling<'_> {
    fn drop(&mut self) {
        // Its sender gave up waiting, and it goes on. In a crash it is lost: there are points
        // of their own for those that are not.
        if self.late.is_some() && !self.world.is_crashing() {
            self.send_late();
        }
    }
}

fn take_one(count: &mut u32) -> bool {
    let any = *count > 0;
    *count = count.saturating_sub(1);
    any
}
