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

#[test]
fn the_status_says_first_what_needs_a_person_most_and_then_what_comes_first() {
    let signal = Blocked::Signal("s".into());
    let approval = Blocked::Approval(id("q"));
    let late = Blocked::Timer(id("t"), at(200));
    let soon = Blocked::Retry(id("r"), at(150));
    let quiet = Blocked::Quiet(id("c"), at(160));
    let doubt = Blocked::Doubt(id("m"), Doubt::Crash);
    let all = [late, quiet, soon, signal, approval, doubt];
    let wanted = [
        (Status::Sleeping, "timer t#0"),
        (Status::Sleeping, "the probe of step c#0"),
        (Status::Sleeping, "next attempt of step r#0"),
        (Status::Waiting, "signal s"),
        (Status::Waiting, "approval q#0"),
        (Status::InDoubt, "step m#0: the process died while the body ran"),
    ];
    for (n, (status, words)) in wanted.into_iter().enumerate() {
        let (found, detail) = Blocked::status(&all[..=n]);
        assert_eq!(found, status, "{n}");
        assert!(detail.starts_with(words), "{detail}");
        assert_eq!(detail.contains("more)"), n > 0);
        let mut turned = all[..=n].to_vec();
        turned.reverse();
        assert_eq!(Blocked::status(&turned), (found, detail));
    }
    assert_eq!(Blocked::status(&[]), (Status::Running, String::new()));
}

fn row_of(blocked: &[Blocked]) -> crate::row::Row {
    let (status, detail) = Blocked::status(blocked);
    let times = blocked.iter().filter_map(|b| match b {
        Blocked::Timer(_, at) | Blocked::Retry(_, at) | Blocked::Quiet(_, at) => Some(*at),
        _ => None,
    });
    crate::row::Row {
        workflow: "w".into(),
        status,
        since: at(1),
        wake_at: times.min(),
        detail: Some(detail.into()),
        open_doubts: 0,
        created_at: at(1),
    }
}

/// Names that look like what is written around them.
fn name() -> impl Strategy<Value = String> {
    let parts = [
        "a",
        "pay",
        " (and 3 more)",
        " until ",
        " at ",
        ": ",
        "step ",
        "signal ",
        "approval ",
        "the body panicked",
        "(",
        ")",
        " ",
        "#0",
        ": what a person said to have happened is no value of the type that the code expects (",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 1..5).prop_map(|p| p.concat())
}

proptest! {
    #[test]
    fn what_a_row_says_in_words_is_read_back(
        names in prop::collection::vec((name(), 0..7u8, 100..200u64), 1..4),
    ) {
        let blocked: Vec<Blocked> = names
            .iter()
            .map(|(name, kind, secs)| match kind {
                0 => Blocked::Signal(name.as_str().into()),
                1 => Blocked::Approval(id(name)),
                2 => Blocked::Timer(id(name), at(*secs)),
                3 => Blocked::Retry(id(name), at(*secs)),
                4 => Blocked::Quiet(id(name), at(*secs)),
                5 => Blocked::Doubt(id(name), Doubt::Panic),
                // Ids that hold the very sentence are beyond what can be told apart.
                _ => Blocked::Misread(id("pay"), name.as_str().into()),
            })
            .collect();
        let shown = |id: &StepId| Arc::<str>::from(id.to_string());
        let row = row_of(&blocked);
        let waits = row.waits_for().expect("it waits");
        let found = blocked.iter().any(|b| waits == match b {
            Blocked::Signal(name) => Waits::Signal { name: name.clone() },
            Blocked::Approval(id) => Waits::Approval { request: shown(id) },
            Blocked::Timer(id, until) => Waits::Timer { timer: shown(id), until: *until },
            Blocked::Retry(id, at) => Waits::Retry { step: shown(id), at: *at },
            Blocked::Quiet(id, at) => Waits::Probe { step: shown(id), at: *at },
            Blocked::Doubt(id, doubt) => Waits::Doubt { step: shown(id), doubt: *doubt },
            Blocked::Misread(id, _) => {
                Waits::Doubt { step: shown(id), doubt: Doubt::Unreadable }
            }
        });
        prop_assert!(found, "{waits:?} in {row:?}");
    }
}

#[test]
fn a_row_that_waits_for_nothing_says_so() {
    let row = row_of(&[Blocked::Signal("s".into())]);
    for status in Status::ALL {
        let waits = crate::row::Row { status, ..row.clone() }.waits_for();
        assert_eq!(waits.is_some(), status == Status::Waiting, "{status}");
    }
    assert_eq!(crate::row::Row { detail: None, ..row }.waits_for(), None);
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

/// Something that happens to a thread or to one of its live calls.
#[derive(Debug, Clone)]
enum Happens {
    Made(Made),
    Asked(usize),
    Refused(usize),
    Busy(usize),
    Idle(usize),
    Gone(usize),
    /// A record, as [`random_thread`] makes it.
    Written(u8, u8),
    Signalled(u32),
    Delivered,
    Passed(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    // Some calls are twins by a key.
    let made = (random_call(), any::<bool>()).prop_map(|(made, twin)| {
        let key = Identity::Key("k".into());
        match made.kind {
            CallKind::Step if twin => {
                let id = StepId::scoped(Name::new("twin").unwrap(), key);
                Happens::Made(Made { id, ..made })
            }
            _ => Happens::Made(made),
        }
    });
    prop_oneof![
        3 => made,
        3 => (0usize..8).prop_map(Happens::Asked),
        1 => (0usize..8).prop_map(Happens::Refused),
        1 => (0usize..8).prop_map(Happens::Busy),
        1 => (0usize..8).prop_map(Happens::Idle),
        1 => (0usize..8).prop_map(Happens::Gone),
        4 => any::<(u8, u8)>().prop_map(|(act, which)| Happens::Written(act, which)),
        1 => any::<u32>().prop_map(Happens::Signalled),
        1 => Just(Happens::Delivered),
        1 => (0u64..60).prop_map(Happens::Passed),
    ]
}

/// A thread, its live calls, and a queue that is told of everything that happens.
struct Followed {
    thread: Thread,
    live: BTreeMap<u64, Made>,
    made: u64,
    delivered: usize,
    queue: Queue,
}

impl Followed {
    fn nth(&self, nth: usize) -> Option<u64> {
        self.live.keys().nth(nth).copied()
    }

    fn happens(&mut self, what: &Happens) {
        match what {
            Happens::Made(made) => {
                // Of ids by position only one call is live.
                let scoped = matches!(made.id.identity, Identity::Key(_));
                let live = |m: &Made| m.kind == made.kind && m.id == made.id;
                if !scoped && made.kind != CallKind::Signal && self.live.values().any(live) {
                    return;
                }
                self.queue.make(self.made, made.kind, &made.id);
                let made = Made { asked: false, busy: false, ..made.clone() };
                self.live.insert(self.made, made);
                self.made += 1;
            }
            Happens::Asked(nth) => self.set(*nth, |m| m.asked = true),
            Happens::Refused(nth) => self.set(*nth, |m| m.asked = false),
            Happens::Busy(nth) => self.set(*nth, |m| m.busy = m.kind == CallKind::Step),
            Happens::Idle(nth) => self.set(*nth, |m| m.busy = false),
            Happens::Gone(nth) => {
                if let Some(number) = self.nth(*nth) {
                    self.live.remove(&number);
                    self.queue.remove(number);
                }
            }
            Happens::Written(act, which) => self.write(*act, *which),
            Happens::Signalled(value) => {
                self.thread.put(self.thread.signal("s", *value));
                self.queue.signalled(&"s".into());
            }
            Happens::Delivered => {
                // A delivery takes the wait that it was for with it.
                let mut waits = self.live.iter().filter(|(_, m)| m.kind == CallKind::Signal);
                let number = waits.find(|(_, m)| m.asked && m.id.name.as_str() == "s");
                let number = number.map(|(number, _)| *number);
                let there = self.thread.history.signals("s").len() > self.delivered;
                if let (Some(number), true) = (number, there) {
                    self.delivered += 1;
                    self.live.remove(&number);
                    self.queue.remove(number);
                }
            }
            Happens::Passed(secs) => self.thread.now += secs,
        }
    }

    fn set(&mut self, nth: usize, set: impl FnOnce(&mut Made)) {
        if let Some(number) = self.nth(nth)
            && let Some(made) = self.live.get_mut(&number)
        {
            set(made);
            self.queue.set_asked(number, made.asked);
            self.queue.set_busy(number, made.busy);
        }
    }

    fn write(&mut self, act: u8, which: u8) {
        let name = ["a", "b", "c", "d"][usize::from(which % 4)];
        let policies = [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce];
        let thread = &self.thread;
        let call = |kind| {
            let call = thread.history.find(kind, &format!("{name}#0"));
            call.map_or(99, |c| c.opened)
        };
        let draft = match act % 9 {
            0 => thread.opening(name, &terms(policies[usize::from(which % 4)])),
            1 => thread.opening("twin", &terms(Policy::Idempotent)).with(|h| {
                let place = h.place.as_mut().unwrap();
                place.kind = crate::id::IdentityKind::Key;
                place.business_key = Some("k".into());
            }),
            2 => thread.done(call(CallKind::Step)),
            3 => {
                thread.done(thread.history.find(CallKind::Step, "twin=k").map_or(99, |c| c.opened))
            }
            4 => thread.again(call(CallKind::Step)),
            5 => thread.unknown(call(CallKind::Step), "timeout", Some(thread.now + 20)),
            6 => thread.timer(name, thread.now + u64::from(which)),
            7 => thread.about(Kind::TimerFired, call(CallKind::Timer)),
            _ => thread.approval(name),
        };
        let about = draft.header.call;
        if let Ok(n) = self.thread.attempt(draft)
            && let Some(call) = self.thread.history.opened_at(about.unwrap_or(n))
        {
            self.queue.recorded(call.kind, &call.id);
        }
    }

    /// What the queue decides, and what is decided for the same calls without its past.
    fn both(&mut self) -> (Next, Next) {
        let declared = |made: &Made| (made.kind, made.id.clone(), made.terms);
        let calls: BTreeMap<u64, _> =
            self.live.iter().map(|(number, made)| (*number, declared(made))).collect();
        let look = |number: u64| {
            let (kind, id, terms) = calls.get(&number)?;
            Some(Declared { kind: *kind, id, terms: terms.as_ref(), args: None, redact: &[] })
        };
        let delivered = HashMap::from([("s".into(), self.delivered)]);
        let view = View {
            history: &self.thread.history,
            declared: &look,
            first_unmade: None,
            delivered: &delivered,
            now: at(self.thread.now),
        };
        let mut fresh = Queue::new(self.thread.history.keyed());
        for (number, made) in &self.live {
            fresh.make(*number, made.kind, &made.id);
            fresh.set_busy(*number, made.busy);
            fresh.set_asked(*number, made.asked);
        }
        (self.queue.next(&view), fresh.next(&view))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_queue_that_followed_everything_decides_as_one_that_is_new(
        what in prop::collection::vec((happens(), any::<bool>()), 0..60),
    ) {
        let thread = Thread::new();
        let queue = Queue::new(thread.history.keyed());
        let mut followed = Followed { thread, live: BTreeMap::new(), made: 0, delivered: 0, queue };
        for (what, decides) in &what {
            followed.happens(what);
            if *decides {
                let (queue, fresh) = followed.both();
                prop_assert_eq!(queue, fresh, "after {:?}", what);
            }
        }
        let (queue, fresh) = followed.both();
        prop_assert_eq!(queue, fresh);
    }
}

#[test]
fn a_turn_looks_at_what_has_changed_and_not_at_every_live_call() {
    let mut thread = Thread::new();
    let ids: Vec<StepId> = (0..1000).map(|n| id(&format!("s{n}"))).collect();
    let terms = terms(Policy::Idempotent);
    let mut queue = Queue::new(thread.history.keyed());
    for (number, id) in (0..).zip(&ids) {
        queue.make(number, CallKind::Step, id);
        queue.set_asked(number, true);
    }
    let looks = std::cell::Cell::new(0);
    let decide = |queue: &mut Queue, thread: &Thread| {
        looks.set(0);
        let declared = |number: u64| {
            looks.set(looks.get() + 1);
            let id = ids.get(usize::try_from(number).unwrap())?;
            let kind = CallKind::Step;
            Some(Declared { kind, id, terms: Some(&terms), args: None, redact: &[] })
        };
        queue.next(&View {
            history: &thread.history,
            declared: &declared,
            first_unmade: None,
            delivered: &HashMap::new(),
            now: at(thread.now),
        })
    };
    let Next::Act(acts) = decide(&mut queue, &thread) else { panic!("all of them are new") };
    assert_eq!((acts.len(), looks.get()), (1000, 1000));
    let opened: Vec<Position> = (0..)
        .zip(&ids)
        .map(|(number, id)| {
            let opened = thread.open(id.name.as_str(), &terms);
            queue.recorded(CallKind::Step, id);
            queue.set_busy(number, true);
            opened
        })
        .collect();
    assert_eq!(decide(&mut queue, &thread), Next::Wait(None));
    for (number, call) in (0..).zip(&opened).skip(500).take(3) {
        let position = thread.put(thread.done(*call));
        queue.recorded(CallKind::Step, &ids[usize::try_from(number).unwrap()]);
        queue.set_busy(number, false);
        assert_eq!(decide(&mut queue, &thread), offer(number, position));
        assert_eq!(looks.get(), 1);
        queue.remove(number);
        assert_eq!(decide(&mut queue, &thread), Next::Wait(None));
        assert_eq!(looks.get(), 0);
    }
}
