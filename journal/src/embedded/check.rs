//! Reading all of a journal and checking it: every checksum, every record's hash and the chain
//! that it stands in, and that the log has each record once.
//!
//! The journal may be written to meanwhile: what counts is what it had when the check began, and
//! what came later is checked where it is met. Whoever writes waits for nothing but a look into
//! memory.

use std::{collections::BTreeSet, ops::Bound, result};

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
    id::{LogIndex, MessageId, ThreadId},
    limits::{EMBEDDED_CHECK_READ_BYTES, EMBEDDED_LIST_LOOK_MAX, EMBEDDED_LOG_ENTRIES_MAX},
    record::RecordHash,
};

type Result<T> = result::Result<T, StoreError>;
/// What was looked at, unless whoever watches does not want to know.
type Looked<T> = result::Result<Result<T>, Stopped>;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Sum {
    /// Threads that were there when the check began.
    pub(super) threads: u64,
    /// Their records up to then.
    pub(super) records: u64,
    /// Of records, as they were written.
    pub(super) bytes: u64,
    /// The last place of the log at that time.
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
) -> result::Result<Sum, Stopped> {
    let mark = core.state().next;
    let mut checking = Checking { core, damage_max, watch, mark, sum: Sum::default(), waiting: 0 };
    checking.threads()?;
    for part in [Checking::log, Checking::posted, Checking::inboxes] {
        if !checking.is_enough() {
            let looked = part(&mut checking)?;
            checking.note(looked);
        }
    }
    if checking.sum.damage.is_empty() {
        checking.note(core.alive());
    }
    Ok(checking.sum)
}

struct Checking<'c, 'w> {
    core: &'c Core,
    damage_max: usize,
    watch: &'c mut Watch<'w>,
    /// Where the journal ended when the check began.
    mark: Place,
    sum: Sum,
    /// Messages that wait for a thread.
    waiting: u64,
}

fn damaged(why: impl Into<String>) -> StoreError {
    StoreError::Damaged { thread: ThreadId::system(), n: 0, why: why.into().into() }
}

impl Checking<'_, '_> {
    /// Whether more need not be looked at, or cannot.
    fn is_enough(&self) -> bool {
        self.sum.damage.len() >= self.damage_max || self.core.alive().is_err()
    }

    fn note<T>(&mut self, looked: Result<T>) -> Option<T> {
        looked.map_err(|error| self.sum.damage.push(error)).ok()
    }

    fn step(&mut self) -> result::Result<(), Stopped> {
        let Sum { records, bytes, .. } = self.sum;
        let of = self.mark.leaf;
        let goes_on = (self.watch)(Progress { stage: Stage::Verify, records, of, bytes });
        if goes_on { Ok(()) } else { Err(Stopped) }
    }

    fn threads(&mut self) -> result::Result<(), Stopped> {
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
                let id = std::str::from_utf8(key).ok().and_then(|id| ThreadId::any(id).ok());
                let looked = match id {
                    Some(id) => self.thread(&id)?,
                    None => {
                        self.sum.threads += 1;
                        Err(damaged("a key in the table of threads is no thread id"))
                    }
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
        // Memory first: a thread that leaves it meanwhile is in the table by then.
        let (mut keys, mut upto) = self.known(from);
        let range = (from.as_ref().map(|key| &key[..]), Bound::Unbounded);
        let stored = self.core.reading(&ThreadId::system(), |transaction| {
            let mut keys = BTreeSet::new();
            for stored in transaction.open_table(THREADS)?.range::<&[u8]>(range)? {
                keys.insert(stored?.0.value().to_vec());
                if keys.len() >= EMBEDDED_LIST_LOOK_MAX {
                    break;
                }
            }
            Ok(Ok(keys))
        })?;
        if stored.len() >= EMBEDDED_LIST_LOOK_MAX {
            let last = stored.last().cloned();
            upto = upto.map_or(last.clone(), |upto| last.map(|last| last.min(upto)));
        }
        keys.extend(stored);
        if let Some(upto) = upto {
            keys.retain(|key| *key <= upto);
        }
        Ok(keys)
    }

    /// The next keys of threads that are in memory, and the last of them if there are more.
    fn known(&self, from: &Bound<Vec<u8>>) -> (BTreeSet<Vec<u8>>, Option<Vec<u8>>) {
        let behind = match from {
            Bound::Excluded(from) | Bound::Included(from) => Some(&from[..]),
            Bound::Unbounded => None,
        };
        // A damaged key need not be an id: then all of them are looked through.
        let id = behind.and_then(|key| ThreadId::any(std::str::from_utf8(key).ok()?).ok());
        let start = id.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.core.state();
        let known = state.threads.range((start.as_ref(), Bound::Unbounded));
        let known = known.filter(|(_, thread)| thread.exists);
        let known = known.map(|(id, _)| id.as_str().as_bytes());
        let known = known.filter(|key| behind.is_none_or(|behind| *key > behind));
        let keys: BTreeSet<_> = known.take(EMBEDDED_LIST_LOOK_MAX).map(<[u8]>::to_vec).collect();
        let upto = keys.last().filter(|_| keys.len() >= EMBEDDED_LIST_LOOK_MAX).cloned();
        (keys, upto)
    }

    /// Reads a thread to its end.
    fn thread(&mut self, id: &ThreadId) -> Looked<()> {
        let (mut prev, mut from) = (RecordHash::ZERO, 0);
        loop {
            let (most, mark) = (EMBEDDED_CHECK_READ_BYTES, self.mark.leaf);
            let read = reader::read_counting(self.core, id, from, most, mark);
            // A thread has begun since if its first record is behind the mark.
            let begun = matches!(&read, Ok((page, 0)) if from == 0 && !page.items.is_empty());
            self.sum.threads += u64::from(from == 0 && !begun);
            let (page, before_mark) = match read {
                Ok(read) => read,
                Err(error) => return Ok(Err(error)),
            };
            for (n, record) in &page.items {
                if let Err(why) = record.verify_at(&self.core.identity.log_id, &prev, id, *n) {
                    let (thread, why) = (id.clone(), why.into());
                    return Ok(Err(StoreError::Damaged { thread, n: *n, why }));
                }
                prev = record.hash;
                self.sum.bytes = self.sum.bytes.saturating_add(record.size() as u64);
            }
            self.sum.records += before_mark;
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

    /// Reads the log up to the mark: it has no gap, and as many records as the threads have.
    fn log(&mut self) -> Looked<()> {
        let mut leaves: LogIndex = 0;
        while leaves < self.mark.leaf {
            let left = usize::try_from(self.mark.leaf - leaves).unwrap_or(usize::MAX);
            let page = match reader::log(self.core, leaves, left.min(EMBEDDED_LOG_ENTRIES_MAX)) {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            if page.items.is_empty() {
                return Ok(Err(damaged(format!("the log ends before place {leaves}"))));
            }
            leaves += page.items.len() as u64;
            self.sum.head = page.items.into_iter().next_back();
            self.step()?;
        }
        if self.sum.damage.is_empty() && leaves != self.sum.records {
            let records = self.sum.records;
            let why = format!("the log has {leaves} records and the threads {records}");
            return Ok(Err(damaged(why)));
        }
        Ok(Ok(()))
    }

    /// Reads the messages: each waits for a thread.
    fn inboxes(&mut self) -> Looked<()> {
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
            });
            self.step()?;
            match last {
                Ok(Some(last)) => from = Bound::Excluded(last),
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            }
        }
        let settled = {
            let state = self.core.state();
            // What only the log has changed is not in the table yet, and what was said or taken
            // since the threads were read is not counted.
            state.unsettled.0 == 0 && state.next == self.mark && self.sum.damage.is_empty()
        };
        if settled && stored != self.waiting {
            let waiting = self.waiting;
            let why = format!("the inbox has {stored} messages and {waiting} wait");
            return Ok(Err(damaged(why)));
        }
        Ok(Ok(()))
    }

    /// Reads the ids of messages.
    fn posted(&mut self) -> Looked<()> {
        let mut from = Bound::Unbounded;
        loop {
            let range = (from, Bound::Unbounded);
            let mut order = Ascending::after(&from);
            let looked = self.core.reading(&ThreadId::system(), |transaction| {
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
            });
            self.step()?;
            match looked {
                Ok((looked, Some(last))) if looked > 0 => from = Bound::Excluded(last),
                Ok(_) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            }
        }
    }
}
