//! The context: how a workflow reaches everything that can differ between two executions.

use std::{cell::Cell, fmt, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use deedbook_journal::{
    failure::Failure,
    history::{Answer, CallKind},
    id::{Branch, Name, StoreTime, ThreadId},
    value,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    approval::Approval,
    branch::Gather,
    desk::{Shared, Trouble},
    error::{WorkflowError, WorkflowErrorKind},
    policy::NoPolicy,
    signal::{Signal, waiting},
    step::Step,
    workflow::Result,
};

/// A workflow's hands: steps, timers, signals, approvals, time and chance.
///
/// It is owned, cheap to clone, `Send`, and not `Sync`: a durable call inside a step's body that
/// borrows the workflow's context does not compile, and one through a clone that was moved into
/// the body is refused at run time, before anything of it happens.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
    branch: Branch,
    not_sync: PhantomData<Cell<()>>,
}

impl Context {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, branch: Branch::root(), not_sync: PhantomData }
    }

    /// The thread's id.
    #[must_use]
    pub fn thread_id(&self) -> ThreadId {
        self.shared.lock().history.thread().clone()
    }

    /// Declares a step; see [`Step`].
    ///
    /// # When it does not compile
    /// A body cannot use the context (the error names `Cell<()>` and `Sync`), nor change what it
    /// captures (it names `&mut` and `Clone`). The section *Common compile errors* of
    /// `docs/start/README.md` says why, and what to write instead:
    ///
    /// ```
    /// use deedbook::{Context, Result};
    ///
    /// async fn order(ctx: Context) -> Result<u64> {
    ///     // Not a step inside a body, but one after the other, and the result as an argument.
    ///     let price: u64 = ctx.step("price").read().run(&(), async |_| Ok(42)).await?;
    ///     ctx.step("pay").idempotent().run(&price, async |_| Ok(price)).await
    /// }
    /// ```
    pub fn step(&self, name: &str) -> Step<NoPolicy> {
        Step::new(self.shared.clone(), self.branch.clone(), name)
    }

    /// A branch of the workflow: the same step name in two branches is two steps.
    ///
    /// A name that cannot be used (empty, longer than 512 bytes, or the 65th level) stops the run
    /// as stalled.
    #[must_use]
    pub fn branch(&self, name: &str) -> Self {
        let branch = match Name::new(name).and_then(|name| self.branch.child(name)) {
            Ok(branch) => branch,
            Err(error) => {
                self.misused(&error.to_string());
                self.branch.clone()
            }
        };
        Self { shared: self.shared.clone(), branch, not_sync: PhantomData }
    }

    /// Runs `each` for every item, side by side, each item in a branch of its own
    /// (`name/0`, `name/1`, …), and gathers the results in the order of the items. The first
    /// error wins and drops the others.
    pub fn map<I, T, R, F, Fut>(
        &self,
        name: &str,
        items: I,
        each: F,
    ) -> impl Future<Output = Result<Vec<R>>> + Send + use<I, T, R, F, Fut>
    where
        I: IntoIterator<Item = T>,
        R: Send,
        F: Fn(Self, T) -> Fut,
        Fut: Future<Output = Result<R>> + Send,
    {
        let branch = self.branch(name);
        let items = items.into_iter().enumerate();
        Gather::new(items.map(|(n, item)| each(branch.branch(&n.to_string()), item)))
    }

    /// Waits, durably: a restart does not begin the wait anew.
    pub fn sleep(
        &self,
        name: &str,
        time: Duration,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let timer = waiting(&self.shared, CallKind::Timer, &self.branch, name, time, None);
        async move {
            timer?.await;
            Ok(())
        }
    }

    /// Waits for a value that somebody sends under this name; see [`Signal`].
    pub fn signal<T: DeserializeOwned + Send + 'static>(&self, name: &str) -> Signal<T> {
        Signal::new(self.shared.clone(), self.branch.clone(), name)
    }

    /// Asks a person, who is shown `shown`; see [`Approval`].
    pub fn approval<S: Serialize + ?Sized>(&self, name: &str, shown: &S) -> Approval {
        Approval::new(self.shared.clone(), self.branch.clone(), name, shown)
    }

    /// What time it is, by the store's clock: recorded, so that replay reads the same.
    pub fn now(&self) -> impl Future<Output = Result<StoreTime>> + Send + use<> {
        let kind = CallKind::Clock;
        let reading = waiting(&self.shared, kind, &self.branch, "now", Duration::ZERO, None);
        async move {
            match reading?.await {
                Answer::Time(time) => Ok(time),
                _ => std::future::pending().await,
            }
        }
    }

    /// A UUID (version 8) that is equal in every execution: derived from the journal, the thread,
    /// the branch, and how often it was asked for there.
    #[must_use]
    pub fn uuid(&self) -> uuid::Uuid {
        self.shared.lock().derived(&self.branch, "deedbook:uuid")
    }

    /// A number that is equal in every execution, spread evenly, and not secret.
    #[must_use]
    pub fn random(&self) -> u64 {
        let derived = self.shared.lock().derived(&self.branch, "deedbook:random");
        // The first six bytes and the last ones are free of the UUID's fixed bits.
        let (high, low) = derived.as_u64_pair();
        high.rotate_left(32) ^ low
    }

    /// Whether the code may take its new way.
    ///
    /// A thread that has passed this place before the change stays on its old way (`false`); the
    /// first answer is recorded and sticks.
    ///
    /// A name that cannot be used (empty, or longer than 512 bytes) stops the run as stalled.
    #[must_use]
    pub fn patched(&self, name: &str) -> bool {
        match Name::new(name) {
            Ok(name) => self.shared.lock().patched(name.as_str()),
            Err(error) => {
                self.misused(&format!("`patched(..)`: {error}"));
                false
            }
        }
    }

    /// Ends this episode of the thread and begins the next one with `input`, which must be an
    /// input of this workflow: the code starts anew, and what it did before is not replayed any
    /// more. For threads that go on for months.
    ///
    /// Signals that were not delivered go over, and so do steps identified by key or by
    /// arguments. While a body is under way or a doubt is open the thread stalls instead.
    ///
    /// Never resolves, but to an error if the input cannot be recorded:
    /// `return Err(ctx.continue_as_new(&next).await)`.
    pub fn continue_as_new<I: Serialize + ?Sized>(
        &self,
        input: &I,
    ) -> impl Future<Output = WorkflowError> + Send + use<I> {
        let mut desk = self.shared.lock();
        let failed = match value::encode(input, &desk.limits) {
            Ok(input) => {
                desk.continues_with = Some(input);
                None
            }
            Err(error) => {
                let kind = WorkflowErrorKind::NotRecordable;
                Some(WorkflowError::of_call(kind, "continue_as_new", Failure::of(&error)))
            }
        };
        async move {
            match failed {
                Some(error) => error,
                None => std::future::pending().await,
            }
        }
    }

    /// Says that calls of this name, which older code made, are not made any more: their records
    /// are no divergence. Say it before the place at which they were made; what they were given
    /// is not undone.
    ///
    /// A name that cannot be used (empty, or longer than 512 bytes) stops the run as stalled.
    pub fn retired(&self, name: &str) {
        match Name::new(name) {
            Ok(name) => self.shared.lock().retired(name.as_str()),
            Err(error) => self.misused(&format!("`retired(..)`: {error}")),
        }
    }

    fn misused(&self, why: &str) {
        self.shared.lock().trouble(Trouble::Misused(why.to_owned()));
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("branch", &self.branch).finish_non_exhaustive()
    }
}
