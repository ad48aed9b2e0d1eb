//! The code's side: making calls, and asking for their outcomes.

use std::{task::Waker, time::Duration};

use deedbook_journal::{
    failure::Failure,
    history::{AttemptEnd, CallKind, Declared, Divergence, DivergenceKind, Doubt, diverged},
    id::{Branch, Identity, Name, Position, StepId},
    policy::{
        Policy::{AtMostOnce, Reconcile},
        Terms,
    },
    record::{Kind, Role},
    value,
};

use super::{Call, Desk, Identify, Making, Taken, Told, Trouble, Work, os_thread};
use crate::{
    planted::{Broken, planted},
    replay::OtherPolicy,
};

/// How much is kept of the reason why a value cannot be read: it may quote the value.
const MISREAD_CHARS_MAX: usize = 300;

impl Desk {
    /// Whether this is inside a poll of the workflow's future, and not in a task beside it.
    pub(super) fn polled_here(&self) -> bool {
        self.polling == Some(os_thread())
    }

    /// Whether the workflow's own code may speak now: not a body, for bodies are not replayed;
    /// not a task that the workflow spawned, for its pace is not replayed either.
    pub(super) fn may_speak(&mut self, what: impl FnOnce() -> String) -> bool {
        if self.torn_down || self.trouble.is_some() {
            return false;
        }
        let why = if !self.polled_here() {
            format!(
                "{} was made outside the workflow's own future (a spawned task?); make it in the \
                 workflow",
                what()
            )
        } else if let Some(body) = &self.in_body {
            format!(
                "the body of {body} made {}; a body is one effect: make the call in the workflow, \
                 before or after the step",
                what()
            )
        } else {
            return true;
        };
        self.trouble(Trouble::Misused(why));
        false
    }

    /// Makes a call: claims its identity and compares it with the records. `None` if the run
    /// cannot go on; the future of the call then never resolves.
    pub(crate) fn make(&mut self, making: Making) -> Option<u64> {
        let name = &making.name;
        if !self.may_speak(|| format!("the durable call {name:?}")) {
            return None;
        }
        let id = self.identify(&making)?;
        self.turn.made.get_or_insert_with(|| id.clone());
        let declared = Declared {
            kind: making.kind,
            id: &id,
            terms: making.terms.as_ref(),
            args: making.args.as_deref().filter(|_| !planted(Broken::IgnoreArguments)),
            redact: &making.redact,
        };
        let recorded = self.recorded_as(making.kind, &id);
        if let Some(divergence) = diverged(&self.history, &declared, recorded) {
            self.trouble(Trouble::Diverged(divergence));
            return None;
        }
        if let Some(recorded) = recorded {
            self.unmade.made(recorded);
            self.compare_policy(recorded, making.terms.as_ref());
        }
        let number = self.made;
        self.made += 1;
        let canonical = match making.identity {
            Identify::Arguments { canonical, .. } => Some(canonical),
            Identify::Positional | Identify::Key(_) => None,
        };
        let call = Call {
            kind: making.kind,
            id,
            terms: making.terms,
            retry: making.retry,
            args: making.args.filter(|_| recorded.is_none()),
            canonical,
            runs: making.runs,
            shared: making.shared,
            waker: None,
            offer: None,
            work: Work::Idle,
        };
        self.calls.make(number, Box::new(call), recorded);
        Some(number)
    }

    /// The number of a call among the recorded ones. Most code makes its calls in the order of
    /// the records.
    fn recorded_as(&self, kind: CallKind, id: &StepId) -> Option<usize> {
        let is = |next: &usize| {
            let call = self.history.calls().get(*next);
            call.is_some_and(|call| call.kind == kind && call.id == *id)
        };
        self.unmade.next().filter(is).or_else(|| self.history.number(kind, id))
    }

    /// Notes a policy that is another one than recorded, where somebody asks: it is no divergence.
    fn compare_policy(&mut self, recorded: usize, now: Option<&Terms>) {
        let (Some(others), Some(call)) =
            (self.other_policies.as_mut(), self.history.calls().get(recorded))
        else {
            return;
        };
        if let (Some(recorded), Some(now)) = (call.terms.as_ref().map(|t| t.policy), now)
            && recorded != now.policy
        {
            let (call, at) = (call.id.to_string(), call.opened);
            others.push(OtherPolicy { call, at, recorded, now: now.policy });
        }
    }

    pub(super) fn identify(&mut self, making: &Making) -> Option<StepId> {
        let name = making.name.clone();
        match &making.identity {
            Identify::Key(key) => match Identity::key(key) {
                Ok(identity) => Some(StepId::scoped(name, identity)),
                Err(error) => {
                    self.trouble(Trouble::Misused(format!("step {name:?}: {error}")));
                    None
                }
            },
            Identify::Arguments { canonical, occurrence } => {
                let fingerprint = value::Fingerprint::of(&self.identity.secret, canonical);
                let identity = Identity::Arguments { fingerprint, occurrence: *occurrence };
                Some(StepId::scoped(name, identity))
            }
            Identify::Positional => self.next_occurrence(making.kind, &making.branch, name),
        }
    }

    pub(super) fn next_occurrence(
        &mut self,
        kind: CallKind,
        branch: &Branch,
        name: Name,
    ) -> Option<StepId> {
        let place = (kind, branch.clone(), name.clone());
        let called = self.occurrences.entry(place).or_insert((0, u64::MAX));
        let (occurrence, last) = *called;
        if let Some(twin) = self.calls.get(last).filter(|_| kind != CallKind::Signal) {
            let why = format!(
                "{} {name:?} is called again while {} is undelivered, so the two could swap their \
                 outcomes; tell them apart with `.id(\"order-7\")`, or give each its own \
                 `ctx.branch(\"left\")`",
                kind.as_str(),
                twin.id,
            );
            self.trouble(Trouble::Misused(why));
            return None;
        }
        // The call gets this number at once.
        *called = (occurrence + u32::from(!planted(Broken::ReuseOccurrence)), self.made);
        let episode = self.history.episode();
        Some(StepId::positional(episode, branch.clone(), name, occurrence))
    }

    /// A future of the call is polled.
    pub(crate) fn ask(&mut self, number: u64, waker: &Waker) -> Told {
        let (durable, cancelled) = (self.durable, self.cancelled());
        if !self.polled_here() {
            let call = self.shown(number);
            self.may_speak(|| format!("a poll of {}", call.unwrap_or_default()));
            return Told::Wait;
        }
        self.calls.set_asked(number, true);
        let Some(call) = self.calls.get_mut(number) else {
            return Told::Wait;
        };
        match &mut call.waker {
            Some(known) => known.clone_from(waker),
            None => call.waker = Some(waker.clone()),
        }
        if let Some((answer, position)) = call.offer.take() {
            tracing::debug!(
                thread = %self.history.thread(),
                step = %call.id,
                position,
                replayed = position < self.history.live_from(),
                durable = position < durable,
                "outcome delivered",
            );
            if call.kind == CallKind::Signal && !planted(Broken::StickySignal) {
                *self.delivered.entry(call.id.name.as_str().into()).or_insert(0) += 1;
            }
            self.turn.taken = true;
            let recorded = self.calls.recorded(number);
            let call = self.forget(number);
            self.taken = call.map(|call| Taken { number, call, recorded, position });
            self.given();
            return Told::Outcome(answer);
        }
        match call.work {
            // Nothing new begins in a thread that is being cancelled.
            Work::Granted { .. } if cancelled => Told::Wait,
            Work::Granted { needs, .. } if durable >= needs => self.begin_work(number),
            Work::Running { probe, expired: true, .. } => {
                let doubtful = |t: &Terms| matches!(t.policy, AtMostOnce | Reconcile);
                Told::TimedOut { keep: !probe && call.terms.as_ref().is_some_and(doubtful) }
            }
            _ => Told::Wait,
        }
    }

    /// Everything that a granted call waited for is durable.
    pub(super) fn begin_work(&mut self, number: u64) -> Told {
        let too_late = self.too_late(number);
        let Some(call) = self.calls.get(number) else {
            return Told::Wait;
        };
        // The attempts of a step of the whole journal have their time in their own thread.
        let timeout = call.terms.filter(|_| !call.shared).map_or(Duration::MAX, |t| t.timeout);
        match self.set_work(number, Work::Idle) {
            Work::Granted { attempt, probe: false, .. } if too_late => {
                self.not_started(number, attempt);
                Told::Wait
            }
            Work::Granted { operation, attempt, probe, .. } => {
                let deadline = self.now.after(timeout);
                self.set_work(number, Work::Running { attempt, probe, deadline, expired: false });
                match operation {
                    Some(operation) if probe => Told::Probe(operation),
                    operation => Told::Start { attempt, operation },
                }
            }
            work => {
                self.set_work(number, work);
                Told::Wait
            }
        }
    }

    /// Whether the downstream may have forgotten the key by the time that this attempt, which was
    /// granted a while ago, would be over.
    pub(super) fn too_late(&self, number: u64) -> bool {
        self.recorded(number).is_some_and(|c| {
            let terms = c.terms.as_ref();
            c.attempts.len() > 1 && terms.is_some_and(|t| !c.key_honoured(t, self.now))
        })
    }

    /// What is shown of an attempt in traces: thread, step, operation key.
    pub(crate) fn span(&self, number: u64, attempt: u32, probe: bool) -> tracing::Span {
        let Some(call) = self.calls.get(number) else {
            return tracing::Span::none();
        };
        let key = self.recorded(number).and_then(|c| c.key.clone());
        tracing::info_span!(
            "step",
            thread = %self.history.thread(),
            step = %call.id,
            operation_key = key.as_deref().unwrap_or(""),
            attempt,
            probe,
        )
    }

    /// A body is polled between these two.
    pub(crate) fn enter_body(&mut self, number: u64) {
        self.in_body = self.calls.get(number).map(|c| c.id.clone());
    }

    pub(crate) fn leave_body(&mut self) {
        self.in_body = None;
    }

    /// What a person said of a step stays said once the code was given it.
    fn given(&mut self) {
        let recorded = self.taken.as_ref().and_then(|taken| taken.recorded);
        let call = recorded.and_then(|number| self.history.calls().get(number));
        if let Some(call) = call.filter(|call| self.history.settled_by_person(call)) {
            let opened = call.opened;
            self.history.set_given(opened);
        }
    }

    /// What a person said of the step whose outcome was taken last cannot be read as the type
    /// that the code expects. If nothing was done because of it, the step is in doubt as before,
    /// and asks on: says whether it is so.
    pub(crate) fn misread(&mut self, number: u64, expected: &str, why: &str) -> bool {
        let taken = self.taken.as_ref().filter(|taken| taken.number == number);
        let Some(opened) = taken.and_then(|taken| self.may_be_taken_back(taken)) else {
            return false;
        };
        let Some(Taken { call, recorded, .. }) = self.taken.take() else {
            return false;
        };
        let why: String = why.chars().take(MISREAD_CHARS_MAX).collect();
        let failure = Failure::new(format!("`{expected}`: {why}")).code("unreadable");
        let draft = self.draft(Kind::StepResolve).with(|h| {
            h.call = Some(opened);
            h.verdict = Some("unreadable".into());
        });
        self.append_with(draft, Role::Error, &failure);
        self.calls.make(number, call, recorded);
        self.calls.set_asked(number, true);
        true
    }

    /// The position that opened a call whose outcome is what a person said, if nothing was done
    /// because of that.
    fn may_be_taken_back(&self, taken: &Taken) -> Option<Position> {
        let call = self.history.calls().get(taken.recorded?)?;
        let back = self.history.settled_by_person(call) && self.nothing_follows(taken.position);
        back.then_some(call.opened)
    }

    /// Whether the records tell of nothing that the code did after it was given the outcome at
    /// this position: it was never given it then, as far as anybody can tell.
    fn nothing_follows(&self, position: Position) -> bool {
        if position >= self.history.live_from() {
            return true;
        }
        let asked = self.history.markers().all(|(name, _)| self.patches.contains(name));
        let dropped = self.calls.iter().any(|(number, _)| {
            let last = self.recorded(number).and_then(|call| call.attempts.last());
            last.is_some_and(|a| matches!(a.end, AttemptEnd::Ambiguous(Doubt::Dropped, _)))
        });
        self.unmade.is_empty() && asked && !dropped
    }

    /// The outcome of a call cannot be read as the type that the code expects.
    pub(crate) fn unreadable(&mut self, call: String, kind: DivergenceKind, at: Position) {
        self.trouble(Trouble::Diverged(Divergence { call, at, kind }));
    }

    /// The call whose outcome was taken last, as shown, and the outcome's position.
    pub(crate) fn last_taken(&self) -> (String, Position) {
        let taken = self.taken.as_ref();
        taken.map(|taken| (taken.call.id.to_string(), taken.position)).unwrap_or_default()
    }
}
