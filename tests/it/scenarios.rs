//! The cases that were seen to go wrong elsewhere, by their numbers. Those that have a test of
//! their own in another module are named here, so that the list is whole:
//!
//! | case | test |
//! | --- | --- |
//! | S11, S12, S22, S23, B1, B4, B13 | `policies::identity` |
//! | S32, S35, S38, S45 | `policies::unstorable` |
//! | S34 | `policies::retries` |
//! | S43 | `policies::doubts` |
//! | S47 | `policies::cancelling` |
//! | S55, S76, S77 | `signals_timers` |
//! | S75, B18 | `policies::secrets` |
//! | B9 | `policies::table` |
//! | B11 | `kill` |
//! | B17 | `policies::windows` |
//! | B19, S28 | `divergence`, and below |

mod values;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use deedbook::{Context, Deedbook, ErrorKind, Filter, Status, VirtualClock};
use deedbook_journal::record::Kind;
use deedbook_memory::{LastAppend, MemoryHome, MemoryOptions};
use harness::{
    code::Code,
    outside::{Does, Life, Outside},
};

async fn begun(code: &Code) -> Life {
    let hosted = code.clone();
    let life = Life::first(&VirtualClock::new(), |b| b.host(hosted)).await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.settle().await;
    life
}

async fn again(life: Life, code: &Code) -> Life {
    let clock = life.clock.clone();
    clock.advance(Duration::from_secs(1));
    let code = code.clone();
    let life = Life::after(life.crash(), &clock, |b| b.host(code)).await;
    life.settle().await;
    life
}

#[tokio::test]
async fn s28_other_arguments_at_replay_name_the_field_and_run_nothing() {
    let outside = Outside::default();
    let charge = |amount: u32| {
        Code::new(&outside, move |ctx: Context, outside| async move {
            let args = BTreeMap::from([("amount", amount)]);
            let step = ctx.step("charge").idempotent();
            step.run(&args, async |op| outside.send(op).await).await?;
            ctx.signal::<u32>("go").await?;
            Ok(vec![])
        })
    };
    let life = begun(&charge(5)).await;
    let life = again(life, &charge(50)).await;
    life.book.signal("t", "go", &0).await.unwrap();
    let error = life.book.wait::<Code>("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged);
    assert!(error.to_string().contains("/amount"), "{error}");
    let life = again(life, &charge(5)).await;
    life.book.wait::<Code>("t").await.unwrap();
    assert_eq!(outside.sent().len(), 1);
}

#[tokio::test]
async fn s33_whoever_handles_an_error_does_so_once() {
    let outside = Outside::that([Does::Terminal]);
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let send = async |op| outside.send(op).await;
        if ctx.step("pay").at_most_once().run(&1, send).await.is_err() {
            ctx.step("notify").at_most_once().run(&1, send).await?;
        }
        ctx.signal::<u32>("go").await?;
        Ok(vec![])
    });
    let mut life = begun(&code).await;
    for _ in 0..2 {
        life = again(life, &code).await;
    }
    assert_eq!(outside.sent().len(), 2);
}

#[tokio::test]
async fn s39_a_step_inside_a_step_is_refused_before_it_runs() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let inner = ctx.clone();
        let step = ctx.step("outer").idempotent();
        let outer = step.run(&1, async move |_| {
            // Only by value: a borrowed context in a body does not compile.
            let step = inner.step("inner").idempotent();
            let ran = step.run(&1, async |op| outside.send(op).await).await;
            Ok(u32::from(ran.is_ok()))
        });
        Ok(vec![outer.await?])
    });
    let life = begun(&code).await;
    let error = life.book.wait::<Code>("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stalled);
    let text = error.to_string();
    assert!(text.contains("outer#0") && text.contains("inner"), "{text}");
    assert!(outside.sent().is_empty());
}

#[tokio::test]
async fn s46_a_write_that_said_error_may_be_there() {
    // The outcome's group fails; it is there, or it is not.
    for (last, sent) in [(LastAppend::Applied, 1), (LastAppend::Lost, 2)] {
        let outside = Outside::default();
        let code = Code::new(&outside, |ctx: Context, outside| async move {
            let step = ctx.step("pay").idempotent();
            Ok(vec![step.run(&1, async |op| outside.send(op).await).await?])
        });
        let clock = VirtualClock::new();
        let hosted = code.clone();
        let life = Life::first(&clock, |b| b.host(hosted)).await;
        life.home.stop_after_appends(1, last);
        let error = life.book.run::<Code>("t", ()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Journal, "{error}");
        assert!(error.to_string().contains("unknown"), "{error}");
        let life = again(life, &code).await;
        assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [7]);
        assert_eq!((outside.sent().len(), outside.keys()), (sent, 1), "{last:?}");
    }
}

#[tokio::test]
async fn s48_a_batch_that_stops_at_the_third_goes_on_there() {
    // Items 2 and 4 are equal; the process dies at item 3.
    let does = [Does::Returns(1), Does::Returns(2), Does::Hangs];
    let outside = Outside::that(does);
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let mut done = Vec::new();
        for item in [1, 2, 3, 2, 5] {
            let step = ctx.step("item").idempotent();
            done.push(step.run(&item, async |op| outside.send(op).await).await?);
        }
        Ok(done)
    });
    let life = begun(&code).await;
    assert_eq!(outside.sent().len(), 3);
    outside.then([Does::Returns(3), Does::Returns(4), Does::Returns(5)]);
    let life = again(life, &code).await;
    assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!((outside.sent().len(), outside.keys()), (6, 5));
}

#[tokio::test]
async fn s49_a_body_that_runs_longer_than_any_lease_runs_once() {
    let outside = Outside::that([Does::Waits(3)]);
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let step = ctx.step("long").at_most_once();
        let step = step.timeout(Duration::from_secs(100_000));
        Ok(vec![step.run(&1, async |op| outside.send(op).await).await?])
    });
    let life = begun(&code).await;
    // Another book on the same home looks for due threads all the time.
    let other = Deedbook::on(life.home.clone()).clock(life.clock.clone());
    let other = other.holder("another").host(code).start().await.unwrap();
    for _ in 0..200 {
        life.clock.advance(Duration::from_secs(10));
        life.settle().await;
    }
    outside.let_go();
    assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [3]);
    assert_eq!(outside.sent().len(), 1);
    drop(other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s52_many_threads_at_once_lose_nothing() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let mut got = Vec::new();
        for n in 0..25_u32 {
            let step = ctx.step("pay").idempotent();
            got.push(step.run(&n, async |op| outside.send(op).await).await?);
        }
        Ok(got)
    });
    let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
    let book = Deedbook::on(home.clone()).host(code).start().await.unwrap();
    // Four callers of each of 64 threads.
    let ids: Vec<_> = (0..256).map(|n| format!("t-{}", n % 64)).collect();
    let all = ids.iter().map(|id| book.run::<Code>(id, ()));
    for got in futures::future::join_all(all).await {
        assert_eq!(got.unwrap().len(), 25);
    }
    assert_eq!((outside.sent().len(), outside.keys()), (1600, 1600));
    let done = Filter { statuses: vec![Status::Done], ..Filter::default() };
    let listed = book.threads(&done, None, 100).await.unwrap();
    assert_eq!(listed.items.len(), 64);
    // Start, an intent and an outcome for each step, and the end: nothing is missing, nothing
    // is there twice.
    assert!(listed.items.iter().all(|t| t.next == 52));
}

#[tokio::test]
async fn s56_an_approval_does_not_run_its_neighbours_again() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let send = async |op| outside.send(op).await;
        let create = ctx.step("create").at_most_once().run(&1, send);
        let (gate, hands) = (ctx.clone(), outside.clone());
        let delete = async move {
            gate.approval("delete", &2).await?;
            let step = gate.step("delete").at_most_once();
            step.run(&2, async |op| hands.send(op).await).await
        };
        let (created, deleted) = tokio::join!(create, delete);
        Ok(vec![created?, deleted?])
    });
    let mut life = begun(&code).await;
    assert_eq!(outside.sent().len(), 1);
    life = again(life, &code).await;
    life.book.decide("t", "delete#0", true, "user:a", "").await.unwrap();
    assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [7, 7]);
    assert_eq!(outside.sent().len(), 2);
}

#[tokio::test]
async fn s57_s58_approvals_in_a_loop_stay_with_their_round() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        for round in 0..10_u32 {
            let step = ctx.step("draft").idempotent();
            step.run(&round, async |op| outside.send(op).await).await?;
            if ctx.approval("ok", &round).await?.granted {
                return Ok(vec![round]);
            }
        }
        Ok(vec![])
    });
    let mut life = begun(&code).await;
    for round in 0..3 {
        // Each answer is given to another process than the one that asked.
        life = again(life, &code).await;
        let request = format!("ok#{round}");
        life.book.decide("t", &request, round == 2, "user:a", "").await.unwrap();
        life.settle().await;
    }
    assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [2]);
    assert_eq!(outside.sent().len(), 3);
    assert_eq!(life.count("t", Kind::ApprovalRequest).await, 3);
}

#[tokio::test]
async fn b05_b07_what_was_done_before_a_pause_is_not_done_again_behind_it() {
    let outside = Outside::that([Does::Waits(1)]);
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let ask = ctx.approval("ask", &1);
        let step = ctx.step("pay").by_arguments().at_most_once();
        let pay = step.run("order", async |op| outside.send(op).await);
        let (asked, paid) = tokio::join!(ask.into_future(), pay);
        asked?;
        // The model asks for it once more.
        let step = ctx.step("pay").by_arguments().at_most_once();
        let more = step.run("order", async |op| outside.send(op).await).await?;
        Ok(vec![paid?, more])
    });
    let mut life = begun(&code).await;
    outside.let_go();
    life.settle().await;
    assert_eq!(life.row("t").await.status, Status::Waiting);
    assert_eq!(life.count("t", Kind::StepDone).await, 1);
    life = again(life, &code).await;
    life.book.decide("t", "ask#0", true, "user:a", "").await.unwrap();
    assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [1, 1]);
    assert_eq!(outside.sent().len(), 1);
}

#[tokio::test]
async fn b12_the_key_is_the_same_on_every_attempt_life_and_machine() {
    let outside = Outside::that([Does::NotApplied, Does::Hangs, Does::Hangs]);
    let code = Code::new(&outside, |ctx: Context, outside| async move {
        let step = ctx.step("pay").idempotent();
        Ok(vec![step.run(&1, async |op| outside.send(op).await).await?])
    });
    let mut life = begun(&code).await;
    life.pass(Duration::from_secs(1)).await;
    for _ in 0..2 {
        life = again(life, &code).await;
    }
    assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [7]);
    let sent = outside.sent();
    assert_eq!((sent.len(), outside.keys()), (4, 1));
    assert!(sent[0].key.len() <= 64 && sent[0].key.bytes().all(|b| b.is_ascii_graphic()));
}
