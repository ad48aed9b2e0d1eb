//! The grammar of `record-format.md`, rule by rule: each has a record that it refuses.

use super::*;
use crate::id::MessageId;

type Break = fn(&mut Header);

/// Applies a changed header as it is, past the pen.
fn refused(thread: &Thread, draft: Draft, change: Break) -> String {
    let mut thread = thread.clone();
    let mut pen = thread.pen.clone();
    let (mut header, record) = pen.write(draft, at(thread.now), &mut || [9; 32]);
    thread.history.clone().apply(&header, &record.payloads).unwrap();
    change(&mut header);
    let before = format!("{:?}", thread.history);
    let error = thread.history.apply(&header, &record.payloads).unwrap_err();
    assert_eq!(format!("{:?}", thread.history), before);
    assert_eq!((error.n, &*error.kind), (header.n, header.kind.as_str()));
    error.why.to_owned()
}

#[test]
fn rule_1_positions_threads_times_epochs_and_runs() {
    let mut thread = Thread::new();
    thread.crash();
    let changes: [(Break, &str); 9] = [
        (|h| h.n = 1, "position"),
        (|h| h.n = 3, "position"),
        (|h| h.thread = ThreadId::new("other").unwrap(), "another thread"),
        (|h| h.time = at(99), "time"),
        (|h| h.epoch = Epoch(1), "epoch"),
        (|h| h.run = 0, "run"),
        (|h| h.run = 2, "run"),
        (|h| h.kind = Kind::ThreadStart, "run"),
        (|h| h.kind = Kind::ThreadResume, "run"),
    ];
    for (change, word) in changes {
        let why = refused(&thread, thread.timer("nap", 200), change);
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn rule_2_a_thread_begins_with_its_start_and_has_one() {
    let mut thread = Thread::empty();
    for draft in [thread.timer("nap", 200), thread.signal("s", 1), thread.draft(Kind::Marker)] {
        assert!(thread.attempt(draft).unwrap_err().contains("begins"));
    }
    let no_workflow = thread.draft(Kind::ThreadStart);
    assert!(thread.attempt(no_workflow).unwrap_err().contains("workflow"));
    let mut thread = Thread::new();
    let start = thread.draft(Kind::ThreadStart);
    let start = start.with(|h| h.workflow = Some("refund".into()));
    assert!(thread.attempt(start).unwrap_err().contains("first record"));
    // The system thread has none.
    let system = ThreadId::system();
    let mut history = History::new(system.clone(), SECRET);
    let run = Header::new(system, 0, Epoch(1), Kind::RunStart, at(1), 0);
    history.apply(&run, &[]).unwrap();
}

#[test]
fn rule_3_behind_the_end_there_are_only_facts() {
    let mut thread = Thread::new();
    let idem = terms(Policy::Idempotent);
    let open = thread.open("open", &idem);
    let call = thread.open("pay", &Terms { abandon: true, ..idem });
    let timer = thread.put(thread.timer("nap", 100));
    let end = thread.draft(Kind::ThreadEnd);
    assert!(thread.attempt(end.clone()).unwrap_err().contains("how"));
    let end = end.with(|h| h.verdict = Some("done".into()));
    let position = thread.put(end.clone().payload(Role::Result, encoded(3)));
    let ended = thread.history.end().unwrap();
    assert_eq!((ended.status, ended.position), (Status::Done, position));
    assert_eq!(ended.result.as_deref(), Some(&*encoded(3)));
    for draft in [
        end,
        thread.opening("more", &terms(Policy::Read)),
        thread.done(call),
        thread.fail(call, "terminal", None),
        thread.unknown(open, "timeout", None),
        thread.resolve(call, "happened", "user:bob"),
        thread.about(Kind::TimerFired, timer),
        thread.signal("s", 1),
        thread.draft(Kind::Marker).with(|h| h.why = Some("cancel".into())),
    ] {
        assert!(thread.attempt(draft).unwrap_err().contains("ended"));
    }
    thread.crash();
    thread.put(thread.about(Kind::StepLate, call));
    for kind in [Kind::MessageRefused, Kind::Redact, Kind::Export, Kind::Seal] {
        thread.put(thread.draft(kind));
    }
}

#[test]
fn rule_4_a_place_is_opened_once_and_a_name_has_one_kind_of_identity() {
    let mut thread = Thread::new();
    let terms = terms(Policy::Read);
    thread.open("x", &terms);
    thread.put(thread.timer("x", 200));
    thread.put(thread.approval("x"));
    for draft in [thread.opening("x", &terms), thread.timer("x", 200), thread.approval("x")] {
        assert!(thread.attempt(draft).unwrap_err().contains("open already"));
    }
    let by_key = |key: Option<&str>| {
        let key: Option<Arc<str>> = key.map(Into::into);
        move |h: &mut Header| {
            let place = h.place.as_mut().unwrap();
            place.kind = IdentityKind::Key;
            place.business_key = key;
        }
    };
    let other = thread.opening("x", &terms).with(by_key(Some("k")));
    assert!(thread.attempt(other).unwrap_err().contains("kind of identity"));
    for key in [None, Some(""), Some(&*"k".repeat(1025))] {
        let draft = thread.opening("y", &terms).with(by_key(key));
        assert!(thread.attempt(draft).unwrap_err().contains("business key"));
    }
    thread.put(thread.opening("y", &terms).with(by_key(Some("k"))));
    thread.put(thread.opening("y", &terms).with(by_key(Some("l"))));
    let same = thread.opening("y", &terms).with(by_key(Some("k")));
    assert!(thread.attempt(same).unwrap_err().contains("open already"));
    // By arguments: the arguments are the identity.
    let by_args = |h: &mut Header| h.place.as_mut().unwrap().kind = IdentityKind::Arguments;
    let arguments = |thread: &Thread, args: Option<Vec<u8>>| {
        let mut draft = thread.opening("z", &terms).with(by_args);
        draft.payloads.clear();
        match args {
            Some(args) => draft.payload(Role::Args, args),
            None => draft,
        }
    };
    thread.put(arguments(&thread, Some(encoded(1))));
    thread.put(arguments(&thread, Some(encoded(2))));
    let same = arguments(&thread, Some(encoded(1.0)));
    assert!(thread.attempt(same).unwrap_err().contains("open already"));
    assert!(thread.attempt(arguments(&thread, None)).unwrap_err().contains("erased"));
    let nan = arguments(&thread, Some(encoded(f64::NAN)));
    assert!(thread.attempt(nan).unwrap_err().contains("canonical"));
}

#[test]
fn rule_5_a_record_is_about_an_open_call_of_its_kind() {
    let mut thread = Thread::new();
    let step = thread.open("pay", &terms(Policy::Idempotent));
    let timer = thread.put(thread.timer("nap", 100));
    let asked = thread.put(thread.approval("ok?"));
    let granted = |h: &mut Header| h.verdict = Some("granted".into());
    let one = |h: &mut Header| h.attempt = Some(1);
    for (call, word) in
        [(99, "not open"), (0, "not open"), (timer, "another kind"), (asked, "kind")]
    {
        for draft in [
            thread.again(call).with(one),
            thread.done(call).with(one),
            thread.fail(call, "terminal", None).with(one),
            thread.unknown(call, "timeout", None).with(one),
            thread.resolve(call, "happened", "probe"),
            thread.about(Kind::StepLate, call).with(one),
        ] {
            let why = thread.attempt(draft).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
    for call in [step, asked, 99] {
        assert!(thread.attempt(thread.about(Kind::TimerFired, call)).is_err());
    }
    for call in [step, timer, 99] {
        let draft = thread.about(Kind::ApprovalDecide, call).with(granted);
        assert!(thread.attempt(draft).is_err());
    }
    for kind in [Kind::StepDone, Kind::StepResolve, Kind::TimerFired, Kind::ApprovalDecide] {
        let draft = thread.draft(kind).with(one).with(granted);
        assert!(thread.attempt(draft).unwrap_err().contains("which call"));
    }
}

#[test]
fn rule_6_attempts_follow_each_other_and_end_once() {
    let mut thread = Thread::new();
    let idem = terms(Policy::Idempotent);
    let changes: [(Break, &str); 6] = [
        (|h| h.attempt = None, "attempt number"),
        (|h| h.attempt = Some(0), "number 1"),
        (|h| h.attempt = Some(2), "number 1"),
        (|h| h.policy = None, "policy"),
        (|h| h.key = None, "operation key"),
        (|h| h.place = None, "which call"),
    ];
    for (change, word) in changes {
        let why = refused(&thread, thread.opening("pay", &idem), change);
        assert!(why.contains(word), "{why}");
    }
    let call = thread.open("pay", &idem);
    assert!(thread.attempt(thread.again(call)).unwrap_err().contains("under way"));
    let number = |n| move |h: &mut Header| h.attempt = n;
    for n in [None, Some(2), Some(0)] {
        assert!(thread.attempt(thread.done(call).with(number(n))).is_err());
        let failed = thread.fail(call, "terminal", None).with(number(n));
        assert!(thread.attempt(failed).is_err());
        let unknown = thread.unknown(call, "timeout", None).with(number(n));
        assert!(thread.attempt(unknown).is_err());
    }
    for why in ["crash", "window_over", "poison", "", "because"] {
        let draft = thread.unknown(call, why, None);
        assert!(thread.attempt(draft).unwrap_err().contains("why"), "{why}");
    }
    let look = thread.open("look", &terms(Policy::Read));
    let draft = thread.unknown(look, "timeout", None);
    assert!(thread.attempt(draft).unwrap_err().contains("a read"));
    // What an effect's failure calls certain must be.
    for why in ["timeout", "panic", "dropped", "", "because"] {
        let draft = thread.fail(call, why, None);
        assert!(thread.attempt(draft).unwrap_err().contains("why"), "{why}");
    }
    thread.put(thread.unknown(call, "timeout", Some(100)));
    for draft in [
        thread.done(call),
        thread.fail(call, "not_applied", None),
        thread.unknown(call, "panic", None),
    ] {
        assert!(thread.attempt(draft).unwrap_err().contains("ended already"));
    }
    for n in [1, 3, u32::MAX] {
        let draft = thread.again(call).with(number(Some(n)));
        assert!(thread.attempt(draft).unwrap_err().contains("follow"), "{n}");
    }
    thread.put(thread.again(call));
    // G6: the result of a run that was fenced can only be late.
    thread.crash();
    assert!(thread.attempt(thread.done(call)).unwrap_err().contains("late"));
    thread.put(thread.about(Kind::StepLate, call));
    let no_such = thread.about(Kind::StepLate, call).with(number(Some(9)));
    assert!(thread.attempt(no_such).unwrap_err().contains("no such attempt"));
    thread.put(thread.again(call));
    thread.put(thread.done(call));
}

#[test]
fn g3_rule_7_a_step_is_settled_at_most_once() {
    let policies = [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce];
    for policy in policies {
        for first in 0..5 {
            let mut thread = Thread::new();
            let call = thread.open("pay", &terms(policy));
            let settle = match first {
                0 => thread.done(call),
                1 => thread.fail(call, "terminal", None),
                2 => thread.fail(call, "exhausted", None),
                n => {
                    thread.crash();
                    thread.resolve(call, ["happened", "failed"][n - 3], "user:bob")
                }
            };
            let position = thread.put(settle);
            let recorded = thread.history.opened_at(call).unwrap();
            assert_eq!(recorded.outcome.as_ref().unwrap().position, position);
            let answer = recorded.outcome.clone();
            if first > 2 {
                // What a person said holds once the code has gone on.
                thread.open("mail", &terms(Policy::Idempotent));
                thread.crash();
            }
            for draft in [
                thread.again(call),
                thread.done(call),
                thread.fail(call, "terminal", None),
                thread.fail(call, "not_applied", Some(100)),
                thread.unknown(call, "timeout", None),
                thread.resolve(call, "happened", "user:eve"),
                thread.resolve(call, "failed", "user:eve"),
                thread.resolve(call, "did_not_happen", "user:eve"),
                thread.resolve(call, "inconclusive", "probe"),
            ] {
                let why = thread.attempt(draft).unwrap_err();
                assert!(why.contains("settled already"), "{why}");
            }
            thread.put(thread.about(Kind::StepLate, call));
            let recorded = thread.history.opened_at(call).unwrap();
            let same = recorded.outcome.as_ref().map(|o| (o.position, o.answer.clone()));
            assert_eq!(same, answer.map(|o| (o.position, o.answer)));
            assert_eq!(recorded.late.len(), 1);
            let own = thread.history.doubts(at(9999)).filter(|(c, _)| c.opened == call);
            assert_eq!(own.count(), 0);
        }
    }
}

/// A step whose process died, and what a person said of it.
fn said(verdict: &str) -> (Thread, Position) {
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(Policy::AtMostOnce));
    thread.crash();
    thread.put(thread.resolve(call, verdict, "user:bob"));
    (thread, call)
}

#[test]
fn rule_7_what_a_person_said_can_be_said_otherwise_until_the_code_has_gone_on() {
    for first in ["happened", "failed", "did_not_happen"] {
        for second in ["happened", "failed", "did_not_happen"] {
            let (mut thread, call) = said(first);
            // What comes from elsewhere is no reason to think that the code has gone on.
            thread.put(thread.signal("s", 1));
            thread.crash();
            let again = thread.put(thread.resolve(call, second, "user:eve"));
            let recorded = thread.history.opened_at(call).unwrap();
            let outcome = recorded.outcome.as_ref().map(|o| (o.position, o.answer.clone()));
            match second {
                "did_not_happen" => assert!(outcome.is_none()),
                _ => assert_eq!(outcome.as_ref().unwrap().0, again, "{first} {second}"),
            }
            match (second, outcome) {
                ("did_not_happen", _) => assert_eq!(thread.standing(call), Standing::Ready(2)),
                ("happened", Some((_, answer))) => assert!(matches!(answer, Answer::Value(_))),
                (_, Some((_, answer))) => assert!(matches!(answer, Answer::Failed(_))),
                (_, None) => panic!("{first} {second}"),
            }
        }
    }
}

#[test]
fn rule_7_every_decision_of_the_code_makes_what_a_person_said_final() {
    type Act = fn(&Thread) -> Draft;
    let acts: [Act; 7] = [
        |t| t.opening("mail", &terms(Policy::Idempotent)),
        |t| t.timer("nap", 200),
        |t| t.approval("ok?"),
        |t| t.draft(Kind::Clock).with(|h| h.place = Some(place("now"))),
        |t| {
            t.draft(Kind::Marker).with(|h| {
                h.why = Some("patch:x".into());
                h.verdict = Some("true".into());
            })
        },
        |t| t.draft(Kind::ThreadContinue).payload(Role::Input, encoded(1)),
        |t| t.draft(Kind::ThreadEnd).with(|h| h.verdict = Some("cancelled".into())),
    ];
    for (n, act) in acts.iter().enumerate() {
        let (mut thread, call) = said("happened");
        thread.put(act(&thread));
        let again = thread.resolve(call, "failed", "user:eve");
        assert!(thread.attempt(again).is_err(), "{n}");
    }
    // So does another step that the code dropped, for what was said or for something else.
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(Policy::AtMostOnce));
    thread.crash();
    let other = thread.open("mail", &terms(Policy::Idempotent));
    thread.put(thread.resolve(call, "happened", "user:bob"));
    thread.put(thread.unknown(other, "timeout", None));
    let again = |t: &Thread| t.resolve(call, "failed", "user:eve");
    assert!(thread.clone().attempt(again(&thread)).is_ok(), "an attempt's end is none of the code");
    thread.put(thread.again(other));
    thread.put(thread.unknown(other, "dropped", None));
    assert!(thread.attempt(again(&thread)).unwrap_err().contains("settled already"));
    // And what the run that holds the thread knows.
    let (mut thread, call) = said("happened");
    thread.history.set_given(call);
    let again = thread.resolve(call, "failed", "user:eve");
    assert!(thread.attempt(again).unwrap_err().contains("settled already"));
    // What a probe found is final at once, and a probe has no second word.
    for (first, second) in [("probe", "user:eve"), ("user:bob", "probe")] {
        let mut thread = Thread::new();
        let call = thread.open("pay", &terms(Policy::Reconcile));
        thread.crash();
        thread.put(thread.resolve(call, "happened", first));
        let again = thread.resolve(call, "failed", second);
        assert!(thread.attempt(again).unwrap_err().contains("settled already"), "{first}");
    }
}

#[test]
fn what_a_person_said_and_the_code_cannot_read_is_a_doubt_until_it_is_said_again() {
    let unreadable = |thread: &Thread, call| {
        let draft = thread.resolve(call, "unreadable", "deedbook");
        draft.payload(Role::Error, encoded(Failure::new("`u32`: no number")))
    };
    for policy in [Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce] {
        let mut thread = Thread::new();
        let call = thread.open("pay", &terms(policy));
        let nothing_said = unreadable(&thread, call);
        assert!(thread.attempt(nothing_said).unwrap_err().contains("nothing that a person said"));
        thread.crash();
        thread.put(thread.resolve(call, "happened", "user:bob"));
        // Whatever else the code did meanwhile.
        thread.open("mail", &terms(Policy::Idempotent));
        thread.put(unreadable(&thread, call));
        assert_eq!(thread.standing(call), Standing::Doubt(Doubt::Unreadable), "{policy:?}");
        let recorded = thread.history.opened_at(call).unwrap();
        assert_eq!(thread.history.misread(recorded).map(|why| &**why), Some("`u32`: no number"));
        assert_eq!(thread.history.doubts(at(9999)).count(), 1);
        let twice = unreadable(&thread, call);
        assert!(thread.attempt(twice).is_err());
        // A thread that needs no value does not wait for one.
        let mut cancelled = thread.clone();
        cancelled.put(cancelled.draft(Kind::Marker).with(|h| h.why = Some("cancel".into())));
        cancelled.crash();
        let recorded = cancelled.history.opened_at(call).unwrap().clone();
        let standing = cancelled.history.standing(&recorded, at(cancelled.now));
        assert_eq!(standing, Standing::Settled);
        thread.put(thread.resolve(call, "happened", "user:bob"));
        assert_eq!(thread.standing(call), Standing::Settled);
        assert_eq!(thread.history.doubts(at(9999)).count(), 0);
    }
    // What a body returned is the code's own.
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(Policy::Idempotent));
    thread.put(thread.done(call));
    let own = unreadable(&thread, call);
    assert!(thread.attempt(own).is_err());
}

#[test]
fn rule_8_only_what_is_not_under_way_is_resolved() {
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(Policy::Reconcile));
    for verdict in ["happened", "failed", "did_not_happen", "inconclusive"] {
        let draft = thread.resolve(call, verdict, "probe");
        assert!(thread.attempt(draft).unwrap_err().contains("under way"));
    }
    thread.crash();
    let draft = thread.resolve(call, "perhaps", "probe");
    assert!(thread.attempt(draft).unwrap_err().contains("what was found"));
    thread.put(thread.resolve(call, "did_not_happen", "probe"));
    thread.put(thread.again(call));
    let draft = thread.resolve(call, "happened", "probe");
    assert!(thread.attempt(draft).unwrap_err().contains("under way"));
}

#[test]
fn rule_9_timers_and_approvals() {
    let mut thread = Thread::new();
    let endless = thread.timer("nap", 150).with(|h| h.due = None);
    assert!(thread.attempt(endless).unwrap_err().contains("when"));
    let timer = thread.put(thread.timer("nap", 150));
    let asked = thread.put(thread.approval("ok?"));
    thread.now = 149;
    let fire = thread.about(Kind::TimerFired, timer);
    assert!(thread.attempt(fire.clone()).unwrap_err().contains("not due"));
    thread.now = 150;
    thread.put(fire.clone());
    assert!(thread.attempt(fire).unwrap_err().contains("settled"));
    let decide = |word: Option<&str>| {
        let word: Option<Arc<str>> = word.map(Into::into);
        thread.about(Kind::ApprovalDecide, asked).with(|h| h.verdict = word)
    };
    let (none, other, yes, no) =
        (decide(None), decide(Some("perhaps")), decide(Some("granted")), decide(Some("denied")));
    for draft in [none, other] {
        assert!(thread.attempt(draft).unwrap_err().contains("decided"));
    }
    thread.put(no.with(|h| h.by = Some("user:bob".into())));
    assert!(thread.attempt(yes).unwrap_err().contains("settled"));
    let answer = &thread.history.opened_at(asked).unwrap().outcome.as_ref().unwrap().answer;
    let by = "user:bob".into();
    let reason = None;
    assert_eq!(*answer, Answer::Decided { granted: false, by, reason });
}

#[test]
fn signals_markers_and_cancellations_keep_their_order_and_their_first_word() {
    let mut thread = Thread::new();
    assert!(thread.attempt(thread.draft(Kind::Signal)).unwrap_err().contains("name"));
    assert!(thread.attempt(thread.draft(Kind::Marker)).unwrap_err().contains("name"));
    let first = thread.put(thread.signal("s", 1));
    thread.put(thread.signal("other", 9));
    let second = thread.put(thread.signal("s", 2));
    let positions: Vec<_> = thread.history.signals("s").iter().map(|s| s.position).collect();
    assert_eq!(positions, [first, second]);
    let patch = |thread: &Thread, verdict: Option<&str>| {
        let verdict: Option<Arc<str>> = verdict.map(Into::into);
        thread.draft(Kind::Marker).with(|h| {
            h.why = Some("patch:v2".into());
            h.verdict = verdict;
        })
    };
    for word in [None, Some("yes")] {
        assert!(thread.attempt(patch(&thread, word)).unwrap_err().contains("answered"));
    }
    thread.put(patch(&thread, Some("false")));
    thread.put(patch(&thread, Some("true")));
    assert_eq!(thread.history.marker("v2"), Some(false));
    assert_eq!(thread.history.marker("v3"), None);
    let cancel = |by: &str| {
        let by: Arc<str> = by.into();
        thread.draft(Kind::Marker).with(|h| {
            h.why = Some("cancel".into());
            h.by = Some(by);
            h.message = Some(MessageId([1; 16]));
        })
    };
    let (alice, bob) = (cancel("user:alice"), cancel("user:bob"));
    let position = thread.put(alice);
    thread.put(bob);
    let cancelled = thread.history.cancellation().unwrap();
    assert_eq!(cancelled.position, position);
    assert_eq!(cancelled.by.as_deref(), Some("user:alice"));
    let unknown = thread.draft(Kind::Marker).with(|h| h.why = Some("later".into()));
    thread.put(unknown);
}

#[test]
fn kinds_of_later_builds_are_refused_by_replay() {
    let mut thread = Thread::new();
    for kind in [
        Kind::ThreadFork,
        Kind::StepDenied,
        Kind::ChildStart,
        Kind::ChildEnd,
        Kind::Unknown("step.new".into()),
    ] {
        let why = thread.attempt(thread.draft(kind)).unwrap_err();
        assert!(why.contains("newer build"), "{why}");
    }
}

#[test]
fn erased_payloads_are_erased_answers() {
    let mut thread = Thread::new();
    let without = |mut draft: Draft| {
        draft.payloads.clear();
        draft
    };
    let calls: Vec<_> =
        ["a", "b", "c", "d"].map(|n| thread.open(n, &terms(Policy::Idempotent))).into();
    thread.put(without(thread.done(calls[0])));
    thread.put(without(thread.fail(calls[1], "terminal", None)));
    let unstored = |h: &mut Header| h.why = Some("result_not_stored".into());
    thread.put(without(thread.done(calls[2])).with(unstored));
    thread.crash();
    thread.put(without(thread.resolve(calls[3], "happened", "probe")));
    for (call, failed) in thread.history.calls().iter().zip([false, true, false, false]) {
        assert_eq!(call.outcome.as_ref().unwrap().answer, Answer::Erased { failed });
    }
}

#[test]
fn an_episode_begins_with_what_goes_over() {
    let mut thread = Thread::new();
    let idem = terms(Policy::Idempotent);
    let call = thread.open("pay", &idem);
    let read = thread.put(thread.signal("s", 1));
    let unread = thread.put(thread.signal("s", 2));
    let next = |thread: &Thread, carry: &[Position]| {
        let carry = carry.to_vec();
        let draft = thread.draft(Kind::ThreadContinue);
        draft.with(|h| h.carry = carry).payload(Role::Input, encoded("two"))
    };
    let busy = next(&thread, &[unread]);
    assert!(thread.attempt(busy).unwrap_err().contains("under way"));
    thread.put(thread.done(call));
    for disorder in [&[unread, read][..], &[unread, unread]] {
        let draft = next(&thread, disorder);
        assert!(thread.attempt(draft).unwrap_err().contains("order"));
    }
    let from = thread.put(next(&thread, &[unread]));
    assert_eq!((thread.history.episode(), thread.history.episode_from()), (1, from));
    assert_eq!(thread.history.input().map(|i| &**i), Some(&*encoded("two")));
    let later = thread.put(thread.signal("s", 3));
    let positions: Vec<_> = thread.history.signals("s").iter().map(|s| s.position).collect();
    assert_eq!(positions, [unread, later]);
    // The same place in the next episode is another call.
    let again = thread.opening("pay", &idem).with(|h| h.place.as_mut().unwrap().episode = 1);
    thread.put(again);
}
