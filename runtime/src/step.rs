//! The step: a named call whose arguments and result are recorded.

use std::{
    future::Future,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context as Cx, Poll, Waker},
    time::Duration,
};

use deedbook_journal::{
    failure::Failure,
    history::{Answer, CallKind, DivergenceKind},
    id::{Branch, InvalidName, Name},
    policy::{Policy as Kind, Terms},
    value::{self, canonical},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    desk::{BodyEnd, Identify, Making, Shared, Told},
    error::{StepError, WorkflowError, WorkflowErrorKind},
    operation::Operation,
    policy::{AtMostOnce, Idempotent, NoPolicy, Policy, Probe, Read, Receives, Reconcile},
    retry::Retry,
    wake::BodyWaker,
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
        let Self {
            shared,
            branch,
            name,
            identity,
            occurrence,
            mut terms,
            quiet,
            retry,
            redact,
            ..
        } = self;
        terms.policy = kind;
        Step {
            shared,
            branch,
            name,
            identity,
            occurrence,
            terms,
            quiet,
            retry,
            redact,
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
        let making = self.making(args);
        let (policy, state) = match making {
            Ok((policy, making)) => (Some(policy), make(&shared, making)),
            Err(error) => (None, State::Refused(error)),
        };
        Call::<P, T, F, Fut> {
            shared,
            state,
            policy,
            body,
            running: Running::Nothing,
            span: tracing::Span::none(),
            waker: None,
            result: PhantomData,
        }
    }

    fn making<A: Serialize + ?Sized>(self, args: &A) -> Result<(P, Making)> {
        let limits = self.shared.lock().limits;
        let shown = self.name.as_ref().map_or("step", Name::as_str).to_owned();
        let refuse =
            |failure| WorkflowError::of_call(WorkflowErrorKind::NotRecordable, &shown, failure);
        let name = self.name.clone().map_err(|e| refuse(Failure::of(&e)))?;
        let bytes = value::encode(args, &limits).map_err(|e| refuse(Failure::of(&e)))?;
        let identity = match self.identity {
            Identity::Positional => Identify::Positional,
            Identity::Key(key) => Identify::Key(key),
            Identity::Arguments => {
                let canonical = canonical::of(args, &limits);
                let canonical = canonical.map_err(|e| refuse(Failure::of(&e)))?;
                Identify::Arguments {
                    canonical,
                    occurrence: self.occurrence,
                }
            }
        };
        let mut terms = self.terms;
        terms.attempts_max = self.retry.attempts;
        terms.quiet = self
            .quiet
            .unwrap_or(terms.timeout + Terms::QUIET_BEYOND_TIMEOUT);
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
        };
        Ok((self.policy, making))
    }
}

fn make(shared: &Shared, making: Making) -> State {
    shared.lock().make(making).map_or(State::Stuck, State::Made)
}

/// Where a call's future stands.
enum State {
    /// It was never made: its arguments cannot be recorded.
    Refused(WorkflowError),
    /// The run cannot go on; the executor knows why.
    Stuck,
    /// It was made under this number.
    Made(u64),
    /// It was given its outcome.
    Over,
}

/// The future of a step.
struct Call<P, T, F, Fut>
where
    P: Policy<T>,
{
    shared: Arc<Shared>,
    state: State,
    policy: Option<P>,
    body: F,
    running: Running<Fut, P::Asking>,
    span: tracing::Span,
    waker: Option<Waker>,
    result: PhantomData<fn() -> T>,
}

/// What of the user's code is under way.
enum Running<B, Q> {
    Nothing,
    Body {
        attempt: u32,
        body: Pin<Box<B>>,
    },
    Probe(Pin<Box<Q>>),
    /// Out of time, kept for its evidence.
    Late {
        attempt: u32,
        body: Pin<Box<B>>,
    },
}

// Bodies are boxed before they are pinned; nothing else here is ever pinned.
impl<P: Policy<T>, T, F, Fut> Unpin for Call<P, T, F, Fut> {}

impl<P, T, F, Fut> Future for Call<P, T, F, Fut>
where
    P: Policy<T> + Receives,
    T: Serialize + DeserializeOwned + Send,
    F: FnOnce(P::Operation) -> Fut + Clone + Send,
    Fut: Future<Output = Result<T, StepError>> + Send,
{
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<T>> {
        let this = &mut *self;
        let number = match std::mem::replace(&mut this.state, State::Over) {
            State::Refused(error) => return Poll::Ready(Err(error)),
            State::Made(number) => number,
            state => {
                this.state = state;
                return Poll::Pending;
            }
        };
        this.state = State::Made(number);
        let told = this.shared.lock().ask(number, cx.waker());
        match told {
            Told::Outcome(answer) => return this.deliver(answer),
            Told::Wait => {}
            Told::Start { attempt, operation } => this.start(number, attempt, operation),
            Told::Probe(operation) => {
                this.span = this.shared.lock().span(number, operation.attempt(), true);
                let asking = this.policy.as_ref().and_then(|p| p.ask(operation));
                match asking {
                    Some(asking) => this.running = Running::Probe(Box::pin(asking)),
                    // The step was recorded as one that can be asked about.
                    None => {
                        let error = StepError::new("the step declares no probe any more");
                        let mut desk = this.shared.lock();
                        desk.probe_ended(number, Err(BodyEnd::Failed(error)));
                    }
                }
            }
            Told::TimedOut { keep } => this.time_out(number, keep),
        }
        this.drive(number);
        Poll::Pending
    }
}

impl<P, T, F, Fut> Call<P, T, F, Fut>
where
    P: Policy<T> + Receives,
    T: Serialize + DeserializeOwned + Send,
    F: FnOnce(P::Operation) -> Fut + Clone + Send,
    Fut: Future<Output = Result<T, StepError>> + Send,
{
    fn deliver(&mut self, answer: Answer) -> Poll<Result<T>> {
        self.stop_late();
        self.state = State::Over;
        deliver(&self.shared, &answer)
    }

    fn start(&mut self, number: u64, attempt: u32, operation: Option<Operation>) {
        self.stop_late();
        self.span = self.shared.lock().span(number, attempt, false);
        if let Some(operation) = P::receive(attempt, operation) {
            let body = Box::pin(self.body.clone()(operation));
            self.running = Running::Body { attempt, body };
        }
    }

    fn time_out(&mut self, number: u64, keep: bool) {
        match std::mem::replace(&mut self.running, Running::Nothing) {
            Running::Body { attempt, body } if keep => {
                self.running = Running::Late { attempt, body };
                let mut desk = self.shared.lock();
                desk.body_ended(number, BodyEnd::TimedOut);
                desk.keep_late();
            }
            Running::Body { .. } => self.shared.lock().body_ended(number, BodyEnd::TimedOut),
            Running::Probe(_) => self
                .shared
                .lock()
                .probe_ended(number, Err(BodyEnd::TimedOut)),
            running => self.running = running,
        }
    }

    fn stop_late(&mut self) {
        if let Running::Late { .. } = self.running {
            self.running = Running::Nothing;
            self.shared.lock().drop_late();
        }
    }

    /// Polls what is under way. Its end becomes a record, which is offered like every other: a
    /// live result takes the same way as a replayed one.
    fn drive(&mut self, number: u64) {
        if matches!(self.running, Running::Nothing) {
            return;
        }
        let waker = self.waker.get_or_insert_with(|| {
            let wakeups = self.shared.wakeups.clone();
            Arc::new(BodyWaker {
                wakeups,
                call: number,
            })
            .into()
        });
        let mut cx = Cx::from_waker(waker);
        let limits = self.shared.lock().limits;
        self.shared.lock().enter_body(number);
        let span = self.span.clone();
        let _entered = span.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| match &mut self.running {
            Running::Nothing => Polled::Pending,
            Running::Body { body, .. } | Running::Late { body, .. } => {
                match body.as_mut().poll(&mut cx) {
                    Poll::Pending => Polled::Pending,
                    Poll::Ready(result) => Polled::Body(encode_result(result, &limits)),
                }
            }
            Running::Probe(probe) => match probe.as_mut().poll(&mut cx) {
                Poll::Pending => Polled::Pending,
                Poll::Ready(answer) => Polled::Probe(
                    answer
                        .map_err(BodyEnd::Failed)
                        .and_then(|probe| encode_probe(&probe, &limits)),
                ),
            },
        }));
        // A panicked body is dropped here, outside of any lock.
        let running = match &polled {
            Ok(Polled::Pending) => None,
            _ => Some(std::mem::replace(&mut self.running, Running::Nothing)),
        };
        let late = match &running {
            Some(Running::Late { attempt, .. }) => Some(*attempt),
            _ => None,
        };
        let probing = matches!(running, Some(Running::Probe(_)));
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(running)));
        let mut desk = self.shared.lock();
        desk.leave_body();
        match polled {
            Ok(Polled::Pending) => {}
            Ok(Polled::Body(result)) => match (late, result) {
                (Some(attempt), result) => desk.late(number, attempt, result.map_err(late_failure)),
                (None, Ok(bytes)) => desk.body_returned(number, bytes),
                (None, Err(end)) => desk.body_ended(number, end),
            },
            Ok(Polled::Probe(answer)) => desk.probe_ended(number, answer),
            Err(panic) => {
                let end = BodyEnd::Panicked(panic_message(&*panic));
                match late {
                    Some(attempt) => desk.late(number, attempt, Err(late_failure(end))),
                    None if probing => desk.probe_ended(number, Err(end)),
                    None => desk.body_ended(number, end),
                }
            }
        }
        drop(desk);
        drop(dropped);
    }
}

/// What a poll of the user's code brought.
enum Polled {
    Pending,
    Body(Result<Vec<u8>, BodyEnd>),
    Probe(Result<Probe<Vec<u8>>, BodyEnd>),
}

fn encode_result<T: Serialize + DeserializeOwned>(
    result: Result<T, StepError>,
    limits: &deedbook_journal::limits::ValueLimits,
) -> Result<Vec<u8>, BodyEnd> {
    let encoded = value::encode_exact(&result.map_err(BodyEnd::Failed)?, limits);
    encoded
        .map(|(bytes, _)| bytes)
        .map_err(|e| BodyEnd::Unstorable(Failure::of(&e)))
}

fn encode_probe<T: Serialize + DeserializeOwned>(
    probe: &Probe<T>,
    limits: &deedbook_journal::limits::ValueLimits,
) -> Result<Probe<Vec<u8>>, BodyEnd> {
    Ok(match probe {
        Probe::Happened(value) => Probe::Happened(
            value::encode_exact(value, limits)
                .map(|(bytes, _)| bytes)
                .map_err(|e| BodyEnd::Unstorable(Failure::of(&e)))?,
        ),
        Probe::DidNotHappen => Probe::DidNotHappen,
        Probe::Inconclusive => Probe::Inconclusive,
    })
}

fn late_failure(end: BodyEnd) -> Failure {
    match end {
        BodyEnd::Failed(error) => error.failure,
        BodyEnd::Panicked(message) => Failure::new(format!("the body panicked: {message}")),
        BodyEnd::Unstorable(failure) => failure,
        BodyEnd::TimedOut => Failure::new("the body took longer than its timeout"),
    }
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no message)").to_owned()
}

/// Decodes an outcome for the workflow.
pub(crate) fn deliver<T: DeserializeOwned>(shared: &Shared, answer: &Answer) -> Poll<Result<T>> {
    let (limits, (call, at)) = {
        let desk = shared.lock();
        (desk.limits, desk.last_taken())
    };
    let failed = |kind, bytes: &[u8]| {
        let failure = value::decode(bytes, &deedbook_journal::limits::ValueLimits::new());
        failure.map(|failure: Failure| WorkflowError::of_call(kind, &call, failure))
    };
    let read = match answer {
        Answer::Value(bytes) => value::decode::<T>(bytes, &limits).map(Ok),
        Answer::Failed(bytes) => failed(WorkflowErrorKind::StepFailed, bytes).map(Err),
        Answer::Unstored(bytes) => failed(WorkflowErrorKind::ResultNotStored, bytes).map(Err),
        Answer::Erased | Answer::Fired | Answer::Time(_) | Answer::Decided { .. } => {
            shared
                .lock()
                .unreadable(call.to_string(), DivergenceKind::Erased, at);
            return Poll::Pending;
        }
    };
    match read {
        Ok(result) => Poll::Ready(result),
        Err(error) => {
            let kind = DivergenceKind::Unreadable(error.to_string());
            shared.lock().unreadable(call.to_string(), kind, at);
            Poll::Pending
        }
    }
}

impl<P: Policy<T>, T, F, Fut> Drop for Call<P, T, F, Fut> {
    fn drop(&mut self) {
        if let State::Made(number) = self.state {
            if matches!(self.running, Running::Late { .. }) {
                self.shared.lock().drop_late();
            }
            self.shared.lock().dropped(number);
        }
    }
}
