//! What a book offers for steps of their own.

use std::{sync::Arc, time::Duration};

use deedbook_journal::{
    guard::{Forgotten, switch},
    history::CallKind,
    id::ThreadId,
    operator::{self, Found, OperatorError},
};

use super::{CallError, Gate, Guard};
use crate::{
    book::{Deedbook, Resolution},
    error::{Error, ErrorKind},
    policy::NoPolicy,
    random::message_id,
};

impl Deedbook {
    /// Declares a step without a workflow; see [`Guard`].
    pub fn guard(&self, name: &str) -> Guard<NoPolicy> {
        Guard::new(self.gate().clone(), name)
    }

    /// Lets a settled step of its own happen anew, under a fresh key: the next call runs its body.
    /// Who asked for it, and why, is recorded.
    ///
    /// # Errors
    /// [`CallError::Journal`] of kind [`ErrorKind::Refused`] if it is under way or in doubt.
    pub async fn reset(
        &self,
        thread: impl AsRef<str>,
        by: &str,
        reason: &str,
    ) -> Result<(), CallError> {
        Ok(self.gate().reset(&ThreadId::any(thread)?, by, reason).await?)
    }

    /// Erases the arguments, results and errors of steps of their own that were settled longer ago
    /// than that, one after another. That each happened stays, with its key, and keeps it from
    /// happening again: a later caller is told [`CallError::NoResult`], or [`CallError::Failed`]
    /// without what went wrong. Each erasure is recorded, with who asked for it and why. What is
    /// open, under way or in doubt is left as it is.
    ///
    /// The file's free pages keep the bytes until it is compacted; copies in the threads of
    /// workflows are theirs, and stay. Outcomes that other processes keep in memory
    /// ([`crate::Builder::outcomes_kept`]) stay there as long as they do.
    ///
    /// **Cancel safety.** Dropped, it has erased some; the next call goes on.
    ///
    /// # Errors
    /// [`CallError::Journal`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use deedbook::{CallError, Deedbook};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let book = Deedbook::memory().start().await?;
    /// let mail = async || {
    ///     book.guard("mail").idempotent().key("ORD-42").call("ann@example.org", async |_| Ok(7)).await
    /// };
    /// assert_eq!(mail().await?, 7);
    /// // In production 90 days.
    /// tokio::time::sleep(Duration::from_millis(20)).await;
    /// let gone = book.forget(Duration::from_millis(10), "ops:retention", "older than we keep").await?;
    /// assert_eq!((gone.steps, gone.payloads), (1, 2));
    /// assert!(matches!(mail().await, Err(CallError::NoResult { .. })), "never sent twice");
    /// # book.shutdown().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn forget(
        &self,
        older_than: Duration,
        by: &str,
        reason: &str,
    ) -> Result<Forgotten, CallError> {
        let gate = self.gate();
        let before = gate.store.now().await?.before(older_than);
        Ok(gate.forget(before, by, reason).await?)
    }

    /// Turns all guards of the journal off, or on again: while they are off every call runs its
    /// body, under a key of its own. Who did so, and why, is recorded, and so is every call.
    ///
    /// # Errors
    /// The journal failed.
    pub async fn guards(&self, on: bool, by: &str, reason: &str) -> Result<(), CallError> {
        let gate = self.gate();
        switch(&*gate.store, on, by, reason, gate.seed()).await?;
        Ok(())
    }

    /// Nobody runs a step of its own, so what is said of it is written at once.
    pub(crate) async fn resolve_guarded(
        &self,
        thread: &ThreadId,
        step: &str,
        resolution: Resolution,
        by: &str,
        reason: &str,
    ) -> Result<(), Error> {
        let gate = self.gate();
        let about = |kind, why: String| Error::new(kind, why).thread(thread);
        let found = Found::load(&*gate.store, thread).await;
        let found = found.map_err(|error| about(ErrorKind::NotFound, error.to_string()))?;
        let call = found
            .history
            .find(CallKind::Step, step)
            .ok_or_else(|| about(ErrorKind::NotFound, format!("there is no step {step:?}")))?;
        let said = operator::resolve(message_id(), &call.id, resolution.0, reason, by)?;
        let holder = &gate.options.holder;
        let acted = operator::act(&*gate.store, thread, &said, holder, gate.seed()).await;
        gate.settled_by_person(thread);
        acted.map(drop).map_err(|error| match error {
            OperatorError::Store(error) => Error::from(error).thread(thread),
            error => about(ErrorKind::Refused, error.to_string()),
        })
    }

    fn gate(&self) -> &Arc<Gate> {
        &self.worker.house.gate
    }
}
