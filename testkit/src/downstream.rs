//! A service on the other side of the wire: a ledger of effects, by operation key.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use deedbook::{Probe, StoreTime, ValueLimits};
use deedbook_journal::value::{decode, encode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::world::{Befalls, Late, State, World};

/// A service that the code under test calls: a bank, a mail server, a cluster.
///
/// It honours operation keys, as a serious one does: a second request under the same key gets the
/// first one's answer, and has no effect. [`Downstream::without_keys`] and
/// [`Downstream::forgets_keys_after`] make it one that does not.
///
/// ```no_run
/// # use deedbook::{Operation, StepError};
/// # async fn pay(bank: deedbook_testkit::Downstream, op: Operation) -> Result<String, StepError> {
/// let receipt = bank.perform(op.key(), "receipt".to_owned()).await?;
/// # Ok(receipt) }
/// ```
#[derive(Clone, Debug)]
pub struct Downstream {
    world: World,
    name: Arc<str>,
}

/// What is behind a downstream.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Service {
    ignores_keys: bool,
    forgets_after: Option<Duration>,
    refusals: u32,
    silences: u32,
    #[serde(default)]
    answers_after: Duration,
    entries: BTreeMap<String, Entry>,
}

/// What a service knows of a key.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    /// MessagePack.
    answer: Vec<u8>,
    at: u64,
    /// How often it was done.
    effects: u32,
}

/// A call of a downstream that brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownstreamError {
    /// The connection is gone. Nobody knows whether it happened.
    AnswerLost,
    /// It said no, and did nothing.
    Refused,
    /// It does not answer under this key what is expected here: it was used for something else,
    /// or the answer is of a kind that cannot be stored.
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
            Self::OtherAnswer => "the answer under this key is of another kind",
        })
    }
}

impl std::error::Error for DownstreamError {}

impl Downstream {
    pub(crate) fn new(world: World, name: &str) -> Self {
        Self { world, name: name.into() }
    }

    fn set<T>(&self, set: impl FnOnce(&mut Service) -> T) -> T {
        self.world.state().service(&self.name, set)
    }

    /// It has never heard of keys: every request has its effect.
    pub fn without_keys(&self) -> &Self {
        self.set(|service| service.ignores_keys = true);
        self
    }

    /// It forgets keys so long after it saw them first, as many providers do after 24 hours.
    pub fn forgets_keys_after(&self, window: Duration) -> &Self {
        self.set(|service| service.forgets_after = Some(window));
        self
    }

    /// It refuses the next requests, without an effect.
    pub fn refuse_next(&self, requests: u32) -> &Self {
        self.set(|service| service.refusals = requests);
        self
    }

    /// It does what the next requests ask for, and never answers them.
    pub fn silent_next(&self, requests: u32) -> &Self {
        self.set(|service| service.silences = requests);
        self
    }

    /// From now on its answers take so long: to requests, which have had their effect by then, and
    /// to look-ups, which tell what was so when they were asked.
    pub fn answers_after(&self, time: Duration) -> &Self {
        self.set(|service| service.answers_after = time);
        self
    }

    /// Asks for an effect under this operation key, and waits for its answer: `answer`, or the one
    /// that this key had before. Dropped before that, the request may still arrive.
    ///
    /// # Errors
    /// See [`DownstreamError`].
    pub async fn perform<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        answer: T,
    ) -> Result<T, DownstreamError> {
        let befalls = self.world.state().request(format!("{} {key}", self.name));
        if befalls == Befalls::CrashBefore {
            return self.world.crash().await;
        }
        let answer = encode(&answer, &ValueLimits::new());
        let answer = answer.map_err(|_| DownstreamError::OtherAnswer)?;
        let late = Late { service: self.name.to_string(), key: key.to_owned(), answer };
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
            if let Some(late) = arrived {
                state.receive(late, now);
            }
            state.service(&self.name, |s| take_one(&mut s.silences))
        };
        match befalls {
            Befalls::CrashAfter => return self.world.crash().await,
            Befalls::AnswerLost => return Err(DownstreamError::AnswerLost),
            _ if silent => std::future::pending::<()>().await,
            _ => {}
        }
        self.travel_back().await;
        self.world.gate().await;
        self.known(key)?.ok_or(DownstreamError::AnswerLost)
    }

    /// Looks an operation up by its key: what a probe asks.
    ///
    /// # Errors
    /// [`DownstreamError::OtherAnswer`] if it answers with something that is no `T`.
    pub async fn find<T: DeserializeOwned>(&self, key: &str) -> Result<Probe<T>, DownstreamError> {
        self.world.gate().await;
        self.world.state().lookup(&self.name, key);
        let known = self.known(key)?;
        self.travel_back().await;
        Ok(known.map_or(Probe::DidNotHappen, Probe::Happened))
    }

    async fn travel_back(&self) {
        let time = self.set(|service| service.answers_after);
        if !time.is_zero() {
            self.world.wait(time).await;
        }
    }

    /// How often something was done under this key.
    #[must_use]
    pub fn effects(&self, key: &str) -> u32 {
        self.set(|service| service.entries.get(key).map_or(0, |entry| entry.effects))
    }

    /// How often something was done, in all.
    #[must_use]
    pub fn all_effects(&self) -> u32 {
        self.set(|service| service.effects().map(|(_, effects)| effects).sum())
    }

    fn known<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, DownstreamError> {
        let find = |service: &mut Service| service.entries.get(key).map(|e| e.answer.clone());
        let Some(answer) = self.set(find) else {
            return Ok(None);
        };
        let answer = decode(&answer, &ValueLimits::new());
        answer.map(Some).map_err(|_| DownstreamError::OtherAnswer)
    }
}

impl Service {
    /// A request arrives.
    pub(crate) fn receive(&mut self, key: String, answer: Vec<u8>, now: StoreTime) {
        let (ignores, window) = (self.ignores_keys, self.forgets_after);
        let Some(known) = self.entries.get_mut(&key) else {
            self.entries.insert(key, Entry { answer, at: now.0, effects: 1 });
            return;
        };
        let forgets = window.is_some_and(|window| now.since(StoreTime(known.at)) >= window);
        if ignores || forgets {
            *known = Entry { answer, at: now.0, effects: known.effects + 1 };
        }
    }

    /// How often something was done, by key.
    pub(crate) fn effects(&self) -> impl Iterator<Item = (&str, u32)> {
        self.entries.iter().map(|(key, entry)| (key.as_str(), entry.effects))
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

impl State {
    /// The service of this name. It is kept as it is then.
    fn service<T>(&mut self, name: &str, with: impl FnOnce(&mut Service) -> T) -> T {
        let done = with(self.kept.services.entry(name.to_owned()).or_default());
        self.keep();
        done
    }
}
