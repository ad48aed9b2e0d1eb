//! The future of a step: drives the body, and is given the outcome.

use std::{
    any::{Any, type_name},
    future::Future,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context as Cx, Poll, Waker},
};

use deedbook_journal::{
    failure::Failure,
    history::{Answer, DivergenceKind},
    limits::ValueLimits,
    value,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    desk::{BodyEnd, Making, Shared, Told},
    error::{StepError, WorkflowError, WorkflowErrorKind},
    operation::Operation,
    policy::{Policy, Probe, Receives},
    wake::BodyWaker,
    workflow::Result,
};

/// Where a call's future stands.
pub(super) enum State {
    /// It was never made: its arguments cannot be recorded.
    Refused(WorkflowError),
    /// The run cannot go on; the executor knows why.
    Stuck,
    /// It was made under this number.
    Made(u64),
    /// It was given its outcome.
    Over,
}

pub(super) fn make(shared: &Shared, making: Making) -> State {
    shared.lock().make(making).map_or(State::Stuck, State::Made)
}

/// The future of a step.
pub(super) struct Call<P, T, F, Fut>
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

impl<P: Policy<T>, T, F, Fut> Call<P, T, F, Fut> {
    pub(super) fn new(shared: Arc<Shared>, state: State, policy: Option<P>, body: F) -> Self {
        Self {
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
            Told::Outcome(answer) => return this.deliver(number, &answer),
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
    fn deliver(&mut self, number: u64, answer: &Answer) -> Poll<Result<T>> {
        let limits = self.shared.limits;
        let read = read::<T>(&self.shared, answer, &limits);
        if let Err(DivergenceKind::Unreadable(why)) = &read
            && self.shared.lock().misread(number, type_name::<T>(), why)
        {
            return Poll::Pending;
        }
        self.stop_late();
        self.state = State::Over;
        let again = self.shared.lock().sent_before();
        if let Some(operation) = again.and_then(|op| P::receive(op.attempt(), Some(op))) {
            let mut body = Box::pin(self.body.clone()(operation));
            let _ = body.as_mut().poll(&mut Cx::from_waker(Waker::noop()));
        }
        delivered(&self.shared, read)
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
            Running::Probe(_) => self.shared.lock().probe_ended(number, Err(BodyEnd::TimedOut)),
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
        let wakeups = &self.shared.wakeups;
        self.waker.get_or_insert_with(|| {
            Arc::new(BodyWaker { wakeups: wakeups.clone(), call: number }).into()
        });
        let limits = self.shared.limits;
        self.shared.lock().enter_body(number);
        let span = self.span.clone();
        let _entered = span.enter();
        let polled = self.poll_user(limits);
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

    /// One poll of the user's code. A panic in it goes no further.
    fn poll_user(&mut self, limits: ValueLimits) -> std::thread::Result<Polled> {
        let mut cx = Cx::from_waker(self.waker.as_ref().unwrap_or(Waker::noop()));
        catch_unwind(AssertUnwindSafe(|| match &mut self.running {
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
                    answer.map_err(BodyEnd::Failed).and_then(|probe| encode_probe(&probe, &limits)),
                ),
            },
        }))
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
    limits: &ValueLimits,
) -> Result<Vec<u8>, BodyEnd> {
    let encoded = value::encode_exact(&result.map_err(BodyEnd::Failed)?, limits);
    encoded.map(|(bytes, _)| bytes).map_err(|e| BodyEnd::Unstorable(Failure::of(&e)))
}

fn encode_probe<T: Serialize + DeserializeOwned>(
    probe: &Probe<T>,
    limits: &ValueLimits,
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

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no message)").to_owned()
}

/// Decodes an outcome for the workflow.
pub(crate) fn deliver<T: DeserializeOwned>(shared: &Shared, answer: &Answer) -> Poll<Result<T>> {
    let limits = shared.limits;
    delivered(shared, read(shared, answer, &limits))
}

fn read<T: DeserializeOwned>(
    shared: &Shared,
    answer: &Answer,
    limits: &ValueLimits,
) -> Result<Result<T>, DivergenceKind> {
    let failed = |kind, bytes: &[u8]| {
        let (call, _) = shared.lock().last_taken();
        let failure = value::decode(bytes, &ValueLimits::new());
        failure.map(|failure: Failure| WorkflowError::of_call(kind, &call, failure))
    };
    let read = match answer {
        Answer::Value(bytes) => value::decode::<T>(bytes, limits).map(Ok),
        Answer::Failed(bytes) => failed(WorkflowErrorKind::StepFailed, bytes).map(Err),
        Answer::Unstored(bytes) => failed(WorkflowErrorKind::ResultNotStored, bytes).map(Err),
        Answer::Erased { .. } | Answer::Fired | Answer::Time(_) | Answer::Decided { .. } => {
            return Err(DivergenceKind::Erased);
        }
    };
    read.map_err(|error| DivergenceKind::Unreadable(error.to_string()))
}

fn delivered<T>(shared: &Shared, read: Result<Result<T>, DivergenceKind>) -> Poll<Result<T>> {
    match read {
        Ok(result) => Poll::Ready(result),
        Err(kind) => {
            let mut desk = shared.lock();
            let (call, at) = desk.last_taken();
            desk.unreadable(call.to_string(), kind, at);
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
