//! Folding records into a history: what each kind of record means.

mod calls;

use std::{borrow::Cow, sync::Arc};

use super::{CallKind, Cancellation, End, History, Signal, Start};
use crate::{
    bytes::Bytes,
    failure::Failure,
    id::Position,
    limits::ValueLimits,
    record::{Gist, Header, HeaderError, Kind, Payload, Record, Role, Text},
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

/// A stored record that cannot be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Its header cannot be read.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// It does not fit its thread.
    #[error(transparent)]
    History(#[from] HistoryError),
}

impl History {
    /// Takes in the next record, as a home gives it: its integrity was checked there. Of its
    /// header no more is read than this needs. A record that is refused leaves the history as it
    /// was.
    ///
    /// # Errors
    /// The header cannot be read, or [`apply`](Self::apply) refuses the record.
    pub fn replay(&mut self, record: &Record) -> Result<(), ReplayError> {
        let mut gist = Gist::default();
        gist.read(&record.header)?;
        Ok(self.take_in(&gist, &record.payloads)?)
    }

    /// Takes in the next record, whose header is read already. A record that is refused leaves the
    /// history as it was.
    ///
    /// # Errors
    /// The record does not fit the ones before it, or is of a kind that this build does not know.
    pub fn apply(&mut self, header: &Header, payloads: &[Payload]) -> Result<(), HistoryError> {
        self.take_in(&Gist::from(header), payloads)
    }

    fn take_in(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Result<(), HistoryError> {
        // Every header has a kind; without one nothing follows.
        let kind = gist.kind.as_ref().unwrap_or(&Kind::ThreadFork);
        let begins_run = matches!(kind, Kind::ThreadStart | Kind::ThreadResume);
        let run = if begins_run { gist.n } else { self.run };
        let folded = self.follows(gist, kind, run).and_then(|()| self.fold(gist, kind, payloads));
        folded.map_err(|why| HistoryError { n: gist.n, kind: kind.as_str().to_owned(), why })?;
        self.said.passed(gist, kind);
        self.next += 1;
        self.time = gist.time;
        self.epoch = gist.epoch;
        self.run = run;
        Ok(())
    }

    /// What holds for records of every kind.
    fn follows(&self, gist: &Gist<'_>, kind: &Kind, run: Position) -> Fold {
        let starts = *kind == Kind::ThreadStart;
        if gist.n != self.next {
            return Err("its position is not the next one");
        }
        if !gist.thread.is(self.thread.as_str()) {
            return Err("it is of another thread");
        }
        if gist.time < self.time {
            return Err("its time is before that of the record before");
        }
        if gist.epoch < self.epoch {
            return Err("its epoch is below that of the record before");
        }
        if gist.run != run {
            return Err("it does not belong to the thread's last run");
        }
        if starts && gist.n > 0 {
            return Err("a thread starts with its first record only");
        }
        if !starts && gist.n == 0 && !self.thread.is_reserved() {
            return Err("a thread begins with thread.start");
        }
        if self.end.is_some() && !is_fact(kind) {
            return Err("the thread has ended");
        }
        Ok(())
    }

    fn fold(&mut self, gist: &Gist<'_>, kind: &Kind, payloads: &[Payload]) -> Fold {
        match kind {
            Kind::ThreadStart => self.thread_start(gist, payloads),
            Kind::ThreadContinue => self.thread_continue(gist, payloads),
            Kind::ThreadEnd => self.thread_end(gist, payloads),
            Kind::StepIntent => self.intent(gist, payloads),
            Kind::StepDone => self.done(gist, payloads),
            Kind::StepFail => self.fail(gist, payloads),
            Kind::StepUnknown => self.unknown(gist),
            Kind::StepResolve => self.resolve(gist, payloads),
            Kind::StepLate => self.late(gist),
            Kind::StepReused => self.reused(gist, payloads),
            Kind::Override => self.fresh_key(gist),
            Kind::TimerSet => self.open(gist, payloads, CallKind::Timer),
            Kind::ApprovalRequest => self.open(gist, payloads, CallKind::Approval),
            Kind::Clock => self.open(gist, payloads, CallKind::Clock),
            Kind::TimerFired => self.fired(gist),
            Kind::ApprovalDecide => self.approval(gist, payloads),
            Kind::Signal => self.signal(gist, payloads),
            Kind::Marker => self.marker_set(gist),
            Kind::Unknown(_) => Err("this build does not know its kind; use a newer build"),
            // Written by later builds of format 1: this one cannot replay them.
            Kind::ThreadFork | Kind::StepDenied | Kind::ChildStart | Kind::ChildEnd => {
                Err("this build cannot replay its kind; use a newer build")
            }
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

    fn thread_start(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let workflow = shared(gist.workflow.ok_or("it names no workflow")?)?;
        let build = gist.build.map(shared).transpose()?;
        self.input = bytes(payloads, Role::Input);
        self.start =
            Some(Start { workflow, input: bytes(payloads, Role::Input), time: gist.time, build });
        Ok(())
    }

    /// The next episode: positional identities begin anew, signals that were not delivered go
    /// over, and so do calls identified by key or by arguments.
    fn thread_continue(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        if self.start.is_none() {
            return Err("the thread has not started");
        }
        if !gist.carry.is_sorted_by(|a, b| a < b) {
            return Err("the positions that it carries over are not in their order");
        }
        if self.under_way(gist.epoch) {
            return Err("an attempt is still under way");
        }
        self.episode = self.episode.checked_add(1).ok_or("it has too many episodes")?;
        self.episode_from = gist.n;
        self.input = bytes(payloads, Role::Input);
        for queue in self.signals.values_mut() {
            queue.retain(|signal| gist.carry.binary_search(&signal.position).is_ok());
        }
        self.markers.clear();
        Ok(())
    }

    fn thread_end(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let status = match gist.verdict.map(owned).transpose()?.as_deref() {
            Some("done") => Status::Done,
            Some("failed") => Status::Failed,
            Some("cancelled") => Status::Cancelled,
            _ => return Err("it does not say how the thread ended"),
        };
        let failure = bytes(payloads, Role::Error).and_then(|b| failure(&b));
        let result = bytes(payloads, Role::Result);
        self.end = Some(End { status, position: gist.n, result, failure });
        Ok(())
    }

    fn signal(&mut self, gist: &Gist<'_>, payloads: &[Payload]) -> Fold {
        let name = shared(gist.why.ok_or("it does not name the signal")?)?;
        let value = bytes(payloads, Role::Value);
        let signal = Signal { position: gist.n, value };
        self.signals.entry(name).or_default().push(signal);
        Ok(())
    }

    fn marker_set(&mut self, gist: &Gist<'_>) -> Fold {
        let word = owned(gist.why.ok_or("it has no name")?)?;
        if &*word == "cancel" {
            let (position, by) = (gist.n, gist.by.map(shared).transpose()?);
            self.cancelled.get_or_insert(Cancellation { position, by });
        } else if let Some(name) = word.strip_prefix("patch:") {
            let set = match gist.verdict.map(owned).transpose()?.as_deref() {
                Some("true") => true,
                Some("false") => false,
                _ => return Err("it does not say what was answered"),
            };
            self.markers.entry(name.into()).or_insert(set);
        }
        Ok(())
    }
}

const UNREADABLE: &str = "a text in its header cannot be read";

fn owned(text: Text<'_>) -> Result<Cow<'_, str>, &'static str> {
    text.read().map_err(|_| UNREADABLE)
}

fn shared(text: Text<'_>) -> Result<Arc<str>, &'static str> {
    owned(text).map(Arc::from)
}

fn bytes(payloads: &[Payload], role: Role) -> Option<Bytes> {
    payloads.iter().find(|p| p.role == role).map(|p| p.bytes.clone())
}

fn failure(bytes: &[u8]) -> Option<Failure> {
    value::decode(bytes, &ValueLimits::new()).ok()
}
