//! A replay of one thread, with nothing executed.

use std::{fmt, sync::Arc};

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, Lease},
    failure::Failure,
    id::{Position, ThreadId},
};

use crate::{
    builder::Builder,
    error::{Error, ErrorKind},
    executor::{self, House},
    guard::Gate,
    home::Opened,
    notice,
    policy::PolicyKind,
};

/// What came of a [`Builder::replay`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// How far the code came.
    pub to: ReplayedTo,
    /// The calls that the code makes under another policy than is recorded, in the order in which
    /// it made them. For what is recorded the recorded policy holds.
    pub other_policies: Vec<OtherPolicy>,
}

/// How far a replay came.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayedTo {
    /// The code came to its end, with this result (MessagePack) or this failure.
    Ended(Result<Vec<u8>, Failure>),
    /// The code is where the record ends. There it would begin this call, which is not begun.
    Call(String),
    /// The code is where the record ends, and waits there for this: a time, a message, a person.
    Waits(String),
}

/// A call under another policy than is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherPolicy {
    /// The call, as shown (`pay#0`).
    pub call: String,
    /// The record that has it.
    pub at: Position,
    /// The recorded policy.
    pub recorded: PolicyKind,
    /// The policy in the code.
    pub now: PolicyKind,
}

impl fmt::Display for OtherPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, at, recorded, now } = self;
        let (recorded, now) = (recorded.as_str(), now.as_str());
        write!(f, "{call}: policy: record {at} has {recorded}, the code has {now}")
    }
}

impl Builder {
    /// Replays an unfinished thread on the workflows hosted here, instead of starting a book: the
    /// code is given its recorded outcomes, and where the record ends it is stopped. No body and
    /// no probe runs, reads neither; nothing is appended, and the thread is not taken hold of. Of a
    /// thread that continued as new it is the last episode that is replayed, as at a start.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`], [`ErrorKind::Stalled`] or [`ErrorKind::Panicked`] as a book would
    /// say it; [`ErrorKind::NotFound`] if there is no such thread or its workflow is not hosted,
    /// [`ErrorKind::Refused`] if it has ended or is cancelled; or the journal failed.
    pub async fn replay(mut self, thread: impl AsRef<str>) -> Result<Replayed, Error> {
        let thread = ThreadId::new(thread)?;
        self.refuse_twins()?;
        self.options.replay_only = true;
        let Opened { store, file: _file } = self.home.open(&*self.clock, self.options.wait).await?;
        let lease = look_at(&*store, &thread).await?;
        let hosted = self.hosted.get(&lease.row.workflow).cloned();
        let hosted = hosted.ok_or_else(|| {
            let name = &lease.row.workflow;
            let why = format!("workflow {name:?} is not hosted here; host it with `.host(..)`");
            Error::new(ErrorKind::NotFound, why).thread(&thread)
        })?;
        let (options, notices) = (Arc::new(self.options), notice::channel());
        let (home, clock) = (store.clone(), self.clock.clone());
        let gate = Gate::new(home, clock, options.clone(), notices.clone());
        let house = House { store, clock: self.clock, options, process: None, notices, gate };
        executor::replay(house, lease, hosted).await
    }
}

/// The thread as it is, with no hold on it: good for reading only.
async fn look_at(store: &dyn Checkpointer, thread: &ThreadId) -> Result<Lease, Error> {
    let filter = Filter { prefix: Some(thread.as_str().into()), ..Filter::default() };
    let page = store.list(&filter, None, 1).await?;
    // Of the ids that begin so, the id itself comes first.
    let info = page.items.into_iter().next().filter(|info| info.id == *thread);
    let info = info
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no such thread").thread(thread))?;
    let until = store.now().await?;
    let (epoch, next, head) = (info.epoch, info.next, info.head);
    Ok(Lease { thread: info.id, epoch, until, next, head, row: info.row })
}
