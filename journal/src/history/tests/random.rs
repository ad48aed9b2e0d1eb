//! Properties over random histories: total, deterministic, and never more permissive than the
//! policies are.

use proptest::prelude::*;

use super::*;

/// Something that happens to a thread with three steps.
#[derive(Debug, Clone)]
enum Act {
    Try(usize),
    Done(usize),
    Fail(usize, usize, Option<u64>),
    Unknown(usize, usize, Option<u64>),
    Resolve(usize, usize, bool, Option<u64>),
    Late(usize),
    Crash,
    Wait(u64),
}

const WHY: [&str; 9] = [
    "terminal",
    "exhausted",
    "not_applied",
    "not_started",
    "timeout",
    "panic",
    "dropped",
    "unlabelled",
    "cancelled",
];
const VERDICTS: [&str; 4] = ["happened", "failed", "did_not_happen", "inconclusive"];

fn act() -> impl Strategy<Value = Act> {
    let due = || prop::option::of(0u64..2000);
    prop_oneof![
        6 => (0usize..3).prop_map(Act::Try),
        1 => (0usize..3).prop_map(Act::Done),
        4 => (0usize..3, 0usize..9, due()).prop_map(|(s, w, d)| Act::Fail(s, w, d)),
        4 => (0usize..3, 4usize..9, due()).prop_map(|(s, w, d)| Act::Unknown(s, w, d)),
        3 => (0usize..3, 0usize..4, any::<bool>(), due())
            .prop_map(|(s, v, p, d)| Act::Resolve(s, v, p, d)),
        1 => (0usize..3).prop_map(Act::Late),
        4 => Just(Act::Crash),
        4 => (0u64..500).prop_map(Act::Wait),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Policy::Read,
        Policy::Idempotent,
        Policy::Reconcile,
        Policy::AtMostOnce,
    ])
}

/// Plays the acts that the grammar allows.
fn play(policies: &[Policy; 3], acts: &[Act]) -> (Thread, [Position; 3]) {
    let mut thread = Thread::new();
    let names = ["a", "b", "c"];
    let mut calls = [0; 3];
    for ((call, name), policy) in calls.iter_mut().zip(names).zip(policies) {
        *call = thread.open(name, &terms(*policy));
    }
    for act in acts {
        let due = |d: Option<u64>| move |h: &mut Header| h.due = d.map(at);
        let draft = match act {
            Act::Try(s) => thread.again(calls[*s]),
            Act::Done(s) => thread.done(calls[*s]),
            Act::Fail(s, why, d) => thread.fail(calls[*s], WHY[*why], *d),
            Act::Unknown(s, why, d) => thread.unknown(calls[*s], WHY[*why], *d),
            Act::Resolve(s, verdict, probe, d) => {
                let by = if *probe { "probe" } else { "user:bob" };
                thread.resolve(calls[*s], VERDICTS[*verdict], by).with(due(*d))
            }
            Act::Late(s) => thread.about(Kind::StepLate, calls[*s]),
            Act::Crash => {
                thread.crash();
                continue;
            }
            Act::Wait(secs) => {
                thread.now += secs;
                continue;
            }
        };
        // A refused record changes nothing: `attempt` checks it.
        let _ = thread.attempt(draft);
    }
    (thread, calls)
}

/// Checks a standing against the policies, said in another way than the code says it.
fn check(call: &Call, standing: Standing, live_from: Position, now: StoreTime) {
    let terms = call.terms.unwrap();
    let last = call.attempts.last().unwrap();
    let cleared = |a: &Attempt| matches!(a.end, AttemptEnd::Cleared { .. });
    let from = call.attempts.iter().rposition(cleared).map_or(0, |at| at + 1);
    let maybe: Vec<&Attempt> = call.attempts[from..]
        .iter()
        .filter(|a| matches!(a.end, AttemptEnd::Open | AttemptEnd::Ambiguous(..)))
        .collect();
    let effect = terms.policy.has_effect();
    assert_eq!(standing == Standing::Settled, call.outcome.is_some());
    match standing {
        Standing::Settled => {}
        Standing::UnderWay => assert!(last.end == AttemptEnd::Open && last.at >= live_from),
        Standing::Ready(n) => {
            assert_eq!(n, last.number + 1);
            assert!(last.end != AttemptEnd::Open || last.at < live_from);
            if effect && !maybe.is_empty() {
                assert_eq!(terms.policy, Policy::Idempotent, "sent again without asking");
                let over = now.0 + terms.timeout.as_nanos() as u64;
                let usable = maybe[0].started.0 + 940_000_000_000;
                assert!(over < usable, "sent when the key may be forgotten");
            }
        }
        Standing::Later(until) => assert!(until > now && Some(until) == due(last)),
        Standing::Ask | Standing::AskLater(_) => {
            assert_eq!(terms.policy, Policy::Reconcile);
            assert!(!maybe.is_empty(), "nothing to ask about");
            let quiet = last.started.after(terms.quiet);
            match standing {
                Standing::AskLater(until) => assert!(until > now && until >= quiet),
                _ => assert!(now >= quiet, "asked while a request may be on its way"),
            }
        }
        Standing::Doubt(Doubt::Poison) => {}
        Standing::Doubt(doubt) => {
            assert!(effect, "a read in doubt: {doubt:?}");
            assert!(!maybe.is_empty() || doubt == Doubt::Exhausted, "{doubt:?}");
        }
    }
}

fn due(attempt: &Attempt) -> Option<StoreTime> {
    match attempt.end {
        AttemptEnd::NoEffect(due) | AttemptEnd::Ambiguous(_, due) => due,
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn standing_never_allows_more_than_the_policy(
        policies in [policy(), policy(), policy()],
        acts in prop::collection::vec(act(), 0..40),
        later in 0u64..3000,
    ) {
        let (thread, calls) = play(&policies, &acts);
        let live_from = thread.history.live_from();
        for call in calls {
            let call = thread.history.opened_at(call).unwrap();
            for now in [at(thread.now), at(thread.now + later), StoreTime(u64::MAX)] {
                let standing = thread.history.standing(call, now);
                prop_assert_eq!(standing, thread.history.standing(call, now));
                check(call, standing, live_from, now.min(at(1 << 33)));
                // A wait ends when it says.
                if let Standing::Later(until) | Standing::AskLater(until) = standing {
                    let then = thread.history.standing(call, until);
                    prop_assert!(!matches!(then, Standing::Later(_) | Standing::AskLater(_)));
                }
            }
        }
    }

    #[test]
    fn a_history_read_again_is_the_same_history(
        policies in [policy(), policy(), policy()],
        acts in prop::collection::vec(act(), 0..30),
    ) {
        let (a, calls) = play(&policies, &acts);
        let (b, _) = play(&policies, &acts);
        for call in calls {
            let shown = |t: &Thread| format!("{:?}", t.history.opened_at(call));
            prop_assert_eq!(shown(&a), shown(&b));
        }
        let doubts = |t: &Thread| -> Vec<_> {
            t.history.doubts(at(t.now)).map(|(c, d)| (c.opened, d)).collect()
        };
        prop_assert_eq!(doubts(&a), doubts(&b));
        let count = calls.iter().filter(|c| matches!(a.standing(**c), Standing::Doubt(_))).count();
        prop_assert_eq!(doubts(&a).len(), count);
    }

    /// Headers that nobody wrote, with whatever fields: an error or not, and never a panic.
    #[test]
    fn hostile_records_never_panic(seed in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = seed.into_iter();
        let mut next = |below: u8| bytes.next().map_or(0, |b| b % below);
        let mut thread = Thread::new();
        for _ in 0..20 {
            let kind = Kind::ALL[usize::from(next(34))].clone();
            let words = ["", "terminal", "happened", "granted", "patch:x", "cancel", "done",
                "did_not_happen", "inconclusive", "timeout", "true", "unreadable"];
            let header = |h: &mut Header| {
                h.call = Some(u64::from(next(12))).filter(|n| *n < 9);
                h.attempt = [None, Some(0), Some(1), Some(2), Some(u32::MAX)][usize::from(next(5))];
                h.attempts_max = [None, Some(0), Some(1), Some(u32::MAX)][usize::from(next(4))];
                let why = words[usize::from(next(12))];
                h.why = Some(why.into()).filter(|_| !why.is_empty());
                h.verdict = Some(words[usize::from(next(12))].into());
                h.policy = Policy::from_word(
                    ["read", "idempotent", "reconcile", "at_most_once", "-"][usize::from(next(5))]);
                h.key = Some("k".into()).filter(|_| next(3) > 0);
                h.due = [None, Some(StoreTime(0)), Some(StoreTime(u64::MAX))][usize::from(next(3))];
                h.quiet_ms = [None, Some(0), Some((1 << 53) - 1)][usize::from(next(3))];
                h.window_ms = [None, Some(0), Some((1 << 53) - 1)][usize::from(next(3))];
                let mut opens = place(["a", "b"][usize::from(next(2))]);
                opens.kind = [IdentityKind::Positional, IdentityKind::Key, IdentityKind::Arguments]
                    [usize::from(next(3))];
                opens.business_key = Some("k".into()).filter(|_| next(2) > 0);
                h.place = Some(opens).filter(|_| next(4) > 0);
            };
            let draft = thread.draft(kind).with(header);
            let role = Role::ALL[usize::from(next(7))];
            let junk = vec![next(255); usize::from(next(4))];
            if next(8) == 0 {
                thread.crash();
            }
            let _ = thread.attempt(draft.payload(role, junk));
            thread.now += u64::from(next(200));
        }
        for call in thread.history.calls() {
            for now in [StoreTime(0), at(thread.now), StoreTime(u64::MAX)] {
                let _ = thread.history.standing(call, now);
                let declared = Declared {
                    kind: call.kind, id: &call.id, terms: call.terms.as_ref(),
                    args: call.args.as_deref(), redact: &[],
                };
                let first = decide(&thread.history, &declared, now);
                prop_assert_eq!(first, decide(&thread.history, &declared, now));
            }
        }
    }
}
