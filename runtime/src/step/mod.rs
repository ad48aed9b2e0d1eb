//! The step: a named call whose arguments and result are recorded.

mod call;
mod shared;

use call::{Call, State, make};
pub(crate) use call::{deliver, panic_message};
use shared::{Either, SharedCall, bring};

use std::{future::Future, sync::Arc, time::Duration};

use deedbook_journal::{
    failure::Failure,
    guard::{Wanted, Within},
    history::CallKind,
    id::{Branch, InvalidName, Name, Scope},
    policy::{Policy as Kind, Terms},
    value::{self, canonical},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    desk::{Identify, Making, Shared},
    error::{StepError, WorkflowError, WorkflowErrorKind},
    guard::Guard,
    operation::Operation,
    policy::{AtMostOnce, Idempotent, NoPolicy, Policy, Probe, Read, Receives, Reconcile},
    retry::Retry,
    workflow::Result,
};

/// A step being declared: a name, then a policy, then [`run`](Step::run).
///
/// ```
/// # use deedbook::*;
/// # use std::time::Duration;
/// # struct Pay;
/// # impl Workflow for Pay {
/// # const NAME: &'static str = "pay"; type Input = u64; type Output = String;
/// # async fn run(&self, ctx: Context, amount: &u64) -> Result<String> {
/// let receipt = ctx
///     .step("pay")
///     .idempotent()
///     .honoured_for(Duration::from_secs(24 * 3600))
///     .timeout(Duration::from_secs(10))
///     .run(amount, async |op| Ok(format!("paid under {}", op.key())))
///     .await?;
/// # Ok(receipt) } }
/// ```
#[must_use = "a step does nothing until a policy is chosen and `run` is awaited"]
#[derive(Debug)]
pub struct Step<P> {
    shared: Arc<Shared>,
    branch: Branch,
    name: Result<Name, InvalidName>,
    identity: Identity,
    occurrence: u32,
    scope: Scope,
    terms: Terms,
    quiet: Option<Duration>,
    retry: Retry,
    redact: Vec<String>,
    policy: P,
}

/// How a step is identified, as declared.
#[derive(Debug, Clone)]
enum Identity {
    Positional,
    Arguments,
    Key(String),
}

impl Step<NoPolicy> {
    pub(crate) fn new(shared: Arc<Shared>, branch: Branch, name: &str) -> Self {
        Self {
            shared,
            branch,
            name: Name::new(name),
            identity: Identity::Positional,
            occurrence: 0,
            scope: Scope::Thread,
            terms: Terms::of(Kind::AtMostOnce),
            quiet: None,
            retry: Retry::default(),
            redact: Vec::new(),
            policy: NoPolicy,
        }
    }

    /// The step has no effect outside: a look-up, a model call. It runs again as long as its
    /// result is not durable, and its body gets no key.
    pub fn read(self) -> Step<Read> {
        self.under(Kind::Read, Read)
    }

    /// The other side honours the operation key: after a crash the same call is sent again under
    /// the same key.
    pub fn idempotent(self) -> Step<Idempotent> {
        self.under(Kind::Idempotent, Idempotent)
    }

    /// The other side can be asked: after a crash `probe` is asked, once the last request can no
    /// longer be on its way, and decides whether the body runs again.
    pub fn reconcile<Q, F, T>(self, probe: Q) -> Step<Reconcile<Q>>
    where
        Q: FnOnce(Operation) -> F + Clone + Send,
        F: Future<Output = Result<Probe<T>, StepError>> + Send,
    {
        self.under(Kind::Reconcile, Reconcile(probe))
    }

    /// Neither: the body runs once, and if nobody knows what became of it a person decides.
    pub fn at_most_once(self) -> Step<AtMostOnce> {
        self.under(Kind::AtMostOnce, AtMostOnce)
    }

    fn under<P>(self, kind: Kind, policy: P) -> Step<P> {
        Step {
            shared: self.shared,
            branch: self.branch,
            name: self.name,
            identity: self.identity,
            occurrence: self.occurrence,
            scope: self.scope,
            terms: Terms { policy: kind, ..self.terms },
            quiet: self.quiet,
            retry: self.retry,
            redact: self.redact,
            policy,
        }
    }
}

impl Step<Idempotent> {
    /// How long after the first send the other side honours the key. Later than that (with the
    /// timeout and a margin of up to a minute taken off) nothing is sent again, and the step is in
    /// doubt. Default: for ever.
    pub fn honoured_for(mut self, window: Duration) -> Self {
        self.terms.window = Some(window);
        self
    }
}

impl<Q> Step<Reconcile<Q>> {
    /// How long after the last send a probe is asked: a request sent at the last moment may still
    /// be on its way. Default: the timeout and 60 s.
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = Some(quiet);
        self
    }
}

impl<P> Step<P> {
    /// Identifies the step by its arguments in the whole thread: an identical later call is given
    /// the same outcome, and concurrent twins share one execution.
    pub fn by_arguments(mut self) -> Self {
        self.identity = Identity::Arguments;
        self
    }

    /// With [`by_arguments`](Self::by_arguments): repeats on purpose, counted from 0.
    pub fn occurrence(mut self, occurrence: u32) -> Self {
        self.occurrence = occurrence;
        self
    }

    /// Identifies the step by a business key in the whole thread, namespaced by the step's name:
    /// 1 to 1024 bytes. Other arguments under the same key are a divergence.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.identity = Identity::Key(key.into());
        self
    }

    /// Where the step happens once. In [`Scope::Journal`] it is a step of its own, shared by all
    /// workflows and by every [`Deedbook::guard`](crate::Deedbook::guard) of the same name and
    /// identity, which [`key`](Self::key) or [`by_arguments`](Self::by_arguments) gives: who comes
    /// first brings it about, and the others are given its outcome. While it is in doubt all of
    /// them wait. Default: the thread.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Tells this call apart from others of the same name that are under way in the same branch:
    /// the call gets a branch of its own.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        match Name::new(id).and_then(|id| self.branch.child(id)) {
            Ok(branch) => self.branch = branch,
            Err(error) => self.name = Err(error),
        }
        self
    }

    /// How long an attempt may take. Default 5 minutes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.terms.timeout = timeout;
        self
    }

    /// How often and how soon the step is tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The thread may end while this step is in doubt; its end record counts the doubt.
    pub fn abandon(mut self) -> Self {
        self.terms.abandon = true;
        self
    }

    /// Hides the value at this JSON pointer in the arguments (`/card/number`, and everything
    /// below it) when a divergence is reported. The value is still recorded; what must not be
    /// recorded belongs into a [`Secret`](crate::Secret).
    pub fn redact(mut self, pointer: impl Into<String>) -> Self {
        self.redact.push(pointer.into());
        self
    }

    /// Makes the call. Its identity is claimed here and not when the future is polled; the body
    /// starts when the future is polled and everything before it is durable.
    ///
    /// The arguments are recorded and compared at replay. What the body captures is its *hands*,
    /// not its input: whatever matters to the result goes through `args`. The body is cloned for
    /// each attempt.
    ///
    /// The result is the *decoded stored value*, so that the first caller and every replay get
    /// the same.
    ///
    /// # Errors
    /// [`WorkflowErrorKind::StepFailed`] when the step has failed for good,
    /// [`WorkflowErrorKind::ResultNotStored`] when it happened and its result cannot be recorded,
    /// [`WorkflowErrorKind::NotRecordable`] when the name or the arguments cannot be. A step in
    /// doubt is no error: it stays pending.
    ///
    /// **Cancel safety.** Dropping the future while the body runs is a decision of the program,
    /// and is recorded: the step's outcome is then unknown.
    pub fn run<A, T, F, Fut>(
        self,
        args: &A,
        body: F,
    ) -> impl Future<Output = Result<T>> + Send + use<A, T, F, Fut, P>
    where
        P: Policy<T> + Receives,
        A: Serialize + ?Sized,
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce(P::Operation) -> Fut + Clone + Send,
        Fut: Future<Output = Result<T, StepError>> + Send,
    {
        let shared = self.shared.clone();
        let journal = self.scope == Scope::Journal;
        let making = self.making(args);
        let (policy, state) = match making {
            Ok((policy, making)) if journal => {
                let stands_behind = behind(&shared, &making, policy);
                let (bringing, state) = match stands_behind {
                    Ok((guard, wanted)) => {
                        (Some(bring(shared.clone(), guard, wanted, body)), make(&shared, making))
                    }
                    Err(error) => (None, State::Refused(error)),
                };
                return Either::Shared(SharedCall::<T, _>::new(shared, state, bringing));
            }
            Ok((policy, making)) => (Some(policy), make(&shared, making)),
            Err(error) => (None, State::Refused(error)),
        };
        Either::Own(Call::<P, T, F, Fut>::new(shared, state, policy, body))
    }

    fn making<A: Serialize + ?Sized>(self, args: &A) -> Result<(P, Making)> {
        let limits = self.shared.limits;
        let refuse = |call: &str, failure| {
            WorkflowError::of_call(WorkflowErrorKind::NotRecordable, call, failure)
        };
        let name = self.name.map_err(|e| refuse("step", Failure::of(&e)))?;
        let refuse = |failure| refuse(name.as_str(), failure);
        let bytes = value::encode(args, &limits).map_err(|e| refuse(Failure::of(&e)))?;
        let identity = match self.identity {
            Identity::Positional => Identify::Positional,
            Identity::Key(key) => Identify::Key(key),
            Identity::Arguments => {
                let canonical = canonical::of(args, &limits);
                let canonical = canonical.map_err(|e| refuse(Failure::of(&e)))?;
                Identify::Arguments { canonical, occurrence: self.occurrence }
            }
        };
        let mut terms = self.terms;
        terms.attempts_max = self.retry.attempts;
        terms.quiet = self.quiet.unwrap_or_else(|| terms.usual_quiet());
        let making = Making {
            kind: CallKind::Step,
            branch: self.branch,
            name,
            identity,
            terms: Some(terms),
            retry: self.retry,
            args: Some(bytes),
            runs: Duration::ZERO,
            redact: self.redact,
            shared: self.scope == Scope::Journal,
        };
        Ok((self.policy, making))
    }
}

/// The guard behind a step of the whole journal, and what is wanted of it.
fn behind<P>(shared: &Shared, making: &Making, policy: P) -> Result<(Guard<P>, Wanted)> {
    let name = making.name.as_str();
    let refuse = |failure| WorkflowError::of_call(WorkflowErrorKind::NotRecordable, name, failure);
    let wrong = |why: &dyn std::fmt::Display| refuse(Failure::new(why.to_string()));
    let terms = making.terms.unwrap_or(Terms::of(Kind::AtMostOnce));
    let args = making.args.clone().unwrap_or_default();
    let wanted = Wanted::new(Within::Journal, name, terms.policy).map_err(|e| wrong(&e))?;
    let wanted = wanted.encoded(args).map_err(|e| wrong(&e))?.terms(terms);
    let wanted = match &making.identity {
        Identify::Key(key) => wanted.key(key.as_str()).map_err(|e| wrong(&e))?,
        Identify::Arguments { occurrence, .. } => wanted.occurrence(*occurrence),
        Identify::Positional => {
            return Err(wrong(
                &"a step of the whole journal has no place in it; give it an identity with \
                  `.key(..)` or `.by_arguments()`",
            ));
        }
    };
    let wanted = making.redact.iter().fold(wanted, |wanted, pointer| wanted.redact(pointer));
    let (gate, redact) = (shared.gate.clone(), making.redact.clone());
    Ok((Guard::of_step(gate, name, terms, making.retry, redact, policy), wanted))
}
