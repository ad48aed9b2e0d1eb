//! A thread's row: what lists show and claims look at, kept beside its records.

use std::{fmt, str::FromStr, sync::Arc};

use crate::id::StoreTime;

/// The state of a thread, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// A run holds it, or the run that held it has crashed.
    Running,
    /// It waits for a signal or an approval.
    Waiting,
    /// It cannot go on, or cannot end, before a doubt is settled.
    InDoubt,
    /// It waits for a time.
    Sleeping,
    /// It ended with a result.
    Done,
    /// It ended with an error.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its code disagrees with its records; nothing was executed.
    Diverged,
    /// It waits for something that Deedbook does not know, or its code panicked.
    Stalled,
    /// A step of its own ([`crate::guard`]) of which nothing runs: it has its outcome, or its next
    /// caller carries it on.
    Idle,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Running,
        Self::Waiting,
        Self::InDoubt,
        Self::Sleeping,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::Diverged,
        Self::Stalled,
        Self::Idle,
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::InDoubt => "in doubt",
            Self::Sleeping => "sleeping",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Diverged => "diverged",
            Self::Stalled => "stalled",
            Self::Idle => "idle",
        }
    }

    /// Whether a thread in this state has ended for good.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Whether nothing happens to a thread in this state unless somebody comes for it: a home need
    /// not keep it at hand.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        self.is_ended() || self == Self::Idle
    }

    /// The byte under which it is stored.
    #[must_use]
    pub fn as_byte(self) -> u8 {
        self as u8
    }

    /// The status stored as `byte`.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_byte() == byte)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = String;

    /// Reads the word; `in-doubt` and `in_doubt` stand for `in doubt`.
    fn from_str(text: &str) -> Result<Self, String> {
        let word = text.replace(['-', '_'], " ");
        Self::ALL.into_iter().find(|s| s.as_str() == word).ok_or_else(|| {
            let words: Vec<_> = Self::ALL.iter().map(|s| s.as_str().replace(' ', "-")).collect();
            format!("{text:?} is not a status; the statuses are {}", words.join(", "))
        })
    }
}

/// What lists and claims look at; a checkpointer stores it and interprets no more of it than
/// [`crate::checkpointer::Filter::admits`] and [`crate::checkpointer::Claim::Due`] say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The workflow's name.
    pub workflow: Arc<str>,
    /// The state.
    pub status: Status,
    /// Since when.
    pub since: StoreTime,
    /// When an unheld thread has something to do: a timer, a retry, or zero for at once.
    pub wake_at: Option<StoreTime>,
    /// What it waits for, or why it stopped, for people.
    pub detail: Option<Arc<str>>,
    /// Steps in doubt.
    pub open_doubts: u32,
    /// When the thread was created.
    pub created_at: StoreTime,
}

impl Row {
    /// A thread that was created at this time and has been in this state since: it waits for
    /// nothing, and nothing of it is in doubt.
    ///
    /// ```
    /// use deedbook_journal::{id::StoreTime, row::{Row, Status}};
    ///
    /// let row = Row::new("refund", Status::Running, StoreTime(7));
    /// assert_eq!((row.since, row.created_at, row.wake_at), (StoreTime(7), StoreTime(7), None));
    /// ```
    #[must_use]
    pub fn new(workflow: impl Into<Arc<str>>, status: Status, at: StoreTime) -> Self {
        Self {
            workflow: workflow.into(),
            status,
            since: at,
            wake_at: None,
            detail: None,
            open_doubts: 0,
            created_at: at,
        }
    }
}
