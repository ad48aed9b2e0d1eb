//! What the home keeps in memory: every unfinished thread, and what is in the log but not yet in
//! the other tables.
//!
//! A commit writes the log only, at its right edge. The rows of threads, the lists of their
//! extents and the ids of their messages follow in bulk, when enough has come together; the log
//! beyond them tells the rest after a crash, through the same [`State::apply`] that
//! follows a commit.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::entry::{Head, Place};
use crate::{
    admit::Tail,
    checkpointer::{Lease, StoreError, ThreadInfo},
    id::{Epoch, MessageId, Position, StoreTime, ThreadId},
    row::Row,
};

/// Where records of a thread stand in the log: from position `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: Position,
    pub(super) place: Place,
}

/// The thread's newest stored list of extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) first: Position,
    pub(super) len: u32,
}

/// A lease. It lasts no longer than the process, which has the file for itself.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) by: Arc<str>,
    pub(super) until: StoreTime,
}

/// A thread in memory.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    /// Its number in the order of creation; meaningless before its first append.
    pub(super) no: u64,
    pub(super) exists: bool,
    pub(super) epoch: Epoch,
    pub(super) tail: Tail,
    pub(super) row: Row,
    /// The unconsumed messages in their order.
    pub(super) inbox: Vec<(MessageId, Place)>,
    pub(super) listed: Option<Listed>,
    /// Extents that no stored list has yet.
    pub(super) fresh: Vec<Extent>,
    /// Message ids that the table of them does not have yet.
    pub(super) posted: Vec<MessageId>,
    pub(super) hold: Option<Hold>,
    /// Under which time it stands in the index of due threads.
    due: Option<StoreTime>,
}

impl Thread {
    pub(super) fn new(row: Row) -> Self {
        Self {
            no: 0,
            exists: false,
            epoch: Epoch(0),
            tail: Tail::default(),
            row,
            inbox: Vec::new(),
            listed: None,
            fresh: Vec::new(),
            posted: Vec::new(),
            hold: None,
            due: None,
        }
    }

    pub(super) fn held(&self, now: StoreTime) -> Option<&Hold> {
        self.hold.as_ref().filter(|h| h.until > now)
    }

    pub(super) fn info(&self, id: &ThreadId, now: StoreTime) -> ThreadInfo {
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

    /// From when on it can be claimed as due; `None` if only an append or a message changes that.
    fn due_from(&self) -> Option<StoreTime> {
        if !self.exists || self.row.status.is_ended() {
            return None;
        }
        let work = if self.inbox.is_empty() { self.row.wake_at? } else { StoreTime(0) };
        Some(self.hold.as_ref().map_or(work, |h| work.max(h.until)))
    }
}

/// All that is in memory.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) threads: BTreeMap<ThreadId, Thread>,
    /// Hashes of the ids of threads that are in the table only: all of them have ended.
    away: HashSet<u64>,
    hasher: RandomState,
    due: HashMap<Arc<str>, BTreeSet<(StoreTime, ThreadId)>>,
    /// Threads that have ended and are in memory all the same.
    fading: HashSet<ThreadId>,
    /// The place of the next entry.
    pub(super) next: Place,
    /// Threads that the tables have an older state of.
    pub(super) dirty: BTreeSet<ThreadId>,
    /// Places of messages that were consumed and can go.
    pub(super) consumed: Vec<Place>,
    /// Entries and bytes in the log that are not in the tables.
    pub(super) unsettled: (usize, usize),
    /// The number of threads, and so the next thread's number.
    pub(super) count: u64,
    /// What is wrong with the table of threads. While there is something, a thread that seems not
    /// to exist may be one that cannot be seen, so none is made.
    pub(super) damaged: Option<(ThreadId, Arc<str>)>,
}

/// An entry that is durable and not yet applied.
#[derive(Debug)]
pub(super) enum Durable {
    Records(Head),
    Message(ThreadId, MessageId),
}

impl State {
    /// The state of a home whose tables have everything before `upto`.
    pub(super) fn settled_upto(upto: Place, count: u64) -> Self {
        Self { next: upto, count, ..Self::default() }
    }

    fn hash(&self, id: &ThreadId) -> u64 {
        self.hasher.hash_one(id)
    }

    /// The error for a thread that is not in memory while the table of threads is damaged.
    pub(super) fn damage(&self, id: &ThreadId) -> Option<StoreError> {
        let (thread, why) = self.damaged.as_ref()?;
        if self.is_away(id) {
            return None;
        }
        Some(StoreError::Damaged { thread: thread.clone(), n: 0, why: Arc::clone(why) })
    }

    /// Whether the thread is in its table and not in memory.
    pub(super) fn is_away(&self, id: &ThreadId) -> bool {
        !self.threads.contains_key(id) && self.away.contains(&self.hash(id))
    }

    /// Takes in a thread as its table has it; one that has ended may be left `away`.
    pub(super) fn admit_stored(&mut self, id: ThreadId, thread: Thread, away: bool) {
        if away {
            let hash = self.hash(&id);
            self.away.insert(hash);
            return;
        }
        let hash = self.hash(&id);
        self.away.remove(&hash);
        if thread.row.status.is_ended() {
            self.fading.insert(id.clone());
        }
        self.threads.insert(id.clone(), thread);
        self.reindex(&id);
    }

    /// Takes in what became durable: the only way in which a thread changes.
    pub(super) fn apply(&mut self, place: Place, bytes: usize, entry: Durable) {
        self.unsettled.0 += 1;
        self.unsettled.1 = self.unsettled.1.saturating_add(bytes);
        match entry {
            Durable::Records(head) => self.apply_records(place, head),
            Durable::Message(to, id) => {
                self.next = place.after(0);
                if let Some(thread) = self.threads.get_mut(&to) {
                    thread.inbox.push((id, place));
                    thread.posted.push(id);
                    self.dirty.insert(to.clone());
                    self.reindex(&to);
                }
            }
        }
    }

    fn apply_records(&mut self, place: Place, head: Head) {
        let (tail, count) = (head.tail(), head.count());
        self.next = place.after(count);
        let thread = match (self.threads.get_mut(&head.thread), &head.row) {
            (Some(thread), _) => thread,
            (None, Some(row)) => {
                let thread = Thread::new(row.clone());
                self.threads.entry(head.thread.clone()).or_insert(thread)
            }
            (None, None) => return,
        };
        if !thread.exists {
            thread.exists = true;
            thread.no = self.count;
            self.count += 1;
        }
        // A claim may have raised the epoch while this entry became durable.
        thread.epoch = thread.epoch.max(head.epoch);
        thread.tail = tail;
        if count > 0 {
            thread.fresh.push(Extent { first: head.at, place });
        }
        let consumed = &mut self.consumed;
        thread.inbox.retain(|(id, place)| {
            let gone = head.consumes.contains(id);
            if gone {
                consumed.push(*place);
            }
            !gone
        });
        if let Some(row) = head.row {
            if row.workflow != thread.row.workflow {
                let id = head.thread.clone();
                remove_due(&mut self.due, &id, thread);
            }
            thread.row = row;
        }
        if thread.row.status.is_ended() {
            self.fading.insert(head.thread.clone());
        } else {
            self.fading.remove(&head.thread);
        }
        self.dirty.insert(head.thread.clone());
        self.reindex(&head.thread);
    }

    /// Puts a thread where it belongs in the index of due threads.
    pub(super) fn reindex(&mut self, id: &ThreadId) {
        let Some(thread) = self.threads.get_mut(id) else {
            return;
        };
        let due = thread.due_from();
        if due == thread.due {
            return;
        }
        remove_due(&mut self.due, id, thread);
        if let Some(due) = due {
            let workflow = Arc::clone(&thread.row.workflow);
            self.due.entry(workflow).or_default().insert((due, id.clone()));
        }
        thread.due = due;
    }

    /// The unheld threads of these workflows that have something to do, the longest due first.
    pub(super) fn due(&self, workflows: &[Arc<str>], max: usize, now: StoreTime) -> Vec<ThreadId> {
        let mut due: Vec<&(StoreTime, ThreadId)> = Vec::new();
        for workflow in workflows {
            let threads = self.due.get(workflow).into_iter().flatten();
            due.extend(threads.take_while(|(at, _)| *at <= now).take(max));
        }
        due.sort_unstable();
        due.dedup();
        due.into_iter().take(max).map(|(_, id)| id.clone()).collect()
    }

    /// Raises the epoch of a thread in memory and leases it.
    pub(super) fn take(&mut self, id: &ThreadId, by: &Arc<str>, until: StoreTime) -> Option<Lease> {
        let thread = self.threads.get_mut(id)?;
        thread.epoch.0 += 1;
        thread.hold = Some(Hold { by: Arc::clone(by), until });
        let lease = Lease {
            thread: id.clone(),
            epoch: thread.epoch,
            until,
            next: thread.tail.next,
            head: thread.tail.head,
            row: thread.row.clone(),
        };
        self.reindex(id);
        Some(lease)
    }

    /// The tables have everything now. Threads that have ended and that nobody
    /// holds leave the memory.
    pub(super) fn settle(&mut self, listed: Vec<(ThreadId, Option<Listed>)>) {
        self.unsettled = (0, 0);
        self.consumed = Vec::new();
        self.dirty.clear();
        for (id, listed) in listed {
            if let Some(thread) = self.threads.get_mut(&id) {
                thread.listed = listed;
                thread.fresh = Vec::new();
                thread.posted = Vec::new();
            }
        }
        let leaving: Vec<_> = self
            .fading
            .iter()
            .filter(|id| self.threads.get(*id).is_some_and(|t| t.hold.is_none()))
            .cloned()
            .collect();
        for id in leaving {
            self.fading.remove(&id);
            self.threads.remove(&id);
            let hash = self.hash(&id);
            self.away.insert(hash);
        }
    }
}

fn remove_due(
    due: &mut HashMap<Arc<str>, BTreeSet<(StoreTime, ThreadId)>>,
    id: &ThreadId,
    thread: &mut Thread,
) {
    if let Some(at) = thread.due.take()
        && let Some(threads) = due.get_mut(&thread.row.workflow)
    {
        threads.remove(&(at, id.clone()));
        if threads.is_empty() {
            due.remove(&thread.row.workflow);
        }
    }
}
