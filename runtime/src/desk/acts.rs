//! The executor's side: what is live, what is offered, and what acts append.

use std::time::Duration;

use deedbook_journal::{
    history::{self, Answer, CallKind},
    id::{Identity, Position, StoreTime, ThreadId},
    key::{KeyIdentity, KeyScope, Namespace, OperationKey},
    policy,
    record::{Kind, Place, Role},
    turn::{Act, Blocked, Next, Sorted, View, Waits},
};

use super::{Call, Desk, Work, wake};
use crate::{
    operation::Operation,
    planted::{Broken, planted},
};

impl Desk {
    /// Decides what the thread does next.
    pub(crate) fn next(&mut self) -> Next {
        let next = self.calls.next(&View {
            history: &self.history,
            first_unmade: self.unmade.first(&self.history),
            delivered: &self.delivered,
            now: self.now,
        });
        self.bent(next)
    }

    /// What is decided where a rule of deciding is broken on purpose.
    fn bent(&self, next: Next) -> Next {
        let outcome = |number| self.recorded(number)?.outcome.as_ref().map(|o| o.position);
        match next {
            Next::Offer { .. } if planted(Broken::OfferLatestFirst) => {
                let asked = self.calls.iter().filter(|(number, _)| self.calls.is_asked(*number));
                let offers = asked.filter_map(|(number, _)| Some((outcome(number)?, number)));
                let latest = offers.max().map(|(position, call)| Next::Offer { call, position });
                latest.unwrap_or(next)
            }
            Next::Park { first: Blocked::Doubt(ref id, _), .. }
                if planted(Broken::RerunInDoubt) =>
            {
                let mut live = self.calls.iter();
                let call = live.find(|(_, call)| call.id == *id && call.kind == CallKind::Step);
                let last = call.and_then(|(number, _)| Some((number, self.recorded(number)?)));
                let attempt =
                    |call: &history::Call| call.attempts.last().map_or(1, |a| a.number + 1);
                last.map_or(next, |(call, recorded)| {
                    Next::Act(vec![Act::Start { call, attempt: attempt(recorded) }])
                })
            }
            next => next,
        }
    }

    /// What a replayed step sent, to send it again: see [`Broken::RunSettledAgain`].
    pub(crate) fn sent_before(&self) -> Option<Operation> {
        let taken = self.taken.as_ref().filter(|_| planted(Broken::RunSettledAgain))?;
        let recorded = self.history.calls().get(taken.recorded?)?;
        let outcome = recorded.outcome.as_ref()?;
        let key = recorded.key.as_deref()?.parse().ok()?;
        let attempt = recorded.attempts.last()?;
        let operation =
            Operation { key, attempt: attempt.number, first_started_at: attempt.started };
        (outcome.position < self.history.live_from()).then_some(operation)
    }

    pub(crate) fn first_unmade(&self) -> Option<Position> {
        self.unmade.first(&self.history)
    }

    /// A live call, as shown.
    pub(crate) fn shown(&self, number: u64) -> Option<String> {
        self.calls.get(number).map(|call| call.id.to_string())
    }

    /// Offers a call its outcome, and wakes its future.
    pub(crate) fn offer(&mut self, number: u64) {
        let Some(call) = self.calls.get(number) else {
            return;
        };
        let answer = if call.kind == CallKind::Signal {
            let name = call.id.name.as_str();
            let next = self.delivered.get(name).copied().unwrap_or(0);
            let signal = self.history.signals(name).get(next);
            let erased = Answer::Erased { failed: false };
            signal.map(|s| (s.value.clone().map_or(erased, Answer::Value), s.position))
        } else {
            let recorded = self.recorded(number);
            recorded.and_then(|c| c.outcome.as_ref()).map(|o| (o.answer.clone(), o.position))
        };
        if let Some(call) = self.calls.get_mut(number) {
            call.offer = answer;
            wake(call);
            self.offered = Some(number);
        }
    }

    /// Withdraws the offer if it was not taken.
    pub(crate) fn withdraw(&mut self) {
        let Some(number) = self.offered.take() else {
            return;
        };
        if let Some(call) = self.calls.get_mut(number).filter(|call| call.offer.is_some()) {
            call.offer = None;
            self.calls.set_asked(number, false);
        }
    }

    /// Appends what an act needs. Says whether the batch must be waited for.
    pub(crate) fn act(&mut self, act: &Act) {
        let number = act.call();
        match act {
            Act::Open(_) => self.open(number),
            Act::Start { attempt, .. } => self.start(number, *attempt),
            Act::Probe(_) => self.probe(number),
            Act::Fire(_) => {
                let opened = self.opened(number);
                let draft = self.draft(Kind::TimerFired).with(|h| h.call = opened);
                self.append(draft);
            }
        }
    }

    pub(super) fn open(&mut self, number: u64) {
        let Some(call) = self.calls.get(number) else {
            return;
        };
        let (kind, due) = match call.kind {
            CallKind::Timer if planted(Broken::EarlyTimer) => {
                (Kind::TimerSet, Some(self.now.after(call.runs / 2)))
            }
            CallKind::Timer => (Kind::TimerSet, Some(self.now.after(call.runs))),
            CallKind::Approval => (Kind::ApprovalRequest, None),
            _ => (Kind::Clock, None),
        };
        if call.kind == CallKind::Approval {
            self.asked_people.push(Waits::Approval { request: call.id.to_string().into() });
        }
        let place = Place::of(&call.id);
        let shown = call.args.clone();
        let draft = self.draft(kind).with(|h| {
            h.place = Some(place);
            h.due = due;
        });
        let draft = match shown {
            Some(shown) => draft.payload(Role::Shown, shown),
            None => draft,
        };
        self.append_about(number, draft);
    }

    pub(super) fn start(&mut self, number: u64, attempt: u32) {
        let Some(call) = self.calls.get(number) else {
            return;
        };
        let Some(declared) = call.terms else { return };
        if call.shared {
            // Its intent is in its own thread, and to ask for it is an output: everything before
            // it is durable first.
            let needs = self.pen.next();
            let work = Work::Granted { operation: None, attempt, probe: false, needs };
            return self.grant(number, work);
        }
        let recorded = self.recorded(number);
        let terms = recorded.and_then(|c| c.terms).unwrap_or(declared);
        let opened = recorded.map(|c| c.opened);
        let first = recorded.and_then(history::Call::first_started);
        let key = match recorded.and_then(|c| c.key.clone()) {
            // The recorded key, whatever rule it was derived by.
            Some(key) => key.parse().ok(),
            None => terms.policy.has_effect().then(|| self.key_of(call)),
        };
        let place = Place::of(&call.id);
        let args = if opened.is_none() { call.args.clone() } else { None };
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let shown_key = key.as_ref().map(|k: &OperationKey| k.as_str().into());
        let mut draft = self.draft(Kind::StepIntent).with(|h| {
            h.call = opened;
            h.attempt = Some(attempt);
            h.key = shown_key;
            if opened.is_none() {
                h.place = Some(place);
                h.policy = Some(terms.policy);
                h.timeout_ms = Some(millis(terms.timeout));
                h.window_ms = terms.window.map(millis);
                let reconciles = terms.policy == policy::Policy::Reconcile;
                let early = planted(Broken::BelieveProbeEarly);
                let quiet = if early { Duration::ZERO } else { terms.quiet };
                h.quiet_ms = reconciles.then(|| millis(quiet));
                h.abandon = terms.abandon;
                h.attempts_max = Some(terms.attempts_max);
            }
        });
        if let Some(args) = args {
            draft = draft.payload(Role::Args, args);
        }
        let intent = self.append_about(number, draft);
        let first_started_at = first.unwrap_or(self.now);
        let operation = key.map(|key| Operation { key, attempt, first_started_at });
        let waits = terms.policy.has_effect() && !planted(Broken::BodyBeforeIntent);
        let needs = if waits { intent + 1 } else { 0 };
        self.grant(number, Work::Granted { operation, attempt, probe: false, needs });
    }

    pub(super) fn probe(&mut self, number: u64) {
        let Some(call) = self.calls.get(number) else {
            return;
        };
        let Some(recorded) = self.recorded(number) else {
            return;
        };
        let attempt = recorded.attempts.last().map_or(1, |a| a.number);
        let first_started_at = recorded.first_started().unwrap_or(self.now);
        let key = recorded.key.as_deref().and_then(|k| k.parse().ok());
        let key = key.unwrap_or_else(|| self.key_of(call));
        let operation = Some(Operation { key, attempt, first_started_at });
        // A probe is an output: everything before it is durable first.
        let needs = self.pen.next();
        self.grant(number, Work::Granted { operation, attempt, probe: true, needs });
    }

    pub(super) fn grant(&mut self, number: u64, work: Work) {
        let durable = self.durable;
        let ready = matches!(&work, Work::Granted { needs, .. } if durable >= *needs);
        self.set_work(number, work);
        if let Some(call) = self.calls.get(number).filter(|_| ready) {
            wake(call);
        }
    }

    /// Says what is being done about a call, and gives what was.
    pub(super) fn set_work(&mut self, number: u64, work: Work) -> Work {
        let Some(call) = self.calls.get_mut(number) else {
            return Work::Idle;
        };
        let busy = !matches!(work, Work::Idle);
        match &work {
            Work::Idle => {}
            Work::Granted { needs, .. } => self.granted.insert((*needs, number)),
            Work::Running { deadline, .. } => {
                self.deadlines.insert((*deadline, number));
                self.running += 1;
            }
        }
        let before = std::mem::replace(&mut call.work, work);
        match &before {
            Work::Idle => {}
            Work::Granted { needs, .. } => self.granted.remove(&(*needs, number)),
            Work::Running { deadline, .. } => {
                self.deadlines.remove(&(*deadline, number));
                self.running -= 1;
            }
        }
        self.calls.set_busy(number, busy);
        before
    }

    /// The call was given its outcome, or dropped.
    pub(super) fn forget(&mut self, number: u64) -> Option<Box<Call>> {
        self.set_work(number, Work::Idle);
        self.calls.remove(number)
    }

    /// More is durable: grants that waited for it may begin.
    pub(crate) fn made_durable(&mut self, durable: Position) {
        self.durable = durable;
        while let Some((_, number)) = self.granted.first().copied().filter(|(n, _)| *n <= durable) {
            self.granted.pop_first();
            if let Some(call) = self.calls.get(number) {
                wake(call);
            }
        }
    }

    /// Ends bodies whose time is over, and says when the next one's is.
    pub(crate) fn expire(&mut self) -> Option<StoreTime> {
        while let Some((deadline, number)) = self.deadlines.first().copied() {
            if deadline > self.now {
                return Some(deadline);
            }
            self.deadlines.pop_first();
            if let Some(call) = self.calls.get_mut(number) {
                if let Work::Running { expired, .. } = &mut call.work {
                    *expired = true;
                }
                wake(call);
            }
        }
        None
    }

    /// Whether a body or a probe has begun and not ended.
    pub(crate) fn running(&self) -> bool {
        self.running > 0
    }

    /// Whether a body or a probe was granted and has not ended.
    pub(crate) fn at_work(&self) -> bool {
        self.calls.is_busy()
    }

    /// Until when the thread stays loaded for a timed-out body that is still running.
    pub(crate) fn late_until(&self) -> Option<StoreTime> {
        Some(self.late_until).filter(|until| self.late > 0 && *until > self.now)
    }

    /// Wakes the futures of these calls: their bodies want to be polled.
    pub(crate) fn wake_bodies(&self, numbers: &Sorted<u64>) {
        for call in numbers.iter().filter_map(|number| self.calls.get(*number)) {
            wake(call);
        }
    }

    pub(super) fn key_of(&self, call: &Call) -> OperationKey {
        let anywhere = planted(Broken::KeyWithoutNamespace);
        let namespace = Namespace(if anywhere { [0; 16] } else { self.identity.namespace });
        let nobody = planted(Broken::KeyWithoutScope).then(ThreadId::system);
        let scope = KeyScope::Thread(nobody.as_ref().unwrap_or_else(|| self.history.thread()));
        let id = &call.id;
        let identity = match &id.identity {
            Identity::Positional { occurrence } => KeyIdentity::Positional {
                episode: id.episode,
                branch: &id.branch,
                occurrence: *occurrence,
            },
            Identity::Arguments { occurrence, .. } => KeyIdentity::Arguments {
                canonical: call.canonical.as_deref().unwrap_or_default(),
                occurrence: *occurrence,
            },
            Identity::Key(key) => KeyIdentity::Key(key),
        };
        OperationKey::derive(&namespace, scope, id.name.as_str(), identity, 0)
    }
}
