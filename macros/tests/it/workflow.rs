//! Steps of workflows.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use deedbook::{CallError, Context, Deedbook, Operation, Result, Workflow, step};
use serde::Serialize;

#[derive(Debug, Default)]
struct Bank {
    count: AtomicU32,
    keys: Mutex<Vec<String>>,
}

impl Bank {
    fn pay(&self, op: &Operation) -> u32 {
        self.keys.lock().unwrap().push(op.key().to_owned());
        self.count.fetch_add(1, Ordering::SeqCst) + 1
    }
}

#[step("assess", read)]
async fn assess(ctx: &Context, cents: u64) -> Result<bool> {
    Ok(cents > 10_000)
}

#[step("pay", idempotent, honoured_for = "24h", operation = op)]
async fn pay(ctx: &Context, order: &str, cents: u64, #[hands] bank: Arc<Bank>) -> Result<u32> {
    assert!(!order.is_empty() && cents > 0);
    Ok(bank.pay(&op))
}

/// Shared with guards.
#[step("issue", idempotent, scope = journal, by_arguments, operation = op)]
async fn issue(ctx: Context, order: String, #[hands] bank: &Bank) -> Result<u32> {
    Ok(bank.pay(&op) + u32::from(order.is_empty()))
}

struct Refund(Arc<Bank>, Style);

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Macro,
    ByHand,
}

impl Workflow for Refund {
    const NAME: &'static str = "refund";
    type Input = (String, u64);
    type Output = (bool, u32, u32);

    async fn run(&self, ctx: Context, (order, cents): &(String, u64)) -> Result<(bool, u32, u32)> {
        let bank = &*self.0;
        if self.1 == Style::ByHand {
            #[derive(Serialize)]
            struct Assess {
                cents: u64,
            }
            #[derive(Serialize)]
            struct Pay<'a> {
                order: &'a str,
                cents: u64,
            }
            #[derive(Serialize)]
            struct Issue<'a> {
                order: &'a str,
            }
            let args = Assess { cents: *cents };
            let risky = ctx.step("assess").read().run(&args, async |_| Ok(*cents > 10_000)).await?;
            let args = Pay { order, cents: *cents };
            let paid = ctx.step("pay").idempotent().run(&args, async |op| Ok(bank.pay(&op)));
            let paid = paid.await?;
            let step = ctx.step("issue").idempotent().by_arguments();
            let issued = step.scope(deedbook::Scope::Journal);
            let issued = issued.run(&Issue { order }, async |op| Ok(bank.pay(&op))).await?;
            ctx.signal::<()>("end").await?;
            return Ok((risky, paid, issued));
        }
        let risky = assess(&ctx, *cents).await?;
        let paying = pay(&ctx, order, *cents, self.0.clone());
        let paid = paying.await?;
        let issued = issue(ctx.clone(), order.clone(), bank).await?;
        ctx.signal::<()>("end").await?;
        Ok((risky, paid, issued))
    }
}

/// Two lives of one thread, in the first of which everything is done.
async fn lives(styles: [Style; 2]) -> ((bool, u32, u32), Vec<String>) {
    let bank = Arc::new(Bank::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let book = Deedbook::create(&path).host(Refund(bank.clone(), styles[0])).start().await.unwrap();
    book.spawn::<Refund>("order-1", ("ORD-1".to_owned(), 4200)).await.unwrap();
    while bank.count.load(Ordering::SeqCst) < 2
        || book.status("order-1").await.unwrap().unwrap().row.status != deedbook::Status::Waiting
    {
        tokio::task::yield_now().await;
    }
    book.shutdown().await.unwrap();
    let book = Deedbook::open(&path).host(Refund(bank.clone(), styles[1])).start().await.unwrap();
    book.signal("order-1", "end", &()).await.unwrap();
    let output = book.wait::<Refund>("order-1").await.unwrap();
    book.shutdown().await.unwrap();
    let keys = bank.keys.lock().unwrap().clone();
    (output, keys)
}

#[tokio::test]
async fn what_the_macro_wrote_replays_as_what_is_written_by_hand_and_back() {
    for styles in [[Style::Macro, Style::ByHand], [Style::ByHand, Style::Macro]] {
        let (output, keys) = lives(styles).await;
        assert_eq!(output, (false, 1, 2));
        assert_eq!(keys.len(), 2);
    }
}

#[step("issue", idempotent)]
async fn issue_outside(book: &Deedbook, order: String) -> Result<u32, CallError> {
    panic!("{order} was issued by the workflow")
}

#[tokio::test]
async fn a_step_of_the_whole_journal_is_the_guard_of_its_name() {
    let bank = Arc::new(Bank::default());
    let book = Deedbook::memory().host(Refund(bank.clone(), Style::Macro)).start().await.unwrap();
    book.spawn::<Refund>("order-1", ("ORD-1".to_owned(), 4200)).await.unwrap();
    book.signal("order-1", "end", &()).await.unwrap();
    let (_, _, issued) = book.wait::<Refund>("order-1").await.unwrap();
    assert_eq!(issue_outside(&book, "ORD-1".to_owned()).await.unwrap(), issued);
    assert_eq!(bank.count.load(Ordering::SeqCst), 2);
}
