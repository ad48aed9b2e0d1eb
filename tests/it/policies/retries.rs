//! Attempts: how many, how soon, over restarts too.

use std::time::Duration;

use deedbook::{PolicyKind, Status};
use deedbook_journal::record::Kind;
use harness::outside::{Does, Outside, Says};

use super::{Once, Plan, Rig, T, plan};

fn attempts(policy: PolicyKind, attempts: u32) -> Plan {
    Plan { attempts, ..plan(policy) }
}

#[tokio::test]
async fn s34_a_restart_neither_resets_the_attempts_nor_shortens_the_wait() {
    for policy in [PolicyKind::Read, PolicyKind::Idempotent] {
        let does = [Does::Fails, Does::Fails, Does::Fails, Does::Returns(9)];
        let mut rig = Rig::new(Outside::that(does)).await;
        rig.begin(&attempts(policy, 4)).await;
        for made in 1..4 {
            let row = rig.life().row(T).await;
            assert_eq!(row.status, Status::Sleeping, "{row:?}");
            let due = row.wake_at.unwrap();
            // Twice as long each time, and at most a fifth less.
            let wait = Duration::from_secs(5 << (made - 1)).min(Duration::from_secs(30));
            assert!(due.since(rig.clock.now()) <= wait);
            assert!(due.since(rig.clock.now()) >= wait * 4 / 5);
            rig.crash(Duration::from_secs(1)).await;
            assert_eq!(rig.life().row(T).await.wake_at, Some(due));
            let left = due.since(rig.clock.now());
            rig.clock.advance(left - Duration::from_nanos(1));
            rig.life().settle().await;
            assert_eq!(rig.outside.attempts().len(), made);
            // Found due at the next look, not later.
            rig.clock.advance(Duration::from_secs(1));
            rig.life().settle().await;
            assert_eq!(rig.outside.attempts().len(), made + 1);
        }
        assert_eq!(rig.result().await, 9);
        assert_eq!(rig.outside.attempts(), [1, 2, 3, 4]);
    }
}

#[tokio::test]
async fn s34_all_attempts_without_effect_fail_the_step_for_good() {
    use PolicyKind::{AtMostOnce, Idempotent, Read, Reconcile};
    for policy in [Read, Idempotent, Reconcile, AtMostOnce] {
        let mut rig = Rig::new(Outside::that(vec![Does::NotApplied; 4])).await;
        rig.begin(&attempts(policy, 4)).await;
        rig.until(Status::Failed).await;
        rig.crash(Duration::ZERO).await;
        let error = rig.book().wait::<Once>(T).await.unwrap_err();
        assert!(error.to_string().contains("no connection"), "{error}");
        assert_eq!(rig.outside.attempts(), [1, 2, 3, 4], "{policy:?}");
    }
}

#[tokio::test]
async fn reads_that_always_fail_have_failed() {
    let rig = Rig::new(Outside::that(vec![Does::Fails; 3])).await;
    rig.begin(&plan(PolicyKind::Read)).await;
    rig.until(Status::Failed).await;
    assert_eq!(rig.outside.attempts(), [1, 2, 3]);
}

#[tokio::test]
async fn exhausted_with_one_ambiguous_attempt_is_in_doubt() {
    let tries: [[Does; 3]; 3] = [
        [Does::Fails, Does::NotApplied, Does::NotApplied],
        [Does::NotApplied, Does::Fails, Does::NotApplied],
        [Does::NotApplied, Does::NotApplied, Does::Fails],
    ];
    for does in tries {
        let mut rig = Rig::new(Outside::that(does)).await;
        rig.begin(&plan(PolicyKind::Idempotent)).await;
        rig.until(Status::InDoubt).await;
        rig.crash(Duration::from_secs(100_000)).await;
        let row = rig.until(Status::InDoubt).await;
        assert!(row.detail.unwrap().contains("used up"));
        assert_eq!(rig.outside.attempts(), [1, 2, 3]);
    }
}

#[tokio::test]
async fn an_attempt_that_died_counts() {
    let does = [Does::Hangs, Does::NotApplied, Does::NotApplied];
    let mut rig = Rig::new(Outside::that(does)).await;
    rig.begin(&plan(PolicyKind::Idempotent)).await;
    rig.crash(Duration::ZERO).await;
    rig.until(Status::InDoubt).await;
    assert_eq!(rig.outside.attempts(), [1, 2, 3]);
}

#[tokio::test]
async fn a_read_of_one_attempt_that_died_runs_again() {
    let mut rig = Rig::new(Outside::that([Does::Hangs])).await;
    rig.begin(&attempts(PolicyKind::Read, 1)).await;
    // Another turn, so that the intent is durable.
    rig.life().pass(Duration::from_secs(1)).await;
    assert_eq!(rig.life().count(T, Kind::StepIntent).await, 1);
    rig.crash(Duration::ZERO).await;
    assert_eq!(rig.result().await, 7);
    assert_eq!(rig.outside.attempts(), [1, 2]);
}

#[tokio::test]
async fn a_step_that_kills_its_process_three_times_is_poison() {
    for policy in [PolicyKind::Read, PolicyKind::Idempotent] {
        let mut rig = Rig::new(Outside::that(vec![Does::Hangs; 9])).await;
        rig.begin(&attempts(policy, 10)).await;
        for _ in 0..3 {
            rig.life().pass(Duration::from_secs(1)).await;
            rig.crash(Duration::ZERO).await;
        }
        let row = rig.until(Status::InDoubt).await;
        assert!(row.detail.unwrap().contains("several processes died"));
        assert_eq!(rig.outside.attempts(), [1, 2, 3]);
        // A person's word takes it up again.
        let resolution = deedbook::Resolution::did_not_happen();
        let book = rig.book();
        book.resolve(T, "pay#0", resolution, "user:a", "looked").await.unwrap();
        rig.life().settle().await;
        assert_eq!(rig.outside.attempts(), [1, 2, 3, 4]);
        assert_eq!(rig.outside.keys(), 1);
    }
}

#[tokio::test]
async fn waits_differ_between_threads_and_stay_in_their_bounds() {
    let rig = Rig::new(Outside::that(vec![Does::NotApplied; 40])).await;
    let mut waits = Vec::new();
    for n in 0..40 {
        let id = format!("t-{n}");
        let plan = plan(PolicyKind::AtMostOnce);
        rig.book().spawn::<Once>(&id, plan).await.unwrap();
        let row = rig.life().row(&id).await;
        waits.push(row.wake_at.unwrap().since(rig.clock.now()));
    }
    assert!(waits.iter().all(|w| *w <= Duration::from_secs(5)));
    assert!(waits.iter().all(|w| *w > Duration::from_secs(4)));
    waits.sort();
    waits.dedup();
    assert!(waits.len() > 30, "{waits:?}");
}

#[tokio::test]
async fn a_probe_that_always_says_no_leads_nowhere_by_itself() {
    let mut rig = Rig::new(Outside::that(vec![Does::Fails; 9])).await;
    rig.outside.says(vec![Says::DidNotHappen; 9]);
    rig.begin(&attempts(PolicyKind::Reconcile, 3)).await;
    rig.crash(Duration::ZERO).await;
    rig.until(Status::InDoubt).await;
    assert_eq!(rig.outside.attempts(), [1, 2, 3]);
    assert_eq!(rig.outside.keys(), 1);
}

#[tokio::test]
async fn a_body_that_knows_when_to_come_back_is_tried_then_and_not_before() {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    let asked = [Duration::from_secs(1), Duration::from_secs(900), 100 * WEEK];
    for after in asked {
        let wait = after.min(WEEK);
        let mut rig = Rig::new(Outside::that([Does::Busy(after), Does::Returns(9)])).await;
        rig.begin(&attempts(PolicyKind::AtMostOnce, 4)).await;
        let due = rig.life().row(T).await.wake_at.unwrap();
        assert_eq!(due.since(rig.clock.now()), wait, "exactly");
        // A restart keeps it.
        rig.crash(wait - Duration::from_nanos(1)).await;
        rig.life().settle().await;
        assert_eq!(rig.outside.attempts(), [1]);
        rig.clock.advance(Duration::from_nanos(1));
        assert_eq!(rig.result().await, 9);
        assert_eq!(rig.outside.attempts(), [1, 2]);
    }
}

#[tokio::test]
async fn when_to_come_back_says_nothing_about_whether() {
    // The attempts are used up, and what may have happened is in doubt as ever.
    let busy = || Does::Busy(Duration::from_secs(1));
    let rig = Rig::new(Outside::that([busy()])).await;
    rig.begin(&attempts(PolicyKind::AtMostOnce, 1)).await;
    rig.until(Status::Failed).await;
    assert_eq!(rig.outside.attempts(), [1]);
    let rig = Rig::new(Outside::that([Does::BusyOrNot(Duration::from_secs(1))])).await;
    rig.begin(&attempts(PolicyKind::AtMostOnce, 4)).await;
    rig.until(Status::InDoubt).await;
    assert_eq!(rig.outside.attempts(), [1]);
}
