//! A home with the records of one thread, to be read and never written.

use std::time::Duration;

use deedbook::{
    Checkpointer, Filter, Row, StoreTime, ThreadId, ThreadInfo,
    checkpointer::{
        Append, BoxFuture, Claim, Lease, LogEntry, Message, Page, Posted, RecordPage, StoreError,
        StoreIdentity,
    },
};
use deedbook_journal::{
    id::{Epoch, LogIndex, Position},
    record::{Record, RecordHash, Role},
};

type Result<T> = std::result::Result<T, StoreError>;

/// See the module.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) identity: StoreIdentity,
    pub(super) thread: ThreadId,
    pub(super) records: Vec<Record>,
    pub(super) row: Row,
    /// The time of the last record.
    pub(super) now: StoreTime,
}

fn refused<T>() -> Result<T> {
    Err(StoreError::Refused { why: "an export is only read".into() })
}

impl Checkpointer for Recorded {
    fn identity(&self) -> &StoreIdentity {
        &self.identity
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime>> {
        Box::pin(async { Ok(self.now) })
    }

    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position>>> {
        Box::pin(async move { group.iter().map(|_| refused()).collect() })
    }

    fn read<'a>(
        &'a self,
        _thread: &'a ThreadId,
        from: Position,
        _bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage>> {
        let from_here = (0..).zip(self.records.iter().cloned()).skip_while(move |r| r.0 < from);
        let items = from_here.collect();
        Box::pin(async { Ok(Page { items, next: None }) })
    }

    fn post<'a>(&'a self, _to: &'a ThreadId, _message: Message) -> BoxFuture<'a, Result<Posted>> {
        Box::pin(async { refused() })
    }

    fn inbox<'a>(&'a self, _thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Message>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn claim<'a>(
        &'a self,
        _which: Claim,
        _holder: &'a str,
        _ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>>> {
        Box::pin(async { refused() })
    }

    fn renew<'a>(
        &'a self,
        _leases: &'a [(ThreadId, Epoch)],
        _ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>>> {
        Box::pin(async { refused() })
    }

    fn list<'a>(
        &'a self,
        _filter: &'a Filter,
        _after: Option<&'a ThreadId>,
        _max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>>> {
        let info = ThreadInfo {
            id: self.thread.clone(),
            epoch: Epoch(0),
            next: self.records.len() as Position,
            head: self.records.last().map_or(RecordHash::ZERO, |last| last.hash),
            row: self.row.clone(),
            inbox: 0,
            holder: None,
        };
        Box::pin(async { Ok(Page { items: vec![info], next: None }) })
    }

    fn log(&self, _from: LogIndex, _max: usize) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>>> {
        Box::pin(async { Ok(Page { items: Vec::new(), next: None }) })
    }

    fn erase<'a>(
        &'a self,
        _thread: &'a ThreadId,
        _n: Position,
        _role: Role,
        _note: Append,
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async { refused() })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
