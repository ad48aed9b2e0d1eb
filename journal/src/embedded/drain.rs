//! Drains: bringing what stands in the log into the tables, many groups at a time.
//!
//! Each drain is one transaction at the right edge of `records`, sorted by thread, and it says
//! how far the tables go by the same stroke. Every commit is two-phase, and carries redb's
//! allocator state, so that opening after a crash reads none of the file to rebuild it.

use std::sync::Arc;

use redb::{ReadableTable, Table, WriteTransaction};

use super::{
    chunk::{self, Chunk, Head},
    entry::Place,
    log::FrameHash,
    planted::{Broken, planted},
    state::{Drained, Extent, Fresh, Listed, State, Thread},
    tables::{self, EXTENTS, INBOX, META, POSTED, RECORDS, STATE, Settled, THREADS},
};
use crate::{
    checkpointer::Message,
    id::ThreadId,
    limits::{
        EMBEDDED_DRAIN_BYTES, EMBEDDED_DRAIN_BYTES_MAX, EMBEDDED_DRAIN_ENTRIES,
        EMBEDDED_DRAIN_THREAD_BYTES, EMBEDDED_LIST_EXTENTS_MAX,
    },
    record::Record,
};

type Bytes = &'static [u8];

/// Takes all that is fresh.
fn in_hand(fresh: &mut Vec<Fresh>) -> Option<Arc<Vec<Fresh>>> {
    (!fresh.is_empty()).then(|| Arc::new(std::mem::take(fresh)))
}

/// What has to be written, taken from memory at one moment.
#[derive(Debug)]
pub(super) struct Plan {
    /// Up to where the tables were settled before: the key of this drain's chunks.
    base: Place,
    upto: Place,
    frame: (u64, FrameHash),
    log: [u8; 16],
    count: u64,
    unsettled: (usize, usize),
    threads: Vec<(ThreadId, Thread)>,
    consumed: Vec<Place>,
    erasures: usize,
    /// Chunks to write again without what was erased.
    rewrites: Vec<Rewrite>,
}

/// A chunk that lost a payload.
#[derive(Debug)]
pub(super) struct Rewrite {
    pub(super) place: Place,
    /// How many keys it has.
    pub(super) keys: u32,
    pub(super) head: Head,
    pub(super) records: Vec<Record>,
}

/// Whether enough has come together, where a file of the log gets this long.
pub(super) fn is_due(state: &State, log_bytes: u64) -> bool {
    let quarter = usize::try_from(log_bytes / 4).unwrap_or(usize::MAX);
    let (entries, bytes) = state.unsettled;
    let worth = state.dirty.len().saturating_mul(EMBEDDED_DRAIN_THREAD_BYTES);
    let enough = worth.clamp(EMBEDDED_DRAIN_BYTES, EMBEDDED_DRAIN_BYTES_MAX).min(quarter);
    entries >= EMBEDDED_DRAIN_ENTRIES || bytes >= enough
}

impl Plan {
    /// Takes everything that the tables do not have. A plan that is not written is the end of
    /// the handle: what it took is not taken again.
    pub(super) fn take(state: &mut State) -> Self {
        let dirty = std::mem::take(&mut state.dirty);
        let threads = dirty.into_iter().filter_map(|id| {
            let thread = state.threads.get_mut(&id)?;
            // Taken, not copied: nobody else gets on while this goes on.
            thread.draining = in_hand(&mut thread.fresh);
            Some((id, thread.clone()))
        });
        let threads = threads.collect();
        state.draining_tail = in_hand(&mut state.tail);
        state.draining = state.next;
        Self {
            base: state.settled,
            upto: state.next,
            frame: state.frame,
            log: state.log,
            count: state.count,
            unsettled: state.unsettled,
            threads,
            consumed: std::mem::take(&mut state.consumed),
            erasures: state.erasures.len(),
            rewrites: Vec::new(),
        }
    }

    /// The generation of the log that it says.
    pub(super) fn generation(&self) -> u64 {
        self.frame.0
    }

    /// Also writes these chunks again.
    pub(super) fn with(mut self, rewrites: Vec<Rewrite>) -> Self {
        self.rewrites = rewrites;
        self
    }

    /// Makes it say that another log goes on, in a later generation.
    pub(super) fn in_generation(mut self, generation: u64, log: [u8; 16]) -> Self {
        self.frame.0 = generation;
        self.log = log;
        self
    }

    /// Writes it all.
    pub(super) fn write(
        mut self,
        transaction: &WriteTransaction,
        clean: bool,
    ) -> Result<Drained, redb::Error> {
        {
            let mut records = Records::open(transaction, self.base)?;
            let extents = records.put_all(&self.threads)?;
            for rewrite in &self.rewrites {
                records.rewrite(rewrite)?;
            }
            let mut lists = transaction.open_table(EXTENTS)?;
            for ((_, thread), extents) in self.threads.iter_mut().zip(extents) {
                write_extents(&mut lists, thread, extents)?;
            }
        }
        self.write_messages(transaction)?;
        {
            let mut posted = transaction.open_table(POSTED)?;
            let mut threads = transaction.open_table(THREADS)?;
            for (id, thread) in &self.threads {
                for message in &thread.posted {
                    let seal = tables::posted_seal(thread.no, message);
                    posted.insert((thread.no, message.0), &seal[..])?;
                }
                let key = id.as_str().as_bytes();
                threads.insert(key, &tables::write_thread(key, thread)[..])?;
            }
        }
        let (generation, frame) = self.frame;
        let (upto, log, threads) = (self.upto, self.log, self.count);
        let settled = Settled { clean, generation, upto, frame, log, threads };
        if clean || self.base == self.upto || !planted(Broken::DrainWithoutSettled) {
            let mut meta = transaction.open_table(META)?;
            meta.insert(STATE, &tables::write_settled(&settled)[..])?;
        }
        Ok(Drained {
            upto: self.upto,
            unsettled: self.unsettled,
            erasures: self.erasures,
            threads: self.threads,
            rewritten: self.rewrites.iter().map(|r| (r.place, r.keys)).collect(),
        })
    }

    /// Messages that nobody consumed yet go into their table, consumed ones go out of it.
    fn write_messages(&self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        let waiting = |(id, thread): &(ThreadId, Thread)| -> Vec<(Place, ThreadId, Arc<Message>)> {
            let waiting = thread.inbox.iter();
            let new = waiting.filter_map(|w| Some((w.place, id.clone(), w.message.clone()?)));
            new.collect()
        };
        let mut new: Vec<_> = self.threads.iter().flat_map(waiting).collect();
        if new.is_empty() && self.consumed.is_empty() {
            return Ok(());
        }
        new.sort_by_key(|(place, _, _)| *place);
        let mut inbox = transaction.open_table(INBOX)?;
        for place in &self.consumed {
            inbox.remove(place.key())?;
        }
        for (place, to, message) in &new {
            inbox.insert(place.key(), &tables::write_message(*place, to, message)[..])?;
        }
        Ok(())
    }
}

/// The right edge of the table of records.
struct Records<'t> {
    table: Table<'t, (u64, u32), Bytes>,
    next: Place,
    /// The chunk in hand.
    stored: Vec<u8>,
}

impl<'t> Records<'t> {
    fn open(transaction: &'t WriteTransaction, base: Place) -> Result<Self, redb::Error> {
        let table = transaction.open_table(RECORDS)?;
        let next = Place { leaf: base.leaf, sub: 0 };
        Ok(Self { table, next, stored: Vec::new() })
    }

    /// Puts the records of threads into chunks: where each begins, thread by thread.
    fn put_all(&mut self, threads: &[(ThreadId, Thread)]) -> Result<Vec<Vec<Extent>>, redb::Error> {
        let mut leaves = Vec::new();
        let mut runs = Vec::with_capacity(threads.len());
        for (_, thread) in threads {
            let from = leaves.len();
            for Fresh { place, appended } in thread.appends() {
                leaves.extend((place.leaf..).zip(&appended.records));
            }
            runs.push(from..leaves.len());
        }
        let mut extents = Vec::with_capacity(threads.len());
        let mut short = Vec::new();
        for ((id, thread), run) in threads.iter().zip(runs) {
            let records = leaves.get(run).unwrap_or_default();
            let mut of_thread = Vec::new();
            if let Some(Fresh { appended, .. }) = thread.appends().next() {
                let run = Chunk { thread: id, at: appended.at, prev: appended.prev, records };
                if let Some(chunk) = self.put_run(run, &mut of_thread)? {
                    short.push((extents.len(), chunk));
                }
            }
            extents.push(of_thread);
        }
        // Chunks that fill no page stand together, where they share pages.
        for (at, chunk) in short {
            let extent = self.put(chunk)?;
            extents.get_mut(at).into_iter().for_each(|extents: &mut Vec<_>| extents.push(extent));
        }
        Ok(extents)
    }

    /// Puts a thread's records into chunks, but for the last one if that does not fill its pages.
    fn put_run<'r>(
        &mut self,
        mut run: Chunk<'r>,
        extents: &mut Vec<Extent>,
    ) -> Result<Option<Chunk<'r>>, redb::Error> {
        while !run.records.is_empty() {
            let (count, whole) = run.cut();
            let (chunk, rest) = run.split(count);
            if rest.records.is_empty() && !whole {
                return Ok(Some(chunk));
            }
            extents.push(self.put(chunk)?);
            run = rest;
        }
        Ok(None)
    }

    fn put(&mut self, chunk: Chunk<'_>) -> Result<Extent, redb::Error> {
        let place = self.next;
        chunk.encode(place, &mut self.stored);
        for (sub, part) in (place.sub..).zip(chunk::parts(&self.stored)) {
            self.table.insert((place.leaf, sub), part)?;
        }
        self.next.sub = place.sub.saturating_add(chunk::keys(self.stored.len()));
        Ok(Extent { first: chunk.at, place })
    }

    /// Writes a chunk again at its place: it has become shorter.
    fn rewrite(&mut self, rewrite: &Rewrite) -> Result<(), redb::Error> {
        let Rewrite { place, keys, head, records } = rewrite;
        let records: Vec<_> = head.shapes.iter().map(|s| s.leaf).zip(records).collect();
        Chunk::again(head, &records).encode(*place, &mut self.stored);
        let mut stored = chunk::parts(&self.stored);
        for sub in (place.sub..).take(*keys as usize) {
            match stored.next() {
                Some(part) => drop(self.table.insert((place.leaf, sub), part)?),
                None => drop(self.table.remove((place.leaf, sub))?),
            }
        }
        Ok(())
    }
}

/// Puts extents into lists: into the newest one while it has room.
fn write_extents(
    lists: &mut Table<'_, (u64, u64), Bytes>,
    thread: &mut Thread,
    mut fresh: Vec<Extent>,
) -> Result<(), redb::Error> {
    if let Some(listed) = thread.listed {
        let room = EMBEDDED_LIST_EXTENTS_MAX.saturating_sub(listed.len as usize);
        let key = (thread.no, listed.first);
        let list = if room == 0 || fresh.is_empty() {
            None
        } else {
            let stored = lists.get(key)?;
            // A damaged list is left as it is, for reads to report, and not built upon.
            stored.and_then(|stored| tables::read_extents(key, stored.value()).ok())
        };
        if let Some(mut list) = list {
            list.extend(fresh.drain(..room.min(fresh.len())));
            put_list(lists, thread, &list)?;
        }
    }
    for list in fresh.chunks(EMBEDDED_LIST_EXTENTS_MAX) {
        put_list(lists, thread, list)?;
    }
    Ok(())
}

fn put_list(
    lists: &mut Table<'_, (u64, u64), Bytes>,
    thread: &mut Thread,
    list: &[Extent],
) -> Result<(), redb::Error> {
    let Some(first) = list.first().map(|e| e.first) else {
        return Ok(());
    };
    let key = (thread.no, first);
    lists.insert(key, &tables::write_extents(key, list)[..])?;
    thread.listed = Some(Listed { first, len: u32::try_from(list.len()).unwrap_or(u32::MAX) });
    Ok(())
}
