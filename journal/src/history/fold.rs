//! Folding records into a history: what each kind of record means.

use std::{sync::Arc, time::Duration};

use super::{
    Answer, Attempt, AttemptEnd, Call, CallKind, Cancellation, Doubt, End, History, Outcome,
    Signal, Start,
};
use crate::{
    failure::Failure,
    id::{Identity, IdentityKind, Position, StepId},
    limits::ValueLimits,
    policy::Terms,
    record::{Header, Kind, Payload, Place, Role},
    row::Status,
    value::{self, Fingerprint, canonical},
};

/// A record that does not fit its thread: the journal was not written by these rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {n} ({kind}) does not fit its thread: {why}")]
pub struct HistoryError {
    /// The record.
    pub n: Position,
    /// Its kind.
    pub kind: String,
    /// Why not.
    pub why: &'static str,
}

type Fold = Result<(), &'static str>;

impl History {
    /// Takes in the next record. Its hash has been checked before.
    ///
    /// # Errors
    /// The record does not fit the ones before it, or is of a kind that this build does not know.
    pub fn apply(&mut self, header: &Header, payloads: &[Payload]) -> Result<(), HistoryError> {
        let folded = if header.n == self.next {
            self.fold(header, payloads)
        } else {
            Err("its position is not the next one")
        };
        folded.map_err(|why| HistoryError {
            n: header.n,
            kind: header.kind.as_str().to_owned(),
            why,
        })?;
        self.next += 1;
        self.time = header.time;
        Ok(())
    }

    fn fold(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        match &header.kind {
            Kind::ThreadStart => self.thread_start(header, payloads),
            Kind::ThreadContinue => self.thread_continue(header, payloads),
            Kind::ThreadEnd => self.thread_end(header, payloads),
            Kind::StepIntent => self.intent(header, payloads),
            Kind::StepDone => self.done(header, payloads),
            Kind::StepFail => self.fail(header, payloads),
            Kind::StepUnknown => self.unknown(header),
            Kind::StepResolve => self.resolve(header, payloads),
            Kind::StepLate => self.late(header),
            Kind::TimerSet | Kind::ApprovalRequest | Kind::Clock => self.open(header, payloads),
            Kind::TimerFired => self.settle(header, Answer::Fired),
            Kind::ApprovalDecide => self.approval(header, payloads),
            Kind::Signal => self.signal(header, payloads),
            Kind::Marker => self.marker_set(header),
            Kind::Unknown(_) => Err("this build does not know its kind; use a newer build"),
            // Facts that replay does not act on.
            Kind::ThreadResume
            | Kind::RunStart
            | Kind::RunEnd
            | Kind::MessageRefused
            | Kind::ClockStep
            | Kind::Export
            | Kind::Seal
            | Kind::Anchor
            | Kind::KeyRotate
            | Kind::Redact
            | Kind::Prune
            | Kind::Restore => Ok(()),
            // Written by later builds of format 1: this one cannot replay them.
            Kind::ThreadFork
            | Kind::StepDenied
            | Kind::StepReused
            | Kind::ChildStart
            | Kind::ChildEnd
            | Kind::Override => Err("this build cannot replay its kind; use a newer build"),
        }
    }

    fn thread_start(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        if self.start.is_some() {
            return Err("the thread has started before");
        }
        self.input = bytes(payloads, Role::Input);
        self.start = Some(Start {
            workflow: header.workflow.clone().ok_or("it names no workflow")?,
            input: bytes(payloads, Role::Input),
            time: header.time,
            build: header.build.clone(),
        });
        Ok(())
    }

    /// The next episode: positional identities begin anew, signals that were not delivered go
    /// over, and so do calls identified by key or by arguments.
    fn thread_continue(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        if self.start.is_none() {
            return Err("the thread has not started");
        }
        self.episode += 1;
        self.episode_from = header.n;
        self.input = bytes(payloads, Role::Input);
        for queue in self.signals.values_mut() {
            queue.retain(|signal| header.carry.contains(&signal.position));
        }
        self.markers.clear();
        Ok(())
    }

    fn thread_end(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let status = match header.verdict.as_deref() {
            Some("done") => Status::Done,
            Some("failed") => Status::Failed,
            Some("cancelled") => Status::Cancelled,
            _ => return Err("it does not say how the thread ended"),
        };
        let failure = bytes(payloads, Role::Error).and_then(|b| failure(&b));
        let result = bytes(payloads, Role::Result);
        self.end = Some(End {
            status,
            position: header.n,
            result,
            failure,
        });
        Ok(())
    }

    fn intent(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let attempt = Attempt {
            number: header.attempt.ok_or("it has no attempt number")?,
            at: header.n,
            started: header.time,
            end: AttemptEnd::Open,
        };
        if header.call.is_none() {
            self.open(header, payloads)?;
        }
        let call = self.subject_of(header.call.unwrap_or(header.n))?;
        call.attempts.push(attempt);
        call.probes = 0;
        call.probe_due = None;
        Ok(())
    }

    /// A record that opens a call.
    fn open(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let kind = match header.kind {
            Kind::TimerSet => CallKind::Timer,
            Kind::ApprovalRequest => CallKind::Approval,
            Kind::Clock => CallKind::Clock,
            _ => CallKind::Step,
        };
        let place = header
            .place
            .as_ref()
            .ok_or("it does not say which call it opens")?;
        let args = bytes(payloads, Role::Args);
        let id = self.step_id(place, args.as_deref())?;
        let number = self.calls.len();
        if self.by_id.insert((kind, id.clone()), number).is_some() {
            return Err("the call is open already");
        }
        self.by_position.insert(header.n, number);
        if kind == CallKind::Step {
            self.kinds.entry(id.name.clone()).or_insert(place.kind);
            self.unsettled.insert(number);
        }
        let shown = header
            .payloads
            .iter()
            .find(|c| c.role == Role::Shown)
            .map(|c| c.hash);
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
            shown,
            due: header.due,
            attempts: Vec::new(),
            probes: 0,
            probe_due: None,
            late: Vec::new(),
            outcome: read.then_some(Outcome {
                position: header.n,
                answer,
            }),
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
                let key = place
                    .business_key
                    .clone()
                    .ok_or("its business key is missing")?;
                StepId::scoped(name, Identity::Key(key))
            }
            IdentityKind::Arguments => {
                let args = args.ok_or("its arguments, which are its identity, were erased")?;
                let limits = ValueLimits::new().depth_max(128).bytes_max(usize::MAX);
                let form = canonical::of_msgpack(args, &limits);
                let form = form.map_err(|_| "its arguments have no canonical form")?;
                let fingerprint = Fingerprint::of(&self.secret, &form);
                let occurrence = place.occurrence;
                StepId::scoped(
                    name,
                    Identity::Arguments {
                        fingerprint,
                        occurrence,
                    },
                )
            }
        })
    }

    fn done(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let answer = if header.why.as_deref() == Some("result_not_stored") {
            bytes(payloads, Role::Error).map_or(Answer::Erased, Answer::Unstored)
        } else {
            bytes(payloads, Role::Result).map_or(Answer::Erased, Answer::Value)
        };
        self.settle(header, answer)
    }

    fn fail(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        if let Some("terminal" | "exhausted") = header.why.as_deref() {
            let answer = bytes(payloads, Role::Error).map_or(Answer::Erased, Answer::Failed);
            return self.settle(header, answer);
        }
        self.end_attempt(header, AttemptEnd::NoEffect(header.due))
    }

    fn unknown(&mut self, header: &Header) -> Fold {
        let why = header.why.as_deref().and_then(Doubt::from_word);
        let why = why.ok_or("it does not say why")?;
        self.end_attempt(header, AttemptEnd::Ambiguous(why, header.due))
    }

    fn resolve(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        match header.verdict.as_deref() {
            Some("happened") => {
                let answer = bytes(payloads, Role::Result).map_or(Answer::Erased, Answer::Value);
                self.settle(header, answer)
            }
            Some("failed") => {
                let answer = bytes(payloads, Role::Error).map_or(Answer::Erased, Answer::Failed);
                self.settle(header, answer)
            }
            Some("did_not_happen") => {
                let call = self.subject(header)?;
                let last = call.attempts.last_mut().ok_or("the step has no attempt")?;
                last.end = AttemptEnd::Cleared;
                Ok(())
            }
            Some("inconclusive") => {
                let call = self.subject(header)?;
                call.probes += 1;
                call.probe_due = header.due;
                Ok(())
            }
            _ => Err("it does not say what was found"),
        }
    }

    fn late(&mut self, header: &Header) -> Fold {
        self.subject(header)?.late.push(header.n);
        Ok(())
    }

    fn approval(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let answer = Answer::Decided {
            granted: header.verdict.as_deref() == Some("granted"),
            by: header.by.clone().unwrap_or_else(|| "".into()),
            reason: bytes(payloads, Role::Note),
        };
        self.settle(header, answer)
    }

    fn signal(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let name = header.why.clone().ok_or("it does not name the signal")?;
        let value = bytes(payloads, Role::Value);
        let signal = Signal {
            position: header.n,
            value,
        };
        self.signals.entry(name).or_default().push(signal);
        Ok(())
    }

    fn marker_set(&mut self, header: &Header) -> Fold {
        let word = header.why.clone().ok_or("it has no name")?;
        if &*word == "cancel" {
            let (position, by) = (header.n, header.by.clone());
            self.cancelled.get_or_insert(Cancellation { position, by });
        } else if let Some(name) = word.strip_prefix("patch:") {
            let set = header.verdict.as_deref() == Some("true");
            self.markers.entry(name.into()).or_insert(set);
        }
        Ok(())
    }

    /// Gives a call its outcome.
    fn settle(&mut self, header: &Header, answer: Answer) -> Fold {
        let position = header.n;
        let number = self.subject_number(header)?;
        let call = self.calls.get_mut(number).ok_or("the call is not open")?;
        if call.outcome.is_some() {
            return Err("the call is settled already");
        }
        if let Some(last) = call.attempts.last_mut() {
            last.end = AttemptEnd::Settled;
        }
        call.outcome = Some(Outcome { position, answer });
        self.unsettled.remove(&number);
        Ok(())
    }

    fn end_attempt(&mut self, header: &Header, end: AttemptEnd) -> Fold {
        let call = self.subject(header)?;
        if call.outcome.is_some() {
            return Err("the call is settled already");
        }
        let last = call.attempts.last_mut().ok_or("the step has no attempt")?;
        if last.end != AttemptEnd::Open {
            return Err("the attempt has ended already");
        }
        last.end = end;
        Ok(())
    }

    fn subject(&mut self, header: &Header) -> Result<&mut Call, &'static str> {
        self.subject_of(
            header
                .call
                .ok_or("it does not say which call it is about")?,
        )
    }

    fn subject_of(&mut self, opened: Position) -> Result<&mut Call, &'static str> {
        let number = self
            .by_position
            .get(&opened)
            .ok_or("it is about a call that is not open")?;
        self.calls.get_mut(*number).ok_or("the call is not open")
    }

    fn subject_number(&self, header: &Header) -> Result<usize, &'static str> {
        let opened = header
            .call
            .ok_or("it does not say which call it is about")?;
        let number = self.by_position.get(&opened);
        number.copied().ok_or("it is about a call that is not open")
    }
}

fn terms(header: &Header, policy: crate::policy::Policy) -> Terms {
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

fn bytes(payloads: &[Payload], role: Role) -> Option<Arc<[u8]>> {
    payloads
        .iter()
        .find(|p| p.role == role)
        .map(|p| p.bytes.clone())
}

fn failure(bytes: &[u8]) -> Option<Failure> {
    value::decode(bytes, &ValueLimits::new()).ok()
}
