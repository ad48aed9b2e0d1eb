//! Where a step stands: the table of policies and what happens, row by row.

use super::*;
use Standing::{Ask, AskLater, Later, Ready, Settled, UnderWay};

const ALL: [Policy; 4] = [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce];

fn doubt(doubt: Doubt) -> Standing {
    Standing::Doubt(doubt)
}

/// A step opened at 100 s.
fn opened(policy: Policy) -> (Thread, Position) {
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(policy));
    (thread, call)
}

#[test]
fn an_attempt_is_under_way_until_its_run_dies() {
    for policy in ALL {
        let (mut thread, call) = opened(policy);
        for now in [100, 5000, 1 << 30] {
            thread.now = now;
            assert_eq!(thread.standing(call), UnderWay, "{policy:?} {now}");
        }
        thread.put(thread.done(call));
        assert_eq!(thread.standing(call), Settled);
    }
}

#[test]
fn g4_after_a_crash() {
    for (policy, wanted) in [
        (Policy::Read, Ready(2)),
        (Policy::Idempotent, Ready(2)),
        (Policy::Reconcile, AskLater(at(170))),
        (Policy::AtMostOnce, doubt(Doubt::Crash)),
    ] {
        let (mut thread, call) = opened(policy);
        thread.crash();
        assert_eq!(thread.standing(call), wanted, "{policy:?}");
    }
}

#[test]
fn g4_after_a_definite_failure() {
    for policy in ALL {
        let (mut thread, call) = opened(policy);
        thread.put(thread.fail(call, "not_applied", Some(130)));
        for (now, wanted) in
            [(100, Later(at(130))), (129, Later(at(130))), (130, Ready(2)), (9000, Ready(2))]
        {
            thread.now = now;
            assert_eq!(thread.standing(call), wanted, "{policy:?} {now}");
        }
        // A restart neither resets the count nor shortens the wait.
        thread.now = 101;
        thread.crash();
        assert_eq!(thread.standing(call), Later(at(130)), "{policy:?}");
    }
}

#[test]
fn g4_after_an_ambiguous_end() {
    for why in ["timeout", "panic", "unlabelled"] {
        for (policy, early, late) in [
            (Policy::Idempotent, Later(at(130)), Ready(2)),
            (Policy::Reconcile, AskLater(at(170)), Ask),
            (
                Policy::AtMostOnce,
                doubt(Doubt::from_word(why).unwrap()),
                doubt(Doubt::from_word(why).unwrap()),
            ),
        ] {
            let (mut thread, call) = opened(policy);
            let due = (policy == Policy::Idempotent).then_some(130);
            thread.put(thread.unknown(call, why, due));
            assert_eq!(thread.standing(call), early, "{policy:?} {why}");
            thread.now = 170;
            assert_eq!(thread.standing(call), late, "{policy:?} {why}");
            thread.crash();
            assert_eq!(thread.standing(call), late, "{policy:?} {why} loaded");
        }
        let (mut thread, call) = opened(Policy::Read);
        thread.put(thread.fail(call, why, Some(130)));
        assert_eq!(thread.standing(call), Later(at(130)));
        thread.now = 130;
        assert_eq!(thread.standing(call), Ready(2));
    }
}

#[test]
fn a_drop_or_a_cancellation_under_way_is_a_doubt_that_only_a_person_settles() {
    for why in ["dropped", "cancelled"] {
        for policy in [Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce] {
            let (mut thread, call) = opened(policy);
            thread.put(thread.unknown(call, why, None));
            for now in [100, 500, 90_000] {
                thread.now = now;
                let wanted = doubt(Doubt::from_word(why).unwrap());
                assert_eq!(thread.standing(call), wanted, "{policy:?}");
            }
        }
        let (mut thread, call) = opened(Policy::Read);
        thread.put(thread.fail(call, why, None));
        assert_eq!(thread.standing(call), Ready(2));
    }
}

#[test]
fn g4_the_key_window_counts_from_the_first_send_and_with_the_timeout() {
    // 100 + 1000 - 60 = 1040: an attempt of 10 s must be over before.
    for (now, wanted) in
        [(1029, Ready(2)), (1030, doubt(Doubt::WindowOver)), (5000, doubt(Doubt::WindowOver))]
    {
        let (mut thread, call) = opened(Policy::Idempotent);
        thread.now = now;
        thread.crash();
        assert_eq!(thread.standing(call), wanted, "{now}");
    }
    // A second attempt does not move it.
    let (mut thread, call) = opened(Policy::Idempotent);
    thread.crash();
    thread.now = 1020;
    thread.put(thread.again(call));
    thread.now = 1030;
    thread.crash();
    assert_eq!(thread.standing(call), doubt(Doubt::WindowOver));
    // Attempts that certainly had no effect do.
    let (mut thread, call) = opened(Policy::Idempotent);
    thread.put(thread.fail(call, "not_applied", Some(100)));
    thread.now = 1020;
    thread.put(thread.again(call));
    thread.now = 1030;
    thread.crash();
    assert_eq!(thread.standing(call), Ready(3));
    // Where nothing may have happened there is no key to honour.
    let (mut thread, call) = opened(Policy::Idempotent);
    thread.put(thread.fail(call, "not_applied", Some(100)));
    thread.now = 90_000;
    assert_eq!(thread.standing(call), Ready(2));
}

#[test]
fn the_margin_is_a_minute_or_a_tenth_of_a_short_window() {
    let secs = Duration::from_secs;
    for (window, margin) in [(1000, 60), (600, 60), (599, 59), (100, 10), (0, 0)] {
        assert_eq!(Terms::margin(secs(window)).as_secs(), margin);
    }
    let ready = |window: Option<u64>, timeout: Duration, now: u64| {
        let mut thread = Thread::new();
        let terms = Terms { window: window.map(secs), timeout, ..terms(Policy::Idempotent) };
        let call = thread.open("pay", &terms);
        thread.now = now;
        thread.crash();
        thread.standing(call) == Ready(2)
    };
    assert!(ready(None, secs(10), 1 << 31), "honoured for ever");
    assert!(!ready(Some(0), secs(0), 100), "never honoured");
    assert!(ready(Some(100), secs(0), 189));
    assert!(!ready(Some(100), secs(0), 190));
    let never_over = Duration::from_millis(1 << 52);
    assert!(!ready(Some(1000), never_over, 100), "it would not be over");
}

#[test]
fn g4_exhausted_with_an_ambiguous_attempt_is_doubt_not_failure() {
    let (mut thread, call) = opened(Policy::Idempotent);
    thread.put(thread.unknown(call, "timeout", Some(100)));
    thread.put(thread.again(call));
    thread.put(thread.fail(call, "not_applied", Some(100)));
    assert_eq!(thread.standing(call), Ready(3));
    thread.put(thread.again(call));
    thread.put(thread.fail(call, "not_applied", None));
    assert_eq!(thread.standing(call), doubt(Doubt::Exhausted));
    // A person who says that it did not happen lets it begin anew, under the same numbering.
    thread.put(thread.resolve(call, "did_not_happen", "user:bob"));
    assert_eq!(thread.standing(call), Ready(4));
    thread.put(thread.again(call));
    thread.crash();
    assert_eq!(thread.standing(call), Ready(5));
}

#[test]
fn attempts_that_never_began_are_not_counted() {
    let (mut thread, call) = opened(Policy::Idempotent);
    thread.put(thread.unknown(call, "timeout", Some(100)));
    for _ in 0..5 {
        thread.put(thread.again(call));
        thread.put(thread.fail(call, "not_started", None));
        assert!(matches!(thread.standing(call), Ready(_)));
    }
    let recorded = thread.history.opened_at(call).unwrap();
    assert_eq!(recorded.first_started(), Some(at(100)));
    for policy in [Policy::Read, Policy::Reconcile, Policy::AtMostOnce] {
        let (mut thread, call) = opened(policy);
        thread.put(thread.fail(call, "not_started", None));
        assert_eq!(thread.standing(call), Ready(2), "{policy:?}");
        assert_eq!(thread.history.opened_at(call).unwrap().first_started(), None);
    }
}

#[test]
fn three_deaths_inside_a_body_are_poison_under_every_policy() {
    for policy in ALL {
        let (mut thread, call) = opened(policy);
        for death in 1..=3 {
            thread.crash();
            if death == 3 {
                break;
            }
            if matches!(policy, Policy::Reconcile | Policy::AtMostOnce) {
                // What a probe found out does not make the body any better.
                thread.put(thread.resolve(call, "did_not_happen", "probe"));
            }
            assert!(matches!(thread.standing(call), Ready(_)), "{policy:?} {death}");
            thread.put(thread.again(call));
        }
        assert_eq!(thread.standing(call), doubt(Doubt::Poison), "{policy:?}");
        thread.put(thread.resolve(call, "did_not_happen", "user:bob"));
        assert_eq!(thread.standing(call), Ready(4), "{policy:?}");
        thread.put(thread.again(call));
        thread.crash();
        assert_ne!(thread.standing(call), doubt(Doubt::Poison), "{policy:?}");
    }
}

#[test]
fn a_read_that_died_runs_again_however_few_attempts_it_has() {
    let mut thread = Thread::new();
    let once = Terms { attempts_max: 1, ..terms(Policy::Read) };
    let call = thread.open("look", &once);
    thread.crash();
    assert_eq!(thread.standing(call), Ready(2));
}

#[test]
fn a_probe_is_asked_after_quiet_since_the_last_send() {
    let (mut thread, call) = opened(Policy::Reconcile);
    thread.now = 120;
    thread.crash();
    assert_eq!(thread.standing(call), AskLater(at(170)));
    thread.now = 169;
    assert_eq!(thread.standing(call), AskLater(at(170)));
    thread.now = 170;
    assert_eq!(thread.standing(call), Ask);
    thread.put(thread.resolve(call, "did_not_happen", "probe"));
    assert_eq!(thread.standing(call), Ready(2));
    thread.now = 200;
    thread.put(thread.again(call));
    thread.put(thread.unknown(call, "timeout", None));
    assert_eq!(thread.standing(call), AskLater(at(270)));
}

#[test]
fn a_probe_that_cannot_tell_is_asked_again_and_not_for_ever() {
    let (mut thread, call) = opened(Policy::Reconcile);
    thread.put(thread.unknown(call, "panic", None));
    for asked in 1..=crate::limits::PROBES_MAX {
        // Not before quiet, whatever the answer asks for.
        let due = if asked == 1 { 120 } else { thread.now + 50 };
        let unclear = thread.resolve(call, "inconclusive", "probe");
        thread.put(unclear.with(|h| h.due = Some(at(due))));
        let wanted = match asked {
            crate::limits::PROBES_MAX => doubt(Doubt::ProbesExhausted),
            _ => AskLater(at(due.max(170))),
        };
        assert_eq!(thread.standing(call), wanted, "{asked}");
        thread.now = due.max(170);
    }
    thread.put(thread.resolve(call, "did_not_happen", "user:bob"));
    thread.put(thread.again(call));
    thread.put(thread.unknown(call, "panic", None));
    assert!(matches!(thread.standing(call), AskLater(_)), "asked anew");
}

#[test]
fn a_downstream_that_always_says_no_is_left_to_a_person() {
    let (mut thread, call) = opened(Policy::Reconcile);
    for n in 1..=3 {
        thread.put(thread.unknown(call, "timeout", None));
        thread.put(thread.resolve(call, "did_not_happen", "probe"));
        if n < 3 {
            assert_eq!(thread.standing(call), Ready(n + 1));
            thread.put(thread.again(call));
        }
    }
    assert_eq!(thread.standing(call), doubt(Doubt::Exhausted));
}

fn decided(thread: &Thread, declared: &Terms) -> Decision {
    let id = id("pay");
    let call =
        Declared { kind: CallKind::Step, id: &id, terms: Some(declared), args: None, redact: &[] };
    decide(&thread.history, &call, at(thread.now))
}

#[test]
fn of_changed_declarations_only_at_most_once_to_reconcile_applies_by_itself() {
    for recorded in ALL {
        for declared in ALL {
            let mut thread = Thread::new();
            thread.open("pay", &terms(recorded));
            thread.crash();
            thread.now = 200;
            let rule = match (recorded, declared) {
                (Policy::AtMostOnce, Policy::Reconcile) => Policy::Reconcile,
                _ => recorded,
            };
            let wanted = match rule {
                Policy::Read | Policy::Idempotent => Decision::Start(2),
                Policy::Reconcile => Decision::Ask,
                Policy::AtMostOnce => Decision::Doubt(Doubt::Crash),
            };
            let declared = terms(declared);
            assert_eq!(decided(&thread, &declared), wanted, "{recorded:?} {declared:?}");
        }
    }
    // The recorded terms hold too, not only the policy.
    let mut thread = Thread::new();
    thread.open("pay", &terms(Policy::Idempotent));
    thread.now = 1030;
    thread.crash();
    let wider = Terms { window: None, ..terms(Policy::Idempotent) };
    assert_eq!(decided(&thread, &wider), Decision::Doubt(Doubt::WindowOver));
}

#[test]
fn a_dropped_step_that_is_made_again_goes_by_its_policy() {
    for (policy, wanted) in [
        (Policy::Idempotent, Decision::Start(2)),
        (Policy::Reconcile, Decision::AskLater(at(170))),
        (Policy::AtMostOnce, Decision::Doubt(Doubt::Dropped)),
    ] {
        let (mut thread, call) = opened(policy);
        thread.put(thread.unknown(call, "dropped", None));
        assert_eq!(decided(&thread, &terms(policy)), wanted);
        // Its limits hold as after a crash.
        if policy == Policy::Idempotent {
            thread.now = 1030;
            let wanted = Decision::Doubt(Doubt::WindowOver);
            assert_eq!(decided(&thread, &terms(policy)), wanted);
        }
        if policy == Policy::Reconcile {
            for _ in 0..crate::limits::PROBES_MAX {
                thread.put(thread.resolve(call, "inconclusive", "probe"));
            }
            let wanted = Decision::Doubt(Doubt::ProbesExhausted);
            assert_eq!(decided(&thread, &terms(policy)), wanted);
        }
    }
    let (mut thread, call) = opened(Policy::Idempotent);
    thread.put(thread.unknown(call, "cancelled", None));
    let wanted = Decision::Doubt(Doubt::Cancelled);
    assert_eq!(decided(&thread, &terms(Policy::Idempotent)), wanted);
}

#[test]
fn decide_answers_for_every_kind_of_call() {
    let mut thread = Thread::new();
    let timer = thread.put(thread.timer("nap", 150));
    let asked = thread.put(thread.approval("ok?"));
    let clock = thread.draft(Kind::Clock).with(|h| h.place = Some(place("now")));
    let clock = thread.put(clock);
    let decision = |thread: &Thread, kind, name: &str| {
        let id = id(name);
        let call = Declared { kind, id: &id, terms: None, args: None, redact: &[] };
        decide(&thread.history, &call, at(thread.now))
    };
    assert_eq!(decision(&thread, CallKind::Timer, "nap"), Decision::Timer(at(150)));
    assert_eq!(decision(&thread, CallKind::Approval, "ok?"), Decision::Decide);
    assert_eq!(decision(&thread, CallKind::Clock, "now"), Decision::Outcome(clock));
    for kind in [CallKind::Step, CallKind::Timer, CallKind::Signal, CallKind::Approval] {
        assert_eq!(decision(&thread, kind, "now"), Decision::Open, "{kind:?}");
    }
    thread.now = 150;
    let fired = thread.put(thread.about(Kind::TimerFired, timer));
    let granted = |h: &mut Header| h.verdict = Some("granted".into());
    let granted = thread.put(thread.about(Kind::ApprovalDecide, asked).with(granted));
    assert_eq!(decision(&thread, CallKind::Timer, "nap"), Decision::Outcome(fired));
    assert_eq!(decision(&thread, CallKind::Approval, "ok?"), Decision::Outcome(granted));
}

#[test]
fn g5_changed_arguments_and_identities_diverge_before_anything_happens() {
    let mut thread = Thread::new();
    let pay = thread.open("pay", &terms(Policy::Idempotent));
    let decision = |thread: &Thread, id: &StepId, args: &[u8]| {
        let call =
            Declared { kind: CallKind::Step, id, terms: None, args: Some(args), redact: &[] };
        decide(&thread.history, &call, at(thread.now))
    };
    // The same value in another form is the same arguments.
    assert_eq!(decision(&thread, &id("pay"), &encoded(7.0)), Decision::UnderWay);
    let Decision::Diverged(other) = decision(&thread, &id("pay"), &encoded(8)) else {
        panic!("other arguments")
    };
    assert_eq!(other.at, pay);
    assert!(matches!(&other.kind, DivergenceKind::Arguments(d) if d.len() == 1));
    let key = crate::id::Identity::Key("k".into());
    let by_key = StepId::scoped(Name::new("pay").unwrap(), key);
    let Decision::Diverged(other) = decision(&thread, &by_key, &encoded(7)) else {
        panic!("another identity")
    };
    let recorded = IdentityKind::Positional;
    let now = IdentityKind::Key;
    assert_eq!(other.kind, DivergenceKind::Identity { recorded, now });
    // A settled step is compared all the same.
    thread.put(thread.done(pay));
    assert!(matches!(decision(&thread, &id("pay"), &encoded(8)), Decision::Diverged(_)));
    assert!(matches!(decision(&thread, &id("pay"), &encoded(7)), Decision::Outcome(_)));
}
