//! The example of the design, end to end, on the home in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deedbook::{Context, Deedbook, ErrorKind, Probe, Result, Status, Workflow, WorkflowError};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Refund {
    id: String,
    amount: u64,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Receipt {
    key: String,
}

#[derive(Clone, Default)]
struct RefundAgent {
    paid: Arc<AtomicU32>,
    mailed: Arc<AtomicU32>,
}

impl Workflow for RefundAgent {
    const NAME: &'static str = "refund";
    type Input = Refund;
    type Output = Option<Receipt>;

    async fn run(&self, ctx: Context, refund: &Refund) -> Result<Option<Receipt>> {
        let needs_human =
            ctx.step("assess").read().run(refund, async |_| Ok(refund.amount > 100)).await?;
        if needs_human {
            let granted: bool = ctx.signal("approval").within(Duration::from_secs(7)).await?;
            if !granted {
                return Ok(None);
            }
        }
        let receipt = ctx
            .step("pay")
            .idempotent()
            .honoured_for(Duration::from_secs(24 * 3600))
            .run(refund, async |op| {
                self.paid.fetch_add(1, Ordering::SeqCst);
                Ok(Receipt { key: op.key().to_owned() })
            })
            .await?;
        ctx.sleep("settle", Duration::from_millis(20)).await?;
        ctx.step("email")
            .reconcile(async |_| Ok(Probe::<()>::DidNotHappen))
            .run(&receipt, async |_| {
                self.mailed.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .await?;
        Ok(Some(receipt))
    }
}

#[tokio::test]
async fn the_example_of_the_design_runs() {
    let agent = RefundAgent::default();
    let book = Deedbook::memory().host(agent.clone()).start().await.unwrap();
    let refund = Refund { id: "1".into(), amount: 5 };
    let receipt = book.run::<RefundAgent>("order-4821", refund.clone()).await.unwrap().unwrap();
    assert!(receipt.key.starts_with("dk1_"));
    let again = book.run::<RefundAgent>("order-4821", refund).await.unwrap().unwrap();
    assert_eq!(again, receipt);
    assert_eq!(agent.paid.load(Ordering::SeqCst), 1);
    assert_eq!(agent.mailed.load(Ordering::SeqCst), 1);
    let other = Refund { id: "1".into(), amount: 6 };
    let conflict = book.run::<RefundAgent>("order-4821", other).await.unwrap_err();
    assert_eq!(conflict.kind(), ErrorKind::Conflict, "{conflict}");
    assert!(conflict.to_string().contains("/amount"), "{conflict}");
    book.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_signal_is_waited_for_and_a_wait_can_be_bounded() {
    let agent = RefundAgent::default();
    let book = Deedbook::memory().host(agent.clone()).start().await.unwrap();
    let refund = Refund { id: "2".into(), amount: 500 };
    book.spawn::<RefundAgent>("order-2", refund).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), async {
        loop {
            let info = book.status("order-2").await.unwrap().unwrap();
            if info.row.status == Status::Waiting {
                assert_eq!(info.row.detail.as_deref(), Some("signal approval (and 1 more)"));
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    book.signal("order-2", "approval", &true).await.unwrap();
    let receipt = book.wait::<RefundAgent>("order-2").await.unwrap();
    assert!(receipt.is_some());
    book.shutdown().await.unwrap();
}

struct Fails;

impl Workflow for Fails {
    const NAME: &'static str = "fails";
    type Input = ();
    type Output = ();

    async fn run(&self, _: Context, (): &()) -> Result<()> {
        Err(WorkflowError::new("no").with_code("E1"))
    }
}

#[tokio::test]
async fn a_failed_workflow_says_so_again() {
    let book = Deedbook::memory().host(Fails).start().await.unwrap();
    for _ in 0..2 {
        let error = book.run::<Fails>("f", ()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(error.failure().unwrap().code, "E1");
    }
}

#[tokio::test]
async fn a_book_in_a_file_is_closed_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("refunds.redb");
    let missing = Deedbook::open(&path).start().await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Open, "{missing}");
    assert!(!path.exists());
    let agent = RefundAgent::default();
    let refund = Refund { id: "1".into(), amount: 5 };
    let book = Deedbook::open_or_create(&path).host(agent.clone()).start().await.unwrap();
    let first = book.run::<RefundAgent>("order-1", refund.clone()).await.unwrap();
    book.shutdown().await.unwrap();
    let book = Deedbook::open(&path).host(agent.clone()).start().await.unwrap();
    let again = book.run::<RefundAgent>("order-1", refund).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(agent.paid.load(Ordering::SeqCst), 1);
    book.shutdown().await.unwrap();
}
