//! A step of the whole journal: it is a thread of its own, and this workflow is given a copy of its
//! outcome.
//!
//! The same guard stands behind it as behind [`Deedbook::guard`](crate::Deedbook::guard), so that
//! whoever wants the operation, in whatever workflow or without one, meets there. While somebody
//! else is at it, or nobody knows whether it happened, the workflow waits.

use std::{
    future::Future,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context as Cx, Poll, Waker},
};

use deedbook_journal::{
    failure::Failure,
    guard::{Settled, Wanted},
    history::Answer,
    id::ThreadId,
    limits::ValueLimits,
    record::Link,
    value,
};
use serde::{Serialize, de::DeserializeOwned};

use super::call::{State, deliver};
use crate::{
    desk::{Reused, Shared, Told, Trouble},
    error::{ErrorKind, StepError},
    guard::{CallError, Gate, Guard},
    policy::{Policy, Receives},
    wake::BodyWaker,
    workflow::Result,
};

/// The future of a step of the whole journal.
pub(super) struct SharedCall<T, Fut> {
    shared: Arc<Shared>,
    state: State,
    /// Brings the outcome; `None` once it has, or if the call was never made.
    bringing: Option<Pin<Box<Fut>>>,
    begun: bool,
    span: tracing::Span,
    waker: Option<Waker>,
    result: PhantomData<fn() -> T>,
}

impl<T, Fut> SharedCall<T, Fut> {
    pub(super) fn new(shared: Arc<Shared>, state: State, bringing: Option<Fut>) -> Self {
        Self {
            shared,
            state,
            bringing: bringing.map(Box::pin),
            begun: false,
            span: tracing::Span::none(),
            waker: None,
            result: PhantomData,
        }
    }
}

// What brings the outcome is boxed before it is pinned; nothing else here is ever pinned.
impl<T, Fut> Unpin for SharedCall<T, Fut> {}

impl<T, Fut> Future for SharedCall<T, Fut>
where
    T: DeserializeOwned,
    Fut: Future<Output = Reused>,
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
        let told = this.shared.lock().ask(number, cx.waker());
        if let Told::Outcome(answer) = told {
            // It may have been brought before, and dropped by the code.
            this.bringing = None;
            return deliver(&this.shared, &answer);
        }
        this.state = State::Made(number);
        if let Told::Start { attempt, .. } = told {
            this.begun = true;
            this.span = this.shared.lock().span(number, attempt, false);
        }
        this.drive(number);
        Poll::Pending
    }
}

impl<T, Fut: Future<Output = Reused>> SharedCall<T, Fut> {
    /// Polls what brings the outcome. It becomes a record, which is offered like every other.
    fn drive(&mut self, number: u64) {
        let Some(bringing) = self.bringing.as_mut().filter(|_| self.begun) else {
            return;
        };
        let wakeups = &self.shared.wakeups;
        let waker = self.waker.get_or_insert_with(|| {
            Arc::new(BodyWaker { wakeups: wakeups.clone(), call: number }).into()
        });
        let mut cx = Cx::from_waker(waker);
        self.shared.lock().enter_body(number);
        let span = self.span.clone();
        let _entered = span.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| bringing.as_mut().poll(&mut cx)));
        let mut desk = self.shared.lock();
        desk.leave_body();
        match polled {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(reused)) => {
                desk.reused(number, reused);
                drop(desk);
                self.bringing = None;
            }
            // Panics of bodies and probes end there. This is our own fault, and nothing may follow.
            Err(panic) => {
                let said = super::panic_message(&*panic);
                let why = format!("what brings the outcome of a shared step panicked: {said}");
                desk.trouble(Trouble::Misused(why));
                drop(desk);
                self.bringing = None;
            }
        }
    }
}

impl<T, Fut> Drop for SharedCall<T, Fut> {
    fn drop(&mut self) {
        // The guard records that nobody knows what became of a body under way.
        self.bringing = None;
        if let State::Made(number) = self.state {
            self.shared.lock().dropped(number);
        }
    }
}

/// Brings the outcome of a step of the whole journal, whoever brings it about.
pub(super) async fn bring<P, T, F, Fut>(
    shared: Arc<Shared>,
    mut guard: Guard<P>,
    wanted: Wanted,
    mut body: F,
) -> Reused
where
    P: Policy<T> + Receives,
    T: Serialize + DeserializeOwned + Send,
    F: FnOnce(P::Operation) -> Fut + Clone + Send,
    Fut: Future<Output = Result<T, StepError>> + Send,
{
    let own = wanted.thread(guard.gate().store.identity()).ok();
    loop {
        let settled = guard.settle(&wanted, &mut body).await;
        if let Some(own) = &own {
            shared.lock().shared_doubts.remove(own);
        }
        let error = match settled {
            // What a person said of it can be said otherwise: until it can be read, it is no copy.
            Ok((settled, _)) if !reads::<T>(&settled) => {
                tracing::warn!(thread = %settled.thread, "the outcome is no value of the step's type");
                if guard.gate().change(&settled.thread).await.is_err() {
                    return std::future::pending().await;
                }
                continue;
            }
            Ok((settled, _)) => match copy(guard.gate(), &settled).await {
                Ok(reused) => return reused,
                Err(error) => error,
            },
            Err(error) => error,
        };
        let thread = match error {
            CallError::InDoubt { doubt, .. } => {
                let said = format!(
                    "step {} ({}), which is in doubt: {}",
                    doubt.step, doubt.thread, doubt.doubt
                );
                shared.lock().shared_doubts.insert(doubt.thread.clone(), said.into());
                doubt.thread
            }
            CallError::InFlight(flight) => flight.thread,
            // Somebody else has it now.
            CallError::Lost { .. } => continue,
            CallError::Journal(error) if error.kind() == ErrorKind::Refused => {
                return failed(&Failure::new(error.to_string()).code("refused"), own);
            }
            // The run that asks is lost with the journal.
            CallError::Journal(_) => return std::future::pending().await,
            CallError::Conflict(conflict) => {
                let thread = conflict.thread.clone();
                let failure = Failure::new(CallError::Conflict(conflict).to_string());
                return failed(&failure.code("conflict"), Some(thread));
            }
            error => return failed(&Failure::new(error.to_string()), None),
        };
        if guard.gate().change(&thread).await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Whether an outcome can be given to the workflow.
fn reads<T: DeserializeOwned>(settled: &Settled) -> bool {
    let bytes = settled.result();
    bytes.is_none_or(|bytes| value::decode::<T>(bytes, &ValueLimits::new()).is_ok())
}

/// A copy of an outcome, and where it stands.
async fn copy(gate: &Gate, settled: &Settled) -> Result<Reused, CallError> {
    let page = gate.store.read(&settled.thread, settled.position, 1).await?;
    let hash = page.items.first().map(|(_, record)| record.hash);
    // That something was erased is told as a result that could not be stored is.
    let erased = settled.failure().filter(|_| matches!(settled.answer, Answer::Erased { .. }));
    let told = erased.and_then(|failure| value::encode(&failure, &ValueLimits::new()).ok());
    let answer = match told {
        Some(told) if settled.failed() => Answer::Failed(told.into()),
        Some(told) => Answer::Unstored(told.into()),
        None => settled.answer.clone(),
    };
    Ok(Reused {
        answer,
        key: settled.key.clone(),
        link: Link { thread: Some(settled.thread.clone()), n: Some(settled.position), hash },
    })
}

/// What this workflow is given where the step has no outcome for it.
fn failed(failure: &Failure, thread: Option<ThreadId>) -> Reused {
    let bytes = value::encode(failure, &ValueLimits::new());
    Reused {
        answer: bytes.map_or(Answer::Erased { failed: true }, |b| Answer::Failed(b.into())),
        key: None,
        link: Link { thread, ..Link::default() },
    }
}

/// A step of its thread, or of the whole journal.
pub(super) enum Either<A, B> {
    Own(A),
    Shared(B),
}

impl<A, B, T> Future for Either<A, B>
where
    A: Future<Output = T> + Unpin,
    B: Future<Output = T> + Unpin,
{
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<T> {
        match &mut *self {
            Self::Own(own) => Pin::new(own).poll(cx),
            Self::Shared(shared) => Pin::new(shared).poll(cx),
        }
    }
}
