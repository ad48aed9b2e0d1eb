//! What a book tells applications: doubts, outcomes, what threads wait for, and notices of threads
//! that begin to wait for a person.

use std::{sync::Arc, time::Duration};

use deedbook::{
    Clock as _, Context, Deedbook, Doubt, ErrorKind, Noticed, PolicyKind, Resolution, Result,
    Retry, Status, VirtualClock, Waits, Watch, Workflow,
};
use deedbook_memory::{MemoryHome, MemorySnapshot};
use futures::FutureExt;
use harness::{
    code::{Code, life},
    outside::{Does, Life, Outside},
};
use tokio::task::coop::unconstrained;

const SECOND: Duration = Duration::from_secs(1);

/// What was noticed by now, thread by thread.
fn noticed(watch: &mut Watch) -> Vec<(String, Waits)> {
    let mut all = Vec::new();
    // Outside of the budget of the test's own task.
    while let Some(next) = unconstrained(watch.next()).now_or_never() {
        match next.expect("the book is open") {
            Noticed::Waits(notice) => all.push((notice.thread.to_string(), notice.waits)),
            other => panic!("{other:?}"),
        }
    }
    all
}

fn approval(request: &str) -> Waits {
    Waits::Approval { request: request.into() }
}

fn doubt(step: &str, doubt: Doubt) -> Waits {
    Waits::Doubt { step: step.into(), doubt }
}

#[tokio::test]
async fn whoever_waits_for_a_person_is_told_of_once_whatever_else_the_thread_does() {
    let clock = VirtualClock::new();
    let outside = Outside::that([Does::Fails, Does::Fails]);
    // An approval, a doubt, a body that takes its time, and a signal, all at once.
    let (life, code) = life(&clock, &outside, |ctx, outside| async move {
        let pay = |ctx: Context, name: &str| {
            let outside = outside.clone();
            ctx.step(name).at_most_once().run(&(), async move |op| outside.send(op).await)
        };
        let asked = ctx.approval("refund", &42);
        let first = pay(ctx.clone(), "pay");
        let busy = ctx.step("busy").read().timeout(1000 * SECOND);
        let busy = busy.run(&(), async |_| std::future::pending::<Result<u32, _>>().await);
        let tick = ctx.signal::<u32>("tick");
        let rest = async { Ok::<_, deedbook::WorkflowError>((tick.await?, busy.await?)) };
        let (asked, first, rest) = tokio::join!(asked, first, rest);
        let (_, _, (n, _)) = (asked?, first?, rest?);
        Ok(vec![n])
    })
    .await;
    let mut watch = life.book.watch();
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.settle().await;
    let mut told = noticed(&mut watch);
    told.sort_by_key(|(_, waits)| format!("{waits:?}"));
    let wanted = [approval("refund#0"), doubt("pay#0", Doubt::Unlabelled)];
    assert_eq!(told, wanted.map(|waits| ("t".to_owned(), waits)));
    // What comes meanwhile is no reason to tell again.
    life.book.signal("t", "tick", &1_u32).await.unwrap();
    life.settle().await;
    assert_eq!(noticed(&mut watch), []);
    // Another attempt is another doubt.
    let again = Resolution::did_not_happen();
    life.book.resolve("t", "pay#0", again, "user:ada", "asked").await.unwrap();
    life.settle().await;
    let told = noticed(&mut watch);
    assert_eq!(told, [("t".to_owned(), doubt("pay#0", Doubt::Unlabelled))]);
    // A restart tells what it finds, and nothing twice.
    let hosted = code.clone();
    let life = Life::after(life.crash(), &clock, |b| b.host(hosted)).await;
    let mut watch = life.book.watch();
    life.settle().await;
    assert!(noticed(&mut watch).len() <= 1);
}

#[tokio::test]
async fn a_body_that_died_with_its_process_is_told_of_by_the_next_one() {
    let (clock, outside) = (VirtualClock::new(), Outside::that([Does::Hangs]));
    let (life, code) = life(&clock, &outside, |ctx, outside| async move {
        let pay = ctx.step("pay").at_most_once();
        Ok(vec![pay.run(&(), async |op| outside.send(op).await).await?])
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.settle().await;
    let left = life.crash();
    // The lease of the process that died has run out by then. Nobody has counted the doubt: the
    // records tell.
    clock.advance(100 * SECOND);
    let open = reader(&left, &clock).await.doubts().await.unwrap();
    assert_eq!((open.len(), open[0].doubt), (1, Doubt::Crash));
    let hosted = code.clone();
    let life = Life::after(left, &clock, |b| b.host(hosted)).await;
    let mut watch = life.book.watch();
    let row = life.until("t", Status::InDoubt).await;
    assert_eq!(noticed(&mut watch), [("t".to_owned(), doubt("pay#0", Doubt::Crash))]);
    assert_eq!(row.waits_for(), Some(doubt("pay#0", Doubt::Crash)));
    let open = life.book.doubts().await.unwrap();
    let [open] = open.as_slice() else { panic!("{open:?}") };
    assert_eq!((open.thread.as_str(), &*open.step), ("t", "pay#0"));
    assert_eq!((open.policy, open.attempts), (Some(PolicyKind::AtMostOnce), 1));
    assert_eq!(open.operation_key.as_deref(), Some(&*outside.sent()[0].key));
    assert_eq!(open.since, outside.sent()[0].first_started_at);
    assert_eq!((open.doubt, &open.expected), (Doubt::Crash, &None));
    let how = open.how_to_settle();
    assert!(
        how.contains("deedbook resolve --by YOU --happened JSON --reason WHY -- t pay#0"),
        "{how}"
    );
    // What cannot be read says what is expected.
    let text = Resolution::happened("r_17").unwrap();
    life.book.resolve("t", "pay#0", text, "user:ada", "seen").await.unwrap();
    life.settle().await;
    let open = life.book.doubts().await.unwrap();
    assert_eq!(open[0].doubt, Doubt::Unreadable);
    assert!(open[0].expected.as_deref().unwrap().contains("`u32`"), "{open:?}");
    assert_eq!(noticed(&mut watch), [("t".to_owned(), doubt("pay#0", Doubt::Unreadable))]);
    let number = Resolution::happened(&3_u32).unwrap();
    life.book.resolve("t", "pay#0", number, "user:ada", "seen").await.unwrap();
    assert_eq!(life.ended::<Code>("t").await.unwrap(), [3]);
    assert_eq!(life.book.doubts().await.unwrap(), []);
}

/// A book that hosts nothing and looks at what a crash has left.
async fn reader(left: &MemorySnapshot, clock: &VirtualClock) -> Deedbook {
    let home = MemoryHome::from_snapshot(left.clone(), clock.source());
    Deedbook::on(Arc::new(home)).clock(clock.clone()).start().await.unwrap()
}

#[tokio::test]
async fn a_doubt_that_comes_with_time_is_told_of_a_thread_that_sleeps() {
    let (clock, outside) = (VirtualClock::new(), Outside::that([Does::Fails]));
    let (life, _) = life(&clock, &outside, |ctx, outside| async move {
        let pay = ctx.step("pay").idempotent().honoured_for(600 * SECOND);
        let pay = pay.retry(Retry::attempts(5).first(300 * SECOND));
        Ok(vec![pay.run(&(), async |op| outside.send(op).await).await?])
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.until("t", Status::Sleeping).await;
    let left = life.crash();
    clock.advance(100 * SECOND);
    assert_eq!(reader(&left, &clock).await.doubts().await.unwrap(), []);
    // Nobody tried again, and the bank may have forgotten the key by now.
    clock.advance(600 * SECOND);
    let open = reader(&left, &clock).await.doubts().await.unwrap();
    assert_eq!((open.len(), open[0].doubt), (1, Doubt::WindowOver));
    assert_eq!(open[0].since, outside.sent()[0].first_started_at);
}

#[tokio::test]
async fn a_watch_that_is_slow_is_told_how_much_it_missed() {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (life, _) = life(&clock, &outside, |ctx, _| async move {
        ctx.approval("ok", &1).await?;
        Ok(vec![])
    })
    .await;
    let mut watch = life.book.watch();
    for n in 0..1500 {
        life.book.spawn::<Code>(format!("t{n}"), ()).await.unwrap();
    }
    life.settle().await;
    assert_eq!(watch.next().await, Some(Noticed::Missed(1500 - 1024)));
    assert_eq!(noticed(&mut watch).len(), 1024);
    life.book.shutdown().await.unwrap();
    assert_eq!(watch.next().await, None);
}

/// Another workflow.
struct Other;

impl Workflow for Other {
    const NAME: &'static str = "other";
    type Input = ();
    type Output = ();

    async fn run(&self, _: Context, (): &()) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_outcome_is_looked_up_and_nothing_runs_because_of_it() {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (life, code) = life(&clock, &outside, |ctx, _| async move {
        let n: u32 = ctx.signal("n").await?;
        if n == 0 {
            return Err(deedbook::WorkflowError::new("nothing to do"));
        }
        Ok(vec![n])
    })
    .await;
    for thread in ["done", "failed", "cancelled", "waiting"] {
        life.book.spawn::<Code>(thread, ()).await.unwrap();
    }
    life.book.signal("done", "n", &7_u32).await.unwrap();
    life.book.signal("failed", "n", &0_u32).await.unwrap();
    life.book.cancel("cancelled", "user:ada", "enough").await.unwrap();
    life.settle().await;
    // A message waits for a thread that nobody runs, and a reader does not run it.
    drop(code);
    let reader = reader(&life.crash(), &clock).await;
    reader.signal("waiting", "n", &7_u32).await.unwrap();
    let outcome = async |thread: &str| reader.outcome::<Code>(thread).await;
    let kind =
        |outcome: Result<_, deedbook::Error>| outcome.map(|_: Option<_>| ()).unwrap_err().kind();
    for _ in 0..2 {
        assert_eq!(outcome("done").await.unwrap(), Some(vec![7]));
        let failed = outcome("failed").await.unwrap_err();
        assert_eq!((failed.kind(), failed.failure().is_some()), (ErrorKind::Failed, true));
        assert!(failed.to_string().contains("nothing to do"), "{failed}");
        assert_eq!(kind(outcome("cancelled").await), ErrorKind::Cancelled);
        assert_eq!(outcome("waiting").await.unwrap(), None);
        assert_eq!(kind(outcome("nobody").await), ErrorKind::NotFound);
        let other = reader.outcome::<Other>("done").await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Conflict, "{other}");
        let info = reader.status("waiting").await.unwrap().unwrap();
        assert_eq!(info.row.waits_for(), Some(Waits::Signal { name: "n".into() }));
        assert_eq!((info.inbox, info.holder), (1, None));
    }
}
