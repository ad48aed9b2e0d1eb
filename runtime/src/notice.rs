//! Notices: threads that begin to wait for a person.

use deedbook_journal::{
    id::{StoreTime, ThreadId},
    limits::NOTICES_KEPT_MAX,
    turn::Waits,
};
use tokio::sync::broadcast::{self, error::RecvError};

/// A thread of this book has begun to wait for a person, durably.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The thread.
    pub thread: ThreadId,
    /// What for: [`Waits::Approval`] or [`Waits::Doubt`].
    pub waits: Waits,
    /// Since when.
    pub since: StoreTime,
}

/// What a [`Watch`] has noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Noticed {
    /// A thread waits for a person.
    Waits(Notice),
    /// So many notices came faster than they were taken, and are gone: list what waits.
    Missed(u64),
}

/// The sending side. `None` says that the book is shut down.
pub(crate) type Notices = broadcast::Sender<Option<Notice>>;

pub(crate) fn channel() -> Notices {
    broadcast::Sender::new(NOTICES_KEPT_MAX)
}

/// Notices of one book, in the order in which they became durable; see
/// [`Deedbook::watch`](crate::Deedbook::watch).
#[derive(Debug)]
pub struct Watch(broadcast::Receiver<Option<Notice>>);

impl Watch {
    pub(crate) fn new(notices: &Notices) -> Self {
        Self(notices.subscribe())
    }

    /// The next notice. `None` when the book is shut down or gone.
    ///
    /// **Cancel safety.** Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Noticed> {
        match self.0.recv().await {
            Ok(notice) => notice.map(Noticed::Waits),
            Err(RecvError::Lagged(missed)) => Some(Noticed::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}
