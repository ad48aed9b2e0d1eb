//! Probes: when they are asked, and what their answers do.

use std::time::Duration;

use deedbook::{PolicyKind, Status};
use deedbook_journal::{limits::PROBES_MAX, record::Kind};
use harness::outside::{Does, Outside, Says};

use super::{Plan, Rig, T, plan};

/// A reconcile step whose first attempt died with its process.
async fn crashed(plan: &Plan) -> Rig {
    let mut rig = Rig::new(Outside::that([Does::Hangs, Does::Returns(9)])).await;
    rig.begin(plan).await;
    rig.crash(Duration::from_secs(1)).await;
    rig
}

#[tokio::test]
async fn nothing_is_asked_before_the_last_request_can_no_longer_be_on_its_way() {
    for (quiet, expected) in [
        (None, Duration::from_secs(70)),
        (Some(Duration::from_secs(500)), Duration::from_secs(500)),
    ] {
        let plan = Plan { quiet, ..plan(PolicyKind::Reconcile) };
        let mut rig = crashed(&plan).await;
        let sent = rig.outside.sent()[0].first_started_at;
        rig.outside.says([Says::DidNotHappen]);
        // A restart asks no earlier.
        rig.crash(Duration::from_secs(5)).await;
        let row = rig.life().row(T).await;
        assert_eq!(row.status, Status::Sleeping);
        assert_eq!(row.wake_at, Some(sent.after(expected)));
        rig.clock.advance(expected - Duration::from_secs(6) - Duration::from_nanos(1));
        rig.life().settle().await;
        assert!(rig.outside.asked().is_empty(), "asked too early");
        // Found due at the next look, not later.
        rig.clock.advance(Duration::from_secs(1));
        rig.life().settle().await;
        assert_eq!(rig.outside.asked().len(), 1);
        assert_eq!(rig.result().await, 9);
        assert_eq!(rig.outside.attempts(), [1, 2]);
        assert_eq!(rig.outside.keys(), 1);
    }
}

#[tokio::test]
async fn that_it_happened_settles_the_step_without_another_attempt() {
    let mut rig = crashed(&plan(PolicyKind::Reconcile)).await;
    rig.outside.says([Says::Happened(8)]);
    assert_eq!(rig.result().await, 8);
    rig.crash(Duration::ZERO).await;
    assert_eq!(rig.result().await, 8);
    assert_eq!(rig.outside.attempts(), [1]);
    assert_eq!(rig.outside.asked().len(), 1);
}

#[tokio::test]
async fn a_probe_that_cannot_tell_is_asked_again_and_its_failure_kept() {
    for (says, kept) in [
        (Says::Inconclusive, None),
        (Says::Fails, Some("the look-up failed")),
        (Says::Panics, Some("the probe panicked: the probe broke")),
        (Says::Hangs, None),
    ] {
        let rig = crashed(&plan(PolicyKind::Reconcile)).await;
        rig.outside.says([says.clone(), says, Says::Happened(8)]);
        assert_eq!(rig.result().await, 8);
        assert_eq!(rig.outside.asked().len(), 3);
        assert_eq!(rig.outside.attempts(), [1]);
        let records = rig.life().records(T).await;
        let said: Vec<_> = records.iter().filter(|(h, _)| h.kind == Kind::StepResolve).collect();
        let verdicts: Vec<_> = said.iter().filter_map(|(h, _)| h.verdict.as_deref()).collect();
        assert_eq!(verdicts, ["inconclusive", "inconclusive", "happened"]);
        assert!(said.iter().all(|(h, _)| h.by.as_deref() == Some("probe")));
        let shown =
            String::from_utf8_lossy(said[0].1.payloads.first().map_or(&[][..], |p| &p.bytes))
                .into_owned();
        assert!(shown.contains(kept.unwrap_or_default()), "{shown}");
    }
}

#[tokio::test]
async fn a_probe_that_never_can_tell_leaves_the_step_in_doubt() {
    let mut rig = crashed(&plan(PolicyKind::Reconcile)).await;
    rig.outside.says(vec![Says::Inconclusive; 100]);
    for _ in 0..3 {
        rig.life().pass(Duration::from_secs(75)).await;
        rig.crash(Duration::ZERO).await;
    }
    let row = rig.until(Status::InDoubt).await;
    assert!(row.detail.unwrap().contains("the probe could not tell"));
    assert_eq!(rig.outside.asked().len(), PROBES_MAX as usize);
    rig.life().pass(Duration::from_secs(100_000)).await;
    assert_eq!(rig.outside.asked().len(), PROBES_MAX as usize);
    assert_eq!(rig.outside.attempts(), [1]);
}

#[tokio::test]
async fn a_crash_while_the_downstream_is_asked_asks_again() {
    let mut rig = crashed(&plan(PolicyKind::Reconcile)).await;
    rig.outside.says([Says::Hangs, Says::Happened(8)]);
    rig.life().pass(Duration::from_secs(75)).await;
    assert_eq!(rig.outside.asked().len(), 1);
    rig.crash(Duration::ZERO).await;
    assert_eq!(rig.result().await, 8);
    assert_eq!(rig.outside.asked().len(), 2);
    assert_eq!(rig.outside.attempts(), [1]);
}

#[tokio::test]
async fn of_changed_declarations_only_at_most_once_to_reconcile_applies() {
    use PolicyKind::{AtMostOnce, Idempotent, Read, Reconcile};
    for (recorded, now) in [
        (AtMostOnce, Reconcile),
        (AtMostOnce, Idempotent),
        (AtMostOnce, Read),
        (Reconcile, Idempotent),
        (Reconcile, AtMostOnce),
        (Idempotent, AtMostOnce),
    ] {
        let mut rig = Rig::new(Outside::that([Does::Hangs, Does::Returns(9)])).await;
        rig.begin(&plan(recorded)).await;
        rig.redeclared = Some(now);
        rig.outside.says([Says::Happened(8)]);
        rig.crash(Duration::from_secs(1)).await;
        for _ in 0..20 {
            rig.life().pass(Duration::from_secs(100)).await;
        }
        let row = rig.life().row(T).await;
        let (asked, sent) = (rig.outside.asked().len(), rig.outside.attempts().len());
        let expected = match (recorded, now) {
            (AtMostOnce, Reconcile) => (Status::Done, 0, 1, 1),
            (AtMostOnce, _) => (Status::InDoubt, 1, 0, 1),
            // The policy as recorded stands, and there is nobody to ask any more.
            (Reconcile, _) => (Status::InDoubt, 1, 0, 1),
            _ => (Status::Done, 0, 0, 2),
        };
        let seen = (row.status, row.open_doubts, asked, sent);
        assert_eq!(seen, expected, "{recorded:?} to {now:?}: {row:?}");
        if row.status == Status::InDoubt {
            let resolution = deedbook::Resolution::happened(&5_u32).unwrap();
            let book = rig.book();
            book.resolve(T, "pay#0", resolution, "user:a", "").await.unwrap();
            assert_eq!(rig.result().await, 5);
        }
    }
}
