//! Everything that the design says works.

use std::{collections::BTreeMap, error::Error, fmt, future::Future, time::Duration};

use deedbook::{
    Context, Operation, Probe, Result, Retry, StepError, StepResultExt, Workflow, WorkflowError,
};
use futures::{StreamExt, stream::FuturesUnordered};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refund {
    pub id: String,
    pub amount: u64,
}

#[derive(Debug)]
pub struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl Error for Refused {}

/// What the workflow works with, generic.
pub trait Bank: Send + Sync + 'static {
    fn refund(&self, refund: &Refund, key: &str)
    -> impl Future<Output = Result<String, Refused>> + Send;
    fn find(&self, key: &str)
    -> impl Future<Output = Result<Option<String>, Box<dyn Error + Send + Sync>>> + Send;
}

pub struct Agent<B> {
    pub bank: B,
}

impl<B: Bank> Workflow for Agent<B> {
    const NAME: &'static str = "refund";
    type Input = Vec<Refund>;
    type Output = Vec<String>;

    async fn run(&self, ctx: Context, refunds: &Vec<Refund>) -> Result<Vec<String>> {
        let mut receipts = Vec::new();
        // A loop, captures by reference, errors by `?`.
        for refund in refunds {
            let receipt = ctx
                .step("pay")
                .idempotent()
                .honoured_for(Duration::from_secs(3600))
                .retry(Retry::attempts(3))
                .run(refund, async |op| Ok(self.bank.refund(refund, op.key()).await?))
                .await?;
            receipts.push(receipt);
        }
        // A generic call, and a probe whose error is a boxed one.
        let first = refunds.first().ok_or(Refused)?;
        let again = ctx
            .step("again")
            .reconcile(async |op: Operation| {
                let found = self.bank.find(op.key()).await.map_err(StepError::boxed)?;
                Ok(found.map_or(Probe::DidNotHappen, Probe::Happened))
            })
            .run(first, async |op| self.bank.refund(first, op.key()).await.not_applied())
            .await?;
        receipts.push(again);
        // Side by side.
        let (left, right) = tokio::join!(
            helper(ctx.branch("left"), 1_u64),
            helper(ctx.branch("right"), "text".to_owned()),
        );
        receipts.push(format!("{}{}", left?, right?));
        let second = ctx.branch("second");
        let won = tokio::select! {
            first = helper(ctx.branch("first"), 1_u64) => first?,
            // A block that makes calls owns its context.
            second = async move { helper(second, 2_u64).await } => second?,
        };
        receipts.push(won.to_string());
        let mut many: FuturesUnordered<_> =
            (0..3_u64).map(|n| helper(ctx.branch(&n.to_string()), n)).collect();
        while let Some(one) = many.next().await {
            receipts.push(one?.to_string());
        }
        let mapped = ctx.map("each", refunds, |ctx, refund| helper(ctx, refund.amount)).await?;
        receipts.extend(mapped.iter().map(u64::to_string));
        self.waits(ctx.clone()).await?;
        Ok(receipts)
    }
}

impl<B: Bank> Agent<B> {
    /// A method that takes a context by value.
    async fn waits(&self, ctx: Context) -> Result<()> {
        ctx.sleep("settle", Duration::from_secs(3)).await?;
        let granted: bool = ctx.signal("go").within(Duration::from_secs(60)).await?;
        let decided = ctx.approval("ask", &granted).await?;
        let _ = (ctx.now().await?, ctx.uuid(), ctx.random(), decided.granted);
        if ctx.patched("v2") {
            let by_key = ctx.step("once").at_most_once().key("order-7").abandon();
            let counts = by_key.run(&7, async |_| Ok(BTreeMap::<String, u64>::new()));
            drop(counts.await?);
        }
        // Boxed errors, by one call.
        let parsed: Result<u64, Box<dyn Error + Send + Sync>> = "7".parse().map_err(Into::into);
        parsed.map_err(WorkflowError::boxed)?;
        Ok(())
    }
}

/// A helper of its own, generic over what it passes through.
async fn helper<T>(ctx: Context, value: T) -> Result<T>
where
    T: Serialize + DeserializeOwned + Clone + Send + Sync,
{
    ctx.step("pass").read().run(&value, async |_| Ok(value.clone())).await
}

fn main() {}
