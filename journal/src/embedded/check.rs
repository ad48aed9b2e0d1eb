//! Reading all of a journal and checking it: every checksum, every record's hash and the chain
//! that it stands in, and that the log has each record once.
//!
//! For a journal that nobody writes to meanwhile.

use std::{collections::BTreeSet, ops::Bound};

use super::{
    code,
    core::Core,
    entry::Place,
    progress::{Progress, Stage, Watch},
    reader,
    tables::{self, Ascending, INBOX, POSTED, THREADS},
};
use crate::{
    checkpointer::{LogEntry, StoreError},
    id::{MessageId, ThreadId},
    limits::{EMBEDDED_CHECK_READ_BYTES, EMBEDDED_LIST_LOOK_MAX, EMBEDDED_LOG_ENTRIES_MAX},
    record::RecordHash,
};

type Result<T> = std::result::Result<T, StoreError>;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) threads: u64,
    pub(super) records: u64,
    /// Of records, as they were written.
    pub(super) bytes: u64,
    /// The last place of the log.
    pub(super) head: Option<LogEntry>,
    /// What is wrong, the first of it.
    pub(super) damage: Vec<StoreError>,
}

/// Whoever watches does not want to know any more.
#[derive(Debug)]
pub(super) struct Stopped;

/// Checks everything, until so much is found wrong.
pub(super) fn check(
    core: &Core,
    damage_max: usize,
    watch: &mut Watch<'_>,
) -> std::result::Result<Sum, Stopped> {
    let mut checking = Checking { core, damage_max, watch, sum: Sum::default(), waiting: 0 };
    checking.threads()?;
    for part in [Checking::log, Checking::posted, Checking::inboxes] {
        let looked = if checking.is_enough() { Ok(()) } else { part(&mut checking) };
        checking.note(looked);
    }
    Ok(checking.sum)
}

struct Checking<'c, 'w> {
    core: &'c Core,
    damage_max: usize,
    watch: &'c mut Watch<'w>,
    sum: Sum,
    /// Messages that wait for a thread.
    waiting: u64,
}

fn damaged(why: impl Into<String>) -> StoreError {
    StoreError::Damaged { thread: ThreadId::system(), n: 0, why: why.into().into() }
}

impl Checking<'_, '_> {
    fn is_enough(&self) -> bool {
        self.sum.damage.len() >= self.damage_max
    }

    fn note<T>(&mut self, looked: Result<T>) -> Option<T> {
        looked.map_err(|error| self.sum.damage.push(error)).ok()
    }

    fn step(&mut self) -> std::result::Result<(), Stopped> {
        let Sum { records, bytes, .. } = self.sum;
        let of = self.core.state().next.leaf;
        let goes_on = (self.watch)(Progress { stage: Stage::Verify, records, of, bytes });
        if goes_on { Ok(()) } else { Err(Stopped) }
    }

    fn threads(&mut self) -> std::result::Result<(), Stopped> {
        let mut from = Bound::Unbounded;
        loop {
            let Some(keys) = self.keys(&from).map_or_else(|e| self.note(Err(e)), Some) else {
                return Ok(());
            };
            let Some(last) = keys.last() else {
                return Ok(());
            };
            if let Err(why) = Ascending::after(&from).next(last.clone()) {
                self.note::<()>(Err(damaged(format!("the table of threads: {why}"))));
                return Ok(());
            }
            from = Bound::Excluded(last.clone());
            for key in &keys {
                self.sum.threads += 1;
                let id = std::str::from_utf8(key).ok().and_then(|id| ThreadId::any(id).ok());
                let looked = match id {
                    Some(id) => self.thread(&id)?,
                    None => Err(damaged("a key in the table of threads is no thread id")),
                };
                self.note(looked);
                if self.is_enough() {
                    return Ok(());
                }
            }
        }
    }

    /// The next keys of threads, those in the table and those that only the log has.
    fn keys(&self, from: &Bound<Vec<u8>>) -> Result<BTreeSet<Vec<u8>>> {
        let range = (from.as_ref().map(|key| &key[..]), Bound::Unbounded);
        let mut keys = self.core.reading(&ThreadId::system(), |transaction| {
            let mut keys = BTreeSet::new();
            for stored in transaction.open_table(THREADS)?.range::<&[u8]>(range)? {
                keys.insert(stored?.0.value().to_vec());
                if keys.len() >= EMBEDDED_LIST_LOOK_MAX {
                    break;
                }
            }
            Ok(Ok(keys))
        })?;
        let upto = keys.last().filter(|_| keys.len() >= EMBEDDED_LIST_LOOK_MAX).cloned();
        let state = self.core.state();
        let known = state.threads.iter().filter(|(_, thread)| thread.exists);
        let known = known.map(|(id, _)| id.as_str().as_bytes());
        let within = |key: &&[u8]| {
            let after = match from {
                Bound::Excluded(from) | Bound::Included(from) => *key > &from[..],
                Bound::Unbounded => true,
            };
            after && upto.as_deref().is_none_or(|upto| *key <= upto)
        };
        keys.extend(known.filter(within).map(<[u8]>::to_vec));
        Ok(keys)
    }

    /// Reads a thread to its end.
    fn thread(&mut self, id: &ThreadId) -> std::result::Result<Result<()>, Stopped> {
        let (mut prev, mut from) = (RecordHash::ZERO, 0);
        loop {
            let page = match reader::read(self.core, id, from, EMBEDDED_CHECK_READ_BYTES) {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            for (n, record) in &page.items {
                if let Err(why) = record.verify_at(&self.core.identity.log_id, &prev, id, *n) {
                    let (thread, why) = (id.clone(), why.into());
                    return Ok(Err(StoreError::Damaged { thread, n: *n, why }));
                }
                prev = record.hash;
                self.sum.records += 1;
                self.sum.bytes = self.sum.bytes.saturating_add(record.size() as u64);
            }
            self.step()?;
            match page.next {
                Some(next) => from = next,
                None => return Ok(self.inbox(id)),
            }
        }
    }

    /// Reads what waits for a thread, an ended one too.
    fn inbox(&mut self, id: &ThreadId) -> Result<()> {
        let here = self.core.state().threads.get(id).map(|thread| thread.inbox.len());
        let waiting = match here {
            Some(waiting) => waiting,
            None => self.core.stored_thread(id)?.inbox.len(),
        };
        self.waiting += waiting as u64;
        reader::inbox(self.core, id).map(drop)
    }

    /// Reads the log: it has no gap, and as many records as the threads have.
    fn log(&mut self) -> Result<()> {
        let mut next = Some(0);
        let mut leaves = 0;
        while let Some(from) = next {
            let page = reader::log(self.core, from, EMBEDDED_LOG_ENTRIES_MAX)?;
            leaves += page.items.len() as u64;
            next = page.next;
            self.sum.head = page.items.into_iter().next_back().or(self.sum.head.take());
        }
        if self.sum.damage.is_empty() && leaves != self.sum.records {
            let records = self.sum.records;
            return Err(damaged(format!("the log has {leaves} records and the threads {records}")));
        }
        Ok(())
    }

    /// Reads the messages: each waits for a thread.
    fn inboxes(&mut self) -> Result<()> {
        let mut stored = 0;
        let mut from = Bound::Unbounded;
        loop {
            let range = (from, Bound::Unbounded);
            let mut order = Ascending::after(&from);
            let last = self.core.reading(&ThreadId::system(), |transaction| {
                let (mut bytes, mut last) = (0, None);
                for message in transaction.open_table(INBOX)?.range(range)? {
                    let (key, message) = message?;
                    let (leaf, sub) = key.value();
                    if let Err(why) = order.next((leaf, sub)) {
                        return Ok(Err(damaged(format!("the inbox: {why}"))));
                    }
                    if let Err(why) = tables::read_message(Place { leaf, sub }, message.value()) {
                        return Ok(Err(damaged(format!("a message in the inbox: {why}"))));
                    }
                    stored += 1;
                    bytes += message.value().len();
                    last = Some((leaf, sub));
                    if bytes >= EMBEDDED_CHECK_READ_BYTES {
                        break;
                    }
                }
                Ok(Ok(last))
            })?;
            match last {
                Some(last) => from = Bound::Excluded(last),
                None => break,
            }
        }
        // What only the log has changed is not in the table yet.
        let settled = self.core.state().unsettled.0 == 0 && self.sum.damage.is_empty();
        if settled && stored != self.waiting {
            let waiting = self.waiting;
            return Err(damaged(format!("the inbox has {stored} messages and {waiting} wait")));
        }
        Ok(())
    }

    /// Reads the ids of messages.
    fn posted(&mut self) -> Result<()> {
        let mut from = Bound::Unbounded;
        loop {
            let range = (from, Bound::Unbounded);
            let mut order = Ascending::after(&from);
            let (looked, last) = self.core.reading(&ThreadId::system(), |transaction| {
                let (mut looked, mut last) = (0, None);
                for stored in transaction.open_table(POSTED)?.range(range)? {
                    let (key, seal) = stored?;
                    let (no, id) = key.value();
                    if let Err(why) = order.next((no, id)) {
                        return Ok(Err(damaged(format!("the ids of messages: {why}"))));
                    }
                    if tables::posted_seal(no, &MessageId(id)) != seal.value() {
                        return Ok(Err(damaged("the id of a message that was posted")));
                    }
                    (looked, last) = (looked + 1, Some((no, id)));
                    if looked * code::SUM_BYTES >= EMBEDDED_CHECK_READ_BYTES {
                        break;
                    }
                }
                Ok(Ok((looked, last)))
            })?;
            match last {
                Some(last) if looked > 0 => from = Bound::Excluded(last),
                _ => return Ok(()),
            }
        }
    }
}
