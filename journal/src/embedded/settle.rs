//! Bringing rows, lists of extents and message ids after the log, in bulk.

use redb::{ReadableTable, WriteTransaction};

use super::{
    entry::Place,
    state::{Extent, Listed, State, Thread},
    tables::{self, EXTENTS, LOG, META, POSTED, STATE, Settled, THREADS},
};
use crate::{
    id::ThreadId,
    limits::{
        EMBEDDED_LIST_EXTENTS_MAX, EMBEDDED_UNSETTLED_BYTES_MAX, EMBEDDED_UNSETTLED_ENTRIES_MAX,
    },
};

/// What has to be written, taken from memory at one moment.
#[derive(Debug)]
pub(super) struct Plan {
    upto: Place,
    count: u64,
    threads: Vec<(ThreadId, Thread)>,
    consumed: Vec<Place>,
}

/// What [`State::settle`] has to know once the plan is durable.
pub(super) type Outcome = Vec<(ThreadId, Option<Listed>)>;

/// Whether enough has come together.
pub(super) fn is_due(state: &State) -> bool {
    state.unsettled.0 >= EMBEDDED_UNSETTLED_ENTRIES_MAX
        || state.unsettled.1 >= EMBEDDED_UNSETTLED_BYTES_MAX
}

impl Plan {
    pub(super) fn of(state: &State) -> Self {
        let dirty = |id: &ThreadId| Some((id.clone(), state.threads.get(id)?.clone()));
        Self {
            upto: state.next,
            count: state.count,
            threads: state.dirty.iter().filter_map(dirty).collect(),
            consumed: state.consumed.clone(),
        }
    }

    /// Writes it all.
    pub(super) fn write(
        mut self,
        transaction: &WriteTransaction,
        generation: u64,
        clean: bool,
    ) -> Result<Outcome, redb::Error> {
        {
            let mut extents = transaction.open_table(EXTENTS)?;
            for (_, thread) in &mut self.threads {
                write_extents(&mut extents, thread)?;
            }
        }
        {
            let mut posted = transaction.open_table(POSTED)?;
            for (_, thread) in &self.threads {
                for id in &thread.posted {
                    let seal = tables::posted_seal(thread.no, id);
                    posted.insert((thread.no, id.0), &seal[..])?;
                }
            }
        }
        let mut outcome = Vec::with_capacity(self.threads.len());
        {
            let mut threads = transaction.open_table(THREADS)?;
            for (id, thread) in &self.threads {
                let key = id.as_str().as_bytes();
                threads.insert(key, &tables::write_thread(key, thread)[..])?;
                outcome.push((id.clone(), thread.listed));
            }
        }
        if !self.consumed.is_empty() {
            let mut log = transaction.open_table(LOG)?;
            for place in &self.consumed {
                log.remove(place.key())?;
            }
        }
        let settled = Settled { clean, generation, upto: self.upto, threads: self.count };
        write_state(transaction, &settled)?;
        Ok(outcome)
    }
}

/// Writes how far the tables are settled.
pub(super) fn write_state(
    transaction: &WriteTransaction,
    settled: &Settled,
) -> Result<(), redb::Error> {
    let mut meta = transaction.open_table(META)?;
    meta.insert(STATE, &tables::write_settled(settled)[..])?;
    Ok(())
}

/// Puts the fresh extents into lists: into the newest one while it has room.
fn write_extents(
    extents: &mut redb::Table<'_, (u64, u64), &'static [u8]>,
    thread: &mut Thread,
) -> Result<(), redb::Error> {
    let mut fresh = std::mem::take(&mut thread.fresh);
    if let Some(listed) = thread.listed {
        let room = EMBEDDED_LIST_EXTENTS_MAX.saturating_sub(listed.len as usize);
        let key = (thread.no, listed.first);
        let list = if room == 0 || fresh.is_empty() {
            None
        } else {
            let stored = extents.get(key)?;
            // A damaged list is left as it is, for reads to report, and not built upon.
            stored.and_then(|stored| tables::read_extents(key, stored.value()).ok())
        };
        if let Some(mut list) = list {
            list.extend(fresh.drain(..room.min(fresh.len())));
            put_list(extents, thread, &list)?;
        }
    }
    for list in fresh.chunks(EMBEDDED_LIST_EXTENTS_MAX) {
        put_list(extents, thread, list)?;
    }
    Ok(())
}

fn put_list(
    extents: &mut redb::Table<'_, (u64, u64), &'static [u8]>,
    thread: &mut Thread,
    list: &[Extent],
) -> Result<(), redb::Error> {
    let Some(first) = list.first().map(|e| e.first) else {
        return Ok(());
    };
    let key = (thread.no, first);
    extents.insert(key, &tables::write_extents(key, list)[..])?;
    thread.listed = Some(Listed { first, len: u32::try_from(list.len()).unwrap_or(u32::MAX) });
    Ok(())
}
