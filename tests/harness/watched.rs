//! A home that somebody watches: a hook is told, and may wait or never come back, before and after
//! what matters is done in the home behind it.

use std::{fmt, sync::Arc, time::Duration};

use deedbook::{Checkpointer, Filter, StoreTime, ThreadId, ThreadInfo};
use deedbook_journal::{
    checkpointer::{
        Append, BoxFuture, Claim, Lease, LogEntry, Message, Page, Posted, RecordPage, StoreError,
        StoreIdentity,
    },
    id::{Epoch, LogIndex, Position},
    record::Role,
};
use tokio::sync::Semaphore;

/// What is about to be done, or has just been done.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// A group is about to be stored.
    Append(&'a [Append]),
    /// A group is durable, and nobody knows it yet.
    Appended(&'a [Append]),
    /// Threads are about to be claimed.
    Claim,
    /// Records are about to be read.
    Read,
    /// A message is about to be stored.
    Post,
    /// A payload is about to be erased.
    Erase,
    /// It is erased, and nobody knows it yet.
    Erased,
    /// The home is about to be closed.
    Close,
    /// The home is closed, and nobody knows it yet.
    Closed,
}

/// Whoever watches a home.
pub trait Hook: fmt::Debug + Send + Sync + 'static {
    /// Is told.
    fn at<'a>(&'a self, place: Place<'a>) -> BoxFuture<'a, ()>;
}

/// A watched home.
#[derive(Debug)]
pub struct Watched<H> {
    home: Arc<dyn Checkpointer>,
    hook: Arc<H>,
}

impl<H: Hook> Watched<H> {
    /// Watches a home.
    pub fn new(home: Arc<dyn Checkpointer>, hook: Arc<H>) -> Arc<Self> {
        Arc::new(Self { home, hook })
    }
}

/// Holds appends back while it is shut.
#[derive(Debug)]
pub struct Gate(Semaphore);

impl Gate {
    /// A gate that is open.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Semaphore::new(OPEN)))
    }

    /// Holds back what comes from now on.
    pub fn shut(&self) {
        self.0.forget_permits(usize::MAX >> 3);
    }

    /// Lets one group through.
    pub fn let_one_through(&self) {
        self.0.add_permits(1);
    }

    /// Lets everything through.
    pub fn open(&self) {
        self.0.add_permits(OPEN);
    }
}

/// More groups than a test stores.
const OPEN: usize = 1 << 20;

impl Hook for Gate {
    fn at<'a>(&'a self, place: Place<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Place::Append(_) = place
                && let Ok(permit) = self.0.acquire().await
            {
                permit.forget();
            }
        })
    }
}

impl<H: Hook> Checkpointer for Watched<H> {
    fn identity(&self) -> &StoreIdentity {
        self.home.identity()
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime, StoreError>> {
        self.home.now()
    }

    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position, StoreError>>> {
        Box::pin(async move {
            self.hook.at(Place::Append(&group)).await;
            let results = self.home.append(group.clone()).await;
            self.hook.at(Place::Appended(&group)).await;
            results
        })
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage, StoreError>> {
        Box::pin(async move {
            self.hook.at(Place::Read).await;
            self.home.read(thread, from, bytes_max).await
        })
    }

    fn post<'a>(
        &'a self,
        to: &'a ThreadId,
        message: Message,
    ) -> BoxFuture<'a, Result<Posted, StoreError>> {
        Box::pin(async move {
            self.hook.at(Place::Post).await;
            self.home.post(to, message).await
        })
    }

    fn inbox<'a>(
        &'a self,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<Message>, StoreError>> {
        self.home.inbox(thread)
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>, StoreError>> {
        Box::pin(async move {
            self.hook.at(Place::Claim).await;
            self.home.claim(which, holder, ttl).await
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>, StoreError>> {
        self.home.renew(leases, ttl)
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>, StoreError>> {
        self.home.list(filter, after, max)
    }

    fn log(
        &self,
        from: LogIndex,
        max: usize,
    ) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>, StoreError>> {
        self.home.log(from, max)
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position, StoreError>> {
        Box::pin(async move {
            self.hook.at(Place::Erase).await;
            let erased = self.home.erase(thread, n, role, note).await;
            self.hook.at(Place::Erased).await;
            erased
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.hook.at(Place::Close).await;
            let closed = self.home.close().await;
            self.hook.at(Place::Closed).await;
            closed
        })
    }
}
