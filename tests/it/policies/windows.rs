//! How long a key may be trusted: B17.

use std::time::Duration;

use deedbook::{PolicyKind, Status};
use harness::outside::{Does, Outside};

use super::{Plan, Rig, plan};

const HOUR: Duration = Duration::from_secs(3600);

fn honoured_for(window: Duration) -> Plan {
    Plan { window: Some(window), ..plan(PolicyKind::Idempotent) }
}

async fn crashed(window: Duration, later: Duration) -> Rig {
    let mut rig = Rig::new(Outside::that([Does::Hangs, Does::Returns(9)])).await;
    rig.begin(&honoured_for(window)).await;
    rig.crash(later).await;
    rig
}

#[tokio::test]
async fn the_timeout_and_a_margin_are_kept_free() {
    // 24 h less a minute of margin less the timeout of 10 s.
    let last = 24 * HOUR - Duration::from_secs(70);
    let rig = crashed(24 * HOUR, last - Duration::from_nanos(1)).await;
    assert_eq!(rig.result().await, 9);
    assert_eq!(rig.outside.attempts(), [1, 2]);
    assert_eq!(rig.outside.keys(), 1);
    let rig = crashed(24 * HOUR, last).await;
    let row = rig.until(Status::InDoubt).await;
    assert!(row.detail.unwrap().contains("forgotten the operation key"));
    assert_eq!(rig.outside.attempts(), [1]);
}

#[tokio::test]
async fn the_margin_of_a_short_window_is_a_tenth_of_it() {
    let last = Duration::from_secs(300 - 30 - 10);
    let rig = crashed(Duration::from_secs(300), last - Duration::from_nanos(1)).await;
    assert_eq!(rig.result().await, 9);
    let rig = crashed(Duration::from_secs(300), last).await;
    rig.until(Status::InDoubt).await;
    assert_eq!(rig.outside.attempts(), [1]);
}

#[tokio::test]
async fn b17_a_recovery_after_25_hours_sends_nothing() {
    let mut rig = crashed(24 * HOUR, 25 * HOUR).await;
    for _ in 0..3 {
        rig.until(Status::InDoubt).await;
        rig.crash(100 * HOUR).await;
    }
    assert_eq!(rig.outside.attempts(), [1]);
    let error = rig.book().wait::<super::Once>(super::T).await.unwrap_err();
    assert_eq!(error.kind(), deedbook::ErrorKind::InDoubt);
}

#[tokio::test]
async fn without_a_window_the_key_is_honoured_for_ever() {
    let mut rig = Rig::new(Outside::that([Does::Hangs, Does::Returns(9)])).await;
    rig.begin(&plan(PolicyKind::Idempotent)).await;
    rig.crash(100_000 * HOUR).await;
    assert_eq!(rig.result().await, 9);
}

#[tokio::test]
async fn every_attempt_is_held_against_the_first_one() {
    // Sent at 0, then about 5, 15 and 35 s later; the one after that would be too late.
    let rig = Rig::new(Outside::that(vec![Does::Fails; 10])).await;
    let plan = Plan { attempts: 10, ..honoured_for(Duration::from_secs(60)) };
    rig.begin(&plan).await;
    rig.until(Status::InDoubt).await;
    assert_eq!(rig.outside.attempts(), [1, 2, 3, 4]);
    let sent = rig.outside.sent();
    assert!(sent.iter().all(|s| s.first_started_at == sent[0].first_started_at));
}

#[tokio::test]
async fn an_attempt_that_was_not_applied_does_not_begin_the_window() {
    let mut rig = Rig::new(Outside::that([Does::NotApplied, Does::Hangs])).await;
    rig.begin(&honoured_for(24 * HOUR)).await;
    rig.life().pass(Duration::from_secs(6)).await;
    assert_eq!(rig.outside.attempts(), [1, 2]);
    let second = rig.outside.sent()[1].first_started_at;
    assert!(second > rig.outside.sent()[0].first_started_at);
    rig.crash(24 * HOUR - Duration::from_secs(74)).await;
    assert_eq!(rig.result().await, 7);
    assert_eq!(rig.outside.sent()[2].first_started_at, second);
}
