//! The rule: what is offered, what begins, and what a thread waits for.

mod queue;
mod rows;

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::{
    history::{
        CallKind, DivergenceKind, Doubt, Instead,
        tests::{Thread, at, id, terms},
    },
    id::{Identity, Name, StepId},
    policy::Policy,
    record::Kind,
    row::Status,
};

/// A call as the code makes it.
#[derive(Debug, Clone)]
struct Made {
    kind: CallKind,
    id: StepId,
    terms: Option<crate::policy::Terms>,
    asked: bool,
    busy: bool,
}

fn made(kind: CallKind, name: &str) -> Made {
    let step = kind == CallKind::Step;
    Made {
        kind,
        id: id(name),
        terms: step.then(|| terms(Policy::Idempotent)),
        asked: true,
        busy: false,
    }
}

fn step(name: &str) -> Made {
    made(CallKind::Step, name)
}

impl Made {
    fn busy(self) -> Self {
        Self { busy: true, ..self }
    }
    fn refused(self) -> Self {
        Self { asked: false, ..self }
    }
}

fn turn(thread: &Thread, made: &[Made], unmade: Option<Position>, delivered: usize) -> Next {
    let live: Vec<Live<'_>> = made
        .iter()
        .map(|m| Live {
            declared: Declared {
                kind: m.kind,
                id: &m.id,
                terms: m.terms.as_ref(),
                args: None,
                redact: &[],
            },
            asked: m.asked,
            busy: m.busy,
        })
        .collect();
    let delivered = HashMap::from([("s".into(), delivered)]);
    let state = State {
        history: &thread.history,
        live: &live,
        first_unmade: unmade,
        delivered: &delivered,
        now: at(thread.now),
    };
    let first = next(&state);
    assert_eq!(first, next(&state), "the same state, the same answer");
    first
}

fn offer(call: u64, position: Position) -> Next {
    Next::Offer { call, position }
}

fn start(call: u64, attempt: u32) -> Next {
    Next::Act(vec![Act::Start { call, attempt }])
}

#[test]
fn the_lowest_position_of_those_that_ask_is_offered() {
    let mut thread = Thread::new();
    let calls = ["a", "b", "c"].map(|n| thread.open(n, &terms(Policy::Idempotent)));
    let [c, a] = [calls[2], calls[0]].map(|call| thread.put(thread.done(call)));
    let [sa, sb, sc] = ["a", "b", "c"].map(step);
    let made = |calls: &[&Made]| calls.iter().map(|m| (*m).clone()).collect::<Vec<_>>();
    assert_eq!(turn(&thread, &made(&[&sa, &sb, &sc]), None, 0), offer(2, c));
    assert_eq!(turn(&thread, &made(&[&sc, &sb, &sa]), None, 0), offer(0, c));
    let refused = sc.clone().refused();
    assert_eq!(turn(&thread, &made(&[&sa, &sb, &refused]), None, 0), offer(0, a));
    // One that waits does not hold the others up, busy or not.
    let busy = sb.busy();
    assert_eq!(turn(&thread, &made(&[&busy, &sa]), None, 0), offer(1, a));
    let none = turn(&thread, &made(&[&busy, &sa.refused()]), None, 0);
    assert_eq!(none, Next::Wait(None));
}

#[test]
fn g5_nothing_is_offered_or_started_above_a_recorded_call_that_was_not_made() {
    let mut thread = Thread::new();
    let a = thread.open("a", &terms(Policy::Idempotent));
    let done = thread.put(thread.done(a));
    let b = thread.open("b", &terms(Policy::Idempotent));
    let not_made = |next: Next, call: &str, at: Position, instead: Instead| match next {
        Next::Diverged(d) => {
            assert_eq!((&*d.call, d.at, d.kind), (call, at, DivergenceKind::NotMade { instead }));
        }
        other => panic!("{other:?}"),
    };
    let behind = |call: &str| Instead::Behind(call.to_owned());
    // `b` lies above the outcome of `a`: it may come later.
    assert_eq!(turn(&thread, &[step("a")], Some(b), 0), offer(0, done));
    not_made(turn(&thread, &[], Some(b), 0), "b#0", b, Instead::Nothing);
    not_made(turn(&thread, &[step("new")], Some(b), 0), "b#0", b, Instead::New("new#0".to_owned()));
    let waits = [made(CallKind::Signal, "s")];
    not_made(turn(&thread, &waits, Some(b), 0), "b#0", b, Instead::New("signal s#0".to_owned()));
    let other = thread.open("other", &terms(Policy::Idempotent));
    let done = thread.put(thread.done(other));
    not_made(turn(&thread, &[step("other")], Some(b), 0), "b#0", b, behind("other#0"));
    not_made(turn(&thread, &[step("other")], Some(a), 0), "a#0", a, behind("other#0"));
    assert_eq!(turn(&thread, &[step("other")], Some(done + 1), 0), offer(0, done));
}

#[test]
fn new_calls_open_only_at_quiescence_and_all_at_once() {
    let mut thread = Thread::new();
    let a = thread.open("a", &terms(Policy::Idempotent));
    let made = [
        step("a").busy(),
        step("b"),
        made(CallKind::Timer, "t"),
        made(CallKind::Approval, "q"),
        made(CallKind::Clock, "now"),
        made(CallKind::Signal, "s"),
        step("not asked").refused(),
    ];
    let acts = Next::Act(vec![
        Act::Start { call: 1, attempt: 1 },
        Act::Open(2),
        Act::Open(3),
        Act::Open(4),
    ]);
    assert_eq!(turn(&thread, &made, None, 0), acts);
    let done = thread.put(thread.done(a));
    assert_eq!(turn(&thread, &made, None, 0), offer(0, done));
}

#[test]
fn twins_by_arguments_share_one_execution_and_one_outcome() {
    let mut thread = Thread::new();
    let twin = || {
        let identity = Identity::Key("k".into());
        Made { id: StepId::scoped(Name::new("a").unwrap(), identity), ..step("a") }
    };
    assert_eq!(turn(&thread, &[twin(), twin()], None, 0), start(0, 1));
    // One that nobody polls does not keep the other from running.
    assert_eq!(turn(&thread, &[twin().refused(), twin()], None, 0), start(1, 1));
    let open = thread.opening("a", &terms(Policy::Idempotent)).with(|h| {
        let place = h.place.as_mut().unwrap();
        place.kind = crate::id::IdentityKind::Key;
        place.business_key = Some("k".into());
    });
    let call = thread.put(open);
    assert_eq!(turn(&thread, &[twin().busy(), twin()], None, 0), Next::Wait(None));
    assert_eq!(turn(&thread, &[twin(), twin().busy()], None, 0), Next::Wait(None));
    let done = thread.put(thread.done(call));
    assert_eq!(turn(&thread, &[twin(), twin()], None, 0), offer(0, done));
    assert_eq!(turn(&thread, &[twin().refused(), twin()], None, 0), offer(1, done));
}

#[test]
fn a_signal_name_is_a_queue() {
    let mut thread = Thread::new();
    let wait = || made(CallKind::Signal, "s");
    let parked =
        |n: usize| Next::Park { until: None, first: Blocked::Signal("s".into()), more: n - 1 };
    assert_eq!(turn(&thread, &[wait(), wait()], None, 0), parked(2));
    let first = thread.put(thread.signal("s", 1));
    let second = thread.put(thread.signal("s", 2));
    thread.put(thread.signal("other", 3));
    // The k-th wait gets the k-th message, one at a time.
    assert_eq!(turn(&thread, &[wait(), wait()], None, 0), offer(0, first));
    assert_eq!(turn(&thread, &[wait()], None, 1), offer(0, second));
    assert_eq!(turn(&thread, &[wait()], None, 2), parked(1));
    // A wait that is not being awaited does not keep the message from one that is.
    assert_eq!(turn(&thread, &[wait().refused(), wait()], None, 0), offer(1, first));
    assert_eq!(turn(&thread, &[wait().refused()], None, 0), Next::Stalled);
    // Positions order signals and outcomes alike.
    let a = thread.open("a", &terms(Policy::Idempotent));
    let done = thread.put(thread.done(a));
    assert_eq!(turn(&thread, &[step("a"), wait()], None, 0), offer(1, first));
    assert_eq!(turn(&thread, &[step("a"), wait()], None, 2), offer(0, done));
}

#[test]
fn g12_timers_fire_when_due_and_not_before() {
    let mut thread = Thread::new();
    let timer = thread.put(thread.timer("t", 150));
    let nap = || made(CallKind::Timer, "t");
    let waits =
        Next::Park { until: Some(at(150)), first: Blocked::Timer(id("t"), at(150)), more: 0 };
    for now in [100, 149] {
        thread.now = now;
        assert_eq!(turn(&thread, &[nap()], None, 0), waits);
        assert_eq!(turn(&thread, &[nap(), step("x").busy()], None, 0), Next::Wait(Some(at(150))));
    }
    thread.now = 150;
    assert_eq!(turn(&thread, &[nap()], None, 0), Next::Act(vec![Act::Fire(0)]));
    let fired = thread.put(thread.about(Kind::TimerFired, timer));
    assert_eq!(turn(&thread, &[nap()], None, 0), offer(0, fired));
}

#[test]
fn steps_after_a_crash_start_probe_wait_or_park_by_their_policies() {
    let mut thread = Thread::new();
    let policies = [Policy::Read, Policy::Reconcile, Policy::AtMostOnce];
    let names = ["r", "c", "m"];
    for (name, policy) in names.iter().zip(policies) {
        thread.open(name, &terms(policy));
    }
    thread.crash();
    let made = names.map(step);
    assert_eq!(turn(&thread, &made, None, 0), start(0, 2));
    let waits =
        Next::Park { until: Some(at(170)), first: Blocked::Doubt(id("m"), Doubt::Crash), more: 1 };
    assert_eq!(turn(&thread, &made[1..], None, 0), waits);
    thread.now = 170;
    assert_eq!(turn(&thread, &made[1..], None, 0), Next::Act(vec![Act::Probe(0)]));
    let probing = [made[1].clone().busy(), made[2].clone()];
    assert_eq!(turn(&thread, &probing, None, 0), Next::Wait(None));
}

#[test]
fn a_workflow_that_waits_for_nothing_known_is_stalled() {
    let thread = Thread::new();
    assert_eq!(turn(&thread, &[], None, 0), Next::Stalled);
    assert_eq!(turn(&thread, &[step("a").refused()], None, 0), Next::Stalled);
    assert_eq!(turn(&thread, &[step("a").refused().busy()], None, 0), Next::Wait(None));
}

#[test]
fn a_changed_identity_diverges_at_quiescence_too() {
    let mut thread = Thread::new();
    thread.open("a", &terms(Policy::Idempotent));
    let by_key = StepId::scoped(Name::new("a").unwrap(), Identity::Key("k".into()));
    let made = Made { id: by_key, ..step("a") };
    assert!(matches!(turn(&thread, &[made], None, 0), Next::Diverged(_)));
}

/// A thread with steps of every policy, timers, approvals and signals, some of them settled.
fn random_thread(acts: &[(u8, u8)]) -> Thread {
    let mut thread = Thread::new();
    let policies = [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce];
    for (act, which) in acts {
        let name = ["a", "b", "c", "d"][usize::from(which % 4)];
        let call = |t: &Thread, kind| {
            let call = t.history.find(kind, &format!("{name}#0"));
            call.map_or(99, |c| c.opened)
        };
        let now = thread.now;
        let draft = match act % 10 {
            0 | 1 => thread.opening(name, &terms(policies[usize::from(which % 4)])),
            2 => thread.done(call(&thread, CallKind::Step)),
            3 => thread.again(call(&thread, CallKind::Step)),
            4 => thread.unknown(call(&thread, CallKind::Step), "timeout", Some(now + 20)),
            5 => thread.timer(name, now + u64::from(*which)),
            6 => thread.about(Kind::TimerFired, call(&thread, CallKind::Timer)),
            7 => thread.signal("s", u32::from(*which)),
            8 => thread.approval(name),
            _ => {
                thread.crash();
                continue;
            }
        };
        // What does not fit is left out.
        let _ = thread.attempt(draft);
        thread.now += u64::from(which % 32);
    }
    thread
}

fn random_call() -> impl Strategy<Value = Made> {
    let kinds = vec![
        CallKind::Step,
        CallKind::Step,
        CallKind::Timer,
        CallKind::Approval,
        CallKind::Clock,
        CallKind::Signal,
    ];
    let names = vec!["a", "b", "c", "d", "s"];
    (prop::sample::select(kinds), prop::sample::select(names), any::<(bool, bool)>()).prop_map(
        |(kind, name, (asked, busy))| Made {
            asked,
            busy: busy && kind == CallKind::Step,
            ..made(kind, name)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn next_is_total_and_keeps_its_rules(
        acts in prop::collection::vec(any::<(u8, u8)>(), 0..30),
        made in prop::collection::vec(random_call(), 0..8),
        unmade in prop::option::of(0usize..8),
        delivered in 0usize..3,
    ) {
        let thread = random_thread(&acts);
        let calls = thread.history.calls();
        let unmade = unmade.and_then(|n| calls.get(n)).map(|c| c.opened);
        let recorded = |m: &Made| calls.iter().find(|c| c.kind == m.kind && c.id == m.id);
        let outcome = |m: &Made| match m.kind {
            CallKind::Signal if m.id.name.as_str() == "s" => {
                thread.history.signals("s").get(delivered).map(|s| s.position)
            }
            CallKind::Signal => None,
            _ => recorded(m).and_then(|c| c.outcome.as_ref()).map(|o| o.position),
        };
        let offered = made.iter().filter(|m| m.asked).filter_map(outcome).min();
        let now = at(thread.now);
        match turn(&thread, &made, unmade, delivered) {
            Next::Offer { call, position } => {
                prop_assert_eq!(Some(position), offered);
                let call = &made[usize::try_from(call).unwrap()];
                prop_assert!(call.asked);
                prop_assert_eq!(outcome(call), offered);
                prop_assert!(unmade.is_none_or(|u| u > position), "a recorded call is missing");
            }
            Next::Diverged(divergence) => {
                prop_assert_eq!(Some(divergence.at), unmade);
                prop_assert!(offered.is_none_or(|p| p > divergence.at));
            }
            Next::Act(acts) => {
                prop_assert!(offered.is_none() && unmade.is_none());
                let mut about = HashSet::new();
                for act in &acts {
                    let call = &made[usize::try_from(act.call()).unwrap()];
                    prop_assert!(call.asked && !call.busy);
                    prop_assert!(about.insert((call.kind, call.id.clone())), "twice");
                    let due = recorded(call).and_then(|c| c.due);
                    match act {
                        Act::Fire(_) => prop_assert!(due.unwrap() <= now),
                        Act::Open(_) => prop_assert!(recorded(call).is_none()),
                        Act::Start { attempt, .. } => {
                            let last = recorded(call).and_then(|c| c.attempts.last());
                            prop_assert_eq!(*attempt, last.map_or(0, |a| a.number) + 1);
                        }
                        Act::Probe(_) => {
                            let policy = recorded(call).unwrap().terms.unwrap().policy;
                            prop_assert_eq!(policy, Policy::Reconcile);
                        }
                    }
                }
            }
            Next::Wait(until) => {
                prop_assert!(offered.is_none() && unmade.is_none());
                prop_assert!(made.iter().any(|m| m.busy));
                prop_assert!(until.is_none_or(|u| u > now));
            }
            Next::Park { until, more, .. } => {
                prop_assert!(!made.iter().any(|m| m.busy));
                prop_assert!(more < made.iter().filter(|m| m.asked).count());
                prop_assert!(until.is_none_or(|u| u > now));
            }
            Next::Stalled => prop_assert!(!made.iter().any(|m| m.busy)),
        }
    }
}
