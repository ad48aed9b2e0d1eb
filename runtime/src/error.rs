//! The three errors: inside a body, inside a workflow, and outside of both.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use deedbook_journal::{
    checkpointer::StoreError,
    failure::Failure,
    history::Divergence,
    id::{InvalidName, ThreadId},
    limits::RETRY_AFTER_SECS_MAX,
    value::ValueError,
};

/// What a body returns when it does not return a value.
///
/// Any [`std::error::Error`] converts by `?`, and then means *nobody knows whether the effect
/// happened*; say more where more is known: [`StepError::terminal`], [`StepError::not_applied`].
///
/// It does not implement [`std::error::Error`] itself, which is what lets everything that does
/// convert into it.
///
/// ```
/// use deedbook::StepError;
///
/// fn pay() -> Result<(), StepError> {
///     let refused = std::io::Error::other("account closed");
///     Err(StepError::from(refused).terminal())
/// }
/// assert_eq!(pay().unwrap_err().to_string(), "account closed");
/// ```
#[derive(Debug, Clone)]
pub struct StepError {
    pub(crate) class: Class,
    pub(crate) failure: Failure,
    pub(crate) retry_after: Option<Duration>,
}

/// What is known of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nothing.
    Unlabelled,
    /// Another attempt would fail the same way.
    Terminal,
    /// It had no effect.
    NotApplied,
}

impl StepError {
    /// An error from a text.
    #[must_use]
    pub fn new(message: impl AsRef<str>) -> Self {
        Self::of(Failure::new(message))
    }

    /// An error from a boxed one: for `anyhow::Error`, write
    /// `.map_err(|e| StepError::boxed(e.into()))`.
    #[must_use]
    pub fn boxed(error: Box<dyn StdError + Send + Sync>) -> Self {
        Self::of(Failure::of(&*error))
    }

    fn of(failure: Failure) -> Self {
        Self { class: Class::Unlabelled, failure, retry_after: None }
    }

    /// Says that the attempt failed for good: no other attempt is made, and the step has failed.
    #[must_use]
    pub fn terminal(mut self) -> Self {
        self.class = Class::Terminal;
        self
    }

    /// Says that the attempt certainly had no effect: another one may be made whatever the
    /// policy is.
    #[must_use]
    pub fn not_applied(mut self) -> Self {
        self.class = Class::NotApplied;
        self
    }

    /// Says when another attempt makes sense, if one is made at all: not before this time is over
    /// (a downstream that says `429` or `503` often says how long). It takes the place of the
    /// wait of [`Retry`](crate::Retry), is recorded like that one, and is at most a week.
    ///
    /// Whether there is another attempt is decided as without it: by what is known of this one
    /// and by the policy. A downstream that was too busy to do anything says
    /// [`not_applied`](Self::not_applied) too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use deedbook::{Context, Deedbook, Result, Retry, StepError, Workflow};
    ///
    /// struct Pay;
    ///
    /// impl Workflow for Pay {
    ///     const NAME: &'static str = "pay";
    ///     type Input = u64;
    ///     type Output = String;
    ///
    ///     async fn run(&self, ctx: Context, amount: &u64) -> Result<String> {
    ///         let retry = Retry::attempts(3).first(Duration::from_secs(3600));
    ///         ctx.step("pay").at_most_once().retry(retry).run(amount, async |op| {
    ///             if op.attempt() == 1 {
    ///                 let busy = StepError::new("429: too many requests").not_applied();
    ///                 return Err(busy.retry_after(Duration::from_millis(20)));
    ///             }
    ///             Ok(format!("paid at attempt {}", op.attempt()))
    ///         }).await
    ///     }
    /// }
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let book = Deedbook::memory().host(Pay).start().await?;
    /// // Not after an hour.
    /// assert_eq!(book.run::<Pay>("order-1", 4200).await?, "paid at attempt 2");
    /// # book.shutdown().await?;
    /// # Ok::<(), deedbook::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait.min(Duration::from_secs(RETRY_AFTER_SECS_MAX)));
        self
    }

    /// Gives the error a short word that the workflow can branch on ([`WorkflowError::code`]).
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.failure = self.failure.code(code);
        self
    }

    /// The error as it would be recorded.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Whether it says that the attempt had no effect.
    #[must_use]
    pub fn is_not_applied(&self) -> bool {
        self.class == Class::NotApplied
    }

    /// Whether it says that the attempt failed for good.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.class == Class::Terminal
    }

    /// The same error in other words: what is known of the effect stays.
    ///
    /// ```
    /// use deedbook::StepError;
    ///
    /// let error = StepError::new("401 for token hunter2").terminal();
    /// let told = error.map_texts(|text| text.replace("hunter2", "[secret]"));
    /// assert_eq!(told.to_string(), "401 for token [secret]");
    /// assert!(told.is_terminal());
    /// ```
    #[must_use]
    pub fn map_texts(mut self, map: impl Fn(&str) -> String) -> Self {
        self.failure.message = map(&self.failure.message);
        self.failure.causes = self.failure.causes.iter().map(|cause| map(cause)).collect();
        self
    }
}

impl<E: StdError + 'static> From<E> for StepError {
    fn from(error: E) -> Self {
        Self::of(Failure::of(&error))
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.failure, f)
    }
}

/// Says what is known of an error, at the end of a call.
///
/// ```
/// use deedbook::{StepError, StepResultExt};
///
/// fn reserve() -> Result<(), StepError> {
///     Err(std::io::Error::other("no connection")).not_applied()
/// }
/// # assert!(reserve().is_err());
/// ```
pub trait StepResultExt<T> {
    /// [`StepError::terminal`].
    ///
    /// # Errors
    /// The error, so labelled.
    fn terminal(self) -> Result<T, StepError>;

    /// [`StepError::not_applied`].
    ///
    /// # Errors
    /// The error, so labelled.
    fn not_applied(self) -> Result<T, StepError>;
}

impl<T, E: Into<StepError>> StepResultExt<T> for Result<T, E> {
    fn terminal(self) -> Result<T, StepError> {
        self.map_err(|e| e.into().terminal())
    }

    fn not_applied(self) -> Result<T, StepError> {
        self.map_err(|e| e.into().not_applied())
    }
}

/// What a workflow is given for a call that has no value, and what it returns when it fails.
///
/// Replay gives exactly the same one. Any [`std::error::Error`] converts by `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowError {
    kind: WorkflowErrorKind,
    call: Option<Arc<str>>,
    failure: Failure,
}

/// The kinds of [`WorkflowError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkflowErrorKind {
    /// A step failed for good.
    StepFailed,
    /// A step happened, and its result could not be stored.
    ResultNotStored,
    /// Arguments, a name or a value cannot be recorded; nothing was executed.
    NotRecordable,
    /// A wait was over before what it waited for came.
    TimedOut,
    /// Raised by the workflow's own code.
    Other,
}

impl WorkflowError {
    /// An error from a text.
    #[must_use]
    pub fn new(message: impl AsRef<str>) -> Self {
        Self { kind: WorkflowErrorKind::Other, call: None, failure: Failure::new(message) }
    }

    /// An error from a boxed one: for `anyhow::Error`, write
    /// `.map_err(|e| WorkflowError::boxed(e.into()))`.
    #[must_use]
    pub fn boxed(error: Box<dyn StdError + Send + Sync>) -> Self {
        Self { kind: WorkflowErrorKind::Other, call: None, failure: Failure::of(&*error) }
    }

    pub(crate) fn of_call(kind: WorkflowErrorKind, call: &str, failure: Failure) -> Self {
        Self { kind, call: Some(call.into()), failure }
    }

    /// Gives the error a short word that callers can branch on.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.failure = self.failure.code(code);
        self
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> WorkflowErrorKind {
        self.kind
    }

    /// The call that failed, as shown (`pay#0`), if one did.
    #[must_use]
    pub fn call(&self) -> Option<&str> {
        self.call.as_deref()
    }

    /// The short word that the error was given, empty if none.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.failure.code
    }

    /// What went wrong, as recorded.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// The failure under which the thread ends: the call is said in the message.
    pub(crate) fn into_failure(self) -> Failure {
        let mut failure = self.failure;
        if let Some(call) = self.call {
            failure.message = format!("{call}: {}", failure.message);
        }
        failure
    }
}

impl<E: StdError + 'static> From<E> for WorkflowError {
    fn from(error: E) -> Self {
        Self { kind: WorkflowErrorKind::Other, call: None, failure: Failure::of(&error) }
    }
}

impl fmt::Display for WorkflowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(call) = &self.call {
            write!(f, "{call}: ")?;
        }
        fmt::Display::fmt(&self.failure, f)
    }
}

/// What callers of a [`Deedbook`](crate::Deedbook) are given.
#[derive(Clone)]
pub struct Error(Box<Repr>);

#[derive(Debug, Clone)]
struct Repr {
    kind: ErrorKind,
    thread: Option<ThreadId>,
    message: String,
    failure: Option<Failure>,
    divergence: Option<Divergence>,
}

/// The kinds of [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The workflow returned an error, which is recorded.
    Failed,
    /// The thread was cancelled.
    Cancelled,
    /// A step of the thread is in doubt, and a person is to settle it.
    InDoubt,
    /// The code disagrees with the records.
    Diverged,
    /// The workflow waits for something that Deedbook does not know, or misused its context.
    Stalled,
    /// The workflow's code panicked; the thread stays where it was.
    Panicked,
    /// The thread exists with another workflow or another input.
    Conflict,
    /// There is no such thread, request, step or workflow.
    NotFound,
    /// What was asked does not fit the thread's state.
    Refused,
    /// A name, an input or a value cannot be used.
    Invalid,
    /// Another process has taken the thread over.
    Fenced,
    /// The outcome of a write is unknown, or the journal failed: reopen it.
    Journal,
    /// A record is damaged.
    Damaged,
    /// The journal is locked, missing, foreign, or cannot be opened.
    Open,
    /// The book is shut down or shutting down.
    Closed,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Repr { kind, thread: None, message, failure: None, divergence: None }))
    }

    /// Says which thread it is about, unless it says so itself.
    pub(crate) fn thread(mut self, thread: &ThreadId) -> Self {
        self.0.thread.get_or_insert_with(|| thread.clone());
        self
    }

    pub(crate) fn with_failure(mut self, failure: Failure) -> Self {
        self.0.failure = Some(failure);
        self
    }

    pub(crate) fn diverged(thread: &ThreadId, divergence: Divergence) -> Self {
        let mut error = Self::new(ErrorKind::Diverged, divergence.to_string()).thread(thread);
        error.0.divergence = Some(divergence);
        error
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The thread that it is about.
    #[must_use]
    pub fn thread_id(&self) -> Option<&ThreadId> {
        self.0.thread.as_ref()
    }

    /// The recorded failure of a thread that failed.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.0.failure.as_ref()
    }

    /// Where and how the code disagrees with the records.
    #[must_use]
    pub fn divergence(&self) -> Option<&Divergence> {
        self.0.divergence.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(thread) = &self.0.thread {
            write!(f, "thread {thread:?}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

/// What a `main` that returns this error prints: the kind, and the message as people read it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        if let StoreError::Damaged { thread, n, why } = error {
            // Every error names its thread in front.
            let why = format!("record {n} is damaged: {why}");
            return Self::new(ErrorKind::Damaged, why).thread(&thread);
        }
        let kind = match &error {
            StoreError::Fenced { .. } | StoreError::Held { .. } | StoreError::Moved { .. } => {
                ErrorKind::Fenced
            }
            StoreError::NoSuchThread => ErrorKind::NotFound,
            StoreError::Closed => ErrorKind::Closed,
            _ => ErrorKind::Journal,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<InvalidName> for Error {
    fn from(error: InvalidName) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string())
    }
}

impl From<ValueError> for Error {
    fn from(error: ValueError) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread of a damaged record was named twice: in front, and as what the record is of.
    #[test]
    fn a_damaged_record_is_told_in_one_sentence() {
        let (asked, damaged) = (ThreadId::new("t").unwrap(), ThreadId::new("u").unwrap());
        for thread in [asked.clone(), damaged] {
            let error = StoreError::Damaged { thread: thread.clone(), n: 3, why: "hash".into() };
            let error = Error::from(error).thread(&asked);
            assert_eq!(error.kind(), ErrorKind::Damaged);
            assert_eq!(error.thread_id(), Some(&thread));
            assert_eq!(error.to_string(), format!("thread {thread:?}: record 3 is damaged: hash"));
        }
    }
}
