//! The guard: steps that are threads of their own.

mod calls;
mod claims;
mod forget;
mod random;
mod shared;

use std::{sync::Arc, time::Duration};

use deedbook::{Status, VirtualClock};
use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, ThreadInfo},
    guard::{Claimed, Conflict, InDoubt, InFlight, Settled, Ticket, Wanted, Within, claim},
    id::ThreadId,
    policy::Policy,
    record::{Header, Kind},
    value,
};
use deedbook_memory::{MemoryHome, MemoryOptions};
use serde::{Serialize, de::DeserializeOwned};

/// For how long a claim holds a step.
const LEASE: Duration = Duration::from_secs(30);

/// A journal in memory, whose time passes when the test says so.
struct Shop {
    home: Arc<MemoryHome>,
    clock: VirtualClock,
}

impl Shop {
    fn new() -> Self {
        let clock = VirtualClock::new();
        let source = deedbook::Clock::source(&clock).unwrap();
        Self { home: Arc::new(MemoryHome::new(MemoryOptions::new().time(source))), clock }
    }

    async fn claim_by(&self, holder: &str, wanted: &Wanted) -> Claimed {
        // In production 32 random bytes.
        claim(&*self.home, wanted, holder, LEASE, [7; 32]).await.unwrap()
    }

    async fn claim(&self, wanted: &Wanted) -> Claimed {
        self.claim_by("shop", wanted).await
    }

    async fn fresh(&self, wanted: &Wanted) -> Box<Ticket> {
        match self.claim(wanted).await {
            Claimed::Fresh(ticket) => ticket,
            other => panic!("not fresh: {other:?}"),
        }
    }

    async fn settled(&self, wanted: &Wanted) -> Settled {
        match self.claim(wanted).await {
            Claimed::Settled(settled) => settled,
            other => panic!("not settled: {other:?}"),
        }
    }

    async fn in_doubt(&self, wanted: &Wanted) -> InDoubt {
        match self.claim(wanted).await {
            Claimed::InDoubt(doubt) => doubt,
            other => panic!("not in doubt: {other:?}"),
        }
    }

    async fn in_flight(&self, wanted: &Wanted) -> InFlight {
        match self.claim_by("other", wanted).await {
            Claimed::InFlight(flight) => flight,
            other => panic!("not in flight: {other:?}"),
        }
    }

    async fn conflict(&self, wanted: &Wanted) -> Conflict {
        match self.claim(wanted).await {
            Claimed::Conflict(conflict) => conflict,
            other => panic!("no conflict: {other:?}"),
        }
    }

    /// The kinds of the step's records.
    async fn kinds(&self, thread: &ThreadId) -> Vec<String> {
        let page = self.home.read(thread, 0, usize::MAX).await.unwrap();
        let header = |record: &deedbook_journal::record::Record| {
            Header::parse(&record.header).unwrap().kind.as_str().to_owned()
        };
        page.items.iter().map(|(_, record)| header(record)).collect()
    }

    async fn count(&self, thread: &ThreadId, kind: Kind) -> usize {
        self.kinds(thread).await.iter().filter(|k| *k == kind.as_str()).count()
    }

    async fn info(&self, thread: &ThreadId) -> ThreadInfo {
        let filter = Filter { reserved: true, ..Filter::default() };
        let page = self.home.list(&filter, None, 100).await.unwrap();
        page.items.into_iter().find(|info| info.id == *thread).unwrap()
    }

    async fn status(&self, thread: &ThreadId) -> Status {
        self.info(thread).await.row.status
    }
}

fn bytes<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    value::encode(value, &Default::default()).unwrap()
}

fn read<T: DeserializeOwned>(settled: &Settled) -> T {
    value::decode(settled.result().unwrap(), &Default::default()).unwrap()
}

fn wanted(policy: Policy) -> Wanted {
    Wanted::new(Within::Journal, "charge", policy).unwrap().key("ORD-42").unwrap()
}

fn order(id: &str) -> Within {
    Within::Thread(ThreadId::new(id).unwrap())
}
