//! S47: cancelling a thread whose step is in flight, and shutting down meanwhile.

use std::time::Duration;

use deedbook::{Checkpointer, ErrorKind, PolicyKind, Resolution, Status, ThreadId, VirtualClock};
use deedbook_journal::record::{Header, Kind};
use deedbook_memory::MemoryHome;
use harness::{
    code,
    outside::{Does, Outside},
};

use super::{Once, Plan, Rig, T, plan};

const EFFECTS: [PolicyKind; 3] =
    [PolicyKind::Idempotent, PolicyKind::Reconcile, PolicyKind::AtMostOnce];

async fn cancel(rig: &Rig) {
    rig.book().cancel(T, "user:alice", "changed my mind").await.unwrap();
    rig.life().settle().await;
}

#[tokio::test]
async fn s47_b_a_body_that_ends_in_time_has_its_true_outcome() {
    for policy in EFFECTS {
        let mut rig = Rig::new(Outside::that([Does::Waits(5)])).await;
        rig.begin(&plan(policy)).await;
        cancel(&rig).await;
        rig.life().pass(Duration::from_millis(100)).await;
        assert_eq!(rig.life().row(T).await.status, Status::Running);
        rig.outside.let_go();
        rig.until(Status::Cancelled).await;
        assert_eq!(rig.life().count(T, Kind::StepDone).await, 1);
        assert_eq!(rig.life().records(T).await.last().unwrap().0.doubts, Some(0));
        rig.crash(Duration::ZERO).await;
        let error = rig.book().wait::<Once>(T).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(rig.outside.attempts(), [1]);
    }
}

#[tokio::test]
async fn s47_b_a_body_that_does_not_end_leaves_a_doubt_and_no_failure() {
    for policy in EFFECTS {
        let mut rig = Rig::new(Outside::that([Does::Hangs])).await;
        let plan = Plan { timeout: Duration::from_secs(500), ..plan(policy) };
        rig.begin(&plan).await;
        cancel(&rig).await;
        rig.life().pass(Duration::from_secs(31)).await;
        let row = rig.until(Status::InDoubt).await;
        assert_eq!(row.open_doubts, 1, "{policy:?}");
        let story = rig.life().story(T).await;
        assert!(story.contains(&"step.unknown cancelled".to_owned()), "{story:?}");
        assert!(!story.iter().any(|s| s.starts_with("step.fail")), "{story:?}");
        // (d) Nothing runs again, whatever the policy allows.
        rig.crash(Duration::from_secs(1_000)).await;
        rig.life().pass(Duration::from_secs(1_000)).await;
        assert_eq!(rig.outside.attempts(), [1]);
        assert!(rig.outside.asked().is_empty());
        let resolution = Resolution::happened(&1_u32).unwrap();
        rig.book().resolve(T, "pay#0", resolution, "user:a", "").await.unwrap();
        rig.until(Status::Cancelled).await;
    }
}

#[tokio::test]
async fn s47_b_an_effect_that_nobody_would_look_after_keeps_the_thread_open() {
    // Dead with its process, or waiting for its next attempt: the thread is cancelled meanwhile.
    for does in [Does::Hangs, Does::Fails] {
        for policy in EFFECTS {
            let mut rig = Rig::new(Outside::that([does.clone()])).await;
            rig.begin(&plan(policy)).await;
            let left = rig.stop();
            let life = harness::outside::Life::after(left, &rig.clock, |b| b).await;
            life.book.cancel(T, "user:alice", "").await.unwrap();
            rig.life = Some(life);
            rig.crash(Duration::from_secs(1)).await;
            let row = rig.until(Status::InDoubt).await;
            assert_eq!(row.open_doubts, 1, "{policy:?}");
            assert_eq!(rig.outside.attempts(), [1]);
            let resolution = Resolution::did_not_happen();
            rig.book().resolve(T, "pay#0", resolution, "user:a", "").await.unwrap();
            rig.until(Status::Cancelled).await;
            assert_eq!(rig.outside.attempts(), [1], "nothing begins any more");
        }
    }
}

#[tokio::test]
async fn s47_c_an_outcome_that_was_there_is_kept() {
    let rig = Rig::new(Outside::that([Does::NotApplied, Does::Returns(9)])).await;
    rig.begin(&plan(PolicyKind::AtMostOnce)).await;
    assert_eq!(rig.life().row(T).await.status, Status::Sleeping);
    cancel(&rig).await;
    rig.until(Status::Cancelled).await;
    assert_eq!(rig.outside.attempts(), [1]);
    let story = rig.life().story(T).await;
    assert!(story.contains(&"step.fail not_applied".to_owned()));
    let late = rig.book().cancel(T, "user:alice", "").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Refused);

    let rig = Rig::new(Outside::default()).await;
    rig.begin(&plan(PolicyKind::AtMostOnce)).await;
    assert_eq!(rig.result().await, 7);
    let late = rig.book().cancel(T, "user:alice", "").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Refused);
    assert_eq!(rig.result().await, 7);
}

#[tokio::test]
async fn a_read_leaves_no_doubt() {
    let rig = Rig::new(Outside::that([Does::Hangs])).await;
    rig.begin(&plan(PolicyKind::Read)).await;
    cancel(&rig).await;
    rig.life().pass(Duration::from_secs(31)).await;
    rig.until(Status::Cancelled).await;
}

/// While a body came to its end in a shutdown, an attempt whose time had come was begun, given
/// back, and begun again, for as long as the shutdown waited.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_waits_for_a_body_begins_no_attempt() {
    let clock = VirtualClock::new();
    let outside = Outside::that([Does::Waits(1), Does::NotApplied]);
    let (life, _) = code::life(&clock, &outside, |ctx, outside| async move {
        let (waits, fails) = (ctx.branch("waits"), ctx.branch("fails"));
        let other = outside.clone();
        let one = waits.step("pay").idempotent().run(&1, async move |op| outside.send(op).await);
        let two = fails.step("pay").idempotent().run(&2, async move |op| other.send(op).await);
        let (one, two) = tokio::join!(one, two);
        Ok(vec![one?, two?])
    })
    .await;
    life.book.spawn::<code::Code>(T, ()).await.unwrap();
    while life.count(T, Kind::StepFail).await == 0 {
        tokio::task::yield_now().await;
    }
    let book = life.book.clone();
    let shutdown = async { tokio::time::timeout(Duration::from_secs(20), book.shutdown()).await };
    let outside = async {
        life.settle().await;
        clock.advance(Duration::from_secs(1));
        life.settle().await;
        outside.let_go();
    };
    let (ended, ()) = tokio::join!(shutdown, outside);
    ended.expect("it makes no end").unwrap();
    let home = MemoryHome::from_snapshot(life.crash(), None);
    let records = home.read(&ThreadId::new(T).unwrap(), 0, usize::MAX).await.unwrap().items;
    let kinds = records.iter().map(|(_, record)| Header::parse(&record.header).unwrap().kind);
    assert_eq!(kinds.filter(|kind| *kind == Kind::StepIntent).count(), 2);
}
