//! What the records of one thread add up to.
//!
//! A [`History`] is folded from records one by one ([`History::apply`]), by the runtime as it
//! writes them and by every reader alike. Two pure functions decide from it, and nothing else
//! does: [`decide`] says what may happen to one call, and [`crate::turn::next`] what the thread
//! does next.

mod call;
mod decide;
mod divergence;
mod ended;
mod fold;
mod index;
mod said;

use std::{collections::HashMap, fmt, hash::BuildHasher, sync::Arc};

pub use call::{Answer, Attempt, AttemptEnd, Attempts, Call, CallKind, Doubt, Outcome, Standing};
pub(crate) use decide::decide_recorded;
pub use decide::{Decision, Declared, decide, diverged};
pub use divergence::{Divergence, DivergenceKind, Instead};
pub use ended::{EndKind, EndRecord, Ended, ended};
pub use fold::{HistoryError, ReplayError};
use index::Index;

use crate::{
    bytes::Bytes,
    failure::Failure,
    guard,
    id::{Epoch, IdentityKind, Name, Position, StepId, StoreTime, ThreadId},
    keyed::Keyed,
    row::{Row, Status},
};

/// For how many calls memory is asked for ahead.
const EXPECTED_MAX: usize = 1 << 17;

/// The state of one thread, as far as its records tell it.
#[derive(Debug, Clone)]
pub struct History {
    thread: ThreadId,
    /// Under which fingerprints of stored arguments are computed.
    secret: [u8; 32],
    next: Position,
    /// Records below this were there when the thread was taken hold of: attempts among them that
    /// are still open died with their process.
    live_from: Position,
    time: StoreTime,
    /// The workflow's code has come to its end.
    code_is_over: bool,
    epoch: Epoch,
    /// The position of the last `thread.start` or `thread.resume`.
    run: Position,
    episode: u32,
    /// Records below this belong to earlier episodes.
    episode_from: Position,
    /// The input of this episode; `None` once erased.
    input: Option<Bytes>,
    start: Option<Start>,
    calls: Vec<Call>,
    /// Which of them has an identity.
    index: Index,
    /// Steps in the order in which they were opened: all that are not settled, and maybe some
    /// that are.
    unsettled: Vec<usize>,
    /// About how many of those are settled.
    settled: usize,
    /// The names of steps, and the kind of identity that each has.
    names: HashMap<Name, Option<IdentityKind>, Keyed>,
    signals: HashMap<Arc<str>, Vec<Signal>>,
    markers: HashMap<Arc<str>, bool>,
    said: said::Said,
    cancelled: Option<Cancellation>,
    end: Option<End>,
}

/// How a thread began.
#[derive(Debug, Clone)]
pub struct Start {
    /// Its workflow.
    pub workflow: Arc<str>,
    /// Its input, in MessagePack; `None` once erased.
    pub input: Option<Bytes>,
    /// When.
    pub time: StoreTime,
    /// The version of the user's code.
    pub build: Option<Arc<str>>,
}

/// A signal that has its position.
#[derive(Debug, Clone)]
pub struct Signal {
    /// The position.
    pub position: Position,
    /// The value, in MessagePack; `None` once erased.
    pub value: Option<Bytes>,
}

/// A cancellation that has its position.
#[derive(Debug, Clone)]
pub struct Cancellation {
    /// The position.
    pub position: Position,
    /// Who asked for it.
    pub by: Option<Arc<str>>,
}

/// How a thread ended.
#[derive(Debug, Clone)]
pub struct End {
    /// [`Status::Done`], [`Status::Failed`] or [`Status::Cancelled`].
    pub status: Status,
    /// The position of `thread.end`.
    pub position: Position,
    /// The result, in MessagePack, of a thread that is done; `None` once erased.
    pub result: Option<Bytes>,
    /// What went wrong in a thread that failed.
    pub failure: Option<Failure>,
}

impl History {
    /// The history of a thread without records.
    #[must_use]
    pub fn new(thread: ThreadId, secret: [u8; 32]) -> Self {
        Self {
            thread,
            secret,
            next: 0,
            live_from: 0,
            time: StoreTime(0),
            code_is_over: false,
            epoch: Epoch(0),
            run: 0,
            episode: 0,
            episode_from: 0,
            input: None,
            start: None,
            calls: Vec::new(),
            index: Index::default(),
            unsettled: Vec::new(),
            settled: 0,
            names: HashMap::with_hasher(Keyed::under(&secret)),
            signals: HashMap::new(),
            markers: HashMap::new(),
            said: said::Said::default(),
            cancelled: None,
            end: None,
        }
    }

    /// Says that about so many records are to come, so that memory for them is asked for once.
    pub fn expect(&mut self, records: Position) {
        // Most calls are steps with an intent and an outcome.
        let calls = usize::try_from(records / 2).unwrap_or(usize::MAX).min(EXPECTED_MAX);
        self.calls.reserve(calls);
        self.index.reserve(calls);
    }

    /// Says that everything so far was read from the journal: open attempts died with the process
    /// that made them.
    pub fn loaded(&mut self) {
        self.live_from = self.next;
    }

    /// Says whether the workflow's code (of this episode) has come to its end, and asks for nothing
    /// any more.
    pub fn set_code_is_over(&mut self, over: bool) {
        self.code_is_over = over;
    }

    /// Says that the code has come to its end if a row of the thread tells so: it counts more
    /// doubts than there would be in a thread that goes on.
    pub fn believe(&mut self, row: &Row, now: StoreTime) {
        let doubts = u32::try_from(self.doubts(now).count()).unwrap_or(u32::MAX);
        self.code_is_over |= row.status == Status::InDoubt && row.open_doubts > doubts;
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// The position of the next record.
    #[must_use]
    pub fn next(&self) -> Position {
        self.next
    }

    /// Records below this position were there when the thread was taken hold of.
    #[must_use]
    pub fn live_from(&self) -> Position {
        self.live_from
    }

    /// The position of the last `thread.start` or `thread.resume`.
    #[must_use]
    pub fn run(&self) -> Position {
        self.run
    }

    /// The time of the last record.
    #[must_use]
    pub fn time(&self) -> StoreTime {
        self.time
    }

    /// The episode.
    #[must_use]
    pub fn episode(&self) -> u32 {
        self.episode
    }

    /// Records below this position belong to earlier episodes.
    #[must_use]
    pub fn episode_from(&self) -> Position {
        self.episode_from
    }

    /// The input of this episode, in MessagePack; `None` once erased.
    #[must_use]
    pub fn input(&self) -> Option<&Bytes> {
        self.input.as_ref()
    }

    /// How the thread began.
    #[must_use]
    pub fn start(&self) -> Option<&Start> {
        self.start.as_ref()
    }

    /// How the thread ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether the thread is to be cancelled.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.cancelled.is_some()
    }

    /// The cancellation, if the thread is to be cancelled.
    #[must_use]
    pub fn cancellation(&self) -> Option<&Cancellation> {
        self.cancelled.as_ref()
    }

    /// Every recorded call, in the order in which they were opened.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The number of the call with this identity, if it is recorded.
    #[must_use]
    pub fn number(&self, kind: CallKind, id: &StepId) -> Option<usize> {
        self.number_with(self.hash_of(kind, id), kind, id)
    }

    fn number_with(&self, hash: u32, kind: CallKind, id: &StepId) -> Option<usize> {
        self.index.find(hash, |number| {
            self.calls.get(number).is_some_and(|call| call.kind == kind && call.id == *id)
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    fn hash_of(&self, kind: CallKind, id: &StepId) -> u32 {
        self.names.hasher().hash_one((kind, id)) as u32
    }

    /// How identities of this thread are hashed: under its journal's secret.
    #[must_use]
    pub fn keyed(&self) -> Keyed {
        *self.names.hasher()
    }

    /// The call that was opened at this position.
    #[must_use]
    pub fn opened_at(&self, position: Position) -> Option<&Call> {
        self.calls.get(self.number_at(position)?)
    }

    /// The number of the call that was opened at this position.
    #[must_use]
    pub fn number_at(&self, position: Position) -> Option<usize> {
        // Most records are about the call that was opened last.
        let last = self.calls.len().checked_sub(1)?;
        if self.calls.get(last)?.opened == position {
            return Some(last);
        }
        // Calls stand in the order of their positions.
        self.calls.binary_search_by_key(&position, |c| c.opened).ok()
    }

    /// The call whose id is shown so. Ids by arguments are shown with the first digits of their
    /// fingerprint only: where two calls are shown alike, this is the one that is not settled, and
    /// none if that does not tell them apart.
    #[must_use]
    pub fn find(&self, kind: CallKind, shown: &str) -> Option<&Call> {
        let alike = || {
            let calls = self.calls.iter();
            calls.filter(move |c| c.kind == kind && shown_so(&c.id, shown))
        };
        let only = |mut calls: Box<dyn Iterator<Item = _> + '_>| match (calls.next(), calls.next())
        {
            (Some(call), None) => Some(call),
            _ => None,
        };
        only(Box::new(alike()))
            .or_else(|| only(Box::new(alike().filter(|c| c.outcome.is_none()))))
            .or_else(|| self.guarded(kind, shown))
    }

    /// The step of a guarded step's thread, as it was shown before its arguments were erased, of
    /// which the digits of its fingerprint are made.
    fn guarded(&self, kind: CallKind, shown: &str) -> Option<&Call> {
        let call =
            guard::step(self).filter(|_| kind == CallKind::Step && guard::is_guarded(self))?;
        let parts = |shown: &str| {
            let (name, digits) = shown.rsplit_once('~')?;
            let (_, occurrence) = digits.split_once('#')?;
            Some((name.to_owned(), occurrence.to_owned()))
        };
        let (is, asked) = (parts(&call.id.to_string())?, parts(shown)?);
        (is == asked).then_some(call)
    }

    /// The kind of identity that a step name has in this thread.
    #[must_use]
    pub fn identity_kind(&self, name: &Name) -> Option<IdentityKind> {
        self.names.get(name).copied().flatten()
    }

    /// The signals of this name, in the order of their positions.
    #[must_use]
    pub fn signals(&self, name: &str) -> &[Signal] {
        self.signals.get(name).map_or(&[], Vec::as_slice)
    }

    /// The signals of every name.
    pub fn all_signals(&self) -> impl Iterator<Item = (&Arc<str>, &[Signal])> {
        self.signals.iter().map(|(name, signals)| (name, signals.as_slice()))
    }

    /// The recorded answer to `patched(name)`.
    #[must_use]
    pub fn marker(&self, name: &str) -> Option<bool> {
        self.markers.get(name).copied()
    }

    /// The recorded answers to `patched`, in this episode.
    pub fn markers(&self) -> impl Iterator<Item = (&Arc<str>, bool)> {
        self.markers.iter().map(|(name, answer)| (name, *answer))
    }

    /// Where a step stands, by its recorded terms. When the code asks for nothing any more, for it
    /// is over or the thread is cancelled, no policy carries anything on by itself: whatever may
    /// have had its effect is in doubt. But what a person said to have happened needs not be
    /// readable any more: nobody reads it.
    #[must_use]
    pub fn standing(&self, call: &Call, now: StoreTime) -> Standing {
        let standing = call.standing(call.terms.as_ref(), self.live_from, now);
        match standing {
            Standing::Doubt(Doubt::Unreadable) if self.code_is_over || self.cancelled() => {
                Standing::Settled
            }
            Standing::Settled | Standing::UnderWay | Standing::Doubt(_) => standing,
            _ if self.code_is_over || self.cancelled() => {
                call.unanswered().map_or(standing, Standing::Doubt)
            }
            _ => standing,
        }
    }

    /// The steps in doubt, in the order in which they were opened.
    pub fn doubts(&self, now: StoreTime) -> impl Iterator<Item = (&Call, Doubt)> {
        self.unsettled().filter_map(move |call| match self.standing(call, now) {
            Standing::Doubt(doubt) => Some((call, doubt)),
            _ => None,
        })
    }

    /// The steps that are not settled, in the order in which they were opened.
    fn unsettled(&self) -> impl Iterator<Item = &Call> {
        let calls = self.unsettled.iter().filter_map(|number| self.calls.get(*number));
        calls.filter(|call| call.outcome.is_none())
    }

    /// A step that was settled is not any more.
    fn reopen(&mut self, number: usize) {
        if let Err(at) = self.unsettled.binary_search(&number) {
            self.unsettled.insert(at, number);
        }
    }

    /// A step more is settled. Steps that run side by side settle in any order, so they are
    /// forgotten when they are half of all, and each costs the same in the end.
    fn forget_settled(&mut self) {
        self.settled += 1;
        let calls = &self.calls;
        let open = |number: &usize| calls.get(*number).is_some_and(|c| c.outcome.is_none());
        while self.unsettled.pop_if(|last| !open(last)).is_some() {
            self.settled = self.settled.saturating_sub(1);
        }
        if self.settled * 2 > self.unsettled.len() {
            self.unsettled.retain(open);
            self.settled = 0;
        }
    }
}

/// Compares without making the text: a thread may have very many calls.
fn shown_so(id: &StepId, shown: &str) -> bool {
    struct Rest<'a>(&'a str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(shown);
    fmt::Write::write_fmt(&mut rest, format_args!("{id}")).is_ok() && rest.0.is_empty()
}

#[cfg(test)]
pub(crate) mod tests;
