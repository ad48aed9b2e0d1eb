//! The home: options, the checkpointer, and what tests need.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use deedbook_journal::{
    admit::Tail,
    checkpointer::{
        Append, BoxFuture, Checkpointer, Claim, Filter, Lease, LogEntry, Message, Page, Posted,
        RecordPage, StoreError, StoreIdentity, ThreadInfo,
    },
    embedded::{StoreClock, TimeSource},
    id::{Epoch, LogIndex, Position, StoreTime, ThreadId},
    record::Role,
};

use crate::state::State;

type Result<T> = std::result::Result<T, StoreError>;

/// How to make a [`MemoryHome`].
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct MemoryOptions {
    identity: Option<StoreIdentity>,
    time: Option<TimeSource>,
}

impl MemoryOptions {
    /// A random identity and the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the identity, so that hashes and keys are the same in every run.
    #[must_use]
    pub fn identity(mut self, identity: StoreIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Sets the source of wall time, in nanoseconds since 1970. The home's clock follows it, but
    /// never back.
    #[must_use]
    pub fn time(mut self, source: TimeSource) -> Self {
        self.time = Some(source);
        self
    }
}

impl fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("identity", &self.identity)
            .field("own_time", &self.time.is_some())
            .finish()
    }
}

/// What became of the append at which a home stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastAppend {
    /// It is there, though its caller was told that the outcome is unknown.
    Applied,
    /// It is not there.
    Lost,
}

/// How often a home was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCounts {
    /// Groups appended, erasures included: what would be a sync each.
    pub groups: u64,
    /// Elements of those groups that were stored.
    pub appends: u64,
    /// Records in those elements.
    pub records: u64,
    /// Messages stored.
    pub posts: u64,
    /// Pages of records read.
    pub reads: u64,
    /// Claims made, successful or not.
    pub claims: u64,
}

/// Everything that is durable, as a crash would leave it: leases are gone, epochs are not.
#[derive(Debug, Clone)]
pub struct MemorySnapshot {
    identity: StoreIdentity,
    state: State,
    last: StoreTime,
}

/// A home of threads in memory. See the [crate](crate).
#[derive(Debug)]
pub struct MemoryHome {
    identity: StoreIdentity,
    clock: StoreClock,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    counts: MemoryCounts,
    /// Appends that still succeed, and what becomes of the one after them.
    stop: Option<(u64, LastAppend)>,
    stopped: bool,
    closed: bool,
}

impl MemoryHome {
    /// An empty home.
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        let identity = options.identity.unwrap_or_else(random_identity);
        Self::with(identity, options.time, State::default())
    }

    /// A home as a crash would have left it.
    #[must_use]
    pub fn from_snapshot(snapshot: MemorySnapshot, time: Option<TimeSource>) -> Self {
        let home = Self::with(snapshot.identity, time, snapshot.state);
        home.clock.not_before(snapshot.last);
        home
    }

    fn with(identity: StoreIdentity, time: Option<TimeSource>, state: State) -> Self {
        let inner = Inner { state, ..Inner::default() };
        Self { identity, clock: StoreClock::new(time), inner: Mutex::new(inner) }
    }

    /// What a crash at this moment would leave. Works on a stopped and on a closed home too.
    #[must_use]
    pub fn snapshot(&self) -> MemorySnapshot {
        let mut state = self.lock().state.clone();
        state.threads.retain(|_, t| t.exists);
        for thread in state.threads.values_mut() {
            thread.hold = None;
        }
        let last = state.threads.values().map(|t| t.tail.time).max();
        MemorySnapshot { identity: self.identity.clone(), state, last: last.unwrap_or_default() }
    }

    /// From now on `count` more groups are stored (an erasure counts as one); the group after
    /// them is answered [`StoreError::Unknown`] whether or not it is stored, and so is every later
    /// call of any kind.
    pub fn stop_after_appends(&self, count: u64, last: LastAppend) {
        self.lock().stop = Some((count, last));
    }

    /// Whether the home has stopped.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// How often it was called.
    #[must_use]
    pub fn counts(&self) -> MemoryCounts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if the home still answers.
    fn open(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.lock();
        if inner.stopped {
            return Err(unknown());
        }
        if inner.closed {
            return Err(StoreError::Closed);
        }
        Ok(inner)
    }

    /// Runs one group, unless it is the one at which the home stops.
    fn group<T>(&self, run: impl FnOnce(&mut Inner) -> T) -> Result<T> {
        let mut inner = self.open()?;
        inner.counts.groups += 1;
        match &mut inner.stop {
            Some((0, last)) => {
                let applied = *last == LastAppend::Applied;
                inner.stopped = true;
                if applied {
                    run(&mut inner);
                }
                return Err(unknown());
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        Ok(run(&mut inner))
    }

    fn stored(&self, inner: &mut Inner, records: usize, tail: Result<Tail>) -> Result<Position> {
        let tail = tail?;
        inner.counts.appends += 1;
        inner.counts.records += records as u64;
        self.clock.not_before(tail.time);
        Ok(tail.next)
    }
}

impl Checkpointer for MemoryHome {
    fn identity(&self) -> &StoreIdentity {
        &self.identity
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime>> {
        Box::pin(async move {
            drop(self.open()?);
            Ok(self.clock.now())
        })
    }

    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position>>> {
        Box::pin(async move {
            let count = group.len();
            let stored = self.group(|inner| {
                let mut results = Vec::with_capacity(count);
                for append in group {
                    let records = append.records.len();
                    let tail = inner.state.append(&self.identity.log_id, append, &self.clock);
                    results.push(self.stored(inner, records, tail));
                }
                results
            });
            stored.unwrap_or_else(|error| vec![Err(error); count])
        })
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage>> {
        Box::pin(async move {
            let mut inner = self.open()?;
            inner.counts.reads += 1;
            inner.state.read(&self.identity.log_id, thread, from, bytes_max)
        })
    }

    fn post<'a>(&'a self, to: &'a ThreadId, message: Message) -> BoxFuture<'a, Result<Posted>> {
        Box::pin(async move {
            let mut inner = self.open()?;
            let posted = inner.state.post(to, message)?;
            if posted == Posted::Stored {
                inner.counts.posts += 1;
            }
            Ok(posted)
        })
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Message>>> {
        Box::pin(async move { self.open()?.state.inbox(thread) })
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>>> {
        Box::pin(async move {
            let now = self.clock.now();
            let mut inner = self.open()?;
            inner.counts.claims += 1;
            inner.state.claim(which, &holder.into(), ttl, now)
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>>> {
        Box::pin(async move {
            let now = self.clock.now();
            Ok(self.open()?.state.renew(leases, ttl, now))
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>>> {
        Box::pin(async move {
            let now = self.clock.now();
            Ok(self.open()?.state.list(filter, after, max, now))
        })
    }

    fn log(&self, from: LogIndex, max: usize) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>>> {
        Box::pin(async move { Ok(self.open()?.state.log(from, max)) })
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            self.group(|inner| {
                let records = note.records.len();
                let at = (thread, n, role);
                let tail = inner.state.erase(&self.identity.log_id, at, note, &self.clock);
                self.stored(inner, records, tail)
            })?
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.open()?.closed = true;
            Ok(())
        })
    }
}

fn unknown() -> StoreError {
    StoreError::Unknown { why: "the home in memory was told to stop here".into() }
}

#[expect(clippy::disallowed_methods, reason = "an identity is made of fresh randomness")]
#[expect(clippy::expect_used, reason = "without randomness no identity can be made at all")]
fn random_identity() -> StoreIdentity {
    let mut identity = StoreIdentity { log_id: [0; 16], namespace: [0; 16], secret: [0; 32] };
    for part in [&mut identity.log_id[..], &mut identity.namespace, &mut identity.secret] {
        getrandom::fill(part).expect("the system gives random bytes");
    }
    identity
}
