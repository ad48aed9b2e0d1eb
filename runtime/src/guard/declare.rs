//! Declaring a guarded step.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use deedbook_journal::{
    guard::{Wanted, Within},
    id::ThreadId,
    policy::{Policy as Kind, Terms},
    value,
};
use serde::Serialize;

use super::{CallError, Duplicates, Gate, Source, gate::may_take_over};
use crate::{
    error::StepError,
    operation::Operation,
    policy::{AtMostOnce, Idempotent, NoPolicy, Probe, Read, Reconcile},
    retry::Retry,
};

/// A guarded step being declared: a name, a policy, what makes two calls the same operation, and
/// then [`call`](Self::call).
///
/// Without more the operation is identified by all of its arguments, in the whole journal.
///
/// ```
/// use std::time::Duration;
/// use deedbook::Deedbook;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let book = Deedbook::memory().start().await?;
/// let charge = async |order: &str, cents: u64| {
///     book.guard("charge_card")
///         .idempotent()
///         .honoured_for(Duration::from_secs(24 * 3600))
///         .key(order)
///         .call(&(order, cents), async |op| Ok(format!("charged under {}", op.key())))
///         .await
/// };
/// let receipt = charge("ORD-42", 4200).await?;
/// // The body does not run again, here and after every restart.
/// assert_eq!(charge("ORD-42", 4200).await?, receipt);
/// // Another amount under the same key is another operation, or a mistake.
/// assert!(charge("ORD-42", 9900).await.is_err());
/// # book.shutdown().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a guard does nothing until a policy is chosen and `call` is awaited"]
pub struct Guard<P> {
    pub(super) gate: Arc<Gate>,
    pub(super) name: String,
    within: Option<String>,
    module: Option<&'static str>,
    identity: Identity,
    occurrence: u32,
    terms: Terms,
    quiet: Option<Duration>,
    pub(super) retry: Retry,
    valid_for: Option<Duration>,
    any_content: bool,
    pub(super) duplicates: Duplicates,
    redact: Vec<String>,
    pub(super) on_replay: Option<OnReplay>,
    pub(super) policy: P,
}

type OnReplay = Arc<dyn Fn(&Source) + Send + Sync>;

/// What makes two calls the same operation, as declared.
enum Identity {
    Arguments,
    Chosen(Result<Vec<u8>, value::ValueError>),
    Key(String),
}

impl<P> fmt::Debug for Guard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Guard<NoPolicy> {
    pub(crate) fn new(gate: Arc<Gate>, name: &str) -> Self {
        Self {
            gate,
            name: name.to_owned(),
            within: None,
            module: None,
            identity: Identity::Arguments,
            occurrence: 0,
            terms: Terms { attempts_max: u32::MAX, ..Terms::of(Kind::AtMostOnce) },
            quiet: None,
            retry: Retry::never(),
            valid_for: None,
            any_content: false,
            duplicates: Duplicates::Refuse,
            redact: Vec::new(),
            on_replay: None,
            policy: NoPolicy,
        }
    }

    /// It has no effect outside: the recorded answer is given, and whatever was not recorded runs
    /// again.
    pub fn read(self) -> Guard<Read> {
        self.under(Kind::Read, Read)
    }

    /// The other side honours the operation key: after a crash the same call is sent again under
    /// the same key.
    pub fn idempotent(self) -> Guard<Idempotent> {
        self.under(Kind::Idempotent, Idempotent)
    }

    /// The other side can be asked: after a crash `probe` is asked, once the last request can no
    /// longer be on its way, and decides whether the body runs again.
    pub fn reconcile<Q, F, T>(self, probe: Q) -> Guard<Reconcile<Q>>
    where
        Q: FnOnce(Operation) -> F + Clone + Send,
        F: Future<Output = Result<Probe<T>, StepError>> + Send,
    {
        self.under(Kind::Reconcile, Reconcile(probe))
    }

    /// Neither: the body runs once, and if nobody knows what became of it a person decides.
    pub fn at_most_once(self) -> Guard<AtMostOnce> {
        self.under(Kind::AtMostOnce, AtMostOnce)
    }

    fn under<P>(self, kind: Kind, policy: P) -> Guard<P> {
        Guard {
            gate: self.gate,
            name: self.name,
            within: self.within,
            module: self.module,
            identity: self.identity,
            occurrence: self.occurrence,
            terms: Terms { policy: kind, ..self.terms },
            quiet: self.quiet,
            retry: self.retry,
            valid_for: self.valid_for,
            any_content: self.any_content,
            duplicates: self.duplicates,
            redact: self.redact,
            on_replay: self.on_replay,
            policy,
        }
    }
}

impl Guard<Idempotent> {
    /// How long after the first send the other side honours the key. Later than that nothing is
    /// sent again, and the step is in doubt. Default: for ever.
    pub fn honoured_for(mut self, window: Duration) -> Self {
        self.terms.window = Some(window);
        self
    }
}

impl<Q> Guard<Reconcile<Q>> {
    /// How long after the last send a probe is asked. Default: the timeout and 60 s.
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = Some(quiet);
        self
    }
}

impl<P> Guard<P> {
    /// What stands behind a workflow's step whose scope is the whole journal.
    pub(crate) fn of_step(
        gate: Arc<Gate>,
        name: &str,
        terms: Terms,
        retry: Retry,
        redact: Vec<String>,
        policy: P,
    ) -> Self {
        let quiet = Some(terms.quiet);
        // Whoever is at it brings the outcome for all.
        let duplicates = Duplicates::Wait(Duration::MAX);
        let guard = Guard::new(gate, name).under(terms.policy, policy);
        Self { terms, retry, redact, quiet, duplicates, ..guard }
    }

    /// Where guarded calls meet.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Where the operation happens once: an order, a conversation, a tenant. An empty id is an
    /// error, and never the whole journal.
    pub fn within(mut self, scope: impl Into<String>) -> Self {
        self.within = Some(scope.into());
        self
    }

    /// Identifies the operation by a business key, namespaced by the step's name. Other arguments
    /// under the same key are a conflict.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.identity = Identity::Key(key.into());
        self
    }

    /// Identifies the operation by part of its arguments; the others are compared.
    pub fn identified_by<I: Serialize + ?Sized>(mut self, chosen: &I) -> Self {
        let canonical = value::canonical::of(chosen, &self.gate.options.values);
        self.identity = Identity::Chosen(canonical);
        self
    }

    /// Under a key, or part of the arguments, as identity: lets other arguments pass. The first
    /// call's are those that happen.
    pub fn any_content(mut self) -> Self {
        self.any_content = true;
        self
    }

    /// With an identity by arguments: a repeat that is wanted, counted from 0.
    pub fn occurrence(mut self, nth: u32) -> Self {
        self.occurrence = nth;
        self
    }

    /// How old an outcome may be that this caller is given, counted from when it was recorded; an
    /// older one has the step happen anew, under a fresh key. It is not recorded: all callers of
    /// one operation should say the same. What is in doubt never runs out. Default: for ever.
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }

    /// What to do about somebody who is at the same operation. Default: [`Duplicates::Refuse`].
    pub fn duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// How long an attempt may take. Default 5 minutes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.terms.timeout = timeout;
        self
    }

    /// How often and how soon this call tries again by itself where that is allowed. Default: not
    /// at all; the next call does.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Names a place in the arguments of which a conflict does not tell.
    pub fn redact(mut self, pointer: impl Into<String>) -> Self {
        self.redact.push(pointer.into());
        self
    }

    /// Calls this whenever a recorded outcome is given and the body does not run.
    pub fn on_replay(mut self, tell: impl Fn(&Source) + Send + Sync + 'static) -> Self {
        self.on_replay = Some(Arc::new(tell));
        self
    }

    /// Says in which module the step is declared: in this process its name is then nobody else's.
    #[doc(hidden)]
    pub fn declared_in(mut self, module: &'static str) -> Self {
        self.module = Some(module);
        self
    }

    /// What is wanted, for [`super::claim`] and for programs that bring bodies of another kind.
    ///
    /// # Errors
    /// [`CallError::Invalid`] if the name, the scope, the key or the arguments cannot be used.
    pub fn wanted<A: Serialize + ?Sized>(&self, args: &A) -> Result<Wanted, CallError> {
        let within = match &self.within {
            None => Within::Journal,
            Some(scope) => Within::Thread(ThreadId::new(scope)?),
        };
        if let Some(module) = self.module {
            self.gate.declare(&self.name, module)?;
        }
        if self.duplicates == Duplicates::TakeOver && !may_take_over(self.terms.policy) {
            return Err(CallError::invalid(
                "a step under `at_most_once` cannot be taken over: what its owner may have done \
                 could not be told; let duplicates wait, or refuse them",
            ));
        }
        if self.occurrence > 0 && matches!(self.identity, Identity::Key(_)) {
            return Err(CallError::invalid(
                "a business key has no occurrences; a repeat that is wanted needs another key",
            ));
        }
        let args = value::encode(args, &self.gate.options.values)?;
        let mut wanted = Wanted::new(within, &self.name, self.terms.policy)?.encoded(args)?;
        wanted = match &self.identity {
            Identity::Arguments => wanted,
            Identity::Key(key) => wanted.key(key.as_str())?,
            Identity::Chosen(Ok(canonical)) => wanted.identified_by_canonical(canonical.clone()),
            Identity::Chosen(Err(error)) => return Err(error.clone().into()),
        };
        let mut terms = self.terms;
        terms.quiet = self.quiet.unwrap_or_else(|| terms.usual_quiet());
        wanted = wanted.occurrence(self.occurrence).terms(terms);
        if let Some(time) = self.valid_for {
            wanted = wanted.valid_for(time);
        }
        if self.any_content {
            wanted = wanted.any_content();
        }
        Ok(self.redact.iter().fold(wanted, |wanted, pointer| wanted.redact(pointer)))
    }
}
