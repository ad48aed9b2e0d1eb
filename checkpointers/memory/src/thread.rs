//! One thread in memory.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use deedbook_journal::{
    admit::Tail,
    checkpointer::{Lease, Message, ThreadInfo},
    id::{Epoch, MessageId, StoreTime, ThreadId},
    record::Record,
    row::Row,
};

/// A lease, as the home sees it.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) by: Arc<str>,
    pub(crate) until: StoreTime,
}

/// A thread: made by a claim, and there for others from its first append on.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub(crate) epoch: Epoch,
    pub(crate) tail: Tail,
    pub(crate) row: Row,
    pub(crate) records: Vec<Record>,
    pub(crate) inbox: VecDeque<Message>,
    /// Every id ever posted, and whether its message is still in the inbox.
    pub(crate) posted: HashMap<MessageId, bool>,
    pub(crate) hold: Option<Hold>,
    /// Whether anything was ever appended.
    pub(crate) exists: bool,
}

impl Thread {
    pub(crate) fn new(row: Row) -> Self {
        Self {
            epoch: Epoch(0),
            tail: Tail::default(),
            row,
            records: Vec::new(),
            inbox: VecDeque::new(),
            posted: HashMap::new(),
            hold: None,
            exists: false,
        }
    }

    /// The unexpired hold on it.
    pub(crate) fn held(&self, now: StoreTime) -> Option<&Hold> {
        self.hold.as_ref().filter(|h| h.until > now)
    }

    /// Raises the epoch and leases the thread.
    pub(crate) fn take(&mut self, id: &ThreadId, by: &Arc<str>, until: StoreTime) -> Lease {
        self.epoch.0 += 1;
        self.hold = Some(Hold { by: Arc::clone(by), until });
        Lease {
            thread: id.clone(),
            epoch: self.epoch,
            until,
            next: self.tail.next,
            head: self.tail.head,
            row: self.row.clone(),
        }
    }

    pub(crate) fn info(&self, id: &ThreadId, now: StoreTime) -> ThreadInfo {
        ThreadInfo {
            id: id.clone(),
            epoch: self.epoch,
            next: self.tail.next,
            head: self.tail.head,
            row: self.row.clone(),
            inbox: self.inbox.len(),
            holder: self.held(now).map(|h| Arc::clone(&h.by)),
        }
    }
}
