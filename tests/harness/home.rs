//! The home in memory, with appends that take as long as the seed wants.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
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
use tokio::sync::Notify;

use crate::{check::Check, durable::Durable, world::World};

type Result<T> = std::result::Result<T, StoreError>;

/// The way to a home: it may be cut, and may end for good.
#[derive(Debug, Default)]
pub(crate) struct Way {
    cut: AtomicBool,
    healed: Notify,
    /// After so many appends it ends at the next one, which is stored or not.
    ends: Mutex<Option<(u64, bool)>>,
    ended: AtomicBool,
}

impl Way {
    /// Nothing comes through any more, until it is healed.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn heal(&self) {
        self.cut.store(false, Ordering::SeqCst);
        self.healed.notify_waiters();
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Lets it end at the append after so many more.
    pub(crate) fn end_after(&self, appends: u64, stored: bool) {
        *self.ends.lock().unwrap() = Some((appends, stored));
    }

    /// Whether it has ended: everything is an error from then on.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    async fn pass(&self) -> Result<()> {
        loop {
            let healed = self.healed.notified();
            let mut healed = std::pin::pin!(healed);
            healed.as_mut().enable();
            if !self.is_cut() {
                break;
            }
            healed.await;
        }
        if self.has_ended() { Err(unknown()) } else { Ok(()) }
    }

    /// Whether it ends at this append, and whether that is stored.
    fn ends_here(&self) -> Option<bool> {
        let mut ends = self.ends.lock().unwrap();
        match ends.as_mut() {
            Some((0, stored)) => {
                self.ended.store(true, Ordering::SeqCst);
                Some(*stored)
            }
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    }
}

fn unknown() -> StoreError {
    StoreError::Unknown { why: "the way to the home has ended".into() }
}

/// A home whose appends wait at a gate of the world, and which tells the world what is durable.
pub(crate) struct GatedHome {
    pub(crate) inner: Arc<MemoryHome>,
    pub(crate) world: World,
    /// Whether appends wait, or are done at once.
    pub(crate) gated: bool,
    /// What is durable of each thread.
    pub(crate) durable: BTreeMap<ThreadId, Arc<Mutex<Durable>>>,
    pub(crate) way: Way,
}

impl GatedHome {
    async fn store(&self, group: Vec<Append>) -> Vec<Result<Position>> {
        let count = group.len();
        let ends = self.way.ends_here();
        if ends == Some(false) {
            return vec![Err(unknown()); count];
        }
        let kept: Vec<_> = group.iter().map(|a| (a.thread.clone(), a.records.clone())).collect();
        let results = self.inner.append(group).await;
        for ((thread, records), result) in kept.iter().zip(&results) {
            if let (Ok(_), Some(durable)) = (result, self.durable.get(thread)) {
                let taken = durable.lock().unwrap().take(records);
                let why = || format!("{}: {}", thread.as_str(), taken.clone().unwrap_err());
                self.world.check(Check::OneOutcome, taken.is_ok(), why);
            }
        }
        if ends.is_some() { vec![Err(unknown()); count] } else { results }
    }
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
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.now().await
        })
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
            let count = group.len();
            let passed = self.way.pass().await;
            // Whether it is the way there that takes time, or the way back.
            let there = self.gated && self.world.below(2) == 0;
            if there {
                self.world.gate().await;
            }
            if let Err(error) = passed.and(self.way.pass().await) {
                return vec![Err(error); count];
            }
            let results = self.store(group).await;
            if self.gated && !there {
                self.world.gate().await;
            }
            match self.way.pass().await {
                Ok(()) => results,
                Err(error) => vec![Err(error); count],
            }
        })
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage>> {
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.read(thread, from, bytes_max).await
        })
    }

    fn post<'a>(&'a self, to: &'a ThreadId, message: Message) -> BoxFuture<'a, Result<Posted>> {
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.post(to, message).await
        })
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Message>>> {
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.inbox(thread).await
        })
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>>> {
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.claim(which, holder, ttl).await
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>>> {
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.renew(leases, ttl).await
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>>> {
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.list(filter, after, max).await
        })
    }

    fn log(&self, from: LogIndex, max: usize) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>>> {
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.log(from, max).await
        })
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            self.way.pass().await?;
            self.inner.erase(thread, n, role, note).await
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        // Others are on their way to the same home.
        Box::pin(async move {
            self.way.pass().await?;
            self.way.ended.store(true, Ordering::SeqCst);
            Ok(())
        })
    }
}
