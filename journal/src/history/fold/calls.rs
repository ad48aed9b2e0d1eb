//! Records about calls: what opens one, what its attempts come to, what settles it.

use std::{collections::hash_map::Entry, time::Duration};

use super::{Fold, bytes, failure};
use crate::{
    history::{Answer, Attempt, AttemptEnd, Call, CallKind, Doubt, History, Outcome},
    id::{Epoch, Identity, IdentityKind, Position, StepId},
    limits::ValueLimits,
    policy::{Policy, Terms},
    record::{Header, Payload, Place, Role},
    value::{Fingerprint, canonical},
};

/// What stands in `by` where a probe said what became of a step.
const PROBE: &str = "probe";

/// The reasons of `step.unknown`.
const UNKNOWN: [Doubt; 5] =
    [Doubt::Timeout, Doubt::Panic, Doubt::Dropped, Doubt::Unlabelled, Doubt::Cancelled];

impl History {
    pub(super) fn intent(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let number = header.attempt.ok_or("it has no attempt number")?;
        let attempt = Attempt {
            number,
            at: header.n,
            started: header.time,
            epoch: header.epoch,
            end: AttemptEnd::Open,
        };
        if header.call.is_none() {
            let policy = header.policy.ok_or("it does not say under which policy")?;
            if policy.has_effect() && header.key.is_none() {
                return Err("it has an effect and no operation key");
            }
            if number != 1 {
                return Err("the first attempt of a step has the number 1");
            }
            self.open(header, payloads, CallKind::Step)?;
        }
        let call = self.subject_at(header.call.unwrap_or(header.n), CallKind::Step)?;
        if call.outcome.is_some() {
            return Err("the call is settled already");
        }
        if let Some(last) = call.attempts.last() {
            if under_way(last, header.epoch) {
                return Err("the attempt before is still under way");
            }
            if last.number.checked_add(1) != Some(number) {
                return Err("its number does not follow that of the attempt before");
            }
        }
        call.attempts.push(attempt);
        call.probes = 0;
        call.probe_due = None;
        Ok(())
    }

    /// A record that opens a call.
    pub(super) fn open(&mut self, header: &Header, payloads: &[Payload], kind: CallKind) -> Fold {
        let place = header.place.as_ref().ok_or("it does not say which call it opens")?;
        let args = bytes(payloads, Role::Args);
        let id = self.step_id(place, args.as_deref())?;
        if kind == CallKind::Timer && header.due.is_none() {
            return Err("it does not say when the timer fires");
        }
        let known = self.identity_kind(&id.name);
        if kind == CallKind::Step && known.is_some_and(|k| k != place.kind) {
            return Err("the step's name has another kind of identity in this thread");
        }
        let number = self.calls.len();
        match self.by_id.entry(kind).or_default().entry(id.clone()) {
            Entry::Occupied(_) => return Err("the call is open already"),
            Entry::Vacant(vacant) => vacant.insert(number),
        };
        if kind == CallKind::Step {
            if known.is_none() {
                self.kinds.insert(id.name.clone(), place.kind);
            }
            self.unsettled.insert(number);
        }
        let commitments = &header.payloads;
        let shown = commitments.iter().find(|c| c.role == Role::Shown);
        let read = kind == CallKind::Clock;
        let answer = Answer::Time(header.time);
        self.calls.push(Call {
            kind,
            id,
            opened: header.n,
            opened_time: header.time,
            terms: header.policy.map(|policy| terms(header, policy)),
            key: header.key.clone(),
            args,
            shown: shown.map(|c| c.hash),
            due: header.due,
            // Nearly every step has one, and a vector that grows begins with four.
            attempts: Vec::with_capacity(usize::from(kind == CallKind::Step)),
            probes: 0,
            probe_due: None,
            late: Vec::new(),
            outcome: read.then_some(Outcome { position: header.n, answer }),
        });
        Ok(())
    }

    fn step_id(&self, place: &Place, args: Option<&[u8]>) -> Result<StepId, &'static str> {
        let name = place.name.clone();
        Ok(match place.kind {
            IdentityKind::Positional => {
                StepId::positional(place.episode, place.branch.clone(), name, place.occurrence)
            }
            IdentityKind::Key => {
                let key = place.business_key.as_deref();
                let key = key.ok_or("its business key is missing")?;
                let identity = Identity::key(key);
                StepId::scoped(name, identity.map_err(|_| "its business key is no key")?)
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

    pub(super) fn done(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let answer = if header.why.as_deref() == Some("result_not_stored") {
            bytes(payloads, Role::Error).map_or(Answer::Erased, Answer::Unstored)
        } else {
            bytes(payloads, Role::Result).map_or(Answer::Erased, Answer::Value)
        };
        self.running(header)?;
        self.settle(header, CallKind::Step, answer)
    }

    pub(super) fn fail(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let call = self.running(header)?;
        let read = call.terms.is_some_and(|t| !t.policy.has_effect());
        match header.why.as_deref() {
            Some("terminal" | "exhausted") => {
                let answer = bytes(payloads, Role::Error).map_or(Answer::Erased, Answer::Failed);
                self.settle(header, CallKind::Step, answer)
            }
            Some("not_started") => end_attempt(call, AttemptEnd::NotStarted),
            Some("not_applied") => end_attempt(call, AttemptEnd::NoEffect(header.due)),
            Some(why) if read && unknown(why).is_some() => {
                end_attempt(call, AttemptEnd::NoEffect(header.due))
            }
            _ => Err("it does not say why nothing can have happened"),
        }
    }

    pub(super) fn unknown(&mut self, header: &Header) -> Fold {
        let why = header.why.as_deref().and_then(unknown);
        let why = why.ok_or("it does not say why")?;
        let call = self.running(header)?;
        if call.terms.is_some_and(|t| !t.policy.has_effect()) {
            return Err("a read has no effect that could be unknown");
        }
        end_attempt(call, AttemptEnd::Ambiguous(why, header.due))
    }

    pub(super) fn resolve(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let by_person = header.by.as_deref() != Some(PROBE);
        let verdict = header.verdict.as_deref();
        let opened = self.subject(header, CallKind::Step)?.opened;
        if verdict == Some("unreadable") {
            return self.not_given(header, payloads);
        }
        let number = self.number_at(opened);
        let again = number
            .and_then(|number| self.calls.get(number))
            .is_some_and(|call| by_person && self.may_be_settled_again(call));
        let call = self.subject_at(opened, CallKind::Step)?;
        if call.outcome.is_some() && !again {
            return Err("the call is settled already");
        }
        let last = call.attempts.last_mut().ok_or("the step has no attempt")?;
        if under_way(last, header.epoch) {
            return Err("an attempt is still under way");
        }
        match verdict {
            Some("happened" | "failed") => {
                call.outcome = None;
                let happened = verdict == Some("happened");
                let role = if happened { Role::Result } else { Role::Error };
                let answer = if happened { Answer::Value } else { Answer::Failed };
                let answer = bytes(payloads, role).map_or(Answer::Erased, answer);
                self.settle(header, CallKind::Step, answer)?;
            }
            Some("did_not_happen") => {
                let died = last.end == AttemptEnd::Open;
                last.end = AttemptEnd::Cleared { by_person, died };
                call.outcome = None;
                self.unsettled.extend(number);
            }
            Some("inconclusive") if call.outcome.is_none() => {
                call.probes = call.probes.saturating_add(1);
                call.probe_due = header.due;
                return Ok(());
            }
            _ => return Err("it does not say what was found"),
        }
        if by_person {
            self.said.say(opened, header.n, verdict != Some("did_not_happen"));
        }
        Ok(())
    }

    /// What a person said to have happened cannot be given to the code: the step is in doubt as
    /// it was before.
    fn not_given(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let opened = header.call.unwrap_or_default();
        let number = self.number_at(opened).ok_or("it is about a call that is not open")?;
        let said = self.calls.get(number).is_some_and(|call| self.said.is_outcome(call));
        if !said {
            return Err("it is about nothing that a person said");
        }
        let call = self.subject_at(opened, CallKind::Step)?;
        call.outcome = None;
        end_attempt(call, AttemptEnd::Ambiguous(Doubt::Unreadable, None))?;
        self.unsettled.insert(number);
        let why = bytes(payloads, Role::Error).and_then(|bytes| failure(&bytes));
        self.said.misread(opened, why.map(|why| why.message.into()));
        Ok(())
    }

    pub(super) fn late(&mut self, header: &Header) -> Fold {
        let number = header.attempt.ok_or("it has no attempt number")?;
        let call = self.subject(header, CallKind::Step)?;
        if !call.attempts.iter().any(|a| a.number == number) {
            return Err("the step has no such attempt");
        }
        call.late.push(header.n);
        Ok(())
    }

    pub(super) fn fired(&mut self, header: &Header) -> Fold {
        let timer = self.subject(header, CallKind::Timer)?;
        if timer.due.is_some_and(|due| header.time < due) {
            return Err("the timer is not due yet");
        }
        self.settle(header, CallKind::Timer, Answer::Fired)
    }

    pub(super) fn approval(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let granted = match header.verdict.as_deref() {
            Some("granted") => true,
            Some("denied") => false,
            _ => return Err("it does not say what was decided"),
        };
        let answer = Answer::Decided {
            granted,
            by: header.by.clone().unwrap_or_else(|| "".into()),
            reason: bytes(payloads, Role::Note),
        };
        self.settle(header, CallKind::Approval, answer)
    }

    /// Whether a run of this epoch may still be carrying out an attempt.
    pub(super) fn under_way(&self, epoch: Epoch) -> bool {
        let unsettled = self.unsettled.iter();
        let mut last = unsettled.filter_map(|number| self.calls.get(*number)?.attempts.last());
        last.any(|attempt| under_way(attempt, epoch))
    }

    /// Gives a call its outcome.
    fn settle(&mut self, header: &Header, kind: CallKind, answer: Answer) -> Fold {
        let position = header.n;
        let call = self.subject(header, kind)?;
        if call.outcome.is_some() {
            return Err("the call is settled already");
        }
        if let Some(last) = call.attempts.last_mut() {
            last.end = AttemptEnd::Settled;
        }
        call.outcome = Some(Outcome { position, answer });
        let opened = call.opened;
        if let Some(number) = self.number_at(opened) {
            self.unsettled.remove(&number);
        }
        Ok(())
    }

    /// The step whose attempt under way the record is about.
    fn running(&mut self, header: &Header) -> Result<&mut Call, &'static str> {
        let number = header.attempt.ok_or("it has no attempt number")?;
        let call = self.subject(header, CallKind::Step)?;
        if call.outcome.is_some() {
            return Err("the call is settled already");
        }
        let last = call.attempts.last().ok_or("the step has no attempt")?;
        if last.number != number || last.end != AttemptEnd::Open {
            return Err("the attempt has ended already");
        }
        if last.epoch != header.epoch {
            return Err("the attempt died with its run; its result can only be late");
        }
        Ok(call)
    }

    fn subject(&mut self, header: &Header, kind: CallKind) -> Result<&mut Call, &'static str> {
        let opened = header.call;
        self.subject_at(opened.ok_or("it does not say which call it is about")?, kind)
    }

    fn subject_at(&mut self, opened: Position, kind: CallKind) -> Result<&mut Call, &'static str> {
        let number = self.number_at(opened);
        let call = number.and_then(|number| self.calls.get_mut(number));
        let call = call.ok_or("it is about a call that is not open")?;
        if call.kind != kind {
            return Err("it is about a call of another kind");
        }
        Ok(call)
    }
}

/// Whether a run of this epoch may still be carrying out the attempt.
fn under_way(attempt: &Attempt, epoch: Epoch) -> bool {
    attempt.end == AttemptEnd::Open && attempt.epoch >= epoch
}

fn unknown(word: &str) -> Option<Doubt> {
    Doubt::from_word(word).filter(|doubt| UNKNOWN.contains(doubt))
}

fn end_attempt(call: &mut Call, end: AttemptEnd) -> Fold {
    let last = call.attempts.last_mut().ok_or("the step has no attempt")?;
    last.end = end;
    Ok(())
}

fn terms(header: &Header, policy: Policy) -> Terms {
    let default = Terms::of(policy);
    let millis = |ms: Option<u64>, or: Duration| ms.map_or(or, Duration::from_millis);
    Terms {
        policy,
        timeout: millis(header.timeout_ms, default.timeout),
        window: header.window_ms.map(Duration::from_millis),
        quiet: millis(header.quiet_ms, default.quiet),
        abandon: header.abandon,
        attempts_max: header.attempts_max.unwrap_or(default.attempts_max),
    }
}
