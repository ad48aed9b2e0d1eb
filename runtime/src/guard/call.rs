//! Calling a guarded step.

use std::{any::type_name, future::Future, time::Duration};

use deedbook_journal::{
    failure::Failure,
    guard::{After, Answered, Settled, Ticket, Wanted},
    history::{Answer, Doubt},
    key::OperationKey,
    value,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    CallError, Called, Entry, Guard, Source,
    gate::{Attempt, Ended},
};
use crate::{
    error::{Class, StepError},
    operation::Operation,
    policy::{Policy, Probe, Receives},
};

impl<P> Guard<P> {
    /// Runs the body, or gives what is recorded.
    ///
    /// The arguments are recorded and compared. What the body captures is its *hands*, not its
    /// input. It is cloned for each attempt, and it runs only when its intent is durable.
    ///
    /// # Errors
    /// [`CallError`] says what became of it.
    ///
    /// **Cancel safety.** Dropping the future while the body runs is recorded: nobody knows then
    /// whether it had its effect.
    pub async fn call<A, T, F, Fut>(self, args: &A, body: F) -> Result<T, CallError>
    where
        P: Policy<T> + Receives,
        A: Serialize + ?Sized,
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce(P::Operation) -> Fut + Clone + Send,
        Fut: Future<Output = Result<T, StepError>> + Send,
    {
        Ok(self.call_told(args, body).await?.value)
    }

    /// As [`call`](Self::call), for a body that blocks its thread: it runs where blocking is
    /// allowed.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_blocking<A, T, F>(self, args: &A, body: F) -> Result<T, CallError>
    where
        P: Policy<T> + Receives,
        P::Operation: 'static,
        A: Serialize + ?Sized,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(P::Operation) -> Result<T, StepError> + Clone + Send + 'static,
    {
        let body = async move |operation| {
            let run = tokio::task::spawn_blocking(move || body(operation));
            match run.await {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(error) => Err(error.into()),
                },
            }
        };
        self.call(args, body).await
    }

    /// As [`call`](Self::call), and tells where the result comes from.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_told<A, T, F, Fut>(
        mut self,
        args: &A,
        mut body: F,
    ) -> Result<Called<T>, CallError>
    where
        P: Policy<T> + Receives,
        A: Serialize + ?Sized,
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce(P::Operation) -> Fut + Clone + Send,
        Fut: Future<Output = Result<T, StepError>> + Send,
    {
        let mut wanted = self.wanted(args)?;
        if let Some(off) = self.gate.switch.off(&*self.gate.store).await? {
            tracing::warn!(step = self.name, by = &*off.by, "guards are off: the body runs");
            wanted = wanted.unguarded(self.gate.seed());
        }
        // Boxed, so that the caller's own future stays small.
        let (settled, replayed) = Box::pin(self.settle(&wanted, &mut body)).await?;
        let source = Source::of(&settled, replayed);
        if let Some(tell) = self.on_replay.as_ref().filter(|_| replayed) {
            tell(&source);
        }
        self.given(&settled, source)
    }

    /// Brings the step to its outcome, or says why there is none; and whether that was recorded
    /// before.
    pub(crate) async fn settle<T, F, Fut>(
        &mut self,
        wanted: &Wanted,
        body: &mut F,
    ) -> Result<(Settled, bool), CallError>
    where
        P: Policy<T> + Receives,
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce(P::Operation) -> Fut + Clone + Send,
        Fut: Future<Output = Result<T, StepError>> + Send,
    {
        let mut tries = 1;
        loop {
            let entry = self.gate.enter(wanted, self.duplicates).await?;
            match self.carry_on(wanted, entry, body).await? {
                Done::Settled(settled, replayed) => return Ok((settled, replayed)),
                Done::Again { wait, .. } if tries < self.retry.attempts => {
                    let now = self.gate.store.now().await?;
                    let wait = wait.unwrap_or_else(|| self.retry.wait_after(tries));
                    self.gate.clock.sleep(now, now.after(wait)).await;
                    tries += 1;
                }
                Done::Again { error, .. } => return Err(*error),
            }
        }
    }

    /// Does what may be done.
    async fn carry_on<T, F, Fut>(
        &mut self,
        wanted: &Wanted,
        mut entry: Entry,
        body: &mut F,
    ) -> Result<Done, CallError>
    where
        P: Policy<T> + Receives,
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce(P::Operation) -> Fut + Clone + Send,
        Fut: Future<Output = Result<T, StepError>> + Send,
    {
        loop {
            entry = match entry {
                Entry::Settled(settled) => {
                    tracing::debug!(thread = %settled.thread, "a recorded outcome is given");
                    return Ok(Done::Settled(settled, true));
                }
                Entry::Run(ticket) => return self.run(wanted, ticket, body.clone()).await,
                Entry::Ask(ticket) => self.ask(ticket).await?,
            };
        }
    }

    /// Asks the downstream.
    async fn ask<T>(&mut self, ticket: Box<Ticket>) -> Result<Entry, CallError>
    where
        P: Policy<T> + Receives,
        T: Serialize,
    {
        let mut attempt = Attempt::asking(&self.gate, ticket);
        let asking = attempt.operation().and_then(|operation| self.policy.ask(operation));
        let Some(asking) = asking else {
            return Err(CallError::invalid(
                "the step is recorded as one whose other side can be asked; declare \
                 `.reconcile(probe)`",
            ));
        };
        let answer = match attempt.drive(asking).await? {
            Ended::Returned(Ok(Probe::Happened(value))) => {
                match value::encode(&value, &self.gate.options.values) {
                    Ok(bytes) => Answered::Happened(bytes),
                    Err(_) => Answered::Inconclusive,
                }
            }
            Ended::Returned(Ok(Probe::DidNotHappen)) => Answered::DidNotHappen,
            _ => Answered::Inconclusive,
        };
        let Some(ticket) = attempt.over() else { return Err(CallError::Lost { kept: false }) };
        self.gate.answer(ticket, answer).await
    }

    /// Runs the body once.
    async fn run<T, F, Fut>(
        &mut self,
        wanted: &Wanted,
        ticket: Box<Ticket>,
        body: F,
    ) -> Result<Done, CallError>
    where
        P: Policy<T> + Receives,
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce(P::Operation) -> Fut + Clone + Send,
        Fut: Future<Output = Result<T, StepError>> + Send,
    {
        let number = ticket.operation().attempt;
        let mut attempt = Attempt::new(&self.gate, ticket);
        let ended = match P::receive(number, attempt.operation()) {
            Some(operation) => attempt.drive(body(operation)).await?,
            None => Ended::Panicked("the operation has no key".to_owned()),
        };
        let Some(ticket) = attempt.over() else { return Err(CallError::Lost { kept: false }) };
        match ended {
            Ended::Returned(Ok(value)) => {
                let encoded = value::encode_exact(&value, &self.gate.options.values);
                let result = encoded.map(|(bytes, _)| bytes).map_err(|e| Failure::of(&e));
                let settled = self.gate.complete(ticket, wanted, result).await?;
                Ok(Done::Settled(settled, false))
            }
            Ended::Returned(Err(error)) => self.failed(ticket, error).await,
            Ended::Panicked(said) => {
                let failure = Failure::new(format!("the body panicked: {said}")).code("panic");
                self.unknown(ticket, Doubt::Panic, failure, None).await
            }
            Ended::TimedOut => {
                let failure = Failure::new("the body took longer than its timeout").code("timeout");
                self.unknown(ticket, Doubt::Timeout, failure, None).await
            }
        }
    }

    async fn failed(&mut self, ticket: Ticket, error: StepError) -> Result<Done, CallError> {
        let (failure, wait) = (error.failure, error.retry_after);
        let finally = match error.class {
            Class::Unlabelled => {
                return self.unknown(ticket, Doubt::Unlabelled, failure, wait).await;
            }
            Class::Terminal => true,
            Class::NotApplied => false,
        };
        let after = self.gate.fail(ticket, &failure, finally).await?;
        not_done(after, failure, wait, false)
    }

    async fn unknown(
        &mut self,
        ticket: Ticket,
        why: Doubt,
        failure: Failure,
        wait: Option<Duration>,
    ) -> Result<Done, CallError> {
        let after = self.gate.unknown(ticket, why, &failure).await?;
        not_done(after, failure, wait, true)
    }

    /// Decodes an outcome for the caller.
    fn given<T: DeserializeOwned>(
        &self,
        settled: &Settled,
        source: Source,
    ) -> Result<Called<T>, CallError> {
        let failure = || settled.failure().unwrap_or_else(|| Failure::new("it cannot be read"));
        match &settled.answer {
            Answer::Value(bytes) => {
                let value = value::decode(bytes, &self.gate.options.values).map_err(|error| {
                    CallError::Unreadable { why: format!("`{}`: {error}", type_name::<T>()) }
                })?;
                Ok(Called { value, source })
            }
            _ if settled.failed() => {
                let thread = settled.thread.clone();
                Err(CallError::Failed { failure: failure(), replayed: source.replayed, thread })
            }
            _ => Err(CallError::NoResult {
                failure: failure(),
                thread: settled.thread.clone(),
                key: settled.key.clone(),
            }),
        }
    }
}

/// What became of the step in one go.
enum Done {
    /// It has its outcome, which was recorded before or is this attempt's.
    Settled(Settled, bool),
    /// The next attempt may begin.
    Again {
        /// What the caller is told if there is none.
        error: Box<CallError>,
        /// The wait that the body asked for.
        wait: Option<Duration>,
    },
}

/// An attempt brought no result.
fn not_done(
    after: After,
    failure: Failure,
    wait: Option<Duration>,
    ambiguous: bool,
) -> Result<Done, CallError> {
    match after {
        After::Settled(settled) => Ok(Done::Settled(settled, false)),
        After::Open => {
            let error = Box::new(CallError::NotDone { failure, ambiguous });
            Ok(Done::Again { error, wait })
        }
        After::InDoubt(doubt) => {
            Err(CallError::InDoubt { doubt: Box::new(doubt), failure: Some(failure) })
        }
    }
}

impl Attempt {
    /// What the body is given, unless the step is a read.
    fn operation(&self) -> Option<Operation> {
        let operation = self.ticket()?.operation();
        Some(Operation {
            key: operation.key.as_deref()?.parse::<OperationKey>().ok()?,
            attempt: operation.attempt,
            first_started_at: operation.first_started_at,
        })
    }
}
