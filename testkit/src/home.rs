//! The journal of a world: the home in memory, which notes what each write held.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
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
use deedbook_memory::{MemoryHome, MemorySnapshot};

type Result<T> = std::result::Result<T, StoreError>;

/// A home that notes its writes.
#[derive(Debug)]
pub(crate) struct Noted {
    home: MemoryHome,
    noted: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    writes: Vec<String>,
    /// Names of steps, by thread and position of the intent.
    steps: BTreeMap<(ThreadId, Position), String>,
}

impl Noted {
    pub(crate) fn new(home: MemoryHome) -> Self {
        Self { home, noted: Mutex::default() }
    }

    pub(crate) fn snapshot(&self) -> MemorySnapshot {
        self.home.snapshot()
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.home.has_stopped()
    }

    /// What each write held, in their order.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).writes.clone()
    }

    fn note(&self, group: &[Append]) {
        let mut notes = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = Vec::new();
        for record in group.iter().flat_map(|append| &append.records) {
            let Ok(header) = Header::parse(&record.header) else { continue };
            let own = (header.thread.clone(), header.n);
            let step = match &header.place {
                Some(place) => {
                    let name = format!(" {}#{}", place.name.as_str(), place.occurrence);
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
        notes.writes.push(words.join(", "));
    }
}

impl Checkpointer for Noted {
    fn identity(&self) -> &StoreIdentity {
        self.home.identity()
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime>> {
        self.home.now()
    }

    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position>>> {
        self.note(&group);
        self.home.append(group)
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage>> {
        self.home.read(thread, from, bytes_max)
    }

    fn post<'a>(&'a self, to: &'a ThreadId, message: Message) -> BoxFuture<'a, Result<Posted>> {
        self.home.post(to, message)
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Message>>> {
        self.home.inbox(thread)
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>>> {
        self.home.claim(which, holder, ttl)
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>>> {
        self.home.renew(leases, ttl)
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>>> {
        self.home.list(filter, after, max)
    }

    fn log(&self, from: LogIndex, max: usize) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>>> {
        self.home.log(from, max)
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position>> {
        self.home.erase(thread, n, role, note)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.home.close()
    }
}
