//! The seam between the runtime and a durable home of threads.
//!
//! A checkpointer stores records, rows and messages. It knows nothing of steps: bytes go in and
//! bytes come out. Whatever it is, it keeps these promises, and `checkpointers/conformance`
//! checks them:
//!
//! - **Conditional append.** [`Checkpointer::append`] stores an element whole or not at all, and
//!   only if its epoch is the thread's current one ([`StoreError::Fenced`]) and its first
//!   position is the thread's next one ([`StoreError::Moved`]). Leases are speed, epochs are
//!   safety.
//! - **Durable before told.** A future that resolves to `Ok` speaks of durable state, and
//!   observers ([`Checkpointer::read`], [`Checkpointer::list`], [`Checkpointer::log`]) are served
//!   durable state only.
//! - **Verified before served.** A record that is not as it was written is
//!   [`StoreError::Damaged`], never returned. How a home knows is its own affair: by each record's
//!   hash and commitments, or by one hash that it keeps over all that it reads at once. A replay
//!   relies on it and hashes nothing again; whoever checks evidence relies on nothing and checks
//!   every record by itself ([`Record::verify`]).
//! - **Fail-stop.** After [`StoreError::Unknown`] or [`StoreError::Failed`] from a write, the
//!   handle takes no more writes; the outcome is learned by reopening and reading.
//!
//! **Cancel safety.** Dropping a future of this trait never leaves half of an element stored; an
//! append that was dropped may or may not have happened.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{
    id::{Epoch, LogIndex, MessageId, Position, StoreTime, ThreadId},
    record::{Record, RecordHash, Records, Role},
    row::{Row, Status},
};

/// A boxed future of this trait: a box costs nothing beside a sync.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A durable home of threads. Object-safe; see the [module](self) for the contract.
pub trait Checkpointer: Send + Sync + fmt::Debug + 'static {
    /// What makes this journal this journal.
    fn identity(&self) -> &StoreIdentity;

    /// The store's clock: never earlier than any time it has returned or recorded before.
    fn now(&self) -> BoxFuture<'_, Result<StoreTime, StoreError>>;

    /// Appends records, consumes messages and replaces rows: each element by itself whole or
    /// not at all, one sync for many, a result per element in order. `Ok` holds the thread's next
    /// position. An element with no records replaces the row only. A record of a time that
    /// [`now`](Self::now) has not reached is refused.
    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position, StoreError>>>;

    /// Records of `thread` from position `from`, at least one if there is one, and then as many
    /// as fit in `bytes_max`. `next` is set while there are more.
    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage, StoreError>>;

    /// Puts a message into a thread's inbox, once per message id, for good. Needs no epoch:
    /// anybody may speak to a thread.
    fn post<'a>(
        &'a self,
        to: &'a ThreadId,
        message: Message,
    ) -> BoxFuture<'a, Result<Posted, StoreError>>;

    /// The unconsumed messages of a thread, in the order in which they were stored.
    fn inbox<'a>(&'a self, thread: &'a ThreadId)
    -> BoxFuture<'a, Result<Vec<Message>, StoreError>>;

    /// Takes hold of threads: raises the epoch of each and leases it to `holder` for `ttl`. A
    /// thread under somebody's unexpired lease is [`StoreError::Held`] when asked for by name and
    /// passed over when asked for by [`Claim::Due`].
    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>, StoreError>>;

    /// Extends leases; `Duration::ZERO` releases them. `None` for a lease that is lost.
    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>, StoreError>>;

    /// Threads in the byte order of their ids, after `after`, at most `max`. Deedbook's own
    /// threads are listed only when [`Filter::reserved`] is set.
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>, StoreError>>;

    /// Records of all threads in the order in which they became durable, from `from`, at most
    /// `max`: the leaves of the Merkle log.
    fn log(
        &self,
        from: LogIndex,
        max: usize,
    ) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>, StoreError>>;

    /// Deletes one payload (its salt and its bytes) and appends `note`, together or not at all.
    /// The header stays, so the chain stays valid.
    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position, StoreError>>;

    /// Writes what is left, and lets go. Further calls fail with [`StoreError::Closed`].
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// What makes a journal itself, made at its creation and stored in it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreIdentity {
    /// An input of every record hash.
    pub log_id: [u8; 16],
    /// An input of every operation key; equal in journals that share keys on purpose.
    pub namespace: [u8; 16],
    /// The secret under which fingerprints are keyed.
    pub secret: [u8; 32],
}

impl fmt::Debug for StoreIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreIdentity")
            .field("log_id", &crate::hex::encode(&self.log_id))
            .field("namespace", &crate::hex::encode(&self.namespace))
            .finish_non_exhaustive()
    }
}

/// One conditional write to one thread: all of it, or nothing.
#[derive(Debug, Clone)]
pub struct Append {
    /// The thread.
    pub thread: ThreadId,
    /// The epoch under which the writer holds it.
    pub epoch: Epoch,
    /// The position of the first record; the thread's next one, or the write is refused.
    pub at: Position,
    /// The records, chained from the thread's head.
    pub records: Records,
    /// Messages that these records give a position to. One that is not in the inbox any more
    /// makes the write [`StoreError::Moved`].
    pub consumes: Vec<MessageId>,
    /// The thread's row from now on.
    pub row: Row,
}

/// What is said to a thread by anybody but its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Posting one id twice stores it once.
    pub id: MessageId,
    /// What is said: see [`crate::message`].
    pub kind: u8,
    /// The signal, step or request it is about.
    pub name: Arc<str>,
    /// Who says it, for instance `user:alice`.
    pub by: Arc<str>,
    /// Its content, in the encoding of its kind.
    pub body: Arc<[u8]>,
}

/// What became of a posted message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// It is in the inbox.
    Stored,
    /// It was posted before.
    AlreadyThere,
    /// The thread has ended; nothing was stored.
    ThreadEnded,
    /// There is no such thread; nothing was stored.
    NoSuchThread,
}

/// Which threads to take hold of.
#[derive(Debug, Clone)]
pub enum Claim {
    /// This one.
    Thread {
        /// Its id.
        id: ThreadId,
        /// The row to make it with if there is no such thread. It exists for others from its
        /// first append on.
        create: Option<Row>,
    },
    /// Unheld threads of these workflows that have something to do: not ended, and either with a
    /// message in the inbox or with [`Row::wake_at`] not after the store's clock.
    Due {
        /// Workflow names.
        workflows: Vec<Arc<str>>,
        /// At most this many.
        max: usize,
    },
}

/// A hold on a thread.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The thread.
    pub thread: ThreadId,
    /// The epoch to write under.
    pub epoch: Epoch,
    /// When others may take over. Renew before.
    pub until: StoreTime,
    /// The position of the next record; 0 for a thread without records.
    pub next: Position,
    /// The hash of the last record; zero for a thread without records.
    pub head: RecordHash,
    /// Its row.
    pub row: Row,
}

/// Which threads to list; empty fields do not restrict.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Any of these statuses.
    pub statuses: Vec<Status>,
    /// This workflow.
    pub workflow: Option<Arc<str>>,
    /// Ids that begin so.
    pub prefix: Option<Arc<str>>,
    /// Only threads with an open doubt.
    pub doubts_only: bool,
    /// Created at or after.
    pub created_from: Option<StoreTime>,
    /// Created before.
    pub created_before: Option<StoreTime>,
    /// Deedbook's own threads too.
    pub reserved: bool,
}

impl Filter {
    /// Whether a thread passes this filter: one implementation for every checkpointer.
    #[must_use]
    pub fn admits(&self, id: &ThreadId, row: &Row) -> bool {
        (self.reserved || !id.is_reserved())
            && (self.statuses.is_empty() || self.statuses.contains(&row.status))
            && self.workflow.as_ref().is_none_or(|w| *w == row.workflow)
            && self.prefix.as_ref().is_none_or(|p| id.as_str().starts_with(&**p))
            && (!self.doubts_only || row.open_doubts > 0)
            && self.created_from.is_none_or(|t| row.created_at >= t)
            && self.created_before.is_none_or(|t| row.created_at < t)
    }
}

/// A thread as listed.
#[derive(Debug, Clone)]
pub struct ThreadInfo {
    /// Its id.
    pub id: ThreadId,
    /// Its current epoch.
    pub epoch: Epoch,
    /// Its number of records.
    pub next: Position,
    /// The hash of its last record.
    pub head: RecordHash,
    /// Its row.
    pub row: Row,
    /// Its number of unconsumed messages.
    pub inbox: usize,
    /// Who holds it, if anybody does.
    pub holder: Option<Arc<str>>,
}

/// A leaf of the Merkle log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its leaf number.
    pub index: LogIndex,
    /// The record's thread.
    pub thread: ThreadId,
    /// The record's position there.
    pub n: Position,
    /// The record's hash.
    pub hash: RecordHash,
}

/// One thread as listed, Deedbook's own included; `None` if there is none.
///
/// # Errors
/// As [`Checkpointer::list`].
pub async fn thread_info(
    home: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<Option<ThreadInfo>, StoreError> {
    let prefix = Some(thread.as_str().into());
    let filter = Filter { prefix, reserved: true, ..Filter::default() };
    // Of the ids that begin so, the id itself comes first.
    let page = home.list(&filter, None, 1).await?;
    Ok(page.items.into_iter().next().filter(|info| info.id == *thread))
}

/// Part of a longer answer.
#[derive(Debug, Clone)]
pub struct Page<T, C> {
    /// The items.
    pub items: Vec<T>,
    /// Where to go on; `None` at the end.
    pub next: Option<C>,
}

/// Records of a thread with their positions.
pub type RecordPage = Page<(Position, Record), Position>;

/// Why a checkpointer did not do as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else has taken the thread over.
    #[error("fenced: the thread is now held under epoch {}; this run must stop", held.0)]
    Fenced {
        /// The current epoch.
        held: Epoch,
    },
    /// The thread's next position is another one, or a message is already consumed.
    #[error("moved: the thread's next position is {next}; read it again")]
    Moved {
        /// The thread's next position.
        next: Position,
    },
    /// The thread is under somebody's lease.
    #[error("held by {by}; wait for it to finish, or stop that process")]
    Held {
        /// The holder.
        by: Arc<str>,
    },
    /// There is no such thread.
    #[error("there is no such thread")]
    NoSuchThread,
    /// The write may or may not have happened, and this handle is dead.
    #[error("the outcome of the write is unknown ({why}); reopen the journal to learn it")]
    Unknown {
        /// What went wrong.
        why: Arc<str>,
    },
    /// A stored record does not match its hash.
    #[error("record {n} of thread {thread:?} is damaged: {why}")]
    Damaged {
        /// The thread.
        thread: ThreadId,
        /// The record.
        n: Position,
        /// What does not match.
        why: Arc<str>,
    },
    /// A write that breaks the format's own rules: a fault of the caller.
    #[error("refused: {why}")]
    Refused {
        /// Which rule.
        why: Arc<str>,
    },
    /// Not written, and this handle is dead.
    #[error("the journal failed: {why}; reopen it")]
    Failed {
        /// What went wrong.
        why: Arc<str>,
    },
    /// The handle was closed.
    #[error("the journal is closed")]
    Closed,
}
