//! The home in memory, with appends that take as long as the seed wants.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use deedbook::{
    Checkpointer,
    checkpointer::{
        Append, BoxFuture, Claim, Filter, Lease, LogEntry, Message, Page, Posted, RecordPage,
        StoreError, StoreIdentity, ThreadInfo,
    },
};
use deedbook_journal::{
    id::{Epoch, LogIndex, Position, StoreTime, ThreadId},
    record::Role,
};
use deedbook_memory::MemoryHome;

use crate::{durable::Durable, world::World};

type Result<T> = std::result::Result<T, StoreError>;

/// A home whose appends wait at a gate of the world, and which tells the world what is durable.
pub(crate) struct GatedHome {
    pub(crate) inner: MemoryHome,
    pub(crate) world: World,
    /// Whether appends wait, or are done at once.
    pub(crate) gated: bool,
    pub(crate) durable: Arc<Mutex<Durable>>,
}

impl fmt::Debug for GatedHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatedHome").finish_non_exhaustive()
    }
}

impl Checkpointer for GatedHome {
    fn identity(&self) -> &StoreIdentity {
        self.inner.identity()
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime>> {
        self.inner.now()
    }

    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position>>> {
        // Process facts are no part of what is simulated: they are not kept, so that crashes are
        // counted in the thread's own appends.
        if let [facts] = group.as_slice()
            && facts.thread.is_reserved()
        {
            let told = facts.at + facts.records.len() as Position;
            return Box::pin(std::future::ready(vec![Ok(told)]));
        }
        Box::pin(async move {
            if self.gated {
                self.world.gate().await;
            }
            let records: Vec<_> = group.iter().flat_map(|a| a.records.clone()).collect();
            let results = self.inner.append(group).await;
            if results.iter().all(Result::is_ok) {
                self.durable.lock().unwrap().take(&records);
            }
            results
        })
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage>> {
        self.inner.read(thread, from, bytes_max)
    }

    fn post<'a>(&'a self, to: &'a ThreadId, message: Message) -> BoxFuture<'a, Result<Posted>> {
        self.inner.post(to, message)
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Message>>> {
        self.inner.inbox(thread)
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>>> {
        self.inner.claim(which, holder, ttl)
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>>> {
        self.inner.renew(leases, ttl)
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>>> {
        self.inner.list(filter, after, max)
    }

    fn log(&self, from: LogIndex, max: usize) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>>> {
        self.inner.log(from, max)
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position>> {
        self.inner.erase(thread, n, role, note)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}
