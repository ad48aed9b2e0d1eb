//! The table of policies and ends, one row an end.

use std::time::Duration;

use deedbook::{PolicyKind, Status};
use harness::outside::{Does, Outside, Says};

use super::{Rig, T, plan};

const ALL: [PolicyKind; 4] =
    [PolicyKind::Read, PolicyKind::Idempotent, PolicyKind::Reconcile, PolicyKind::AtMostOnce];

/// What a policy makes of an end that may have had its effect.
async fn ambiguous(first: Does, word: &str, crashes: bool) {
    for policy in ALL {
        let mut rig = Rig::new(Outside::that([first.clone(), Does::Returns(9)])).await;
        rig.begin(&plan(policy)).await;
        // Until the first attempt has ended, or the time that it may take is over.
        if rig.life().story(T).await.len() < 3 {
            rig.life().pass(Duration::from_secs(10)).await;
        }
        let story = rig.life().story(T).await;
        let kind = match policy {
            PolicyKind::Read => "step.fail",
            _ => "step.unknown",
        };
        let expected = ["thread.start", "step.intent", &format!("{kind} {word}")];
        assert_eq!(story, expected, "{policy:?}");
        if crashes {
            rig.crash(Duration::ZERO).await;
        }
        match policy {
            PolicyKind::Read | PolicyKind::Idempotent => {
                assert_eq!(rig.result().await, 9, "{policy:?} {word}");
                assert_eq!(rig.outside.attempts(), [1, 2]);
                assert_eq!(rig.outside.keys(), 1);
            }
            PolicyKind::Reconcile => {
                assert_eq!(rig.life().row(T).await.status, Status::Sleeping);
                assert!(rig.outside.asked().is_empty(), "asked before it was quiet");
                rig.outside.says([Says::Happened(8)]);
                assert_eq!(rig.result().await, 8);
                assert_eq!(rig.outside.attempts(), [1]);
                assert_eq!(rig.outside.asked(), rig.outside.sent());
            }
            PolicyKind::AtMostOnce => {
                let row = rig.until(Status::InDoubt).await;
                assert_eq!(row.open_doubts, 1);
                rig.life().pass(Duration::from_secs(100_000)).await;
                assert_eq!(rig.life().row(T).await.status, Status::InDoubt);
                assert_eq!(rig.outside.attempts(), [1]);
            }
        }
    }
}

#[tokio::test]
async fn an_unlabelled_error() {
    ambiguous(Does::Fails, "unlabelled", false).await;
    ambiguous(Does::Fails, "unlabelled", true).await;
}

#[tokio::test]
async fn a_timeout() {
    ambiguous(Does::Hangs, "timeout", false).await;
    ambiguous(Does::Hangs, "timeout", true).await;
}

#[tokio::test]
async fn a_panic() {
    ambiguous(Does::Panics, "panic", false).await;
    ambiguous(Does::Panics, "panic", true).await;
}

#[tokio::test]
async fn a_crash_while_the_body_runs() {
    for policy in ALL {
        let mut rig = Rig::new(Outside::that([Does::Hangs, Does::Returns(9)])).await;
        rig.begin(&plan(policy)).await;
        assert_eq!(rig.outside.attempts(), [1]);
        rig.crash(Duration::from_secs(1)).await;
        match policy {
            PolicyKind::Read | PolicyKind::Idempotent => {
                assert_eq!(rig.result().await, 9, "{policy:?}");
                assert_eq!(rig.outside.attempts(), [1, 2]);
                assert_eq!(rig.outside.keys(), 1);
            }
            PolicyKind::Reconcile => {
                assert_eq!(rig.result().await, 9);
                assert_eq!(rig.outside.attempts(), [1, 2]);
                assert_eq!(rig.outside.keys(), 1);
                assert_eq!(rig.outside.asked().len(), 1);
            }
            PolicyKind::AtMostOnce => {
                rig.until(Status::InDoubt).await;
                assert_eq!(rig.outside.attempts(), [1]);
            }
        }
    }
}

#[tokio::test]
async fn a_failure_without_effect_is_tried_again_under_every_policy() {
    for policy in ALL {
        for crashes in [false, true] {
            let does = [Does::NotApplied, Does::NotApplied, Does::Returns(9)];
            let mut rig = Rig::new(Outside::that(does)).await;
            rig.begin(&plan(policy)).await;
            if crashes {
                rig.crash(Duration::ZERO).await;
            }
            assert_eq!(rig.result().await, 9, "{policy:?}");
            assert_eq!(rig.outside.attempts(), [1, 2, 3]);
            assert_eq!(rig.outside.keys(), 1);
            assert!(rig.outside.asked().is_empty());
        }
    }
}

#[tokio::test]
async fn a_terminal_failure_fails_the_step_under_every_policy() {
    for policy in ALL {
        let mut rig = Rig::new(Outside::that([Does::Terminal])).await;
        rig.begin(&plan(policy)).await;
        rig.until(Status::Failed).await;
        rig.crash(Duration::ZERO).await;
        let error = rig.book().wait::<super::Once>(T).await.unwrap_err();
        assert_eq!(error.failure().unwrap().code, "closed");
        assert!(error.to_string().contains("pay#0: account closed"), "{error}");
        assert_eq!(rig.outside.attempts(), [1], "{policy:?}");
    }
}

#[tokio::test]
async fn a_step_dropped_while_its_body_runs() {
    for policy in ALL {
        for crashes in [false, true] {
            for abandon in [false, true] {
                let mut rig = Rig::new(Outside::that([Does::Hangs])).await;
                let mut plan = plan(policy);
                plan.abandon = abandon;
                plan.drops_after = Some(Duration::from_secs(4));
                rig.begin(&plan).await;
                rig.life().pass(Duration::from_secs(5)).await;
                if crashes {
                    rig.crash(Duration::from_secs(1000)).await;
                }
                let effect = policy != PolicyKind::Read;
                if effect && !abandon {
                    let row = rig.until(Status::InDoubt).await;
                    assert_eq!(row.open_doubts, 1);
                    assert!(row.detail.unwrap().contains("dropped"));
                    rig.life().pass(Duration::from_secs(100_000)).await;
                    assert_eq!(rig.life().row(T).await.status, Status::InDoubt);
                } else {
                    assert_eq!(rig.result().await, 0, "{policy:?}");
                    let records = rig.life().records(T).await;
                    let (end, _) = records.last().unwrap();
                    assert_eq!(end.doubts, Some(u32::from(effect)), "{policy:?}");
                }
                assert_eq!(rig.outside.attempts(), [1]);
            }
        }
    }
}
