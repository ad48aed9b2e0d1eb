//! The journal of a world: a home that notes what each write held, and stops at one of them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use deedbook::{Checkpointer, Filter, StoreTime, ThreadId, ThreadInfo};
use deedbook_journal::{
    checkpointer::{
        Append, BoxFuture, Claim, Lease, LogEntry, Message, Page, Posted, RecordPage, StoreError,
        StoreIdentity,
    },
    id::{Epoch, LogIndex, Position},
    record::{Header, Role},
};

use crate::{judge::step_name, world::World};

type Result<T> = std::result::Result<T, StoreError>;

/// A home that notes its writes.
#[derive(Debug)]
pub(crate) struct Noted {
    world: World,
    home: Arc<dyn Checkpointer>,
    stop: Option<Stop>,
    stopped: AtomicBool,
    /// Calls that have begun and not ended.
    at_work: AtomicU64,
    noted: Mutex<Notes>,
}

/// At which write a home stops.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    /// Its number.
    pub(crate) at: u64,
    /// Whether it is made durable before that.
    pub(crate) kept: bool,
}

#[derive(Debug, Default)]
struct Notes {
    writes: Vec<String>,
    /// Names of steps, by thread and position of the intent.
    steps: BTreeMap<(ThreadId, Position), String>,
}

impl Noted {
    pub(crate) fn new(world: World, home: Arc<dyn Checkpointer>, stop: Option<Stop>) -> Self {
        let stopped = AtomicBool::new(false);
        Self { world, home, stop, stopped, at_work: AtomicU64::new(0), noted: Mutex::default() }
    }

    /// Whether it has stopped. Nothing that is asked of it then comes back.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Whether somebody waits for it.
    pub(crate) fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::SeqCst) > 0
    }

    /// Makes a call, which does not come back if the home has stopped by then.
    fn call<'a, T: Send + 'a>(&'a self, call: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        Box::pin(async move {
            let _at_work = AtWork::begin(&self.at_work);
            if self.has_stopped() {
                return self.crash().await;
            }
            let answer = call.await;
            if self.has_stopped() {
                return self.crash().await;
            }
            answer
        })
    }

    async fn crash<T>(&self) -> T {
        self.stopped.store(true, Ordering::SeqCst);
        self.world.crash().await
    }

    /// What each write held, in their order.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).writes.clone()
    }

    /// Notes a write; says its number.
    fn note(&self, group: &[Append]) -> u64 {
        let mut notes = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = Vec::new();
        for record in group.iter().flat_map(|append| &append.records) {
            let Ok(header) = Header::parse(&record.header) else { continue };
            let own = (header.thread.clone(), header.n);
            let step = match &header.place {
                Some(place) => {
                    let name = format!(" {}", step_name(place));
                    notes.steps.insert(own, name.clone());
                    name
                }
                None => {
                    let call = header.call.map(|call| (header.thread.clone(), call));
                    call.and_then(|call| notes.steps.get(&call).cloned()).unwrap_or_default()
                }
            };
            words.push(format!("{}{step}", header.kind.as_str()));
        }
        if words.is_empty() {
            words.push("what a thread waits for".to_owned());
        }
        notes.writes.push(words.join(", "));
        notes.writes.len() as u64 - 1
    }
}

/// A call, for as long as it lives.
struct AtWork<'h>(&'h AtomicU64);

impl<'h> AtWork<'h> {
    fn begin(count: &'h AtomicU64) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Checkpointer for Noted {
    fn identity(&self) -> &StoreIdentity {
        self.home.identity()
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime>> {
        self.call(self.home.now())
    }

    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position>>> {
        Box::pin(async move {
            let number = self.note(&group);
            let stop = self.stop.filter(|stop| stop.at == number);
            if stop.is_some_and(|stop| !stop.kept) {
                return self.crash().await;
            }
            let results = self.call(self.home.append(group)).await;
            if stop.is_some() { self.crash().await } else { results }
        })
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage>> {
        self.call(self.home.read(thread, from, bytes_max))
    }

    fn post<'a>(&'a self, to: &'a ThreadId, message: Message) -> BoxFuture<'a, Result<Posted>> {
        self.call(self.home.post(to, message))
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Message>>> {
        self.call(self.home.inbox(thread))
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>>> {
        self.call(self.home.claim(which, holder, ttl))
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>>> {
        self.call(self.home.renew(leases, ttl))
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>>> {
        self.call(self.home.list(filter, after, max))
    }

    fn log(&self, from: LogIndex, max: usize) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>>> {
        self.call(self.home.log(from, max))
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position>> {
        self.call(self.home.erase(thread, n, role, note))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.call(self.home.close())
    }
}
