//! Claims and tickets: what everything else stands on.

use std::time::Duration;

use deedbook_journal::{
    checkpointer::Checkpointer,
    failure::Failure,
    guard::{After, Answered, Claimed, GuardError, Wanted, reset, take_over},
    history::{Answer, Doubt},
    id::MessageId,
    message::{Bytes, Verdict},
    operator,
    policy::{Policy, Terms},
    record::Kind,
};

use super::*;

#[tokio::test]
async fn a_step_is_done_once_and_told_from_then_on_without_a_write() {
    let shop = Shop::new();
    let wanted = wanted(Policy::Idempotent);
    let ticket = shop.fresh(&wanted).await;
    let (thread, operation) = (ticket.thread().clone(), ticket.operation());
    assert!(thread.as_str().starts_with("deedbook:step/charge/"), "{thread}");
    assert_eq!(operation.attempt, 1);
    let key = operation.key.unwrap();
    assert!(key.starts_with("dk1_"), "{key}");
    assert_eq!(shop.status(&thread).await, Status::Running);
    let settled = ticket.complete(&*shop.home, bytes("receipt")).await.unwrap();
    assert_eq!(read::<String>(&settled), "receipt");
    assert_eq!(shop.status(&thread).await, Status::Idle);
    let before = shop.info(&thread).await.next;
    for _ in 0..3 {
        let again = shop.settled(&wanted).await;
        assert_eq!(read::<String>(&again), "receipt");
        assert_eq!((again.position, again.attempts), (settled.position, 1));
        assert_eq!(again.key.as_deref(), Some(&*key));
    }
    assert_eq!(shop.info(&thread).await.next, before);
    assert_eq!(shop.kinds(&thread).await, ["thread.start", "step.intent", "step.done"]);
}

#[tokio::test]
async fn whoever_comes_meanwhile_is_told_who_is_at_it() {
    let shop = Shop::new();
    let wanted = wanted(Policy::AtMostOnce);
    let ticket = shop.fresh(&wanted).await;
    shop.clock.advance(Duration::from_secs(7));
    let flight = shop.in_flight(&wanted).await;
    assert_eq!(&*flight.owner, "shop");
    assert_eq!(flight.age, Duration::from_secs(7));
    assert_eq!(flight.key, ticket.operation().key);
    assert!(flight.retry_after >= Duration::from_secs(1));
    // The same process is no exception: a ticket is the only right.
    assert!(matches!(shop.claim(&wanted).await, Claimed::InFlight(_)));
}

#[tokio::test]
async fn i21_an_owner_that_is_late_writes_evidence_and_no_outcome() {
    let shop = Shop::new();
    let wanted = wanted(Policy::Idempotent);
    let slow = shop.fresh(&wanted).await;
    let key = slow.operation().key;
    shop.clock.advance(LEASE + Duration::from_secs(1));
    let second = shop.fresh(&wanted).await;
    assert_eq!((second.operation().attempt, second.operation().key), (2, key));
    let thread = second.thread().clone();
    let lost = slow.complete(&*shop.home, bytes("the slow one's")).await.unwrap_err();
    assert!(matches!(lost, GuardError::Lost { kept: true }), "{lost}");
    second.complete(&*shop.home, bytes("the second one's")).await.unwrap();
    assert_eq!(read::<String>(&shop.settled(&wanted).await), "the second one's");
    // Its place in the history comes with the next hold.
    reset(&*shop.home, &thread, "user:ann", "to see the evidence", [1; 32]).await.unwrap();
    assert_eq!(shop.count(&thread, Kind::StepLate).await, 1);
    assert_eq!(shop.count(&thread, Kind::StepDone).await, 1);
}

#[tokio::test]
async fn i21_a_ticket_that_is_renewed_is_not_taken_over() {
    let shop = Shop::new();
    let wanted = wanted(Policy::Idempotent);
    let mut ticket = shop.fresh(&wanted).await;
    for _ in 0..10 {
        shop.clock.advance(LEASE - Duration::from_secs(1));
        ticket.renew(&*shop.home, LEASE).await.unwrap();
        shop.in_flight(&wanted).await;
    }
    shop.clock.advance(LEASE + Duration::from_secs(1));
    let _second = shop.fresh(&wanted).await;
    let lost = ticket.renew(&*shop.home, LEASE).await.unwrap_err();
    assert!(matches!(lost, GuardError::Lost { .. }), "{lost}");
}

#[tokio::test]
async fn a_dead_owner_leaves_what_the_policy_says() {
    for policy in [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce] {
        let shop = Shop::new();
        let wanted = wanted(policy);
        drop(shop.fresh(&wanted).await);
        shop.clock.advance(LEASE + Duration::from_secs(1));
        match (policy, shop.claim(&wanted).await) {
            (Policy::Read | Policy::Idempotent, Claimed::Fresh(ticket)) => {
                assert_eq!(ticket.operation().attempt, 2);
            }
            (Policy::Reconcile, Claimed::InDoubt(doubt)) => {
                let quiet = Terms::TIMEOUT + Terms::QUIET_BEYOND_TIMEOUT;
                assert_eq!(doubt.retry_after, Some(quiet - LEASE - Duration::from_secs(1)));
            }
            (Policy::AtMostOnce, Claimed::InDoubt(doubt)) => {
                assert_eq!((doubt.doubt, doubt.retry_after), (Doubt::Crash, None));
                assert_eq!(shop.status(&doubt.thread).await, Status::InDoubt);
                assert_eq!(shop.info(&doubt.thread).await.row.open_doubts, 1);
            }
            (_, other) => panic!("{policy:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn the_downstream_is_asked_once_nothing_can_be_on_its_way() {
    for (answer, again) in [
        (Answered::Happened(bytes("found")), false),
        (Answered::DidNotHappen, true),
        (Answered::Inconclusive, false),
    ] {
        let shop = Shop::new();
        let wanted = wanted(Policy::Reconcile);
        let key = shop.fresh(&wanted).await.operation().key;
        shop.clock.advance(Terms::TIMEOUT + Terms::QUIET_BEYOND_TIMEOUT);
        let Claimed::Ask(asking) = shop.claim(&wanted).await else { panic!() };
        assert_eq!(asking.operation().key, key);
        shop.in_flight(&wanted).await;
        match asking.answer(&*shop.home, answer.clone()).await.unwrap() {
            Claimed::Settled(settled) => assert_eq!(read::<String>(&settled), "found"),
            Claimed::Fresh(ticket) => {
                assert!(again);
                assert_eq!((ticket.operation().attempt, ticket.operation().key), (2, key));
                ticket.complete(&*shop.home, bytes("sent again")).await.unwrap();
                assert_eq!(read::<String>(&shop.settled(&wanted).await), "sent again");
            }
            Claimed::InDoubt(doubt) => {
                assert_eq!(answer, Answered::Inconclusive);
                assert!(doubt.retry_after.is_some_and(|time| time > Duration::ZERO));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn failures_are_told_apart() {
    let shop = Shop::new();
    let refused = Failure::new("422: no such card");
    // Certainly no effect: the next caller tries again, under the same key.
    let wanted = wanted(Policy::AtMostOnce);
    for attempt in 1..20 {
        let ticket = shop.fresh(&wanted).await;
        assert_eq!(ticket.operation().attempt, attempt);
        let after = ticket.fail(&*shop.home, &refused, false).await.unwrap();
        assert!(matches!(after, After::Open), "{after:?}");
    }
    // For good: it is the outcome.
    let after = shop.fresh(&wanted).await.fail(&*shop.home, &refused, true).await.unwrap();
    assert!(matches!(after, After::Settled(_)), "{after:?}");
    let settled = shop.settled(&wanted).await;
    assert_eq!(settled.failure(), Some(refused.clone()));
    assert!(matches!(settled.answer, Answer::Failed(_)));
    // Nobody knows.
    let wanted = wanted.key("ORD-43").unwrap();
    let ticket = shop.fresh(&wanted).await;
    let after = ticket.unknown(&*shop.home, Doubt::Timeout, &refused).await.unwrap();
    assert!(matches!(after, After::InDoubt(_)), "{after:?}");
    assert_eq!(shop.in_doubt(&wanted).await.doubt, Doubt::Timeout);
}

#[tokio::test]
async fn a_person_settles_a_doubt_once_for_all_callers() {
    let shop = Shop::new();
    let wanted = wanted(Policy::AtMostOnce);
    let ticket = shop.fresh(&wanted).await;
    ticket.unknown(&*shop.home, Doubt::Panic, &Failure::new("oh")).await.unwrap();
    let doubt = shop.in_doubt(&wanted).await;
    let found = operator::Found::load(&*shop.home, &doubt.thread).await.unwrap();
    let call = &found.history.calls()[0];
    assert_eq!(call.id.to_string(), doubt.step);
    let verdict = Verdict::Happened(Bytes(bytes("seen in the bank's ledger")));
    let message = operator::resolve(MessageId([1; 16]), &call.id, verdict, "looked", "user:ann");
    let message = message.unwrap();
    operator::act(&*shop.home, &doubt.thread, &message, "cli:1", [1; 32]).await.unwrap();
    assert_eq!(shop.status(&doubt.thread).await, Status::Idle);
    for _ in 0..2 {
        assert_eq!(read::<String>(&shop.settled(&wanted).await), "seen in the bank's ledger");
    }
    // Nothing else can be said to a step of its own.
    let cancel = operator::cancel(MessageId([2; 16]), "stop", "user:ann").unwrap();
    let refused = operator::act(&*shop.home, &doubt.thread, &cancel, "cli:1", [1; 32]).await;
    assert!(refused.unwrap_err().to_string().contains("resolved or reset"));
}

#[tokio::test]
async fn a_message_that_waits_is_heard_by_the_next_claim() {
    let shop = Shop::new();
    let wanted = wanted(Policy::AtMostOnce);
    let ticket = shop.fresh(&wanted).await;
    ticket.unknown(&*shop.home, Doubt::Panic, &Failure::new("oh")).await.unwrap();
    let doubt = shop.in_doubt(&wanted).await;
    let found = operator::Found::load(&*shop.home, &doubt.thread).await.unwrap();
    let verdict = Verdict::DidNotHappen;
    let id = &found.history.calls()[0].id;
    let message = operator::resolve(MessageId([1; 16]), id, verdict, "", "user:ann").unwrap();
    shop.home.post(&doubt.thread, message).await.unwrap();
    assert_eq!(shop.fresh(&wanted).await.operation().attempt, 2);
}

#[tokio::test]
async fn scopes_names_identities_and_occurrences_are_told_apart() {
    let shop = Shop::new();
    let new = |within, name| Wanted::new(within, name, Policy::Idempotent).unwrap();
    let all = [
        new(Within::Journal, "charge"),
        new(order("a"), "charge"),
        new(order("b"), "charge"),
        new(Within::Journal, "refund"),
        new(Within::Journal, "charge").key("1").unwrap(),
        new(Within::Journal, "charge").arguments(&1).unwrap(),
        new(Within::Journal, "charge").arguments(&1).unwrap().occurrence(1),
        new(Within::Journal, "charge").arguments(&true).unwrap(),
        new(Within::Journal, "charge").arguments("1").unwrap(),
        new(Within::Journal, "charge").identified_by(&1).unwrap(),
        new(Within::Journal, "charge").identified_by(&1).unwrap().occurrence(1),
        // What looks like another name's thread.
        new(Within::Journal, "charge/x"),
        new(Within::Journal, "charge_x"),
    ];
    let mut keys = std::collections::HashSet::new();
    for wanted in &all {
        let ticket = shop.fresh(wanted).await;
        assert!(keys.insert(ticket.operation().key.unwrap()), "{wanted:?}");
        ticket.complete(&*shop.home, bytes(&keys.len())).await.unwrap();
    }
    for (n, wanted) in all.iter().enumerate() {
        assert_eq!(read::<usize>(&shop.settled(wanted).await), n + 1);
    }
    // Equal arguments are equal, however they are written.
    let again = new(Within::Journal, "charge").arguments(&1.0).unwrap();
    assert_eq!(read::<usize>(&shop.settled(&again).await), 6);
}

#[tokio::test]
async fn a_takeover_fences_the_owner_and_the_policy_decides() {
    for policy in [Policy::Idempotent, Policy::AtMostOnce] {
        let shop = Shop::new();
        let wanted = wanted(policy);
        let stuck = shop.fresh(&wanted).await;
        let flight = shop.in_flight(&wanted).await;
        let taken = take_over(&*shop.home, &flight).await;
        if policy == Policy::AtMostOnce {
            // Whatever the caller declares now, what is recorded holds.
            assert!(matches!(taken, Err(GuardError::Refused { .. })), "{taken:?}");
            shop.in_flight(&super::wanted(Policy::Idempotent)).await;
            stuck.complete(&*shop.home, bytes("x")).await.unwrap();
            continue;
        }
        taken.unwrap();
        let second = shop.claim_by("other", &wanted).await;
        assert!(matches!(second, Claimed::Fresh(_)), "{second:?}");
        let lost = stuck.complete(&*shop.home, bytes("x")).await.unwrap_err();
        assert!(matches!(lost, GuardError::Lost { kept: true }), "{lost}");
    }
}

#[tokio::test]
async fn a_reset_grants_a_fresh_key_and_only_to_what_is_settled() {
    let shop = Shop::new();
    let wanted = wanted(Policy::AtMostOnce);
    let ticket = shop.fresh(&wanted).await;
    let (thread, first) = (ticket.thread().clone(), ticket.operation().key);
    let home = &*shop.home;
    let refused = reset(home, &thread, "user:ann", "again", [1; 32]).await.unwrap_err();
    assert!(matches!(refused, GuardError::Refused { .. }), "in flight: {refused}");
    ticket.unknown(home, Doubt::Panic, &Failure::new("oh")).await.unwrap();
    let refused = reset(home, &thread, "user:ann", "again", [1; 32]).await.unwrap_err();
    assert!(refused.to_string().contains("settle it first"), "{refused}");
    let wanted = wanted.key("ORD-43").unwrap();
    let ticket = shop.fresh(&wanted).await;
    let thread = ticket.thread().clone();
    ticket.complete(home, bytes("one")).await.unwrap();
    reset(home, &thread, "user:ann", "the customer wants it twice", [1; 32]).await.unwrap();
    let ticket = shop.fresh(&wanted).await;
    assert_eq!(ticket.operation().attempt, 2);
    assert_ne!(ticket.operation().key, first);
    ticket.complete(home, bytes("two")).await.unwrap();
    assert_eq!(read::<String>(&shop.settled(&wanted).await), "two");
    // Nothing is lost of what was before.
    assert_eq!(shop.count(&thread, Kind::StepDone).await, 2);
    assert_eq!(shop.count(&thread, Kind::Override).await, 1);
}

#[tokio::test]
async fn every_record_of_a_step_follows_the_format() {
    let shop = Shop::new();
    let wanted = wanted(Policy::Reconcile).valid_for(Duration::from_secs(60));
    let home = &*shop.home;
    drop(shop.fresh(&wanted).await);
    shop.clock.advance(Terms::TIMEOUT + Terms::QUIET_BEYOND_TIMEOUT);
    let Claimed::Ask(asking) = shop.claim(&wanted).await else { panic!() };
    let thread = asking.thread().clone();
    let Claimed::Fresh(ticket) = asking.answer(home, Answered::DidNotHappen).await.unwrap() else {
        panic!()
    };
    ticket.complete(home, bytes("one")).await.unwrap();
    shop.clock.advance(Duration::from_secs(60));
    shop.fresh(&wanted).await.fail(home, &Failure::new("no"), false).await.unwrap();
    assert_eq!(
        shop.kinds(&thread).await,
        [
            "thread.start",
            "step.intent",
            "thread.resume",
            "step.resolve",
            "step.intent",
            "step.done",
            "thread.resume",
            "override",
            "step.intent",
            "step.fail"
        ]
    );
    let page = home.read(&thread, 0, usize::MAX).await.unwrap();
    let mut head = Default::default();
    for (_, record) in &page.items {
        record.verify(&home.identity().log_id, &head).unwrap();
        head = record.hash;
    }
}

#[tokio::test]
async fn other_arguments_under_a_key_are_a_conflict_that_tells_no_value() {
    let shop = Shop::new();
    let charge = |cents: u32, token: &str| {
        let wanted = wanted(Policy::Idempotent).arguments(&(cents, token)).unwrap();
        wanted.redact("/1")
    };
    let ticket = shop.fresh(&charge(4200, "first")).await;
    // Also while it is under way.
    let conflict = shop.conflict(&charge(4300, "other")).await;
    assert_eq!(conflict.fields, ["/0"]);
    assert_ne!(conflict.recorded, Some(conflict.given));
    ticket.complete(&*shop.home, bytes("receipt")).await.unwrap();
    let settled = shop.conflict(&charge(4300, "other")).await;
    assert_eq!(settled, conflict);
    let said = format!("{conflict:?}");
    assert!(!said.contains("4300") && !said.contains("first"), "{said}");
    // Where the content is free, the outcome is the outcome.
    shop.settled(&charge(4300, "other").any_content()).await;
    shop.settled(&charge(4200, "first")).await;
}

#[tokio::test]
async fn b17_a_doubt_never_runs_out() {
    let shop = Shop::new();
    let hour = Duration::from_secs(3600);
    let day = Terms { window: Some(24 * hour), ..*wanted(Policy::Idempotent).declared() };
    let wanted = wanted(Policy::Idempotent).terms(day).valid_for(Duration::from_secs(1));
    drop(shop.fresh(&wanted).await);
    shop.clock.advance(25 * hour);
    for _ in 0..3 {
        let doubt = shop.in_doubt(&wanted).await;
        assert_eq!((doubt.doubt, doubt.retry_after), (Doubt::WindowOver, None));
        shop.clock.advance(1000 * hour);
    }
    assert_eq!(shop.count(&shop.in_doubt(&wanted).await.thread, Kind::StepIntent).await, 1);
}

#[tokio::test]
async fn whoever_comes_while_the_downstream_is_asked_is_told_that_somebody_is_at_it() {
    let shop = Shop::new();
    let wanted = wanted(Policy::Reconcile);
    let ticket = shop.fresh(&wanted).await;
    ticket.unknown(&*shop.home, Doubt::Timeout, &Failure::new("?")).await.unwrap();
    shop.clock.advance(Terms::TIMEOUT + Terms::QUIET_BEYOND_TIMEOUT);
    let Claimed::Ask(asking) = shop.claim(&wanted).await else { panic!() };
    let flight = shop.in_flight(&wanted).await;
    assert_eq!((&*flight.owner, flight.since), ("shop", None));
    asking.answer(&*shop.home, Answered::Happened(bytes("found"))).await.unwrap();
    assert_eq!(read::<String>(&shop.settled(&wanted).await), "found");
}
