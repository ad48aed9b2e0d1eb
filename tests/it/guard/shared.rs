//! Steps of workflows whose scope is the whole journal.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deedbook::{
    CallError, Context, Duplicates, Error, ErrorKind, Noticed, Result, Scope, Status, StepError,
    VirtualClock, Workflow,
};
use deedbook_journal::{checkpointer::Checkpointer, record::Kind};
use harness::outside::{Does, Life, Outside};

use super::*;

type Ran = Pin<Box<dyn Future<Output = Result<u32>> + Send>>;

/// A workflow whose code the test writes; its input is an order.
#[derive(Clone)]
struct Code(Arc<dyn Fn(Context, String) -> Ran + Send + Sync>);

impl Code {
    fn new<F>(code: impl Fn(Context, String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<u32>> + Send + 'static,
    {
        Self(Arc::new(move |ctx, order| Box::pin(code(ctx, order))))
    }
}

impl Workflow for Code {
    const NAME: &'static str = "order";
    type Input = String;
    type Output = u32;

    async fn run(&self, ctx: Context, order: &String) -> Result<u32> {
        (self.0)(ctx, order.clone()).await
    }
}

/// Pays an order once in the journal.
fn pays(outside: &Outside) -> Code {
    let outside = outside.clone();
    Code::new(move |ctx, order| {
        let outside = outside.clone();
        async move {
            let step = ctx.step("pay").scope(Scope::Journal).key(&order).idempotent();
            step.run(&order, async |op| outside.send(op).await).await
        }
    })
}

async fn life(code: &Code) -> Life {
    Life::first(&VirtualClock::new(), |book| book.host(code.clone())).await
}

async fn again(life: Life, code: &Code) -> Life {
    let clock = life.clock.clone();
    let crash = life.crash();
    Life::after(crash, &clock, |book| book.host(code.clone())).await
}

async fn run(life: &Life, thread: &str, order: &str) -> std::result::Result<u32, Error> {
    life.book.run::<Code>(thread, order.to_owned()).await
}

/// The kinds of a thread's records about steps.
async fn steps(life: &Life, thread: &str) -> Vec<String> {
    let thread = ThreadId::new(thread).unwrap();
    let page = life.home.read(&thread, 0, usize::MAX).await.unwrap();
    let kinds = page.items.iter().map(|(_, record)| {
        let header = Header::parse(&record.header).unwrap();
        header.kind.as_str().to_owned()
    });
    kinds.filter(|kind| kind.starts_with("step.")).collect()
}

#[tokio::test]
async fn workflows_and_the_guard_share_one_operation() {
    let outside = Outside::that([Does::Returns(7)]);
    let code = pays(&outside);
    let mut life = life(&code).await;
    assert_eq!(run(&life, "a", "ORD-1").await.unwrap(), 7);
    assert_eq!(run(&life, "b", "ORD-1").await.unwrap(), 7);
    let guard = life.book.guard("pay").idempotent().key("ORD-1");
    let told = guard.call_told("ORD-1", async |op| outside.send(op).await).await.unwrap();
    assert!(told.source.replayed);
    assert_eq!(outside.sent().len(), 1);
    assert_eq!(told.source.key.as_deref(), Some(&*outside.sent()[0].key));
    for thread in ["a", "b"] {
        assert_eq!(steps(&life, thread).await, ["step.reused"]);
        assert_eq!(life.count(thread, Kind::StepReused).await, 1);
    }
    // Each has a copy of its own, which names the record that it stands on.
    let thread = ThreadId::new("b").unwrap();
    let page = life.home.read(&thread, 0, usize::MAX).await.unwrap();
    let header = page.items.iter().map(|(_, r)| Header::parse(&r.header).unwrap());
    let link = header.filter_map(|h| h.link).next().unwrap();
    assert_eq!(link.thread.as_ref(), Some(&told.source.thread));
    assert_eq!(link.n, Some(told.source.position));
    let source = life.home.read(&told.source.thread, told.source.position, 1).await.unwrap();
    assert_eq!(link.hash, Some(source.items[0].1.hash));
    for _ in 0..2 {
        life = again(life, &code).await;
        for thread in ["a", "b"] {
            assert_eq!(life.book.wait::<Code>(thread).await.unwrap(), 7);
        }
    }
    assert_eq!(outside.sent().len(), 1);
}

#[tokio::test]
async fn a_crash_before_the_copy_does_not_run_the_body_again() {
    // The process dies at every point; whatever is done in the journal is not done again.
    for appends in 0..8 {
        let outside = Outside::that([]);
        let code = pays(&outside);
        let mut life = life(&code).await;
        life.book.spawn::<Code>("a", "ORD-1".into()).await.unwrap();
        for _ in 0..appends {
            tokio::task::yield_now().await;
        }
        life = again(life, &code).await;
        if life.book.status("a").await.unwrap().is_none() {
            continue;
        }
        life.clock.advance(Duration::from_secs(120));
        life.until("a", Status::Done).await;
        assert_eq!(outside.keys(), 1);
        let done = outside.sent().len();
        life = again(life, &code).await;
        assert_eq!(life.book.wait::<Code>("a").await.unwrap(), 7);
        assert_eq!(outside.sent().len(), done);
    }
}

#[tokio::test]
async fn whoever_comes_second_waits_for_the_first_also_after_its_crash() {
    let outside = Outside::that([Does::Waits(5)]);
    let code = pays(&outside);
    let mut life = life(&code).await;
    for thread in ["a", "b", "c"] {
        life.book.spawn::<Code>(thread, "ORD-1".into()).await.unwrap();
    }
    life.settle().await;
    assert_eq!(outside.sent().len(), 1);
    // All of them are there again after the crash, and one of them sends again, under the same key.
    outside.then([Does::Returns(6)]);
    life = again(life, &code).await;
    for thread in ["a", "b", "c"] {
        life.until(thread, Status::Done).await;
        assert_eq!(life.book.wait::<Code>(thread).await.unwrap(), 6);
    }
    assert_eq!((outside.sent().len(), outside.keys()), (2, 1));
}

#[tokio::test]
async fn a_doubt_is_shared_and_settled_once() {
    let outside = Outside::that([Does::Fails]);
    let sends = outside.clone();
    let code = Code::new(move |ctx, order| {
        let outside = sends.clone();
        async move {
            let step = ctx.step("pay").scope(Scope::Journal).key(&order).at_most_once();
            step.run(&order, async |op| outside.send(op).await).await
        }
    });
    let life = life(&code).await;
    let mut watch = life.book.watch();
    for thread in ["a", "b"] {
        life.book.spawn::<Code>(thread, "ORD-1".into()).await.unwrap();
    }
    life.settle().await;
    let guard = || life.book.guard("pay").at_most_once().key("ORD-1");
    let error = guard().call("ORD-1", async |op| outside.send(op).await).await.unwrap_err();
    let CallError::InDoubt { doubt, .. } = error else { panic!("{error}") };
    for thread in ["a", "b"] {
        let row = life.row(thread).await;
        let detail = row.detail.unwrap();
        assert!(detail.contains("step pay=ORD-1") && detail.contains("in doubt"), "{detail}");
    }
    // People are told of it, once, and find it among the doubts.
    let Some(Noticed::Waits(notice)) = watch.next().await else { panic!() };
    assert_eq!(notice.thread, doubt.thread);
    let doubts = life.book.doubts().await.unwrap();
    assert_eq!((doubts.len(), &doubts[0].thread), (1, &doubt.thread));
    let by = ("user:ann", "seen at the bank");
    let say = async |found| life.book.resolve(&doubt.thread, &doubt.step, found, by.0, by.1).await;
    // What cannot be read is given to nobody, and can be said again; that it did not happen cannot
    // be said any more once it was settled.
    say(deedbook::Resolution::happened("nine").unwrap()).await.unwrap();
    assert!(matches!(life.row("a").await.status, Status::Running));
    let error = say(deedbook::Resolution::did_not_happen()).await.unwrap_err();
    assert!(error.to_string().contains("reset"), "{error}");
    say(deedbook::Resolution::happened(&9).unwrap()).await.unwrap();
    life.clock.advance(Duration::from_secs(2));
    for thread in ["a", "b"] {
        assert_eq!(life.ended::<Code>(thread).await.unwrap(), 9);
    }
    assert_eq!(guard().call("ORD-1", async |op| outside.send(op).await).await.unwrap(), 9);
    assert_eq!(outside.sent().len(), 1);
}

#[tokio::test]
async fn a_conflict_fails_the_second_workflow_and_leaks_nothing() {
    let outside = Outside::that([Does::Returns(7)]);
    let sends = outside.clone();
    let code = Code::new(move |ctx, order| {
        let outside = sends.clone();
        async move {
            let step = ctx.step("pay").scope(Scope::Journal).key("one").idempotent();
            step.run(&order, async |op| outside.send(op).await).await
        }
    });
    let life = life(&code).await;
    assert_eq!(run(&life, "a", "ORD-secret").await.unwrap(), 7);
    for _ in 0..2 {
        let error = run(&life, "b", "ORD-2").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(error.failure().unwrap().code, "conflict");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(outside.sent().len(), 1);
}

#[tokio::test]
async fn failures_of_a_shared_step_are_given_to_all() {
    let outside = Outside::that([Does::NotApplied, Does::Terminal]);
    let code = pays(&outside);
    let life = life(&code).await;
    for thread in ["a", "b"] {
        let begun = life.book.spawn::<Code>(thread, "ORD-1".into()).await;
        begun.unwrap();
        life.until(thread, Status::Failed).await;
        let error = life.book.wait::<Code>(thread).await.unwrap_err();
        assert_eq!(error.failure().unwrap().code, "closed", "{error}");
    }
    assert_eq!((outside.sent().len(), outside.keys()), (2, 1));
}

#[tokio::test]
async fn a_shared_step_needs_an_identity_and_cannot_hide_a_call_in_its_body() {
    let code = Code::new(|ctx, _| async move {
        let step = ctx.step("pay").scope(Scope::Journal).idempotent();
        step.run(&1, async |_| Ok(1)).await
    });
    let life = life(&code).await;
    let error = run(&life, "a", "x").await.unwrap_err();
    assert!(error.to_string().contains("give it an identity"), "{error}");
    let code = Code::new(|ctx, _| async move {
        let inner = ctx.clone();
        let step = ctx.step("pay").scope(Scope::Journal).key("k").idempotent();
        step.run(&1, async move |_| {
            // Moved in, so it compiles; it is refused before anything of it happens.
            let step = inner.step("again").read();
            step.run(&1, async |_| Ok(2)).await.map_err(|e| StepError::new(e.to_string()))
        })
        .await
    });
    let life = self::life(&code).await;
    let error = run(&life, "a", "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stalled, "{error}");
}

#[tokio::test]
async fn a_guard_that_waits_for_a_workflow_is_woken() {
    let outside = Outside::that([Does::Waits(5)]);
    let code = pays(&outside);
    let life = life(&code).await;
    life.book.spawn::<Code>("a", "ORD-1".into()).await.unwrap();
    life.settle().await;
    let others = Arc::new(AtomicU32::new(0));
    let guard = life.book.guard("pay").idempotent().key("ORD-1");
    let guard = guard.duplicates(Duplicates::Wait(Duration::from_secs(60)));
    let counted = others.clone();
    let call = guard.call("ORD-1", async move |_| Ok(counted.fetch_add(1, Ordering::SeqCst)));
    let mut call = std::pin::pin!(call);
    assert!(tokio::time::timeout(Duration::from_millis(5), call.as_mut()).await.is_err());
    outside.let_go();
    assert_eq!(call.await.unwrap(), 5);
    assert_eq!(others.load(Ordering::SeqCst), 0);
    assert_eq!(life.ended::<Code>("a").await.unwrap(), 5);
}

#[tokio::test]
async fn twins_in_one_workflow_share_it_too() {
    let outside = Outside::that([Does::Waits(5)]);
    let sends = outside.clone();
    let code = Code::new(move |ctx, order| {
        let outside = sends.clone();
        async move {
            let pay = |ctx: &Context| {
                let (order, outside) = (order.clone(), outside.clone());
                let step = ctx.step("pay").scope(Scope::Journal).by_arguments().idempotent();
                step.run(&order.clone(), async move |op| outside.send(op).await)
            };
            let (a, b) = tokio::join!(pay(&ctx), pay(&ctx.branch("other")));
            Ok(a? + b?)
        }
    });
    let mut life = life(&code).await;
    life.book.spawn::<Code>("a", "ORD-1".into()).await.unwrap();
    life.settle().await;
    outside.let_go();
    assert_eq!(life.ended::<Code>("a").await.unwrap(), 10);
    assert_eq!(steps(&life, "a").await, ["step.reused"]);
    life = again(life, &code).await;
    assert_eq!(life.book.wait::<Code>("a").await.unwrap(), 10);
    assert_eq!(outside.sent().len(), 1);
}

#[tokio::test]
async fn a_workflow_that_comes_late_is_told_that_the_result_was_forgotten() {
    let outside = Outside::that([Does::Returns(1)]);
    let code = pays(&outside);
    let life = life(&code).await;
    run(&life, "a", "ORD-1").await.unwrap();
    life.clock.advance(Duration::from_secs(100));
    let gone = life.book.forget(Duration::from_secs(50), "ops:ann", "old").await.unwrap();
    assert_eq!(gone.steps, 1);
    // The copy in the first one's thread is that thread's.
    assert_eq!(run(&life, "a", "ORD-1").await.unwrap(), 1);
    for thread in ["b", "c"] {
        let error = run(&life, thread, "ORD-1").await.unwrap_err();
        assert!(error.to_string().contains("erased"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Failed);
    }
    assert_eq!(outside.sent().len(), 1);
}
