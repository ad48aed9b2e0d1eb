//! A home of threads, counted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use deedbook::checkpointer::{
    Append, BoxFuture, Checkpointer, Claim, Filter, Lease, LogEntry, Message, Page, Posted,
    RecordPage, StoreError, StoreIdentity, ThreadInfo,
};
use deedbook_journal::{
    id::{Epoch, LogIndex, Position, StoreTime, ThreadId},
    record::{Record, Role},
};

/// A home that counts what is asked of it.
#[derive(Debug)]
pub struct CountingStore {
    inner: Arc<dyn Checkpointer>,
    appends: AtomicU64,
    others: AtomicU64,
    reads: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    /// Pages that are served from memory, by their first position.
    kept: BTreeMap<(ThreadId, Position), RecordPage>,
}

/// What was asked of a [`CountingStore`], in all or between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Elements of appends: batches.
    pub appends: u64,
    /// Every other call but `now`, which reads a clock.
    pub others: u64,
    /// Of those, reads of records.
    pub reads: u64,
    /// Records in the appends.
    pub records: u64,
    /// Bytes of those records, as [`Record::size`] counts them.
    pub bytes: u64,
}

impl Asked {
    /// What was asked since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            appends: self.appends - before.appends,
            others: self.others - before.others,
            reads: self.reads - before.reads,
            records: self.records - before.records,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl CountingStore {
    /// Counts what is asked of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Checkpointer>) -> Arc<Self> {
        Self::keeping(inner, BTreeMap::new())
    }

    /// As [`new`](Self::new), and these pages of records, which were read before, are served from
    /// memory: what reading and checking cost is left out.
    #[must_use]
    pub fn keeping(
        inner: Arc<dyn Checkpointer>,
        kept: BTreeMap<(ThreadId, Position), RecordPage>,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner,
            appends: AtomicU64::new(0),
            others: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            kept,
        })
    }

    /// What was asked so far.
    #[must_use]
    pub fn asked(&self) -> Asked {
        Asked {
            appends: self.appends.load(Relaxed),
            others: self.others.load(Relaxed),
            reads: self.reads.load(Relaxed),
            records: self.records.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }

    fn other(&self) -> &dyn Checkpointer {
        self.others.fetch_add(1, Relaxed);
        &*self.inner
    }
}

impl Checkpointer for CountingStore {
    fn identity(&self) -> &StoreIdentity {
        self.inner.identity()
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime, StoreError>> {
        self.inner.now()
    }

    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position, StoreError>>> {
        self.appends.fetch_add(group.len() as u64, Relaxed);
        for append in &group {
            let bytes: usize = append.records.iter().map(Record::size).sum();
            self.bytes.fetch_add(bytes as u64, Relaxed);
            self.records.fetch_add(append.records.len() as u64, Relaxed);
        }
        self.inner.append(group)
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage, StoreError>> {
        self.reads.fetch_add(1, Relaxed);
        let other = self.other();
        match self.kept.get(&(thread.clone(), from)) {
            Some(page) => Box::pin(std::future::ready(Ok(page.clone()))),
            None => other.read(thread, from, bytes_max),
        }
    }

    fn post<'a>(
        &'a self,
        to: &'a ThreadId,
        message: Message,
    ) -> BoxFuture<'a, Result<Posted, StoreError>> {
        self.other().post(to, message)
    }

    fn inbox<'a>(
        &'a self,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<Message>, StoreError>> {
        self.other().inbox(thread)
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>, StoreError>> {
        self.other().claim(which, holder, ttl)
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>, StoreError>> {
        self.other().renew(leases, ttl)
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>, StoreError>> {
        self.other().list(filter, after, max)
    }

    fn log(
        &self,
        from: LogIndex,
        max: usize,
    ) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>, StoreError>> {
        self.other().log(from, max)
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position, StoreError>> {
        self.other().erase(thread, n, role, note)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.other().close()
    }
}
