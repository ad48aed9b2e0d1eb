//! One recorded call of a workflow: its attempts, where it stands, and its outcome.

use std::{fmt, ops::Deref, sync::Arc};

use crate::{
    bytes::Bytes,
    id::{Epoch, Position, StepId, StoreTime},
    limits::{POISON_CRASHES_MAX, PROBES_MAX},
    policy::{Policy, Terms},
};

/// What kind of call it is. Calls of different kinds may share a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallKind {
    /// A step: it has attempts.
    Step,
    /// A timer.
    Timer,
    /// A question to a person.
    Approval,
    /// A reading of the clock.
    Clock,
    /// A wait for a signal: never recorded itself, only what it receives.
    Signal,
}

impl CallKind {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Approval => "approval",
            Self::Clock => "clock reading",
            Self::Signal => "signal",
        }
    }
}

/// A recorded call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its kind.
    pub kind: CallKind,
    /// Its identity.
    pub id: StepId,
    /// The position of the record that opened it.
    pub opened: Position,
    /// When it was opened.
    pub opened_time: StoreTime,
    /// What was declared of a step.
    pub terms: Option<Terms>,
    /// The operation key of a step with an effect.
    pub key: Option<Arc<str>>,
    /// The generation of the key: how often a fresh one was granted.
    pub generation: u64,
    /// The arguments of a step, in MessagePack; `None` once erased.
    pub args: Option<Bytes>,
    /// The commitment of what a person was shown.
    pub shown: Option<[u8; 32]>,
    /// When a timer fires.
    pub due: Option<StoreTime>,
    /// The attempts of a step.
    pub attempts: Attempts,
    /// Inconclusive answers of probes since the last attempt began, and when to ask again.
    pub probes: u32,
    /// When a probe may be asked again.
    pub probe_due: Option<StoreTime>,
    /// Positions of results that came too late.
    pub late: Vec<Position>,
    /// What the workflow is given for it.
    pub outcome: Option<Outcome>,
}

/// The attempts of a step. Nearly every step has one, which needs no memory of its own.
#[derive(Debug, Clone, Default)]
pub struct Attempts(Held);

#[derive(Debug, Clone, Default)]
enum Held {
    #[default]
    None,
    One(Attempt),
    More(Vec<Attempt>),
}

impl Attempts {
    pub(super) fn push(&mut self, attempt: Attempt) {
        self.0 = match std::mem::take(&mut self.0) {
            Held::None => Held::One(attempt),
            Held::One(first) => Held::More(vec![first, attempt]),
            Held::More(mut all) => {
                all.push(attempt);
                Held::More(all)
            }
        };
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Attempt> {
        match &mut self.0 {
            Held::None => None,
            Held::One(only) => Some(only),
            Held::More(all) => all.last_mut(),
        }
    }
}

impl Deref for Attempts {
    type Target = [Attempt];

    fn deref(&self) -> &[Attempt] {
        match &self.0 {
            Held::None => &[],
            Held::One(only) => std::slice::from_ref(only),
            Held::More(all) => all,
        }
    }
}

/// One attempt of a step.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// The position of its intent.
    pub at: Position,
    /// When its intent was written; the body started after that.
    pub started: StoreTime,
    /// The epoch of the run that began it.
    pub epoch: Epoch,
    /// What became of it.
    pub end: AttemptEnd,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEnd {
    /// Nothing is recorded: it is under way, or it died with its process.
    Open,
    /// It was granted and its body never began: it counts as no attempt.
    NotStarted,
    /// It certainly had no effect (or, under `read`, had none to have); the next one may start
    /// at this time, if there is to be one.
    NoEffect(Option<StoreTime>),
    /// It may have had its effect; the next one may start at this time, if there is to be one.
    Ambiguous(Doubt, Option<StoreTime>),
    /// Somebody found out that it had no effect.
    Cleared {
        /// A person did, and so lets the count of attempts begin anew; not a probe.
        by_person: bool,
        /// It had died with its process.
        died: bool,
    },
    /// It settled the step.
    Settled,
}

/// Why nobody knows whether a step had its effect, or why it may not go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// The process died while the body ran.
    Crash,
    /// The body took longer than the step's timeout.
    Timeout,
    /// The body panicked.
    Panic,
    /// The workflow dropped the step while the body ran.
    Dropped,
    /// The body failed without saying whether the effect happened.
    Unlabelled,
    /// The thread was cancelled while the body ran.
    Cancelled,
    /// The downstream may have forgotten the key by now.
    WindowOver,
    /// All attempts are used up, and at least one of them was ambiguous.
    Exhausted,
    /// Several processes died while the body ran.
    Poison,
    /// The probe could not tell, several times.
    ProbesExhausted,
    /// What a person said to have happened cannot be read as the type that the code expects.
    Unreadable,
}

impl Doubt {
    pub(crate) const ALL: [Self; 11] = [
        Self::Crash,
        Self::Timeout,
        Self::Panic,
        Self::Dropped,
        Self::Unlabelled,
        Self::Cancelled,
        Self::WindowOver,
        Self::Exhausted,
        Self::Poison,
        Self::ProbesExhausted,
        Self::Unreadable,
    ];

    /// The word in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Dropped => "dropped",
            Self::Unlabelled => "unlabelled",
            Self::Cancelled => "cancelled",
            Self::WindowOver => "window_over",
            Self::Exhausted => "exhausted",
            Self::Poison => "poison",
            Self::ProbesExhausted => "probes_exhausted",
            Self::Unreadable => "unreadable",
        }
    }

    /// Those that an attempt can end with. The others come about without a word of it.
    pub const OF_ATTEMPTS: [Self; 5] =
        [Self::Timeout, Self::Panic, Self::Dropped, Self::Unlabelled, Self::Cancelled];

    /// The doubt with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.as_str() == word)
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crash => "the process died while the body ran",
            Self::Timeout => "the body took longer than its timeout",
            Self::Panic => "the body panicked",
            Self::Dropped => "the workflow dropped the step while the body ran",
            Self::Unlabelled => "the body failed without saying whether the effect happened",
            Self::Cancelled => "the thread was cancelled while the body ran",
            Self::WindowOver => "the downstream may have forgotten the operation key by now",
            Self::Exhausted => "all attempts are used up and at least one was ambiguous",
            Self::Poison => "several processes died while the body ran",
            Self::ProbesExhausted => "the probe could not tell, several times",
            Self::Unreadable => {
                "what a person said to have happened is no value of the type that the code expects"
            }
        })
    }
}

/// What the workflow is given for a call.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its position: the order in which outcomes are offered.
    pub position: Position,
    /// When it was recorded.
    pub time: StoreTime,
    /// The answer.
    pub answer: Answer,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A value, in MessagePack.
    Value(Bytes),
    /// A [`crate::failure::Failure`], in MessagePack.
    Failed(Bytes),
    /// It happened, and its result could not be stored; why, as a failure in MessagePack.
    Unstored(Bytes),
    /// A timer fired.
    Fired,
    /// The clock was read.
    Time(StoreTime),
    /// A person decided.
    Decided {
        /// Whether it was granted.
        granted: bool,
        /// By whom.
        by: Arc<str>,
        /// Why, as a text in MessagePack; `None` once erased.
        reason: Option<Bytes>,
    },
    /// The payload was erased; what it came to is still known.
    Erased {
        /// Whether it was a failure.
        failed: bool,
    },
}

/// Where a step stands: what may happen to it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has its outcome.
    Settled,
    /// An attempt is under way in this run.
    UnderWay,
    /// The attempt with this number may start.
    Ready(u32),
    /// The next attempt may not start before this time.
    Later(StoreTime),
    /// The downstream may be asked.
    Ask,
    /// The downstream may not be asked before this time.
    AskLater(StoreTime),
    /// Only a person can settle it.
    Doubt(Doubt),
}

impl Call {
    /// When the first attempt that may still have had its effect began.
    #[must_use]
    pub fn first_started(&self) -> Option<StoreTime> {
        let may_have =
            |a: &&Attempt| !matches!(a.end, AttemptEnd::NoEffect(_) | AttemptEnd::NotStarted);
        self.uncleared().iter().find(may_have).map(|a| a.started)
    }

    /// The attempts since somebody last found out that there was no effect.
    pub(super) fn uncleared(&self) -> &[Attempt] {
        self.behind(|end| matches!(end, AttemptEnd::Cleared { .. }))
    }

    /// The attempts since a person last let the step begin anew.
    fn counted(&self) -> &[Attempt] {
        self.behind(|end| matches!(end, AttemptEnd::Cleared { by_person: true, .. }))
    }

    fn behind(&self, cut: impl Fn(&AttemptEnd) -> bool) -> &[Attempt] {
        let last = self.attempts.iter().rposition(|a| cut(&a.end));
        let from = last.map_or(0, |at| at + 1);
        self.attempts.get(from..).unwrap_or_default()
    }

    /// Whether the attempts, but for those that never began, are as many as there may be.
    pub(super) fn used_up(&self, terms: &Terms) -> bool {
        let began = |a: &&Attempt| a.end != AttemptEnd::NotStarted;
        let count = self.counted().iter().filter(began).count();
        u32::try_from(count).unwrap_or(u32::MAX) >= terms.attempts_max
    }

    /// Where this step stands under `terms`: pure and total. Records at or above `live_from`
    /// belong to the run that asks.
    #[must_use]
    pub fn standing(&self, terms: Option<&Terms>, live_from: Position, now: StoreTime) -> Standing {
        self.stands(terms, live_from, now, false)
    }

    /// As [`Self::standing`], for a call that the workflow makes. An identity by key or by
    /// arguments allows it to make a step again that it dropped: that one's policy then decides
    /// as after a crash.
    pub(super) fn standing_made(
        &self,
        terms: Option<&Terms>,
        live_from: Position,
        now: StoreTime,
    ) -> Standing {
        self.stands(terms, live_from, now, true)
    }

    fn stands(
        &self,
        terms: Option<&Terms>,
        live_from: Position,
        now: StoreTime,
        made: bool,
    ) -> Standing {
        if self.outcome.is_some() {
            return Standing::Settled;
        }
        let number = self.attempts.last().map_or(0, |a| a.number).saturating_add(1);
        let (Some(terms), Some(last)) = (terms, self.attempts.last()) else {
            return Standing::Ready(number);
        };
        let (why, due) = match &last.end {
            AttemptEnd::Open if last.at >= live_from => return Standing::UnderWay,
            AttemptEnd::Cleared { .. } => return self.begins_anew(terms, number),
            AttemptEnd::Settled => return Standing::Ready(number),
            AttemptEnd::NoEffect(Some(due)) if now < *due => return Standing::Later(*due),
            AttemptEnd::NoEffect(_) | AttemptEnd::NotStarted => {
                return self.again(terms, number, now);
            }
            AttemptEnd::Open => (Doubt::Crash, None),
            AttemptEnd::Ambiguous(why, due) => (*why, *due),
        };
        if why == Doubt::Unreadable {
            return Standing::Doubt(why);
        }
        if self.crashes() >= POISON_CRASHES_MAX {
            return Standing::Doubt(Doubt::Poison);
        }
        if why == Doubt::Cancelled || why == Doubt::Dropped && !made {
            return Standing::Doubt(why);
        }
        match due {
            Some(due) if now < due && may_send_again(terms.policy) => Standing::Later(due),
            _ => self.again(terms, number, now),
        }
    }

    /// After somebody found out that nothing happened.
    fn begins_anew(&self, terms: &Terms, number: u32) -> Standing {
        if self.crashes() >= POISON_CRASHES_MAX {
            Standing::Doubt(Doubt::Poison)
        } else if terms.policy.has_effect() && self.used_up(terms) {
            // The downstream says no each time: that leads nowhere by itself.
            Standing::Doubt(Doubt::Exhausted)
        } else {
            Standing::Ready(number)
        }
    }

    /// Whether another attempt may be sent.
    fn again(&self, terms: &Terms, number: u32, now: StoreTime) -> Standing {
        // A read has no effect to be in doubt about; how often it may die is bounded above.
        let doubt = self.doubtful().filter(|_| terms.policy.has_effect());
        let Some(why) = doubt else {
            return Standing::Ready(number);
        };
        match terms.policy {
            Policy::AtMostOnce => Standing::Doubt(why),
            Policy::Reconcile => self.reconcile(terms, now),
            Policy::Read | Policy::Idempotent if self.used_up(terms) => {
                Standing::Doubt(Doubt::Exhausted)
            }
            Policy::Read | Policy::Idempotent if !self.key_honoured(terms, now) => {
                Standing::Doubt(Doubt::WindowOver)
            }
            Policy::Read | Policy::Idempotent => Standing::Ready(number),
        }
    }

    /// Why the last attempt that may have had its effect is uncertain, if there is one.
    pub(crate) fn doubtful(&self) -> Option<Doubt> {
        self.uncleared().iter().rev().find_map(|a| match a.end {
            AttemptEnd::Open => Some(Doubt::Crash),
            AttemptEnd::Ambiguous(why, _) => Some(why),
            _ => None,
        })
    }

    /// Whether an attempt sent now is over while the downstream certainly honours the key.
    #[must_use]
    pub fn key_honoured(&self, terms: &Terms, now: StoreTime) -> bool {
        let (Some(window), Some(first)) = (terms.window, self.first_started()) else {
            return true;
        };
        let usable = window.saturating_sub(Terms::margin(window));
        now.after(terms.timeout) < first.after(usable)
    }

    fn reconcile(&self, terms: &Terms, now: StoreTime) -> Standing {
        if self.probes >= PROBES_MAX {
            return Standing::Doubt(Doubt::ProbesExhausted);
        }
        let last = self.attempts.last().map_or(now, |a| a.started);
        let quiet = last.after(terms.quiet);
        let due = self.probe_due.map_or(quiet, |due| due.max(quiet));
        if now < due { Standing::AskLater(due) } else { Standing::Ask }
    }

    /// Why nobody knows whether this step had its effect. `None` for a step that has its outcome,
    /// that certainly had no effect, or that has none to have.
    #[must_use]
    pub fn unanswered(&self) -> Option<Doubt> {
        let has_effect = self.terms.is_none_or(|t| t.policy.has_effect());
        if self.outcome.is_some() || !has_effect {
            return None;
        }
        self.doubtful()
    }

    /// How many attempts have died with their process since a person let the step begin anew.
    fn crashes(&self) -> usize {
        let died = |a: &&Attempt| {
            matches!(a.end, AttemptEnd::Open | AttemptEnd::Cleared { died: true, .. })
        };
        self.counted().iter().filter(died).count()
    }
}

/// Whether the downstream takes an attempt again without being asked first.
fn may_send_again(policy: Policy) -> bool {
    matches!(policy, Policy::Read | Policy::Idempotent)
}
