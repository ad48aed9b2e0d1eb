//! What the home keeps in memory: every unfinished thread, and what is in the log but not yet in
//! the tables.
//!
//! A commit writes the log only. Records, rows, messages and their ids follow in drains, when
//! enough has come together; the log beyond them tells the rest after a crash, through the same
//! [`State::apply`] that follows a commit.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::{
    entry::{Appended, Entry, Place},
    log::{FrameHash, Segment},
};
use crate::{
    admit::Tail,
    checkpointer::{Lease, Message, StoreError, ThreadInfo},
    id::{Epoch, LogIndex, MessageId, Position, StoreTime, ThreadId},
    record::{RecordHash, Role},
    row::Row,
};

/// Where a chunk of a thread's records begins: with position `first`.
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

/// An append that the tables do not have yet.
#[derive(Debug, Clone)]
pub(super) struct Fresh {
    pub(super) place: Place,
    pub(super) appended: Arc<Appended>,
}

/// An unconsumed message.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) id: MessageId,
    pub(super) place: Place,
    /// `None` once its table has it.
    pub(super) message: Option<Arc<Message>>,
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
    pub(super) inbox: Vec<Waiting>,
    pub(super) listed: Option<Listed>,
    /// What no chunk has yet, but for what a drain has in hand.
    pub(super) fresh: Vec<Fresh>,
    /// What the drain in hand brings into chunks. It comes before what is fresh.
    pub(super) draining: Option<Arc<Vec<Fresh>>>,
    /// Message ids that the table of them does not have yet.
    pub(super) posted: Vec<MessageId>,
    pub(super) hold: Option<Hold>,
    /// Whether a claim has raised the epoch and nothing was written under it yet.
    raised: bool,
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
            draining: None,
            posted: Vec::new(),
            hold: None,
            raised: false,
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

    /// The appends that the tables are not known to have.
    pub(super) fn appends(&self) -> impl Iterator<Item = &Fresh> {
        self.draining.iter().flat_map(|draining| draining.iter()).chain(&self.fresh)
    }

    /// Whether it need not stay in memory: nobody comes for it but by its name.
    pub(super) fn rests(&self) -> bool {
        let status = self.row.status;
        status.is_ended()
            || status.is_at_rest() && self.inbox.is_empty() && self.row.wake_at.is_none()
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
    /// Hashes of the ids of threads that are in the table only: all of them are at rest.
    away: HashSet<u64>,
    hasher: RandomState,
    due: HashMap<Arc<str>, BTreeSet<(StoreTime, ThreadId)>>,
    /// Threads that are at rest and in memory all the same.
    fading: HashSet<ThreadId>,
    /// Whether a drain has come since they were looked at.
    retiring: bool,
    /// The place of the next entry.
    pub(super) next: Place,
    /// Threads that the tables have an older state of.
    pub(super) dirty: BTreeSet<ThreadId>,
    /// Places of messages that were consumed and that their table has or is about to have.
    pub(super) consumed: Vec<Place>,
    /// The appends that the tables do not have, in the order of the log, but for those that a
    /// drain has in hand.
    pub(super) tail: Vec<Fresh>,
    /// Those that it has in hand.
    pub(super) draining_tail: Option<Arc<Vec<Fresh>>>,
    /// Payloads that are gone, and that their table still has.
    pub(super) erasures: Vec<(ThreadId, Position, Role)>,
    /// Entries and bytes in the log that are not in the tables.
    pub(super) unsettled: (usize, usize),
    /// The last frame that was applied, and the generation it stands in or is followed by.
    pub(super) frame: (u64, FrameHash),
    /// The log that it stands in.
    pub(super) log: [u8; 16],
    /// The hash of the last record, if it was applied since the journal was opened.
    pub(super) head: Option<RecordHash>,
    /// The file that is written to, and where its next frame goes.
    pub(super) segment: Option<(Arc<Segment>, u64)>,
    /// Up to where the tables have everything.
    pub(super) settled: Place,
    /// Up to where they will have everything once the drain in hand is durable.
    pub(super) draining: Place,
    /// The number of threads, and so the next thread's number.
    pub(super) count: u64,
    /// What is wrong with the table of threads. While there is something, a thread that seems not
    /// to exist may be one that cannot be seen, so none is made.
    pub(super) damaged: Option<(ThreadId, Arc<str>)>,
}

impl State {
    /// The state of a home whose tables have everything before `upto`.
    pub(super) fn settled_upto(upto: Place, count: u64) -> Self {
        Self { next: upto, settled: upto, draining: upto, count, ..Self::default() }
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

    /// Takes in a thread as its table has it; one at rest may be left `away`.
    pub(super) fn admit_stored(&mut self, id: ThreadId, thread: Thread, away: bool) {
        if away {
            let hash = self.hash(&id);
            self.away.insert(hash);
            return;
        }
        let hash = self.hash(&id);
        self.away.remove(&hash);
        if thread.rests() {
            self.fading.insert(id.clone());
        }
        self.threads.insert(id.clone(), thread);
        self.reindex(&id);
    }

    /// Takes in what became durable: the only way in which a thread changes.
    pub(super) fn apply(&mut self, entry: Entry) {
        let place = self.next;
        self.unsettled.0 += 1;
        self.unsettled.1 = self.unsettled.1.saturating_add(entry.size());
        self.next = place.after(entry.count());
        match entry {
            Entry::Appended(appended) => self.apply_records(place, appended),
            Entry::Message(to, message) => {
                if let Some(thread) = self.threads.get_mut(&to) {
                    let id = message.id;
                    thread.inbox.push(Waiting { id, place, message: Some(message) });
                    thread.posted.push(id);
                    if !thread.rests() {
                        self.fading.remove(&to);
                    }
                    self.dirty.insert(to.clone());
                    self.reindex(&to);
                }
            }
            Entry::Erased(id, n, role) => {
                let fresh = self.threads.get_mut(&id).map(|t| &mut t.fresh);
                if !fresh.is_some_and(|fresh| forget(fresh, n, role)) {
                    self.erasures.push((id, n, role));
                }
            }
        }
    }

    fn apply_records(&mut self, place: Place, appended: Arc<Appended>) {
        let (tail, count) = (appended.tail(), appended.count());
        let id = &appended.thread;
        let thread = match (self.threads.get_mut(id), &appended.row) {
            (Some(thread), _) => thread,
            (None, Some(row)) => {
                let thread = Thread::new(row.clone());
                self.threads.entry(id.clone()).or_insert(thread)
            }
            (None, None) => return,
        };
        if !thread.exists {
            thread.exists = true;
            thread.no = self.count;
            self.count += 1;
        }
        // A claim may have raised the epoch while this entry became durable.
        thread.raised &= appended.epoch < thread.epoch;
        thread.epoch = thread.epoch.max(appended.epoch);
        thread.tail = tail;
        if !appended.consumes.is_empty() {
            let (consumed, draining) = (&mut self.consumed, self.draining);
            thread.inbox.retain(|waiting| {
                let gone = appended.consumes.contains(&waiting.id);
                if gone && (waiting.message.is_none() || waiting.place < draining) {
                    consumed.push(waiting.place);
                }
                !gone
            });
        }
        if let Some(row) = &appended.row {
            if row.workflow != thread.row.workflow {
                remove_due(&mut self.due, id, thread);
            }
            thread.row = row.clone();
        }
        if thread.rests() {
            self.fading.insert(id.clone());
        } else {
            self.fading.remove(id);
        }
        if count > 0 {
            self.head = Some(tail.head);
            let fresh = Fresh { place, appended: Arc::clone(&appended) };
            thread.fresh.push(fresh.clone());
            self.tail.push(fresh);
        }
        let due = thread.due_from() != thread.due;
        if !self.dirty.contains(id) {
            self.dirty.insert(id.clone());
        }
        if due {
            self.reindex(id);
        }
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
        thread.raised = true;
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

    /// The appends that the tables are not known to have, in the order of the log, from the one
    /// that holds this leaf on.
    pub(super) fn appends_from(&self, leaf: LogIndex) -> impl Iterator<Item = &Fresh> {
        let from = move |appends: &'_ [Fresh]| {
            appends.partition_point(|f| f.place.leaf + f.appended.count() <= leaf)
        };
        let draining = self.draining_tail.as_ref().map_or(&[][..], |draining| draining);
        let (front, back) = (from(draining), from(&self.tail));
        draining.iter().skip(front).chain(self.tail.iter().skip(back))
    }

    /// A drain is durable: the tables have everything before `upto`. Nothing that it had in hand
    /// is freed by this, which takes longer than anybody should have the state for; here is the
    /// rest of what is to be freed.
    #[must_use]
    pub(super) fn settle(&mut self, drained: &Drained) -> Option<Arc<Vec<Fresh>>> {
        let upto = drained.upto;
        self.settled = upto;
        let freed = self.draining_tail.take();
        self.erasures.drain(..drained.erasures.min(self.erasures.len()));
        self.unsettled.0 = self.unsettled.0.saturating_sub(drained.unsettled.0);
        self.unsettled.1 = self.unsettled.1.saturating_sub(drained.unsettled.1);
        for (id, settled) in &drained.threads {
            if let Some(thread) = self.threads.get_mut(id) {
                thread.listed = settled.listed;
                thread.draining = None;
                if !settled.posted.is_empty() {
                    thread.posted.drain(..settled.posted.len().min(thread.posted.len()));
                    thread.posted.shrink_to_fit();
                }
                for waiting in thread.inbox.iter_mut().filter(|w| w.place < upto) {
                    waiting.message = None;
                }
            }
        }
        self.retiring = !self.fading.is_empty();
        freed
    }

    /// Threads that are at rest, that nobody holds and that the tables have leave the memory. Only
    /// who has the right to write does this, between groups: a group counts on the threads that
    /// it has looked at.
    pub(super) fn retire(&mut self) {
        if !std::mem::take(&mut self.retiring) {
            return;
        }
        let leaving = |id: &&ThreadId| {
            // An epoch that was given out and not written must not be given out again.
            let idle = self.threads.get(*id).is_some_and(|t| t.hold.is_none() && !t.raised);
            idle && !self.dirty.contains(*id) && self.draining <= self.settled
        };
        let leaving: Vec<_> = self.fading.iter().filter(leaving).cloned().collect();
        for id in leaving {
            self.fading.remove(&id);
            self.threads.remove(&id);
            let hash = self.hash(&id);
            self.away.insert(hash);
        }
    }
}

/// What a drain has made durable.
#[derive(Debug)]
pub(super) struct Drained {
    pub(super) upto: Place,
    /// Entries and bytes.
    pub(super) unsettled: (usize, usize),
    /// The number of erasures.
    pub(super) erasures: usize,
    /// Threads as the tables have them now. What was drained of them is freed with this.
    pub(super) threads: Vec<(ThreadId, Thread)>,
    /// Chunks that were written again, and how many keys they have.
    pub(super) rewritten: Vec<(Place, u32)>,
}

/// Takes a payload out of what is not in the tables yet; `false` if it is not there.
fn forget(fresh: &mut [Fresh], n: Position, role: Role) -> bool {
    let holds = |f: &&mut Fresh| (f.appended.at..f.appended.tail().next).contains(&n);
    let Some(fresh) = fresh.iter_mut().find(holds) else {
        return false;
    };
    let at = usize::try_from(n.saturating_sub(fresh.appended.at)).unwrap_or(usize::MAX);
    let old = &fresh.appended;
    let mut records = old.records.clone();
    if let Some(record) = records.change().get_mut(at) {
        record.payloads.retain(|p| p.role != role);
    }
    let (row, consumes) = (old.row.clone(), old.consumes.clone());
    let thread = old.thread.clone();
    let without = Appended { thread, row, consumes, records, ..**old };
    fresh.appended = Arc::new(without);
    true
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{embedded::drain::Plan, record::Records, row::Status};

    fn ended(id: &ThreadId) -> Entry {
        let row = Row::new("w", Status::Done, StoreTime(0));
        Entry::Appended(Arc::new(Appended {
            thread: id.clone(),
            epoch: Epoch(1),
            at: 0,
            prev: Default::default(),
            time: StoreTime(0),
            row: Some(row),
            consumes: Vec::new(),
            records: Records::default(),
        }))
    }

    fn drained(state: &State) -> Drained {
        let threads = state.threads.iter().map(|(id, thread)| (id.clone(), thread.clone()));
        Drained {
            upto: state.next,
            unsettled: state.unsettled,
            erasures: 0,
            threads: threads.collect(),
            rewritten: Vec::new(),
        }
    }

    #[test]
    fn an_ended_thread_stays_until_no_group_counts_on_it() {
        let id = ThreadId::new("t").unwrap();
        let mut state = State::default();
        state.apply(ended(&id));
        let _plan = Plan::take(&mut state);
        let first = drained(&state);
        drop(state.settle(&first));
        // A group may have looked at it meanwhile: a drain does not take it away.
        assert!(state.threads.contains_key(&id) && !state.is_away(&id));
        // Nor does anybody while a drain has it in hand that its table does not have yet.
        state.apply(ended(&id));
        let _plan = Plan::take(&mut state);
        state.retire();
        assert!(!state.is_away(&id));
        let second = drained(&state);
        drop(state.settle(&second));
        state.retire();
        assert!(state.is_away(&id));
    }

    #[test]
    fn an_ended_thread_stays_while_an_epoch_of_it_is_given_out() {
        let id = ThreadId::new("t").unwrap();
        let mut state = State::default();
        state.apply(ended(&id));
        let by = Arc::from("somebody");
        let lease = state.take(&id, &by, StoreTime(9)).unwrap();
        state.threads.get_mut(&id).unwrap().hold = None;
        let _plan = Plan::take(&mut state);
        let first = drained(&state);
        drop(state.settle(&first));
        state.retire();
        assert_eq!(state.take(&id, &by, StoreTime(9)).unwrap().epoch.0, lease.epoch.0 + 1);
    }
}
