use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    history::tests::{Thread, at, encoded, terms},
    id::{MessageId, Position},
    limits::HEADER_BYTES_MAX,
    policy::Policy,
};

const BY: &str = "user:bob";

fn message(kind: u8, name: &str, body: Vec<u8>) -> Message {
    Message { id: MessageId([7; 16]), kind, name: name.into(), by: BY.into(), body: body.into() }
}

/// Admits a message and writes what it became, which always fits.
fn become_record(thread: &mut Thread, message: &Message) -> (Header, Position) {
    let draft = admit(&thread.history, message, at(thread.now));
    let header = draft.header.clone();
    assert_eq!(header.message, Some(message.id));
    assert!(header.to_bytes().len() < HEADER_BYTES_MAX / 8);
    let position = thread.put(draft);
    (header, position)
}

#[track_caller]
fn taken(thread: &mut Thread, message: &Message, kind: Kind) -> Header {
    let (header, _) = become_record(thread, message);
    assert_eq!(header.kind, kind, "{:?}", header.why);
    assert_eq!(header.by.as_deref(), Some(BY));
    header
}

#[track_caller]
fn refused(thread: &mut Thread, message: &Message, word: &str) {
    let (header, _) = become_record(thread, message);
    let why = header.why.unwrap_or_default();
    assert_eq!(header.kind, Kind::MessageRefused, "{why}");
    assert!(why.contains(word), "{why}");
}

fn resolve(name: &str, verdict: Verdict) -> Message {
    let reason = "seen".into();
    message(RESOLVE, name, encoded(Resolve { verdict, reason }))
}

fn happened() -> Verdict {
    Verdict::Happened(Bytes(encoded("r")))
}

fn decision(name: &str, granted: bool, shown: &str) -> Message {
    let (reason, shown) = ("fine".into(), shown.into());
    let body = Decide { granted, reason, shown };
    message(DECIDE, name, encoded(body))
}

fn late(name: &str, attempt: u32, outcome: Result<Bytes, Failure>) -> Message {
    message(LATE, name, encoded(Late { attempt, outcome }))
}

fn cancel() -> Message {
    message(CANCEL, "", encoded(Cancel { reason: "enough".into() }))
}

#[test]
fn signals_take_their_place_in_the_queue_of_their_name() {
    let mut thread = Thread::new();
    let longest = "é".repeat(256);
    for name in ["s", "a b\n", &longest] {
        let header = taken(&mut thread, &message(SIGNAL, name, encoded(1)), Kind::Signal);
        assert_eq!(header.why.as_deref(), Some(name));
        assert_eq!(thread.history.signals(name).len(), 1);
    }
    refused(&mut thread, &message(SIGNAL, "", encoded(1)), "empty");
    let long = "s".repeat(513);
    refused(&mut thread, &message(SIGNAL, &long, encoded(1)), "513 bytes");
    let deep = [vec![0x91; 70], vec![0xc0]].concat();
    for body in [vec![], vec![0xc1], vec![0x92, 1], vec![1, 1], deep] {
        let (header, _) = become_record(&mut thread, &message(SIGNAL, "s", body));
        assert_eq!(header.kind, Kind::MessageRefused);
    }
    assert_eq!(thread.history.signals("s").len(), 1);
}

#[test]
fn a_decision_is_bound_to_what_was_shown_and_the_first_one_wins() {
    let mut thread = Thread::new();
    let asked = thread.put(thread.approval("ok?"));
    let shown = thread.history.opened_at(asked).unwrap().shown.unwrap();
    let shown = hex::encode(&shown);
    refused(&mut thread, &decision("no#0", true, &shown), "no approval request");
    for other in ["", "00", &shown.to_uppercase(), &"x".repeat(100_000)] {
        refused(&mut thread, &decision("ok?#0", true, other), "bound to");
    }
    refused(&mut thread, &message(DECIDE, "ok?#0", encoded(1)), "body");
    assert!(thread.history.opened_at(asked).unwrap().outcome.is_none());
    let header = taken(&mut thread, &decision("ok?#0", false, &shown), Kind::ApprovalDecide);
    assert_eq!(header.verdict.as_deref(), Some("denied"));
    refused(&mut thread, &decision("ok?#0", true, &shown), "already decided");
    // The next request of the name is another request.
    thread.put(thread.approval("ok?").with(|h| h.place.as_mut().unwrap().occurrence = 1));
    taken(&mut thread, &decision("ok?#1", true, &shown), Kind::ApprovalDecide);
    let calls = thread.history.calls();
    let granted = |n: usize| {
        let answer = &calls[n].outcome.as_ref().unwrap().answer;
        matches!(answer, crate::history::Answer::Decided { granted: true, .. })
    };
    assert!(!granted(0) && granted(1));
}

#[test]
fn only_a_doubt_is_resolved_and_only_once() {
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(Policy::AtMostOnce));
    refused(&mut thread, &resolve("no#0", happened()), "no step");
    refused(&mut thread, &resolve("pay#0", happened()), "not in doubt");
    thread.crash();
    refused(&mut thread, &message(RESOLVE, "pay#0", vec![0x80]), "body");
    let junk = Verdict::Happened(Bytes(vec![0xc1]));
    let (header, _) = become_record(&mut thread, &resolve("pay#0", junk));
    assert_eq!(header.kind, Kind::MessageRefused);
    let header = taken(&mut thread, &resolve("pay#0", Verdict::DidNotHappen), Kind::StepResolve);
    assert_eq!((header.call, header.verdict.as_deref()), (Some(call), Some("did_not_happen")));
    thread.put(thread.again(call));
    refused(&mut thread, &resolve("pay#0", happened()), "not in doubt");
    thread.put(thread.unknown(call, "timeout", None));
    taken(&mut thread, &resolve("pay#0", happened()), Kind::StepResolve);
    // The code goes on.
    thread.open("mail", &terms(Policy::Idempotent));
    for again in [happened(), Verdict::DidNotHappen, Verdict::Failed(Failure::new("x"))] {
        refused(&mut thread, &resolve("pay#0", again), "not in doubt");
    }
    let answer = &thread.history.opened_at(call).unwrap().outcome.as_ref().unwrap().answer;
    assert_eq!(*answer, crate::history::Answer::Value(encoded("r").into()));
}

#[test]
fn a_person_may_say_otherwise_while_the_workflow_has_not_been_given_it() {
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(Policy::AtMostOnce));
    thread.crash();
    for verdict in [Verdict::DidNotHappen, happened(), Verdict::Failed(Failure::new("x"))] {
        taken(&mut thread, &resolve("pay#0", verdict), Kind::StepResolve);
    }
    taken(&mut thread, &resolve("pay#0", happened()), Kind::StepResolve);
    let answer = &thread.history.opened_at(call).unwrap().outcome.as_ref().unwrap().answer;
    assert_eq!(*answer, crate::history::Answer::Value(encoded("r").into()));
    thread.history.set_given(call);
    refused(&mut thread, &resolve("pay#0", happened()), "the workflow was given what was said");
    // That it did not happen is acted on by the next attempt.
    let call = thread.open("mail", &terms(Policy::AtMostOnce));
    thread.crash();
    taken(&mut thread, &resolve("mail#0", Verdict::DidNotHappen), Kind::StepResolve);
    thread.put(thread.again(call));
    refused(&mut thread, &resolve("mail#0", happened()), "not in doubt");
}

#[test]
fn a_doubt_can_be_settled_as_failed() {
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(Policy::Idempotent));
    thread.put(thread.unknown(call, "dropped", None));
    let failed = Verdict::Failed(Failure::new("refused").code("no"));
    taken(&mut thread, &resolve("pay#0", failed), Kind::StepResolve);
    let answer = &thread.history.opened_at(call).unwrap().outcome.as_ref().unwrap().answer;
    assert!(matches!(answer, crate::history::Answer::Failed(_)));
}

#[test]
fn a_step_that_its_policy_still_carries_on_is_not_for_people() {
    for policy in [Policy::Read, Policy::Idempotent, Policy::Reconcile] {
        let mut thread = Thread::new();
        thread.open("pay", &terms(policy));
        thread.crash();
        refused(&mut thread, &resolve("pay#0", happened()), "not in doubt");
    }
}

#[test]
fn g6_late_results_are_evidence_and_overwrite_nothing() {
    let mut thread = Thread::new();
    let call = thread.open("pay", &terms(Policy::Reconcile));
    thread.crash();
    let value = || Ok(Bytes(encoded("late")));
    refused(&mut thread, &late("no#0", 1, value()), "no step");
    refused(&mut thread, &late("pay#0", 2, value()), "no attempt 2");
    refused(&mut thread, &message(LATE, "pay#0", encoded("x")), "body");
    let (header, _) = become_record(&mut thread, &late("pay#0", 1, Ok(Bytes(vec![0xc1]))));
    assert_eq!(header.kind, Kind::MessageRefused);
    let header = taken(&mut thread, &late("pay#0", 1, value()), Kind::StepLate);
    assert_eq!((header.call, header.attempt), (Some(call), Some(1)));
    thread.put(thread.resolve(call, "failed", "user:bob"));
    taken(&mut thread, &late("pay#0", 1, Err(Failure::new("e"))), Kind::StepLate);
    let recorded = thread.history.opened_at(call).unwrap();
    assert_eq!(recorded.late.len(), 2);
    let answer = &recorded.outcome.as_ref().unwrap().answer;
    assert!(matches!(answer, crate::history::Answer::Failed(_)));
}

#[test]
fn a_thread_is_cancelled_once() {
    let mut thread = Thread::new();
    refused(&mut thread, &message(CANCEL, "", vec![]), "body");
    let header = taken(&mut thread, &cancel(), Kind::Marker);
    assert_eq!(header.why.as_deref(), Some("cancel"));
    assert!(thread.history.cancelled());
    refused(&mut thread, &cancel(), "already being cancelled");
}

#[test]
fn nothing_is_said_to_a_thread_that_has_ended_or_not_begun() {
    let every = || {
        [
            message(SIGNAL, "s", encoded(1)),
            decision("ok?#0", true, ""),
            resolve("pay#0", happened()),
            cancel(),
            late("pay#0", 1, Ok(Bytes(encoded(1)))),
            message(99, "", vec![]),
        ]
    };
    let mut thread = Thread::new();
    let end = thread.draft(Kind::ThreadEnd);
    thread.put(end.with(|h| h.verdict = Some("cancelled".into())));
    for message in every() {
        refused(&mut thread, &message, "has ended");
    }
    for message in every() {
        let draft = admit(&Thread::empty().history, &message, at(0));
        assert_eq!(draft.header.kind, Kind::MessageRefused);
    }
}

#[test]
fn kinds_of_later_builds_are_refused() {
    let mut thread = Thread::new();
    for kind in [0, 6, 255] {
        refused(&mut thread, &message(kind, "s", encoded(1)), "not known");
    }
}

#[test]
fn texts_of_any_length_fit_a_header() {
    let mut thread = Thread::new();
    let long: Arc<str> = "\u{1}é".repeat(1 << 20).into();
    for kind in 0..=6 {
        let message = Message { name: long.clone(), by: long.clone(), ..message(kind, "", vec![]) };
        let (header, _) = become_record(&mut thread, &message);
        assert!(header.by.unwrap().ends_with(" [cut]"));
    }
    assert_eq!(short("abc", 3), "abc");
    assert_eq!(short(&("a".to_owned() + &"é".repeat(300)), 512).len(), 511);
}

fn hostile_message() -> impl Strategy<Value = Message> {
    let names = vec!["pay#0", "ok?#0", "s", "", "pay"];
    let shaped = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        Just(encoded(Cancel { reason: "r".into() })),
        Just(encoded(Resolve { verdict: happened(), reason: String::new() })),
        Just(encoded(Resolve { verdict: Verdict::DidNotHappen, reason: String::new() })),
        (0u32..4).prop_map(|attempt| { encoded(Late { attempt, outcome: Ok(Bytes(encoded(1))) }) }),
    ];
    (0u8..7, prop::sample::select(names), shaped, any::<[u8; 16]>()).prop_map(
        |(kind, name, body, id)| Message { id: MessageId(id), ..message(kind, name, body) },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is said to a thread in whatever state becomes a record that fits it.
    #[test]
    fn every_message_becomes_a_record_that_fits(
        said in prop::collection::vec((hostile_message(), 0u8..8), 1..20),
        policy in prop::sample::select(vec![
            Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce,
        ]),
    ) {
        let mut thread = Thread::new();
        let call = thread.open("pay", &terms(policy));
        thread.put(thread.approval("ok?"));
        for (message, then) in said {
            become_record(&mut thread, &message);
            let again = admit(&thread.history, &message, at(thread.now));
            let same = admit(&thread.history, &message, at(thread.now));
            prop_assert_eq!(again.header, same.header);
            match then {
                0 => thread.crash(),
                1 => drop(thread.attempt(thread.again(call))),
                2 => drop(thread.attempt(thread.unknown(call, "timeout", Some(50)))),
                3 => thread.now += 100,
                _ => {}
            }
        }
    }
}
