//! A ticket: the right to say what became of an attempt.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    GuardError,
    claim::{self, Claimed, InDoubt, Settled},
    decided, row_at_rest, step,
};
use crate::{
    checkpointer::{Checkpointer, Lease, Message, StoreError},
    failure::Failure,
    history::{Answer, Call, Decision, Doubt, Ended, ended},
    id::{MessageId, StoreTime, ThreadId},
    limits::ValueLimits,
    message,
    pen::Draft,
    record::{Header, Kind, Record, Role},
    sheet::{self, Sheet},
    value,
};

/// How long a probe that could not tell is left alone.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// What the body of an attempt is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The key to send downstream, unless the step is a read.
    pub key: Option<Arc<str>>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When the first attempt began that may have had its effect.
    pub first_started_at: StoreTime,
}

/// What the downstream says of the last attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// It happened, with this result in MessagePack.
    Happened(Vec<u8>),
    /// It did not, and no request is still on its way.
    DidNotHappen,
    /// It could not tell.
    Inconclusive,
}

/// Where a step stands after an attempt that brought no result.
#[derive(Debug)]
pub enum After {
    /// The failure is its outcome.
    Settled(Settled),
    /// The next caller may try again.
    Open,
    /// Nobody knows whether it happened.
    InDoubt(InDoubt),
}

/// The right to say what became of an attempt, for as long as nobody else takes the step over.
///
/// Dropped without a word it is as if its caller had died: once the lease is over, the recorded
/// policy says what may follow.
pub struct Ticket {
    sheet: Sheet,
    lease: Lease,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("thread", &self.lease.thread).finish_non_exhaustive()
    }
}

impl Ticket {
    pub(super) fn new(sheet: Sheet, lease: Lease) -> Self {
        Self { sheet, lease }
    }

    /// The step's thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.lease.thread
    }

    /// The step, as shown.
    #[must_use]
    pub fn step(&self) -> String {
        self.call().map(|call| call.id.to_string()).unwrap_or_default()
    }

    /// What the body is given.
    #[must_use]
    pub fn operation(&self) -> Operation {
        let call = self.call();
        let last = call.and_then(|call| call.attempts.last());
        let started = call.and_then(Call::first_started);
        Operation {
            key: call.filter(|call| claim::has_effect(call)).and_then(|call| call.key.clone()),
            attempt: last.map_or(1, |attempt| attempt.number),
            first_started_at: started.or(last.map(|a| a.started)).unwrap_or(self.sheet.now),
        }
    }

    /// How long the attempt may take, as recorded.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.call().and_then(|call| call.terms).map_or(Duration::MAX, |terms| terms.timeout)
    }

    /// Until when nobody else may take the step over.
    #[must_use]
    pub fn until(&self) -> StoreTime {
        self.lease.until
    }

    /// Holds the step for so long from now on.
    ///
    /// # Errors
    /// [`GuardError::Lost`] if somebody else has it.
    pub async fn renew(
        &mut self,
        home: &dyn Checkpointer,
        time: Duration,
    ) -> Result<(), GuardError> {
        let held = [(self.lease.thread.clone(), self.lease.epoch)];
        let renewed = home.renew(&held, time).await?.into_iter().next().flatten();
        self.lease.until = renewed.ok_or(GuardError::Lost { kept: false })?;
        Ok(())
    }

    /// Lets go of a step that is to be asked about, without an answer: nothing is known that was
    /// not known before.
    pub async fn let_go(self, home: &dyn Checkpointer) {
        let held = [(self.lease.thread.clone(), self.lease.epoch)];
        // A lease that cannot be released runs out by itself.
        let _ = home.renew(&held, Duration::ZERO).await;
    }

    /// The effect happened, with this result in MessagePack. A result that cannot be stored still
    /// records that it happened.
    ///
    /// # Errors
    /// [`GuardError::Lost`]; [`GuardError::Store`], after which the attempt's end is unknown.
    pub async fn complete(
        self,
        home: &dyn Checkpointer,
        result: Vec<u8>,
    ) -> Result<Settled, GuardError> {
        match value::check(&result, &ValueLimits::new()) {
            Ok(()) => self.done(home, |draft| Ok(draft.payload(Role::Result, result))).await,
            Err(error) => self.complete_without(home, &Failure::of(&error)).await,
        }
    }

    /// The effect happened, and its result cannot be stored, for this reason.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub async fn complete_without(
        self,
        home: &dyn Checkpointer,
        why: &Failure,
    ) -> Result<Settled, GuardError> {
        let error = value::encode(why, &ValueLimits::new())?;
        let draft = |draft: Draft| {
            let draft = draft.with(|h| h.why = Some("result_not_stored".into()));
            Ok(draft.payload(Role::Error, error))
        };
        self.done(home, draft).await
    }

    async fn done(
        mut self,
        home: &dyn Checkpointer,
        fill: impl FnOnce(Draft) -> Result<Draft, GuardError>,
    ) -> Result<Settled, GuardError> {
        self.now(home).await?;
        let draft = fill(self.draft(Kind::StepDone)?)?;
        self.write(draft)?;
        self.close(home).await?;
        self.outcome()
    }

    /// The attempt certainly had no effect. Final failures are the step's outcome, which later
    /// callers are given; after others the next caller may try again, under the same key.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub async fn fail(
        self,
        home: &dyn Checkpointer,
        failure: &Failure,
        finally: bool,
    ) -> Result<After, GuardError> {
        let end = if finally { Ended::Terminal } else { Ended::NotApplied };
        self.ended(home, end, failure).await
    }

    /// Nobody knows whether the attempt had its effect: one of [`Doubt::OF_ATTEMPTS`] says why.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub async fn unknown(
        self,
        home: &dyn Checkpointer,
        why: Doubt,
        failure: &Failure,
    ) -> Result<After, GuardError> {
        self.ended(home, Ended::Ambiguous(why), failure).await
    }

    async fn ended(
        mut self,
        home: &dyn Checkpointer,
        end: Ended,
        failure: &Failure,
    ) -> Result<After, GuardError> {
        self.now(home).await?;
        let error = value::encode(failure, &ValueLimits::new())?;
        let call = self.call().ok_or_else(nothing)?;
        let terms = call.terms.ok_or_else(nothing)?;
        // The next attempt is the next caller's to begin: at once, if it wants.
        let record = ended(call, &terms, end, self.sheet.now);
        let draft = self.draft(record.kind.into())?.with(|h| {
            h.why = Some(record.why.into());
            h.due = record.due;
        });
        self.write(draft.payload(Role::Error, error))?;
        self.close(home).await?;
        self.after()
    }

    /// What the downstream says of the last attempt. After [`Answered::DidNotHappen`] this ticket
    /// becomes the next attempt's.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub async fn answer(
        mut self,
        home: &dyn Checkpointer,
        answer: Answered,
    ) -> Result<Claimed, GuardError> {
        self.now(home).await?;
        let opened = self.call().ok_or_else(nothing)?.opened;
        let draft = Draft::new(self.thread(), Kind::StepResolve).with(|h| {
            h.call = Some(opened);
            h.by = Some("probe".into());
        });
        let verdict = |draft: Draft, word: &str| draft.with(|h| h.verdict = Some(word.into()));
        match answer {
            Answered::Happened(result) => {
                value::check(&result, &ValueLimits::new())?;
                self.write(verdict(draft, "happened").payload(Role::Result, result))?;
                self.close(home).await?;
                return Ok(Claimed::Settled(self.outcome()?));
            }
            Answered::DidNotHappen => self.write(verdict(draft, "did_not_happen"))?,
            Answered::Inconclusive => {
                let due = self.sheet.now.after(ASK_AGAIN);
                self.write(verdict(draft, "inconclusive").with(|h| h.due = Some(due)))?;
            }
        }
        if let Decision::Start(attempt) = self.decide() {
            let call = self.call().ok_or_else(nothing)?;
            let draft = Draft::new(self.thread(), Kind::StepIntent);
            let draft = claim::again(draft, call, attempt);
            self.write(draft)?;
            let row = self.lease.row.clone();
            self.submit(home, row).await?;
            return Ok(Claimed::Fresh(Box::new(self)));
        }
        self.close(home).await?;
        match self.after()? {
            After::Settled(settled) => Ok(Claimed::Settled(settled)),
            After::InDoubt(doubt) => Ok(Claimed::InDoubt(doubt)),
            After::Open => Err(nothing()),
        }
    }

    fn call(&self) -> Option<&Call> {
        step(&self.sheet.history)
    }

    fn draft(&self, kind: Kind) -> Result<Draft, GuardError> {
        let call = self.call().ok_or_else(nothing)?;
        let attempt = call.attempts.last().ok_or_else(nothing)?.number;
        Ok(Draft::new(self.thread(), kind).with(|h| {
            h.call = Some(call.opened);
            h.attempt = Some(attempt);
        }))
    }

    /// The time of what is written from now on.
    async fn now(&mut self, home: &dyn Checkpointer) -> Result<(), GuardError> {
        self.sheet.now = home.now().await?.max(self.sheet.now);
        Ok(())
    }

    fn write(&mut self, draft: Draft) -> Result<(), GuardError> {
        self.sheet.write(draft).map_err(|error| sheet::refused(&error))?;
        Ok(())
    }

    /// Makes durable what is written, and lets go of the step.
    async fn close(&mut self, home: &dyn Checkpointer) -> Result<(), GuardError> {
        let row = row_at_rest(&self.sheet.history, &self.lease.row, self.sheet.now);
        self.submit(home, row).await?;
        let held = [(self.lease.thread.clone(), self.lease.epoch)];
        // A lease that cannot be released runs out by itself.
        let _ = home.renew(&held, Duration::ZERO).await;
        Ok(())
    }

    async fn submit(
        &mut self,
        home: &dyn Checkpointer,
        row: crate::row::Row,
    ) -> Result<(), GuardError> {
        let written = self.sheet.records.clone();
        match self.sheet.submit(home, &self.lease, row).await {
            Ok(_) => Ok(()),
            Err(StoreError::Fenced { .. } | StoreError::Moved { .. }) => {
                let late = written.iter().rev().find_map(|record| self.late(record));
                let kept = match late {
                    Some(late) => home.post(self.thread(), late).await.is_ok(),
                    None => false,
                };
                Err(GuardError::Lost { kept })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What became of an attempt, as a message to whoever has the step now.
    fn late(&self, record: &Record) -> Option<Message> {
        let header = Header::parse(&record.header).ok()?;
        if !matches!(header.kind, Kind::StepDone | Kind::StepFail | Kind::StepUnknown) {
            return None;
        }
        let limits = ValueLimits::new();
        let outcome = match (record.payload(Role::Result), record.payload(Role::Error)) {
            (Some(result), _) => Ok(message::Bytes(result.bytes.to_vec())),
            (None, Some(error)) => Err(value::decode(&error.bytes, &limits).ok()?),
            (None, None) => return None,
        };
        let body = value::encode(&message::Late { attempt: header.attempt?, outcome }, &limits);
        let mut id = [0; 16];
        id.copy_from_slice(record.hash.0.get(..16)?);
        Some(Message {
            id: MessageId(id),
            kind: message::LATE,
            name: self.call()?.id.to_string().into(),
            by: "guard".into(),
            body: body.ok()?.into(),
        })
    }

    fn decide(&self) -> Decision {
        decided(&self.sheet.history, self.sheet.now)
    }

    fn outcome(&self) -> Result<Settled, GuardError> {
        let call = self.call().ok_or_else(nothing)?;
        let outcome = call.outcome.as_ref().ok_or_else(nothing)?;
        Ok(claim::told(&self.sheet.history, call, outcome))
    }

    fn after(&self) -> Result<After, GuardError> {
        let doubt = |why, after| match claim::in_doubt(&self.sheet, why, after) {
            Claimed::InDoubt(doubt) => Ok(After::InDoubt(doubt)),
            _ => Err(nothing()),
        };
        let why = || self.call().and_then(Call::doubtful).unwrap_or(Doubt::Unlabelled);
        match self.decide() {
            Decision::Outcome(_) => Ok(After::Settled(self.outcome()?)),
            Decision::Doubt(why) => doubt(why, None),
            Decision::Ask => doubt(why(), Some(Duration::ZERO)),
            Decision::AskLater(until) => doubt(why(), Some(until.since(self.sheet.now))),
            _ => Ok(After::Open),
        }
    }
}

fn nothing() -> GuardError {
    let why = "the step's thread has no attempt under way";
    GuardError::Store(StoreError::Refused { why: why.into() })
}

impl Settled {
    /// The result in MessagePack, if it has one.
    #[must_use]
    pub fn result(&self) -> Option<&[u8]> {
        match &self.answer {
            Answer::Value(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Whether it failed for good.
    #[must_use]
    pub fn failed(&self) -> bool {
        matches!(self.answer, Answer::Failed(_) | Answer::Erased { failed: true })
    }

    /// Why it has no result: the recorded failure, if it failed for good or its result could not be
    /// stored; or that it was erased.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        match &self.answer {
            Answer::Erased { failed } => {
                let what = if *failed { "what went wrong" } else { "its result" };
                Some(Failure::new(format!("{what} was erased")).code("erased"))
            }
            Answer::Failed(bytes) | Answer::Unstored(bytes) => {
                value::decode(bytes, &ValueLimits::new()).ok()
            }
            _ => None,
        }
    }
}
