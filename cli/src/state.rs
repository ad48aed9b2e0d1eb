//! How a thread stands, as people see it: what its row says, and what its row cannot say.

use std::{fmt, str::FromStr, sync::Arc};

use deedbook_journal::{
    checkpointer::ThreadInfo,
    history::History,
    id::StoreTime,
    operator::{self, Found},
    row::Status,
    turn::Blocked,
};

use crate::text::count;

/// What is said of a thread that may go on and that nobody runs.
pub(crate) const READY: &str = "nobody runs it; start its program";

/// A thread's status in one word. A row says `running` of two kinds of threads: a run holds the
/// one, and nobody runs the other, which people must be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nobody runs it, and its program takes it up.
    Ready,
    /// As its row says.
    Is(Status),
}

impl Seen {
    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Is(status) => status.as_str(),
        }
    }

    pub(crate) fn is_ended(self) -> bool {
        matches!(self, Self::Is(status) if status.is_ended())
    }

    /// The status that a row has which nobody holds.
    pub(crate) fn unheld(status: Status) -> Self {
        match status {
            Status::Running => Self::Ready,
            other => Self::Is(other),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Seen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ready" => Ok(Self::Ready),
            _ => text.parse().map(Self::Is).map_err(|why: String| format!("{why}, ready")),
        }
    }
}

/// The state of a thread as it is.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) status: Seen,
    pub(crate) since: StoreTime,
    pub(crate) detail: Option<Arc<str>>,
    pub(crate) open_doubts: u32,
}

impl State {
    /// The state of a thread whose row may say less than its records; `found` where they were
    /// read.
    pub(crate) fn of(info: &ThreadInfo, found: Option<&Found>, now: StoreTime) -> Self {
        let row = &info.row;
        let status = match is_unheld(info) {
            true => Seen::unheld(row.status),
            false => Seen::Is(row.status),
        };
        let detail = match status {
            Seen::Ready => Some(READY.into()),
            Seen::Is(_) => row.detail.clone(),
        };
        let written = Self { status, since: row.since, detail, open_doubts: row.open_doubts };
        let Some(found) = found.filter(|_| is_unheld(info) && !status.is_ended()) else {
            return written;
        };
        let open_doubts = doubts(&found.history, now);
        let blocked = operator::blocking(&found.history, now);
        if status == Seen::Ready && !blocked.is_empty() {
            let (status, detail) = Blocked::status(&blocked);
            let (status, detail) = (Seen::Is(status), Some(detail.into()));
            return Self { status, since: found.history.time(), detail, open_doubts };
        }
        Self { open_doubts, ..written }
    }

    /// Whether somebody who asks for threads of this status asks for this one. A thread has one
    /// status; one that is stopped for another reason is in doubt all the same while a doubt is
    /// open.
    pub(crate) fn is(&self, asked: Seen) -> bool {
        let doubtful = asked == Seen::Is(Status::InDoubt);
        self.status == asked || doubtful && self.open_doubts > 0 && !self.status.is_ended()
    }

    /// What it waits for or why it stopped, and the doubts that the status does not tell of.
    pub(crate) fn told(&self) -> String {
        let detail = self.detail.as_deref().unwrap_or_default();
        if self.open_doubts == 0 || self.status == Seen::Is(Status::InDoubt) {
            return detail.to_owned();
        }
        let doubts = count(self.open_doubts, "open doubt");
        if detail.is_empty() { doubts } else { format!("{doubts}; {detail}") }
    }
}

fn doubts(history: &History, now: StoreTime) -> u32 {
    u32::try_from(history.doubts(now).count()).unwrap_or(u32::MAX)
}

/// Whether a run may take it up and none has: nobody runs Deedbook's own threads.
fn is_unheld(info: &ThreadInfo) -> bool {
    info.holder.is_none() && !info.id.is_reserved()
}

/// Whether a thread's row may say less than its records: a run that died, or that stopped with a
/// body under way, could not count its doubts.
pub(crate) fn may_say_less(info: &ThreadInfo) -> bool {
    let stopped = [Status::Running, Status::Stalled, Status::Diverged];
    is_unheld(info) && stopped.contains(&info.row.status)
}
