//! Signals: values that others send to a thread. A name is a queue.

use std::{
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use deedbook_journal::{
    failure::Failure,
    history::CallKind,
    id::{Branch, Name},
};
use serde::de::DeserializeOwned;

use crate::{
    desk::{Identify, Making, Shared},
    error::{WorkflowError, WorkflowErrorKind},
    retry::Retry,
    step::deliver,
    wait::Waiting,
    workflow::Result,
};

/// A wait for a signal: await it, or bound it first.
///
/// The k-th wait for a name is given the k-th value sent under it; values may arrive before they
/// are waited for.
#[must_use = "a wait does nothing until it is awaited"]
#[derive(Debug)]
pub struct Signal<T> {
    shared: Arc<Shared>,
    branch: Branch,
    name: String,
    within: Option<Duration>,
    value: PhantomData<fn() -> T>,
}

impl<T> Signal<T> {
    pub(crate) fn new(shared: Arc<Shared>, branch: Branch, name: &str) -> Self {
        Self { shared, branch, name: name.to_owned(), within: None, value: PhantomData }
    }

    /// Waits no longer than this: then the wait is an error of kind
    /// [`WorkflowErrorKind::TimedOut`].
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for Signal<T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { shared, branch, name, within, .. } = self;
        let made: Result<(Waiting, Option<Waiting>)> = (|| {
            let signal = waiting(&shared, CallKind::Signal, &branch, &name, Duration::ZERO, None)?;
            let timer = within
                .map(|time| {
                    waiting(
                        &shared,
                        CallKind::Timer,
                        &branch,
                        &format!("signal {name}"),
                        time,
                        None,
                    )
                })
                .transpose()?;
            Ok((signal, timer))
        })();
        Box::pin(async move {
            let (signal, timer) = made?;
            match first(signal, timer).await {
                First::Answer(answer) => std::future::poll_fn(|_| deliver(&shared, &answer)).await,
                First::TimedOut => Err(timed_out(&name, within.unwrap_or_default())),
            }
        })
    }
}

/// Which of the two came first.
pub(crate) enum First {
    Answer(deedbook_journal::history::Answer),
    TimedOut,
}

/// Waits for an answer or for a timer. Only one of the two is ever ready in one poll.
pub(crate) async fn first(mut answer: Waiting, mut timer: Option<Waiting>) -> First {
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(answer) = Pin::new(&mut answer).poll(cx) {
            return Poll::Ready(First::Answer(answer));
        }
        match &mut timer {
            Some(timer) => Pin::new(timer).poll(cx).map(|_| First::TimedOut),
            None => Poll::Pending,
        }
    })
    .await
}

pub(crate) fn timed_out(name: &str, after: Duration) -> WorkflowError {
    let failure = Failure::new(format!("nothing came within {after:?}")).code("timed_out");
    WorkflowError::of_call(WorkflowErrorKind::TimedOut, name, failure)
}

/// Makes a call that waits.
pub(crate) fn waiting(
    shared: &Arc<Shared>,
    kind: CallKind,
    branch: &Branch,
    name: &str,
    runs: Duration,
    args: Option<Vec<u8>>,
) -> Result<Waiting> {
    let refuse = |error| {
        let failure = Failure::of(&error);
        WorkflowError::of_call(WorkflowErrorKind::NotRecordable, name, failure)
    };
    let making = Making {
        kind,
        branch: branch.clone(),
        name: Name::new(name).map_err(refuse)?,
        identity: Identify::Positional,
        terms: None,
        retry: Retry::default(),
        args,
        runs,
        redact: Vec::new(),
        shared: false,
    };
    Ok(Waiting::new(shared.clone(), making))
}
