//! What a thread waits for that does nothing: in words in its row, and read back from there.

use std::sync::Arc;

use crate::{
    history::Doubt,
    id::{StepId, StoreTime},
    row::{Row, Status},
};

/// What a parked thread waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// A signal of this name.
    Signal(Arc<str>),
    /// A decision on this request.
    Approval(StepId),
    /// A timer.
    Timer(StepId, StoreTime),
    /// The next attempt of a step.
    Retry(StepId, StoreTime),
    /// The next time its downstream may be asked.
    Quiet(StepId, StoreTime),
    /// A person who settles a doubt.
    Doubt(StepId, Doubt),
    /// A person who settles a step again: what was said cannot be read, for this reason.
    Misread(StepId, Arc<str>),
}

impl Blocked {
    /// The status of a thread that waits for these, and for what, in words. What needs a person
    /// most is said first: a doubt, then a message, then the earliest time.
    #[must_use]
    pub fn status(blocked: &[Self]) -> (Status, String) {
        match blocked.iter().min_by_key(|b| b.rank()) {
            Some(first) => first.status_with(blocked.len() - 1),
            None => (Status::Running, String::new()),
        }
    }

    /// The status of a thread that waits for this first, and for so much more.
    #[must_use]
    pub fn status_with(&self, more: usize) -> (Status, String) {
        let (status, what) = self.words();
        let more = match more {
            // A name that looks like a count of further ones is not to be taken for it.
            0 if without_more(&what) == what => String::new(),
            more => format!(" (and {more} more)"),
        };
        (status, what + &more)
    }

    /// What comes first: the lowest.
    pub(super) fn rank(&self) -> (u8, StoreTime) {
        match self {
            Self::Doubt(..) | Self::Misread(..) => (0, StoreTime(0)),
            Self::Approval(_) => (1, StoreTime(0)),
            Self::Signal(_) => (2, StoreTime(0)),
            Self::Timer(_, at) | Self::Retry(_, at) | Self::Quiet(_, at) => (3, *at),
        }
    }

    /// When it is over by itself.
    #[must_use]
    pub fn until(&self) -> Option<StoreTime> {
        match self {
            Self::Timer(_, at) | Self::Retry(_, at) | Self::Quiet(_, at) => Some(*at),
            Self::Doubt(..) | Self::Misread(..) | Self::Approval(_) | Self::Signal(_) => None,
        }
    }

    fn words(&self) -> (Status, String) {
        match self {
            Self::Doubt(id, doubt) => (Status::InDoubt, format!("step {id}: {doubt}")),
            Self::Misread(id, why) => {
                (Status::InDoubt, format!("step {id}: {} ({why})", Doubt::Unreadable))
            }
            Self::Approval(id) => (Status::Waiting, format!("approval {id}")),
            Self::Signal(name) => (Status::Waiting, format!("signal {name}")),
            Self::Timer(id, until) => (Status::Sleeping, format!("timer {id} until {until}")),
            Self::Retry(id, until) => {
                (Status::Sleeping, format!("next attempt of step {id} at {until}"))
            }
            Self::Quiet(id, until) => {
                (Status::Sleeping, format!("the probe of step {id} at {until}"))
            }
        }
    }
}

/// What a thread waits for first: what its row says, for programs. Steps, timers and requests are
/// named as they are shown (`pay#0`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waits {
    /// A signal.
    Signal {
        /// Its name.
        name: Arc<str>,
    },
    /// A person who decides.
    Approval {
        /// The request.
        request: Arc<str>,
    },
    /// A timer.
    Timer {
        /// The timer.
        timer: Arc<str>,
        /// When it fires.
        until: StoreTime,
    },
    /// The next attempt of a step.
    Retry {
        /// The step.
        step: Arc<str>,
        /// When it may start.
        at: StoreTime,
    },
    /// The next question to the downstream of a step.
    Probe {
        /// The step.
        step: Arc<str>,
        /// When it may be asked.
        at: StoreTime,
    },
    /// A person who settles a doubt.
    Doubt {
        /// The step.
        step: Arc<str>,
        /// Why nobody knows.
        doubt: Doubt,
    },
}

impl Row {
    /// What a thread that is waiting, sleeping or in doubt waits for first; `None` in every other
    /// state. That there is more to wait for is said in [`Row::detail`].
    ///
    /// ```
    /// use deedbook_journal::{id::StoreTime, row::{Row, Status}, turn::Waits};
    ///
    /// let row = Row {
    ///     detail: Some("approval refund#0 (and 2 more)".into()),
    ///     ..Row::new("refund", Status::Waiting, StoreTime(0))
    /// };
    /// assert_eq!(row.waits_for(), Some(Waits::Approval { request: "refund#0".into() }));
    /// ```
    #[must_use]
    pub fn waits_for(&self) -> Option<Waits> {
        let detail = without_more(self.detail.as_deref()?);
        match self.status {
            Status::Waiting => {
                let request = detail.strip_prefix("approval ");
                let request = request.map(|id| Waits::Approval { request: id.into() });
                let name = detail.strip_prefix("signal ");
                request.or_else(|| name.map(|name| Waits::Signal { name: name.into() }))
            }
            Status::Sleeping => sleeping(detail, self.wake_at?),
            Status::InDoubt => doubtful(detail.strip_prefix("step ")?),
            _ => None,
        }
    }
}

/// The first of what is slept for is the one with the earliest time, which is the row's.
fn sleeping(detail: &str, at: StoreTime) -> Option<Waits> {
    let named = |prefix: &str, word: &str| {
        let (name, _) = detail.strip_prefix(prefix)?.rsplit_once(word)?;
        Some(Arc::<str>::from(name))
    };
    if let Some(timer) = named("timer ", " until ") {
        return Some(Waits::Timer { timer, until: at });
    }
    if let Some(step) = named("next attempt of step ", " at ") {
        return Some(Waits::Retry { step, at });
    }
    named("the probe of step ", " at ").map(|step| Waits::Probe { step, at })
}

fn doubtful(detail: &str) -> Option<Waits> {
    let of = |step: &str, doubt| Some(Waits::Doubt { step: step.into(), doubt });
    for doubt in Doubt::ALL {
        if let Some(step) = detail.strip_suffix(&format!(": {doubt}")) {
            return of(step, doubt);
        }
    }
    let (step, _) = detail.split_once(&format!(": {} (", Doubt::Unreadable))?;
    of(step, Doubt::Unreadable)
}

/// Without the count of further ones at the end.
fn without_more(detail: &str) -> &str {
    let counted = |rest: &str| {
        let (what, count) = rest.strip_suffix(" more)")?.rsplit_once(" (and ")?;
        let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
        digits.then_some(what.len())
    };
    counted(detail).and_then(|end| detail.get(..end)).unwrap_or(detail)
}
