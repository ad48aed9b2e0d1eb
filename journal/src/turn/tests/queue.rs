//! A queue that is told of everything that happens decides as a new one does.

use std::cell::Cell;

use super::*;
use crate::policy::Terms;

impl super::super::Made for Made {
    fn declared(&self) -> Declared<'_> {
        let terms = self.terms.as_ref();
        Declared { kind: self.kind, id: &self.id, terms, args: None, redact: &[] }
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
    queue: Queue<Made>,
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
                let made = Made { asked: false, busy: false, ..made.clone() };
                let recorded = self.thread.history.number(made.kind, &made.id);
                self.queue.make(self.made, made.clone(), recorded);
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
                self.queue.signalled("s");
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
        let Ok(n) = self.thread.attempt(draft) else { return };
        let history = &self.thread.history;
        let Some(recorded) = history.number_at(about.unwrap_or(n)) else { return };
        let opened = &history.calls()[recorded];
        let live = |made: &Made| made.kind == opened.kind && made.id == opened.id;
        match self.live.iter().find(|(_, made)| about.is_none() && live(made)) {
            Some((number, _)) => self.queue.opened(*number, recorded),
            None => self.queue.written(recorded),
        }
    }

    /// What the queue decides, and what is decided for the same calls without its past.
    fn both(&mut self) -> (Next, Next) {
        let delivered = HashMap::from([("s".into(), self.delivered)]);
        let view = View {
            history: &self.thread.history,
            first_unmade: None,
            delivered: &delivered,
            now: at(self.thread.now),
        };
        let mut fresh = Queue::new(self.thread.history.keyed());
        for (number, made) in &self.live {
            let recorded = self.thread.history.number(made.kind, &made.id);
            fresh.make(*number, made.clone(), recorded);
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
    /// A step that counts how often it is looked at.
    struct Seen<'a>(StepId, Terms, &'a Cell<usize>);

    impl super::super::Made for Seen<'_> {
        fn declared(&self) -> Declared<'_> {
            let Self(id, terms, looks) = self;
            looks.set(looks.get() + 1);
            let kind = CallKind::Step;
            Declared { kind, id, terms: Some(terms), args: None, redact: &[] }
        }
    }

    let mut thread = Thread::new();
    let looks = Cell::new(0);
    let ids: Vec<StepId> = (0..1000).map(|n| id(&format!("s{n}"))).collect();
    let terms = terms(Policy::Idempotent);
    let mut queue = Queue::new(thread.history.keyed());
    for (number, id) in (0..).zip(&ids) {
        queue.make(number, Seen(id.clone(), terms, &looks), None);
        queue.set_asked(number, true);
    }
    let decide = |queue: &mut Queue<Seen<'_>>, thread: &Thread| {
        looks.set(0);
        queue.next(&View {
            history: &thread.history,
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
            queue.opened(number, thread.history.number_at(opened).unwrap());
            queue.set_busy(number, true);
            opened
        })
        .collect();
    assert_eq!(decide(&mut queue, &thread), Next::Wait(None));
    for (number, call) in (0..).zip(&opened).skip(500).take(3) {
        let position = thread.put(thread.done(*call));
        queue.written(thread.history.number_at(*call).unwrap());
        queue.set_busy(number, false);
        assert_eq!(decide(&mut queue, &thread), offer(number, position));
        assert_eq!(looks.get(), 1);
        queue.remove(number);
        assert_eq!(decide(&mut queue, &thread), Next::Wait(None));
        assert_eq!(looks.get(), 0);
    }
}
