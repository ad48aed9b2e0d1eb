//! Records about calls: what opens one, what its attempts come to, what settles it.

use std::time::Duration;

use super::{Fold, bytes, failure, owned, shared};
use crate::{
    guard,
    history::{Answer, Attempt, AttemptEnd, Attempts, Call, CallKind, Doubt, History, Outcome},
    id::{Epoch, Identity, IdentityKind, Name, StepId},
    limits::ValueLimits,
    policy::{Policy, Terms},
    record::{Gist, Opens, Payload, Role},
    value::{Fingerprint, canonical},
};

/// What stands in `by` where a probe said what became of a step.
const PROBE: &str = "probe";

/// It happened, and its result was erased.
const ERASED: Answer = Answer::Erased { failed: false };

impl History {
    pub(super) fn intent(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let number = gist.attempt.ok_or("it has no attempt number")?;
        let attempt = Attempt {
            number,
            at: gist.n,
            started: gist.time,
            epoch: gist.epoch,
            end: AttemptEnd::Open,
        };
        if gist.call.is_none() {
            let policy = gist.policy.ok_or("it does not say under which policy")?;
            if policy.has_effect() && gist.key.is_none() {
                return Err("it has an effect and no operation key");
            }
            if number != 1 {
                return Err("the first attempt of a step has the number 1");
            }
            self.open(gist, payloads, CallKind::Step)?;
        }
        let number = self.number_at(gist.call.unwrap_or(gist.n));
        let call = self.call_mut(number, CallKind::Step)?;
        if call.outcome.is_some() {
            return Err("the call is settled already");
        }
        if let Some(last) = call.attempts.last() {
            if under_way(last, gist.epoch) {
                return Err("the attempt before is still under way");
            }
            if last.number.checked_add(1) != Some(attempt.number) {
                return Err("its number does not follow that of the attempt before");
            }
        }
        if gist.call.is_some() && call.args.is_none() {
            // Those of an earlier attempt were erased.
            call.args = bytes(payloads, Role::Args);
        }
        call.attempts.push(attempt);
        call.probes = 0;
        call.probe_due = None;
        Ok(())
    }

    /// A record that opens a call.
    pub(super) fn open(&mut self, gist: &Gist<'_>, payloads: &[Payload], kind: CallKind) -> Fold {
        const UNREADABLE: &str = "the name of the call that it opens is no name";
        let place = &gist.place;
        let name = place.name.ok_or("it does not say which call it opens")?;
        let name = name.read().map_err(|_| UNREADABLE)?;
        // Names come again and again: the first one is shared by all of them.
        let (name, known) = match self.names.get_key_value(&*name) {
            Some((name, known)) => (name.clone(), *known),
            None => (Name::new(&*name).map_err(|_| UNREADABLE)?, None),
        };
        let identity = place.identity.unwrap_or(IdentityKind::Positional);
        let args = bytes(payloads, Role::Args);
        let id = self.step_id(place, identity, name, args.as_deref())?;
        if kind == CallKind::Timer && gist.due.is_none() {
            return Err("it does not say when the timer fires");
        }
        if kind == CallKind::Step && known.is_some_and(|k| k != identity) {
            return Err("the step's name has another kind of identity in this thread");
        }
        let number = self.calls.len();
        let hash = self.hash_of(kind, &id);
        if self.number_with(hash, kind, &id).is_some() {
            return Err("the call is open already");
        }
        let key = gist.key.map(shared).transpose()?;
        self.index.insert(hash, number);
        if kind == CallKind::Step {
            if known.is_none() {
                self.names.insert(id.name.clone(), Some(identity));
            }
            self.unsettled.push(number);
        }
        let read = kind == CallKind::Clock;
        let answer = Answer::Time(gist.time);
        self.calls.push(Call {
            kind,
            id,
            opened: gist.n,
            opened_time: gist.time,
            terms: gist.policy.map(|policy| terms(gist, policy)),
            key,
            generation: gist.generation,
            args,
            shown: gist.shown,
            due: gist.due,
            attempts: Attempts::default(),
            probes: 0,
            probe_due: None,
            late: Vec::new(),
            outcome: read.then_some(Outcome { position: gist.n, time: gist.time, answer }),
        });
        Ok(())
    }

    fn step_id(
        &self,
        place: &Opens<'_>,
        identity: IdentityKind,
        name: Name,
        args: Option<&[u8]>,
    ) -> Result<StepId, &'static str> {
        Ok(match identity {
            IdentityKind::Positional => {
                let branch = place.branch.read();
                let branch = branch.map_err(|_| "the branch of the call that it opens is none")?;
                StepId::positional(place.episode, branch, name, place.occurrence)
            }
            IdentityKind::Key => {
                let key = owned(place.business_key.ok_or("its business key is missing")?)?;
                let identity = Identity::key(key);
                StepId::scoped(name, identity.map_err(|_| "its business key is no key")?)
            }
            // The thread of a guarded step is named after its identity.
            IdentityKind::Arguments if args.is_none() && guard::is_guarded(self) => {
                let fingerprint = Fingerprint::of(&self.secret, self.thread.as_str().as_bytes());
                let occurrence = place.occurrence;
                StepId::scoped(name, Identity::Arguments { fingerprint, occurrence })
            }
            IdentityKind::Arguments => {
                let args = args.ok_or("its arguments, which are its identity, were erased")?;
                let limits = ValueLimits::new().depth_max(128).bytes_max(usize::MAX);
                let form = canonical::of_msgpack(args, &limits);
                let form = form.map_err(|_| "its arguments have no canonical form")?;
                let fingerprint = Fingerprint::of(&self.secret, &form);
                let occurrence = place.occurrence;
                StepId::scoped(name, Identity::Arguments { fingerprint, occurrence })
            }
        })
    }

    pub(super) fn done(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let answer = if gist.why.is_some_and(|why| why.is("result_not_stored")) {
            bytes(payloads, Role::Error).map_or(ERASED, Answer::Unstored)
        } else {
            bytes(payloads, Role::Result).map_or(ERASED, Answer::Value)
        };
        let number = self.running(gist)?;
        self.settle(gist, number, answer)
    }

    pub(super) fn fail(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let number = self.running(gist)?;
        let call = self.call_mut(Some(number), CallKind::Step)?;
        let read = call.terms.is_some_and(|t| !t.policy.has_effect());
        match gist.why.map(owned).transpose()?.as_deref() {
            Some("terminal" | "exhausted") => {
                let erased = Answer::Erased { failed: true };
                let answer = bytes(payloads, Role::Error).map_or(erased, Answer::Failed);
                self.settle(gist, number, answer)
            }
            Some("not_started") => end_attempt(call, AttemptEnd::NotStarted),
            Some("not_applied") => end_attempt(call, AttemptEnd::NoEffect(gist.due)),
            Some(why) if read && unknown(why).is_some() => {
                end_attempt(call, AttemptEnd::NoEffect(gist.due))
            }
            _ => Err("it does not say why nothing can have happened"),
        }
    }

    pub(super) fn unknown(&mut self, gist: &Gist<'_>) -> Fold {
        let why = gist.why.map(owned).transpose()?;
        let why = why.as_deref().and_then(unknown).ok_or("it does not say why")?;
        let number = self.running(gist)?;
        let call = self.call_mut(Some(number), CallKind::Step)?;
        if call.terms.is_some_and(|t| !t.policy.has_effect()) {
            return Err("a read has no effect that could be unknown");
        }
        end_attempt(call, AttemptEnd::Ambiguous(why, gist.due))
    }

    pub(super) fn resolve(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let by_person = !gist.by.is_some_and(|by| by.is(PROBE));
        let verdict = gist.verdict.map(owned).transpose()?;
        let verdict = verdict.as_deref();
        let number = self.subject(gist, CallKind::Step)?;
        if verdict == Some("unreadable") {
            return self.not_given(number, payloads);
        }
        let call = self.calls.get(number);
        let again = call.is_some_and(|call| by_person && self.may_be_settled_again(call));
        let call = self.call_mut(Some(number), CallKind::Step)?;
        let opened = call.opened;
        if call.outcome.is_some() && !again {
            return Err("the call is settled already");
        }
        let last = call.attempts.last_mut().ok_or("the step has no attempt")?;
        if under_way(last, gist.epoch) {
            return Err("an attempt is still under way");
        }
        match verdict {
            Some("happened" | "failed") => {
                call.outcome = None;
                let happened = verdict == Some("happened");
                let role = if happened { Role::Result } else { Role::Error };
                let answer = if happened { Answer::Value } else { Answer::Failed };
                let erased = Answer::Erased { failed: !happened };
                let answer = bytes(payloads, role).map_or(erased, answer);
                self.settle(gist, number, answer)?;
            }
            Some("did_not_happen") => {
                let died = last.end == AttemptEnd::Open;
                last.end = AttemptEnd::Cleared { by_person, died };
                call.outcome = None;
                self.reopen(number);
            }
            Some("inconclusive") if call.outcome.is_none() => {
                call.probes = call.probes.saturating_add(1);
                call.probe_due = gist.due;
                return Ok(());
            }
            _ => return Err("it does not say what was found"),
        }
        if by_person {
            self.said.say(opened, gist.n, verdict != Some("did_not_happen"));
        }
        Ok(())
    }

    /// What a person said to have happened cannot be given to the code: the step is in doubt as
    /// it was before.
    fn not_given(&mut self, number: usize, payloads: &[Payload]) -> Fold {
        let said = self.calls.get(number).is_some_and(|call| self.said.is_outcome(call));
        if !said {
            return Err("it is about nothing that a person said");
        }
        let call = self.call_mut(Some(number), CallKind::Step)?;
        let opened = call.opened;
        call.outcome = None;
        end_attempt(call, AttemptEnd::Ambiguous(Doubt::Unreadable, None))?;
        self.reopen(number);
        let why = bytes(payloads, Role::Error).and_then(|bytes| failure(&bytes));
        self.said.misread(opened, why.map(|why| why.message.into()));
        Ok(())
    }

    /// The outcome of a step of the whole journal, copied from that step's own thread: it opens
    /// the call and settles it at once, or settles a call whose attempts are over.
    pub(super) fn reused(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let result = bytes(payloads, Role::Result);
        let error = bytes(payloads, Role::Error);
        let answer = match (gist.verdict.map(owned).transpose()?.as_deref(), result, error) {
            (Some("done"), Some(result), _) => Answer::Value(result),
            (Some("done"), None, Some(error)) => Answer::Unstored(error),
            (Some("failed"), _, Some(error)) => Answer::Failed(error),
            (Some("failed"), None, _) => Answer::Erased { failed: true },
            (Some("done"), None, _) => ERASED,
            _ => return Err("it does not say what became of the step"),
        };
        if gist.call.is_none() {
            self.open(gist, payloads, CallKind::Step)?;
        }
        let number = self.number_at(gist.call.unwrap_or(gist.n)).ok_or(NOT_OPEN)?;
        let call = self.call_mut(Some(number), CallKind::Step)?;
        if call.attempts.last().is_some_and(|last| under_way(last, gist.epoch)) {
            return Err("an attempt is still under way");
        }
        self.settle(gist, number, answer)
    }

    /// A settled step of its own gets a fresh key and may happen again: somebody wants it so, or
    /// its result is no longer valid. Attempts go on counting their numbers.
    pub(super) fn fresh_key(&mut self, gist: &Gist<'_>) -> Fold {
        if !gist.verdict.is_some_and(|verdict| verdict.is("fresh_key")) {
            return Err("this build cannot replay its verdict; use a newer build");
        }
        if !guard::is_guarded(self) {
            return Err("this build grants fresh keys to steps of their own only");
        }
        let key = shared(gist.key.ok_or("it grants no key")?)?;
        let number = self.subject(gist, CallKind::Step)?;
        let call = self.call_mut(Some(number), CallKind::Step)?;
        if call.outcome.is_none() {
            return Err("the step is not settled");
        }
        if call.generation.checked_add(1) != Some(gist.generation) {
            return Err("its generation does not follow the one before");
        }
        (call.key, call.generation, call.outcome) = (Some(key), gist.generation, None);
        end_attempt(call, AttemptEnd::Cleared { by_person: true, died: false })?;
        self.reopen(number);
        Ok(())
    }

    pub(super) fn late(&mut self, gist: &Gist<'_>) -> Fold {
        let number = gist.attempt.ok_or("it has no attempt number")?;
        let call = self.subject(gist, CallKind::Step)?;
        let call = self.call_mut(Some(call), CallKind::Step)?;
        if !call.attempts.iter().any(|a| a.number == number) {
            return Err("the step has no such attempt");
        }
        call.late.push(gist.n);
        Ok(())
    }

    pub(super) fn fired(&mut self, gist: &Gist<'_>) -> Fold {
        let number = self.subject(gist, CallKind::Timer)?;
        let timer = self.call_mut(Some(number), CallKind::Timer)?;
        if timer.due.is_some_and(|due| gist.time < due) {
            return Err("the timer is not due yet");
        }
        self.settle(gist, number, Answer::Fired)
    }

    pub(super) fn approval(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let granted = match gist.verdict.map(owned).transpose()?.as_deref() {
            Some("granted") => true,
            Some("denied") => false,
            _ => return Err("it does not say what was decided"),
        };
        let answer = Answer::Decided {
            granted,
            by: gist.by.map(shared).transpose()?.unwrap_or_default(),
            reason: bytes(payloads, Role::Note),
        };
        let number = self.subject(gist, CallKind::Approval)?;
        self.settle(gist, number, answer)
    }

    /// Whether a run of this epoch may still be carrying out an attempt.
    pub(super) fn under_way(&self, epoch: Epoch) -> bool {
        let mut last = self.unsettled().filter_map(|call| call.attempts.last());
        last.any(|attempt| under_way(attempt, epoch))
    }

    /// Gives a call its outcome.
    fn settle(&mut self, gist: &Gist<'_>, number: usize, answer: Answer) -> Fold {
        let call = self.calls.get_mut(number).ok_or(NOT_OPEN)?;
        if call.outcome.is_some() {
            return Err("the call is settled already");
        }
        if let Some(last) = call.attempts.last_mut() {
            last.end = AttemptEnd::Settled;
        }
        call.outcome = Some(Outcome { position: gist.n, time: gist.time, answer });
        if call.kind == CallKind::Step {
            self.forget_settled();
        }
        Ok(())
    }

    /// The number of the step whose attempt under way the record is about.
    fn running(&self, gist: &Gist<'_>) -> Result<usize, &'static str> {
        let attempt = gist.attempt.ok_or("it has no attempt number")?;
        let number = self.subject(gist, CallKind::Step)?;
        let call = self.calls.get(number).ok_or(NOT_OPEN)?;
        if call.outcome.is_some() {
            return Err("the call is settled already");
        }
        let last = call.attempts.last().ok_or("the step has no attempt")?;
        if last.number != attempt || last.end != AttemptEnd::Open {
            return Err("the attempt has ended already");
        }
        if last.epoch != gist.epoch {
            return Err("the attempt died with its run; its result can only be late");
        }
        Ok(number)
    }

    /// The number of the call that the record is about.
    fn subject(&self, gist: &Gist<'_>, kind: CallKind) -> Result<usize, &'static str> {
        let opened = gist.call.ok_or("it does not say which call it is about")?;
        let number = self.number_at(opened).ok_or(NOT_OPEN)?;
        match self.calls.get(number) {
            Some(call) if call.kind == kind => Ok(number),
            _ => Err(OTHER_KIND),
        }
    }

    fn call_mut(
        &mut self,
        number: Option<usize>,
        kind: CallKind,
    ) -> Result<&mut Call, &'static str> {
        let call = number.and_then(|number| self.calls.get_mut(number)).ok_or(NOT_OPEN)?;
        if call.kind == kind { Ok(call) } else { Err(OTHER_KIND) }
    }
}

const NOT_OPEN: &str = "it is about a call that is not open";
const OTHER_KIND: &str = "it is about a call of another kind";

/// Whether a run of this epoch may still be carrying out the attempt.
fn under_way(attempt: &Attempt, epoch: Epoch) -> bool {
    attempt.end == AttemptEnd::Open && attempt.epoch >= epoch
}

fn unknown(word: &str) -> Option<Doubt> {
    Doubt::from_word(word).filter(|doubt| Doubt::OF_ATTEMPTS.contains(doubt))
}

fn end_attempt(call: &mut Call, end: AttemptEnd) -> Fold {
    let last = call.attempts.last_mut().ok_or("the step has no attempt")?;
    last.end = end;
    Ok(())
}

fn terms(gist: &Gist<'_>, policy: Policy) -> Terms {
    let default = Terms::of(policy);
    let millis = |ms: Option<u64>, or: Duration| ms.map_or(or, Duration::from_millis);
    Terms {
        policy,
        timeout: millis(gist.timeout_ms, default.timeout),
        window: gist.window_ms.map(Duration::from_millis),
        quiet: millis(gist.quiet_ms, default.quiet),
        abandon: gist.abandon,
        attempts_max: gist.attempts_max.unwrap_or(default.attempts_max),
    }
}
