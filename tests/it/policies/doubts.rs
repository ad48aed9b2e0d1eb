//! Doubts: who may settle them, and what they hold up.

use std::time::Duration;

use deedbook::{Context, Doubt, ErrorKind, PolicyKind, Resolution, Status, VirtualClock, Waits};
use deedbook_journal::record::{Kind, Role};
use harness::{
    code::Code,
    outside::{Does, Life, Outside, Says},
};

use super::{Once, Plan, Rig, T, plan};

/// An at-most-once step whose process died.
async fn in_doubt() -> Rig {
    let mut rig = Rig::new(Outside::that([Does::Hangs, Does::Returns(9)])).await;
    rig.begin(&plan(PolicyKind::AtMostOnce)).await;
    rig.crash(Duration::from_secs(1)).await;
    rig.until(Status::InDoubt).await;
    rig
}

async fn resolve(rig: &Rig, resolution: Resolution) -> Result<(), deedbook::Error> {
    let resolved = rig.book().resolve(T, "pay#0", resolution, "user:alice", "asked the bank");
    let resolved = resolved.await;
    rig.life().settle().await;
    resolved
}

#[tokio::test]
async fn s43_time_and_restarts_settle_nothing() {
    let mut rig = in_doubt().await;
    for _ in 0..5 {
        rig.crash(Duration::from_secs(1_000_000)).await;
        let error = rig.book().run::<Once>(T, plan(PolicyKind::AtMostOnce)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt);
        // One sentence, with what a person looks for on the other side.
        let (header, _) = rig.life().records(T).await.swap_remove(1);
        let wanted = format!(
            "thread \"t-1\": step pay#0 is in doubt (operation key {}): the process died while the \
             body ran; find out what happened and settle it with `deedbook resolve`",
            header.key.unwrap()
        );
        assert_eq!(error.to_string(), wanted);
    }
    assert_eq!(rig.outside.attempts(), [1]);
}

#[tokio::test]
async fn s43_that_it_happened_gives_the_result_that_was_found() {
    let mut rig = in_doubt().await;
    resolve(&rig, Resolution::happened(&8_u32).unwrap()).await.unwrap();
    assert_eq!(rig.result().await, 8);
    let records = rig.life().records(T).await;
    let (header, record) = records.iter().find(|(h, _)| h.kind == Kind::StepResolve).unwrap();
    assert_eq!(header.by.as_deref(), Some("user:alice"));
    let note = record.payload(Role::Note).unwrap();
    assert!(note.bytes.ends_with(b"asked the bank"));
    let again = resolve(&rig, Resolution::did_not_happen()).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Refused, "{again}");
    rig.crash(Duration::ZERO).await;
    assert_eq!(rig.result().await, 8);
    assert_eq!(rig.outside.attempts(), [1]);
}

#[tokio::test]
async fn s43_that_it_did_not_happen_runs_the_body_once_under_the_same_key() {
    let rig = in_doubt().await;
    rig.outside.then([Does::Waits(6)]);
    resolve(&rig, Resolution::did_not_happen()).await.unwrap();
    assert_eq!(rig.result().await, 9);
    assert_eq!(rig.outside.attempts(), [1, 2]);
    assert_eq!(rig.outside.keys(), 1);
}

#[tokio::test]
async fn that_it_failed_fails_the_step() {
    let rig = in_doubt().await;
    resolve(&rig, Resolution::failed("the account is closed")).await.unwrap();
    rig.until(Status::Failed).await;
    let error = rig.book().wait::<Once>(T).await.unwrap_err();
    assert!(error.to_string().contains("the account is closed"), "{error}");
    assert_eq!(rig.outside.attempts(), [1]);
}

#[tokio::test]
async fn a_second_word_is_refused_and_so_is_one_about_what_is_not_in_doubt() {
    let rig = in_doubt().await;
    rig.outside.then([Does::Hangs]);
    let unknown = rig.book().resolve(T, "pay#1", Resolution::did_not_happen(), "user:a", "");
    assert_eq!(unknown.await.unwrap_err().kind(), ErrorKind::NotFound);
    resolve(&rig, Resolution::did_not_happen()).await.unwrap();
    rig.result().await;

    // An attempt that is under way is nobody's to settle.
    let rig = Rig::new(Outside::that([Does::Waits(3)])).await;
    rig.begin(&plan(PolicyKind::AtMostOnce)).await;
    let early = resolve(&rig, Resolution::did_not_happen()).await.unwrap_err();
    assert_eq!(early.kind(), ErrorKind::Refused);
    rig.outside.let_go();
    assert_eq!(rig.result().await, 3);
    assert_eq!(rig.outside.attempts(), [1]);
}

#[tokio::test]
async fn a_late_result_is_kept_as_evidence_and_settles_nothing() {
    for policy in [PolicyKind::AtMostOnce, PolicyKind::Reconcile] {
        let rig = Rig::new(Outside::that([Does::Waits(5)])).await;
        rig.begin(&plan(policy)).await;
        rig.life().pass(Duration::from_secs(11)).await;
        assert_eq!(rig.life().count(T, Kind::StepUnknown).await, 1);
        rig.outside.let_go();
        rig.life().settle().await;
        let records = rig.life().records(T).await;
        let (late, record) = records.last().unwrap();
        assert_eq!((&late.kind, late.attempt), (&Kind::StepLate, Some(1)));
        assert_eq!(&*record.payload(Role::Result).unwrap().bytes, [5]);
        let status = rig.life().row(T).await.status;
        assert!(matches!(status, Status::InDoubt | Status::Sleeping), "{status}");
        // What a probe or a person says counts, whatever came late.
        rig.outside.says([Says::Happened(6)]);
        if policy == PolicyKind::AtMostOnce {
            resolve(&rig, Resolution::happened(&6_u32).unwrap()).await.unwrap();
        }
        assert_eq!(rig.result().await, 6, "{policy:?}");
    }
}

#[tokio::test]
async fn a_result_after_the_doubt_is_settled_changes_nothing() {
    let mut rig = Rig::new(Outside::that([Does::Waits(5)])).await;
    rig.begin(&plan(PolicyKind::AtMostOnce)).await;
    rig.life().pass(Duration::from_secs(11)).await;
    resolve(&rig, Resolution::happened(&6_u32).unwrap()).await.unwrap();
    rig.outside.let_go();
    assert_eq!(rig.result().await, 6);
    rig.crash(Duration::ZERO).await;
    assert_eq!(rig.result().await, 6);
}

#[tokio::test]
async fn a_body_that_hangs_does_not_keep_its_callers_for_ever() {
    let rig = Rig::new(Outside::that([Does::Hangs])).await;
    rig.begin(&plan(PolicyKind::AtMostOnce)).await;
    let mut waiting = std::pin::pin!(rig.book().wait::<Once>(T));
    let told = async {
        rig.life().pass(Duration::from_secs(11)).await;
        rig.life().pass(Duration::from_secs(61)).await;
    };
    let mut told = std::pin::pin!(told);
    let error = tokio::select! {
        biased;
        told = &mut waiting => told.unwrap_err(),
        () = &mut told => panic!("nobody was told"),
    };
    assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
}

#[tokio::test]
async fn a_thread_does_not_end_over_a_step_that_was_dropped_while_it_waited() {
    // The first attempt failed without saying how; the next one, or the probe, is some time off
    // when the workflow loses its patience.
    for policy in [PolicyKind::Idempotent, PolicyKind::Reconcile] {
        for abandon in [false, true] {
            let does = [Does::Fails, Does::Returns(9)];
            let mut rig = Rig::new(Outside::that(does)).await;
            let plan = Plan { drops_after: Some(Duration::from_secs(3)), abandon, ..plan(policy) };
            rig.begin(&plan).await;
            rig.life().pass(Duration::from_secs(4)).await;
            rig.crash(Duration::from_secs(1000)).await;
            if !abandon {
                let row = rig.until(Status::InDoubt).await;
                assert_eq!(row.open_doubts, 1);
                resolve(&rig, Resolution::happened(&4_u32).unwrap()).await.unwrap();
            }
            assert_eq!(rig.result().await, 0);
            let records = rig.life().records(T).await;
            assert_eq!(records.last().unwrap().0.doubts, Some(u32::from(abandon)));
            assert_eq!(rig.outside.attempts(), [1], "{policy:?}");
        }
    }
}

#[tokio::test]
async fn a_person_may_be_faster_than_a_probe() {
    for (resolution, result) in
        [(Resolution::happened(&5_u32).unwrap(), 5), (Resolution::did_not_happen(), 9)]
    {
        let mut rig = Rig::new(Outside::that([Does::Hangs, Does::Returns(9)])).await;
        rig.begin(&plan(PolicyKind::AtMostOnce)).await;
        rig.redeclared = Some(PolicyKind::Reconcile);
        rig.outside.says([Says::Hangs]);
        rig.crash(Duration::from_secs(100)).await;
        assert_eq!(rig.outside.asked().len(), 1, "the probe is asked, and hangs");
        resolve(&rig, resolution).await.unwrap();
        rig.life().pass(Duration::from_secs(20)).await;
        assert_eq!(rig.result().await, result);
        assert_eq!(rig.life().count(T, Kind::StepResolve).await, 1);
    }
}

/// What a person says that is no number.
fn no_number() -> Resolution {
    Resolution::happened("r_17").unwrap()
}

#[tokio::test]
async fn a_result_of_another_type_leaves_the_step_in_doubt_and_is_said_again() {
    // Died in between or not, and settled again in every way.
    let every = [
        (Resolution::happened(&8_u32).unwrap(), Ok(8)),
        (Resolution::did_not_happen(), Ok(9)),
        (Resolution::failed("the account is closed"), Err("the account is closed")),
    ];
    for (second, wanted) in every {
        for crashes in [false, true] {
            let mut rig = in_doubt().await;
            let waiting = rig.book().clone();
            resolve(&rig, no_number()).await.unwrap();
            let error = waiting.run::<Once>(T, plan(PolicyKind::AtMostOnce)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
            let error = error.to_string();
            for part in ["pay#0", "`u32`", "r_17", "settle it again with `deedbook resolve`"] {
                assert!(error.contains(part), "{part} in {error}");
            }
            if crashes {
                rig.crash(Duration::from_secs(100_000)).await;
            }
            let row = rig.until(Status::InDoubt).await;
            assert_eq!(row.open_doubts, 1);
            let doubt = Waits::Doubt { step: "pay#0".into(), doubt: Doubt::Unreadable };
            assert_eq!(row.waits_for(), Some(doubt));
            assert_eq!(rig.outside.attempts(), [1], "nothing runs on the strength of it");
            // And as often as it takes.
            resolve(&rig, no_number()).await.unwrap();
            resolve(&rig, second.clone()).await.unwrap();
            if crashes {
                rig.crash(Duration::from_secs(1)).await;
            }
            let ended = rig.life().until(T, wanted.map_or(Status::Failed, |_| Status::Done)).await;
            assert_eq!(ended.open_doubts, 0);
            let told = rig.book().wait::<Once>(T).await;
            match (told, wanted) {
                (Ok(told), Ok(wanted)) => assert_eq!(told, wanted),
                (Err(told), Err(wanted)) => assert!(told.to_string().contains(wanted), "{told}"),
                (told, wanted) => panic!("{told:?} {wanted:?}"),
            }
            let resolved = rig.life().records(T).await.into_iter();
            let said: Vec<_> = resolved
                .filter(|(h, _)| h.kind == Kind::StepResolve)
                .map(|(h, _)| (h.by.is_some(), h.verdict.unwrap().to_string()))
                .collect();
            let word = |word: &str| (true, word.to_owned());
            let unread = (false, "unreadable".to_owned());
            assert_eq!(said[..4], [word("happened"), unread.clone(), word("happened"), unread]);
            assert_eq!(said.len(), 5);
        }
    }
}

#[tokio::test]
async fn a_result_of_another_type_does_not_keep_a_thread_from_being_cancelled() {
    for crashes in [false, true] {
        let mut rig = in_doubt().await;
        resolve(&rig, no_number()).await.unwrap();
        rig.until(Status::InDoubt).await;
        if crashes {
            rig.crash(Duration::from_secs(1)).await;
        }
        rig.book().cancel(T, "user:alice", "enough").await.unwrap();
        let row = rig.until(Status::Cancelled).await;
        assert_eq!(row.open_doubts, 0);
    }
}

#[tokio::test]
async fn the_later_of_two_words_holds_while_neither_was_given_to_the_workflow() {
    let words = || [no_number(), Resolution::failed("no"), Resolution::happened(&8_u32).unwrap()];
    for crashes in [false, true] {
        let mut rig = in_doubt().await;
        // Nothing else runs between these: the thread takes them in at once.
        for word in words() {
            rig.book().resolve(T, "pay#0", word, "user:alice", "looked").await.unwrap();
        }
        if crashes {
            rig.crash(Duration::ZERO).await;
        }
        assert_eq!(rig.result().await, 8);
        assert_eq!(rig.life().count(T, Kind::StepResolve).await, 3);
        assert_eq!(rig.outside.attempts(), [1]);
    }
}

/// Pays, with another branch beside it, and waits for a signal.
/// A thread of this code whose step died with its process, in the life after that.
async fn second_life(clock: &VirtualClock, code: Code) -> Life {
    let hosted = code.clone();
    let life = Life::first(clock, |b| b.host(hosted)).await;
    life.book.spawn::<Code>(T, ()).await.unwrap();
    life.settle().await;
    let life = Life::after(life.crash(), clock, |b| b.host(code)).await;
    life.until(T, Status::InDoubt).await;
    life
}

async fn pay_and_wait(ctx: Context, outside: Outside) -> deedbook::Result<Vec<u32>> {
    let (left, right) = (ctx.branch("left"), ctx.branch("right"));
    let beside = async move {
        if right.patched("beside") {
            right.step("look").read().run(&(), async |_| Ok(())).await?;
        }
        Ok::<_, deedbook::WorkflowError>(())
    };
    let pay = left.step("pay").at_most_once().run(&(), async |op| outside.send(op).await);
    let (paid, beside) = tokio::join!(pay, beside);
    beside?;
    Ok(vec![paid?, ctx.signal("go").await?])
}

#[tokio::test]
async fn what_was_given_to_the_workflow_stays_given() {
    let (clock, outside) = (VirtualClock::new(), Outside::that([Does::Hangs]));
    let code = Code::new(&outside, pay_and_wait);
    let life = second_life(&clock, code).await;
    let say = async |life: &Life, word| {
        let said = life.book.resolve(T, "left/pay#0", word, "user:alice", "looked").await;
        life.settle().await;
        said
    };
    let right = |n: u32| Resolution::happened(&n).unwrap();
    say(&life, no_number()).await.unwrap();
    assert_eq!(life.row(T).await.status, Status::InDoubt, "the other branch is no obstacle");
    say(&life, right(5)).await.unwrap();
    life.until(T, Status::Waiting).await;
    // The workflow keeps its memory as long as it is loaded, and is parked by now: nothing was
    // done because of what it was given, and nobody remembers.
    say(&life, right(6)).await.unwrap();
    life.book.signal(T, "go", &1_u32).await.unwrap();
    assert_eq!(life.book.wait::<Code>(T).await.unwrap(), [6, 1]);
}

#[tokio::test]
async fn a_word_after_what_was_given_is_refused_to_the_person_who_says_it() {
    let (clock, outside) = (VirtualClock::new(), Outside::that([Does::Hangs]));
    let code = Code::new(&outside, |ctx, outside| async move {
        let paid = ctx.step("pay").at_most_once().run(&(), async |op| outside.send(op).await);
        let paid = paid.await?;
        let waited = ctx.step("wait").at_most_once();
        waited.run(&paid, async |_| std::future::pending().await).await
    });
    let life = second_life(&clock, code).await;
    let word = |n: u32| Resolution::happened(&n).unwrap();
    life.book.resolve(T, "pay#0", word(5), "user:alice", "").await.unwrap();
    life.settle().await;
    let error = life.book.resolve(T, "pay#0", word(6), "user:alice", "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("the workflow was given what was said"), "{error}");
}
