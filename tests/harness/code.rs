//! A workflow made of a closure, for tests that need many small ones.

use std::{fmt, future::Future, sync::Arc};

use deedbook::{Context, Result, VirtualClock, Workflow};
use deedbook_journal::checkpointer::BoxFuture;

use crate::outside::{Life, Outside};

type Run = dyn Fn(Context, Outside) -> BoxFuture<'static, Result<Vec<u32>>> + Send + Sync;

/// A workflow made of a closure that is given its context and the world outside.
#[derive(Clone)]
pub struct Code {
    outside: Outside,
    run: Arc<Run>,
}

impl Code {
    /// Makes one.
    pub fn new<F, Fut>(outside: &Outside, run: F) -> Self
    where
        F: Fn(Context, Outside) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<u32>>> + Send + 'static,
    {
        Self {
            outside: outside.clone(),
            run: Arc::new(move |ctx, outside| Box::pin(run(ctx, outside))),
        }
    }
}

/// The first life of a book with this workflow, and the workflow for the lives to come.
pub async fn life<F, Fut>(clock: &VirtualClock, outside: &Outside, run: F) -> (Life, Code)
where
    F: Fn(Context, Outside) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<u32>>> + Send + 'static,
{
    let code = Code::new(outside, run);
    let hosted = code.clone();
    (Life::first(clock, |b| b.host(hosted)).await, code)
}

impl Workflow for Code {
    const NAME: &'static str = "code";
    type Input = ();
    type Output = Vec<u32>;

    async fn run(&self, ctx: Context, (): &()) -> Result<Vec<u32>> {
        (self.run)(ctx, self.outside.clone()).await
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").finish_non_exhaustive()
    }
}
