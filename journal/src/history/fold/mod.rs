//! Folding records into a history: what each kind of record means.

mod calls;

use super::{CallKind, Cancellation, End, History, Signal, Start};
use crate::{
    bytes::Bytes,
    failure::Failure,
    id::Position,
    limits::ValueLimits,
    record::{Header, Kind, Payload, Role},
    row::Status,
    value,
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

/// Facts that replay does not act on: they may stand behind a thread's end. What a later build
/// writes there is that build's to judge.
fn is_fact(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::ThreadResume
            | Kind::RunStart
            | Kind::RunEnd
            | Kind::StepLate
            | Kind::MessageRefused
            | Kind::ClockStep
            | Kind::Export
            | Kind::Seal
            | Kind::Anchor
            | Kind::KeyRotate
            | Kind::Redact
            | Kind::Prune
            | Kind::Restore
    )
}

impl History {
    /// Takes in the next record. Its hash has been checked before. A record that is refused leaves
    /// the history as it was.
    ///
    /// # Errors
    /// The record does not fit the ones before it, or is of a kind that this build does not know.
    pub fn apply(&mut self, header: &Header, payloads: &[Payload]) -> Result<(), HistoryError> {
        let begins_run = matches!(header.kind, Kind::ThreadStart | Kind::ThreadResume);
        let run = if begins_run { header.n } else { self.run };
        let folded = self.follows(header, run).and_then(|()| self.fold(header, payloads));
        folded.map_err(|why| HistoryError {
            n: header.n,
            kind: header.kind.as_str().to_owned(),
            why,
        })?;
        self.said.passed(header);
        self.next += 1;
        self.time = header.time;
        self.epoch = header.epoch;
        self.run = run;
        Ok(())
    }

    /// What holds for records of every kind.
    fn follows(&self, header: &Header, run: Position) -> Fold {
        let starts = header.kind == Kind::ThreadStart;
        if header.n != self.next {
            return Err("its position is not the next one");
        }
        if header.thread != self.thread {
            return Err("it is of another thread");
        }
        if header.time < self.time {
            return Err("its time is before that of the record before");
        }
        if header.epoch < self.epoch {
            return Err("its epoch is below that of the record before");
        }
        if header.run != run {
            return Err("it does not belong to the thread's last run");
        }
        if starts && header.n > 0 {
            return Err("a thread starts with its first record only");
        }
        if !starts && header.n == 0 && !self.thread.is_reserved() {
            return Err("a thread begins with thread.start");
        }
        if self.end.is_some() && !is_fact(&header.kind) {
            return Err("the thread has ended");
        }
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
            Kind::TimerSet => self.open(header, payloads, CallKind::Timer),
            Kind::ApprovalRequest => self.open(header, payloads, CallKind::Approval),
            Kind::Clock => self.open(header, payloads, CallKind::Clock),
            Kind::TimerFired => self.fired(header),
            Kind::ApprovalDecide => self.approval(header, payloads),
            Kind::Signal => self.signal(header, payloads),
            Kind::Marker => self.marker_set(header),
            Kind::Unknown(_) => Err("this build does not know its kind; use a newer build"),
            // Written by later builds of format 1: this one cannot replay them.
            Kind::ThreadFork
            | Kind::StepDenied
            | Kind::StepReused
            | Kind::ChildStart
            | Kind::ChildEnd
            | Kind::Override => Err("this build cannot replay its kind; use a newer build"),
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
        }
    }

    fn thread_start(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let workflow = header.workflow.clone().ok_or("it names no workflow")?;
        self.input = bytes(payloads, Role::Input);
        self.start = Some(Start {
            workflow,
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
        if !header.carry.is_sorted_by(|a, b| a < b) {
            return Err("the positions that it carries over are not in their order");
        }
        if self.under_way(header.epoch) {
            return Err("an attempt is still under way");
        }
        self.episode = self.episode.checked_add(1).ok_or("it has too many episodes")?;
        self.episode_from = header.n;
        self.input = bytes(payloads, Role::Input);
        for queue in self.signals.values_mut() {
            queue.retain(|signal| header.carry.binary_search(&signal.position).is_ok());
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
        self.end = Some(End { status, position: header.n, result, failure });
        Ok(())
    }

    fn signal(&mut self, header: &Header, payloads: &[Payload]) -> Fold {
        let name = header.why.clone().ok_or("it does not name the signal")?;
        let value = bytes(payloads, Role::Value);
        let signal = Signal { position: header.n, value };
        self.signals.entry(name).or_default().push(signal);
        Ok(())
    }

    fn marker_set(&mut self, header: &Header) -> Fold {
        let word = header.why.clone().ok_or("it has no name")?;
        if &*word == "cancel" {
            let (position, by) = (header.n, header.by.clone());
            self.cancelled.get_or_insert(Cancellation { position, by });
        } else if let Some(name) = word.strip_prefix("patch:") {
            let set = match header.verdict.as_deref() {
                Some("true") => true,
                Some("false") => false,
                _ => return Err("it does not say what was answered"),
            };
            self.markers.entry(name.into()).or_insert(set);
        }
        Ok(())
    }
}

fn bytes(payloads: &[Payload], role: Role) -> Option<Bytes> {
    payloads.iter().find(|p| p.role == role).map(|p| p.bytes.clone())
}

fn failure(bytes: &[u8]) -> Option<Failure> {
    value::decode(bytes, &ValueLimits::new()).ok()
}
