//! Which record the end of a body becomes.

use super::*;

const DUE: StoreTime = StoreTime(77);

/// A step with as many attempts as asked for, the last one under way; whether an earlier one may
/// have had its effect.
fn attempts(policy: Policy, number: u32, ambiguous: bool) -> (Call, Terms) {
    let mut thread = Thread::new();
    let terms = terms(policy);
    let call = thread.open("pay", &terms);
    for n in 1..number {
        let end = match (policy, ambiguous && n == 1) {
            (Policy::Read, true) => {
                thread.crash();
                None
            }
            (_, true) => Some(thread.unknown(call, "timeout", Some(100))),
            (_, false) => Some(thread.fail(call, "not_applied", Some(100))),
        };
        if let Some(end) = end {
            thread.put(end);
        }
        thread.put(thread.again(call));
    }
    (thread.history.opened_at(call).unwrap().clone(), terms)
}

#[test]
fn every_end_under_every_policy() {
    use EndKind::{Fail, Unknown};
    let record = |kind, why, due| EndRecord { kind, why, due };
    let policies = [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce];
    for policy in policies {
        for number in 1..=3 {
            for ambiguous in [false, true] {
                let (call, terms) = attempts(policy, number, ambiguous);
                let ambiguous = ambiguous && number > 1;
                let more = number < 3;
                let case = format!("{policy:?} {number} {ambiguous}");
                let end = |end| ended(&call, &terms, end, DUE);
                assert_eq!(end(Ended::Terminal), record(Fail, "terminal", None), "{case}");
                let wanted = match (more, ambiguous && policy != Policy::Read) {
                    (true, _) => record(Fail, "not_applied", Some(DUE)),
                    (false, true) => record(Fail, "not_applied", None),
                    (false, false) => record(Fail, "exhausted", None),
                };
                assert_eq!(end(Ended::NotApplied), wanted, "{case}");
                for doubt in [Doubt::Timeout, Doubt::Panic, Doubt::Unlabelled] {
                    let why = doubt.as_str();
                    let wanted = match (policy, more) {
                        (Policy::Read, true) => record(Fail, why, Some(DUE)),
                        (Policy::Read, false) => record(Fail, "exhausted", None),
                        (Policy::Idempotent, true) => record(Unknown, why, Some(DUE)),
                        _ => record(Unknown, why, None),
                    };
                    assert_eq!(end(Ended::Ambiguous(doubt)), wanted, "{case}");
                }
                for doubt in [Doubt::Dropped, Doubt::Cancelled] {
                    let wanted = match policy {
                        Policy::Read => record(Fail, "dropped", None),
                        _ => record(Unknown, doubt.as_str(), None),
                    };
                    assert_eq!(end(Ended::Ambiguous(doubt)), wanted, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_read_that_died_and_then_fails_is_exhausted_and_not_tried_for_ever() {
    let mut thread = Thread::new();
    let once = Terms { attempts_max: 1, ..terms(Policy::Read) };
    let call = thread.open("look", &once);
    thread.crash();
    thread.put(thread.again(call));
    let recorded = thread.history.opened_at(call).unwrap();
    for end in [Ended::NotApplied, Ended::Ambiguous(Doubt::Unlabelled)] {
        assert_eq!(ended(recorded, &once, end, DUE).why, "exhausted");
    }
}

/// What `ended` says is a record that the fold takes, and what stands then never contradicts it.
#[test]
fn every_end_is_a_record_that_fits() {
    for policy in [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce] {
        for end in [
            Ended::Terminal,
            Ended::NotApplied,
            Ended::Ambiguous(Doubt::Timeout),
            Ended::Ambiguous(Doubt::Panic),
            Ended::Ambiguous(Doubt::Dropped),
            Ended::Ambiguous(Doubt::Unlabelled),
            Ended::Ambiguous(Doubt::Cancelled),
        ] {
            let mut thread = Thread::new();
            let call = thread.open("pay", &terms(policy));
            loop {
                let recorded = thread.history.opened_at(call).unwrap();
                let record = ended(recorded, &terms(policy), end, at(thread.now + 5));
                let draft = thread.about(record.kind.into(), call).with(|h| {
                    h.why = Some(record.why.into());
                    h.due = record.due;
                });
                thread.put(draft);
                thread.now += 5;
                match thread.standing(call) {
                    Standing::Ready(_) if record.why == "dropped" => break,
                    Standing::Ready(n) => assert!(n <= 3, "{policy:?} {end:?}"),
                    Standing::Settled | Standing::Doubt(_) | Standing::AskLater(_) => break,
                    other => panic!("{policy:?} {end:?}: {other:?}"),
                }
                thread.put(thread.again(call));
            }
            let settled = thread.standing(call) == Standing::Settled;
            let wanted = match end {
                Ended::Terminal | Ended::NotApplied => true,
                Ended::Ambiguous(Doubt::Dropped | Doubt::Cancelled) => false,
                Ended::Ambiguous(_) => policy == Policy::Read,
            };
            assert_eq!(settled, wanted, "{policy:?} {end:?}");
        }
    }
}
