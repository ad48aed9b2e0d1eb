//! All threads in memory, and what may be done with them.

use std::{
    collections::{BTreeMap, HashSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use deedbook_journal::{
    admit::{self, Tail},
    checkpointer::{
        Append, Claim, Filter, Lease, LogEntry, Message, Page, Posted, RecordPage, StoreError,
        ThreadInfo,
    },
    embedded::StoreClock,
    id::{Epoch, LogIndex, MessageId, Position, StoreTime, ThreadId},
    record::{RecordHash, Role},
    row::Row,
};

use crate::thread::Thread;

type Result<T> = std::result::Result<T, StoreError>;

/// The threads and the order in which their records came.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) threads: BTreeMap<ThreadId, Thread>,
    pub(crate) log: Vec<LogEntry>,
}

impl State {
    fn thread(&self, id: &ThreadId) -> Result<&Thread> {
        let thread = self.threads.get(id).filter(|t| t.exists);
        thread.ok_or(StoreError::NoSuchThread)
    }

    /// Checks everything about an element and changes nothing.
    fn admit(&self, log_id: &[u8; 16], append: &Append, clock: &StoreClock) -> Result<Tail> {
        let thread = self.threads.get(&append.thread);
        let thread = thread.ok_or(StoreError::NoSuchThread)?;
        if thread.epoch != append.epoch {
            return Err(StoreError::Fenced { held: thread.epoch });
        }
        let after = admit::admit(log_id, &thread.tail, append)?;
        admit::not_ahead(&after, |time| clock.has_reached(time))?;
        let mut seen = HashSet::new();
        for id in &append.consumes {
            if thread.posted.get(id) != Some(&true) || !seen.insert(*id) {
                return Err(StoreError::Moved { next: thread.tail.next });
            }
        }
        Ok(after)
    }

    /// Stores one element, whole or not at all.
    pub(crate) fn append(
        &mut self,
        log_id: &[u8; 16],
        append: Append,
        clock: &StoreClock,
    ) -> Result<Tail> {
        let after = self.admit(log_id, &append, clock)?;
        let Some(thread) = self.threads.get_mut(&append.thread) else {
            return Err(StoreError::NoSuchThread);
        };
        for (n, record) in (append.at..).zip(&append.records) {
            self.log.push(LogEntry {
                index: self.log.len() as LogIndex,
                thread: append.thread.clone(),
                n,
                hash: record.hash,
            });
        }
        thread.records.extend(append.records.into_vec());
        consume(thread, &append.consumes);
        thread.row = append.row;
        thread.tail = after;
        thread.exists = true;
        Ok(after)
    }

    /// Deletes a payload and appends a note about it.
    pub(crate) fn erase(
        &mut self,
        log_id: &[u8; 16],
        (id, n, role): (&ThreadId, Position, Role),
        note: Append,
        clock: &StoreClock,
    ) -> Result<Tail> {
        if note.thread != *id {
            return Err(refused("the note about an erasure is of another thread"));
        }
        self.admit(log_id, &note, clock)?;
        let thread = self.threads.get_mut(id).ok_or(StoreError::NoSuchThread)?;
        let record = usize::try_from(n).ok().and_then(|n| thread.records.get_mut(n));
        let record =
            record.ok_or_else(|| refused(format!("there is no record {n} to erase in")))?;
        let at = record.payloads.iter().position(|p| p.role == role);
        let at = at.ok_or_else(|| {
            refused(format!("record {n} has no payload {} to erase", role.as_str()))
        })?;
        record.payloads.remove(at);
        self.append(log_id, note, clock)
    }

    pub(crate) fn read(
        &self,
        log_id: &[u8; 16],
        id: &ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> Result<RecordPage> {
        let thread = self.thread(id)?;
        let start = usize::try_from(from).unwrap_or(usize::MAX);
        if start >= thread.records.len() {
            let items = Vec::new();
            return Ok(Page { items, next: None });
        }
        let mut prev = match start.checked_sub(1).and_then(|n| thread.records.get(n)) {
            Some(before) => before.hash,
            None => RecordHash::ZERO,
        };
        let (mut items, mut bytes) = (Vec::new(), 0_usize);
        for (n, record) in (from..).zip(thread.records.iter().skip(start)) {
            bytes = bytes.saturating_add(record.size());
            if bytes > bytes_max && !items.is_empty() {
                return Ok(Page { items, next: Some(n) });
            }
            record.verify(log_id, &prev).map_err(|why| StoreError::Damaged {
                thread: id.clone(),
                n,
                why: why.into(),
            })?;
            prev = record.hash;
            items.push((n, record.clone()));
        }
        Ok(Page { items, next: None })
    }

    pub(crate) fn post(&mut self, to: &ThreadId, message: Message) -> Result<Posted> {
        admit::admit_message(&message)?;
        let Some(thread) = self.threads.get_mut(to).filter(|t| t.exists) else {
            return Ok(Posted::NoSuchThread);
        };
        if thread.posted.contains_key(&message.id) {
            return Ok(Posted::AlreadyThere);
        }
        if thread.row.status.is_ended() {
            return Ok(Posted::ThreadEnded);
        }
        thread.posted.insert(message.id, true);
        thread.inbox.push_back(message);
        Ok(Posted::Stored)
    }

    pub(crate) fn inbox(&self, id: &ThreadId) -> Result<Vec<Message>> {
        Ok(self.thread(id)?.inbox.iter().cloned().collect())
    }

    pub(crate) fn claim(
        &mut self,
        which: Claim,
        by: &Arc<str>,
        ttl: Duration,
        now: StoreTime,
    ) -> Result<Vec<Lease>> {
        match which {
            Claim::Thread { id, create } => Ok(vec![self.claim_one(id, create, by, ttl, now)?]),
            Claim::Due { workflows, max } => {
                let mut due: Vec<_> = self
                    .threads
                    .iter()
                    .filter(|(_, t)| t.exists && t.held(now).is_none())
                    .filter(|(_, t)| workflows.contains(&t.row.workflow))
                    .filter(|(_, t)| admit::is_due(&t.row, t.inbox.len(), now))
                    .map(|(id, t)| (due_since(t), id.clone()))
                    .collect();
                due.sort();
                due.truncate(max);
                let take = |(_, id): (StoreTime, ThreadId)| {
                    let thread = self.threads.get_mut(&id)?;
                    Some(thread.take(&id, by, now.after(ttl)))
                };
                Ok(due.into_iter().filter_map(take).collect())
            }
        }
    }

    fn claim_one(
        &mut self,
        id: ThreadId,
        create: Option<Row>,
        by: &Arc<str>,
        ttl: Duration,
        now: StoreTime,
    ) -> Result<Lease> {
        if let Some(hold) = self.threads.get(&id).and_then(|t| t.held(now)) {
            let by = Arc::clone(&hold.by);
            return Err(StoreError::Held { by });
        }
        match (self.threads.get_mut(&id), create) {
            (Some(thread), create) if thread.exists || create.is_some() => {
                // A thread that was claimed and never written is made anew.
                if let (false, Some(row)) = (thread.exists, create) {
                    thread.row = row;
                }
                Ok(thread.take(&id, by, now.after(ttl)))
            }
            (None, Some(row)) => {
                let thread = self.threads.entry(id.clone()).or_insert(Thread::new(row));
                Ok(thread.take(&id, by, now.after(ttl)))
            }
            _ => Err(StoreError::NoSuchThread),
        }
    }

    pub(crate) fn renew(
        &mut self,
        leases: &[(ThreadId, Epoch)],
        ttl: Duration,
        now: StoreTime,
    ) -> Vec<Option<StoreTime>> {
        let mut answers = Vec::with_capacity(leases.len());
        for (id, epoch) in leases {
            let thread = self.threads.get_mut(id).filter(|t| t.epoch == *epoch);
            let held = thread.filter(|t| t.hold.is_some());
            answers.push(held.map(|thread| {
                let until = now.after(ttl);
                if ttl.is_zero() {
                    thread.hold = None;
                } else if let Some(hold) = &mut thread.hold {
                    hold.until = until;
                }
                until
            }));
        }
        answers
    }

    pub(crate) fn list(
        &self,
        filter: &Filter,
        after: Option<&ThreadId>,
        max: usize,
        now: StoreTime,
    ) -> Page<ThreadInfo, ThreadId> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut items: Vec<ThreadInfo> = Vec::new();
        for (id, thread) in self.threads.range((start, Bound::Unbounded)) {
            if !thread.exists || !filter.admits(id, &thread.row) {
                continue;
            }
            if items.len() >= max {
                let next = items.last().map(|t| t.id.clone());
                return Page { items, next };
            }
            items.push(thread.info(id, now));
        }
        Page { items, next: None }
    }

    pub(crate) fn log(&self, from: LogIndex, max: usize) -> Page<LogEntry, LogIndex> {
        let start = usize::try_from(from).unwrap_or(usize::MAX).min(self.log.len());
        let items: Vec<_> = self.log.iter().skip(start).take(max).cloned().collect();
        let end = start + items.len();
        let next = (end < self.log.len()).then_some(end as LogIndex);
        Page { items, next }
    }
}

/// Since when a due thread is due: one with a message, at once.
fn due_since(thread: &Thread) -> StoreTime {
    if thread.inbox.is_empty() { thread.row.wake_at.unwrap_or_default() } else { StoreTime(0) }
}

fn consume(thread: &mut Thread, consumed: &[MessageId]) {
    if consumed.is_empty() {
        return;
    }
    for id in consumed {
        thread.posted.insert(*id, false);
    }
    thread.inbox.retain(|m| !consumed.contains(&m.id));
}

fn refused(why: impl Into<Arc<str>>) -> StoreError {
    StoreError::Refused { why: why.into() }
}
