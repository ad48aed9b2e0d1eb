//! Workflows: the user's code.

use std::{future::Future, sync::Arc};

use deedbook_journal::{bytes::Bytes, checkpointer::BoxFuture, limits::ValueLimits, value};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    context::Context,
    error::{WorkflowError, WorkflowErrorKind},
};

/// The result of a workflow and of the calls it makes.
pub type Result<T, E = WorkflowError> = std::result::Result<T, E>;

/// Code that is executed once and, after a crash, executed again with the recorded outcomes until
/// it is where it was.
///
/// Everything that can differ between two executions (time, randomness, the network, a channel)
/// goes through the [`Context`]; between calls of the context the code must be deterministic.
///
/// ```
/// use deedbook::{Context, Result, Workflow};
///
/// struct Greet;
///
/// impl Workflow for Greet {
///     const NAME: &'static str = "greet";
///     type Input = String;
///     type Output = String;
///
///     async fn run(&self, ctx: Context, name: &String) -> Result<String> {
///         ctx.step("compose").read().run(name, async |_| Ok(format!("hello, {name}"))).await
///     }
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let book = deedbook::Deedbook::memory().host(Greet).start().await?;
/// assert_eq!(book.run::<Greet>("greeting-1", "Ada".into()).await?, "hello, Ada");
/// # book.shutdown().await?;
/// # Ok::<(), deedbook::Error>(())
/// # }).unwrap();
/// ```
pub trait Workflow: Send + Sync + 'static {
    /// The name under which threads of this workflow are recorded: never change it.
    const NAME: &'static str;

    /// What a thread is started with.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// What a thread ends with.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// The code.
    ///
    /// **Cancel safety.** The future is dropped when the thread is parked, when the process shuts
    /// down and when another process takes over, and the code runs again later from the start.
    fn run<'a>(
        &'a self,
        ctx: Context,
        input: &'a Self::Input,
    ) -> impl Future<Output = Result<Self::Output>> + Send + 'a;
}

/// A workflow with its types erased, as the executor holds it.
pub(crate) trait Hosted: Send + Sync + 'static {
    fn run(
        self: Arc<Self>,
        ctx: Context,
        input: Bytes,
        limits: ValueLimits,
    ) -> BoxFuture<'static, Result<Vec<u8>, Stop>>;

    /// Whether these bytes are an input of this workflow.
    fn check_input(&self, input: &[u8], limits: &ValueLimits) -> Result<(), String>;
}

/// Why the code of a workflow stopped without a result.
pub(crate) enum Stop {
    /// It returned an error.
    Failed(WorkflowError),
    /// The recorded input is not what it takes.
    InputUnreadable(String),
}

impl<W: Workflow> Hosted for W {
    fn run(
        self: Arc<Self>,
        ctx: Context,
        input: Bytes,
        limits: ValueLimits,
    ) -> BoxFuture<'static, Result<Vec<u8>, Stop>> {
        Box::pin(async move {
            let input: W::Input =
                value::decode(&input, &limits).map_err(|e| Stop::InputUnreadable(e.to_string()))?;
            let output = Workflow::run(&*self, ctx, &input).await.map_err(Stop::Failed)?;
            value::encode(&output, &limits).map_err(|e| {
                let failure = deedbook_journal::failure::Failure::of(&e);
                let kind = WorkflowErrorKind::NotRecordable;
                Stop::Failed(WorkflowError::of_call(kind, "output", failure))
            })
        })
    }

    fn check_input(&self, input: &[u8], limits: &ValueLimits) -> Result<(), String> {
        value::decode::<W::Input>(input, limits).map(drop).map_err(|e| e.to_string())
    }
}
