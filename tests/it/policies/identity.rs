//! One name, many calls: by place, by arguments, by key.

use std::time::Duration;

use deedbook::{ErrorKind, Status, VirtualClock};
use deedbook_journal::record::Kind;
use harness::{
    code::Code,
    outside::{Does, Life, Outside},
};

/// A life with this workflow, and the thread begun.
async fn begun(clock: &VirtualClock, code: &Code) -> Life {
    let hosted = code.clone();
    let life = Life::first(clock, |b| b.host(hosted)).await;
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
async fn s12_s22_attempts_share_a_key_and_operations_do_not() {
    // Three calls of one name with equal arguments, and names that look like generated ones.
    let does = [Does::NotApplied, Does::NotApplied, Does::Returns(1)];
    let outside = Outside::that(does);
    outside.then([2, 3, 4, 5].map(Does::Returns));
    let code = Code::new(&outside, |ctx, outside| async move {
        let mut got = Vec::new();
        for name in ["poll", "poll", "poll", "poll#1", "poll:1"] {
            let step = ctx.step(name).at_most_once();
            got.push(step.run("a", async |op| outside.send(op).await).await?);
        }
        Ok(got)
    });
    let clock = VirtualClock::new();
    let mut life = begun(&clock, &code).await;
    life = again(life, &code).await;
    life.until("t", Status::Done).await;
    for _ in 0..2 {
        assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [1, 2, 3, 4, 5]);
        life = again(life, &code).await;
    }
    assert_eq!(outside.sent().len(), 7);
    assert_eq!(outside.keys(), 5);
    // Another thread has other keys.
    life.book.spawn::<Code>("u", ()).await.unwrap();
    life.until("u", Status::Done).await;
    assert_eq!(outside.keys(), 10);
}

#[tokio::test]
async fn b01_by_arguments_an_identical_call_is_given_the_first_ones_outcome() {
    let outside = Outside::that([1, 2, 3].map(Does::Returns));
    let code = Code::new(&outside, |ctx, outside| async move {
        let mut got = Vec::new();
        for (order, occurrence) in [("a", 0), ("b", 0), ("a", 0), ("a", 1), ("a", 1)] {
            let step = ctx.step("refund").by_arguments().occurrence(occurrence);
            let step = step.idempotent();
            got.push(step.run(order, async |op| outside.send(op).await).await?);
        }
        Ok(got)
    });
    let mut life = begun(&VirtualClock::new(), &code).await;
    for _ in 0..2 {
        assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [1, 2, 1, 3, 3]);
        life = again(life, &code).await;
    }
    assert_eq!(outside.sent().len(), 3);
    assert_eq!(outside.keys(), 3);
}

#[tokio::test]
async fn b04_concurrent_twins_share_one_execution() {
    let outside = Outside::that([Does::Waits(4)]);
    let code = Code::new(&outside, |ctx, outside| async move {
        ctx.map("all", 0..5_u32, |ctx, _| {
            let outside = outside.clone();
            async move {
                let step = ctx.step("refund").by_arguments().idempotent();
                step.run("a", async |op| outside.send(op).await).await
            }
        })
        .await
    });
    let mut life = begun(&VirtualClock::new(), &code).await;
    assert_eq!(outside.sent().len(), 1);
    // The process dies while all five wait for it.
    outside.then([Does::Returns(6)]);
    life = again(life, &code).await;
    for _ in 0..2 {
        assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [6; 5]);
        assert_eq!(life.count("t", Kind::StepDone).await, 1);
        life = again(life, &code).await;
    }
    assert_eq!(outside.sent().len(), 2);
    assert_eq!(outside.keys(), 1);
}

#[tokio::test]
async fn s23_b13_one_key_with_other_arguments_is_a_conflict_in_every_state() {
    // Done, running, in doubt.
    for (does, crashes) in [(Does::Returns(1), false), (Does::Hangs, false), (Does::Hangs, true)] {
        let outside = Outside::that([does]);
        let code = Code::new(&outside, |ctx, outside| async move {
            let keyed = ctx.step("pay").key("k1").at_most_once();
            let first = keyed.run(&10, async |op| outside.send(op).await);
            let (ctx, again) = (ctx.clone(), outside.clone());
            let later = async move {
                ctx.signal::<u32>("go").await?;
                let keyed = ctx.step("pay").key("k1").at_most_once();
                keyed.run(&1000, async |op| again.send(op).await).await
            };
            let (first, later) = tokio::join!(first, later);
            Ok(vec![first?, later?])
        });
        let mut life = begun(&VirtualClock::new(), &code).await;
        if crashes {
            life = again(life, &code).await;
        }
        life.book.signal("t", "go", &0).await.unwrap();
        life.settle().await;
        let row = life.row("t").await;
        assert_eq!(row.status, Status::Diverged, "{row:?}");
        let error = life.book.wait::<Code>("t").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Diverged);
        let text = error.to_string();
        assert!(text.contains("pay=k1"), "{text}");
        assert!(text.contains("10") && text.contains("1000"), "{text}");
        assert_eq!(outside.sent().len(), 1);
    }
}

#[tokio::test]
async fn b13_a_key_belongs_to_its_step_name() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx, outside| async move {
        for name in ["pay", "mail"] {
            let step = ctx.step(name).key("k1").idempotent();
            step.run(&1, async |op| outside.send(op).await).await?;
        }
        Ok(vec![])
    });
    let life = begun(&VirtualClock::new(), &code).await;
    life.book.wait::<Code>("t").await.unwrap();
    assert_eq!(outside.keys(), 2);
}

#[tokio::test]
async fn s11_an_empty_key_is_refused_and_empty_arguments_are_not_one_value() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx, outside| async move {
        let step = ctx.step("pay").key("").idempotent();
        step.run(&1, async |op| outside.send(op).await).await?;
        Ok(vec![])
    });
    let life = begun(&VirtualClock::new(), &code).await;
    assert_eq!(life.row("t").await.status, Status::Stalled);
    assert!(outside.sent().is_empty());

    let outside = Outside::default();
    let code = Code::new(&outside, |ctx, outside| async move {
        let send = async |op| outside.send(op).await;
        for name in ["ping", "pong"] {
            let map = std::collections::BTreeMap::<String, u8>::new();
            let step = ctx.step(name).by_arguments().idempotent();
            step.run(&map, send).await?;
            let step = ctx.step(name).by_arguments().idempotent();
            step.run(&Vec::<u8>::new(), send).await?;
            let step = ctx.step(name).by_arguments().idempotent();
            step.run(&None::<u8>, send).await?;
        }
        Ok(vec![])
    });
    let life = begun(&VirtualClock::new(), &code).await;
    life.book.wait::<Code>("t").await.unwrap();
    assert_eq!(outside.keys(), 6);
}

#[tokio::test]
async fn one_name_twice_at_once_is_an_error_that_names_the_cures_and_costs_nothing() {
    let outside = Outside::default();
    let wrong = Code::new(&outside, |ctx, outside| async move {
        let send = async |op| outside.send(op).await;
        let a = ctx.step("pay").idempotent().run(&1, send);
        let b = ctx.step("pay").idempotent().run(&2, send);
        let (a, b) = tokio::join!(a, b);
        Ok(vec![a?, b?])
    });
    let clock = VirtualClock::new();
    let life = begun(&clock, &wrong).await;
    let error = life.book.wait::<Code>("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stalled, "{error}");
    let text = error.to_string();
    assert!(text.contains(".id(") && text.contains("ctx.branch("), "{text}");
    assert!(outside.sent().is_empty());
    // The corrected code goes on with the same thread.
    let right = Code::new(&outside, |ctx, outside| async move {
        let send = async |op| outside.send(op).await;
        let a = ctx.step("pay").id("order-1").idempotent().run(&1, send);
        let b = ctx.step("pay").id("order-2").idempotent().run(&2, send);
        let (a, b) = tokio::join!(a, b);
        Ok(vec![a?, b?])
    });
    let life = again(life, &right).await;
    assert_eq!(life.book.wait::<Code>("t").await.unwrap(), [7, 7]);
    assert_eq!(outside.keys(), 2);
}
