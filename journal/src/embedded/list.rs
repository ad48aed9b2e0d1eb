//! Listing threads: those in memory and those in the table, in one order.

use std::ops::Bound;

use super::{
    core::Core,
    tables::{self, THREADS},
};
use crate::{
    checkpointer::{Filter, Page, StoreError, ThreadInfo},
    id::{StoreTime, ThreadId},
    limits::{EMBEDDED_LIST_LOOK_MAX, EMBEDDED_LIST_THREADS_MAX},
};

type Result<T> = std::result::Result<T, StoreError>;

/// What was found in memory: matching threads, and which ids are there at all, up to an id.
struct Found {
    matching: Vec<ThreadInfo>,
    known: Vec<ThreadId>,
    /// Memory was looked at up to here; `None`: to its end.
    upto: Option<ThreadId>,
}

/// Threads that pass `filter`: see [`crate::checkpointer::Checkpointer::list`].
pub(super) fn list(
    core: &Core,
    filter: &Filter,
    after: Option<&ThreadId>,
    max: usize,
    now: StoreTime,
) -> Result<Page<ThreadInfo, ThreadId>> {
    core.alive()?;
    if let Some((thread, why)) = &core.state().damaged {
        return Err(StoreError::Damaged { thread: thread.clone(), n: 0, why: why.clone() });
    }
    let max = max.min(EMBEDDED_LIST_THREADS_MAX);
    if max == 0 {
        let next = after.cloned();
        return Ok(Page { items: Vec::new(), next });
    }
    let mut cursor = start(filter, after);
    let mut items = Vec::new();
    loop {
        let wanted = max + 1 - items.len();
        let found = in_memory(core, filter, &cursor, wanted, now);
        let at_rest = filter.statuses.is_empty() || filter.statuses.iter().any(|s| s.is_at_rest());
        let mut chunk = found.matching;
        if at_rest {
            let range = (&cursor, found.upto.as_ref());
            chunk.extend(in_table(core, filter, range, &found.known, (wanted, now))?);
            chunk.sort_by(|a, b| a.id.cmp(&b.id));
        }
        items.extend(chunk);
        if items.len() > max {
            items.truncate(max);
            let next = items.last().map(|t| t.id.clone());
            return Ok(Page { items, next });
        }
        match found.upto {
            Some(upto) => cursor = Bound::Excluded(upto),
            None => return Ok(Page { items, next: None }),
        }
    }
}

/// Where to begin: after the last page, or at the prefix.
fn start(filter: &Filter, after: Option<&ThreadId>) -> Bound<ThreadId> {
    let prefix = filter.prefix.as_deref().and_then(|p| ThreadId::any(p).ok());
    match (after, prefix) {
        (Some(after), Some(prefix)) if *after < prefix => Bound::Included(prefix),
        (Some(after), _) => Bound::Excluded(after.clone()),
        (None, Some(prefix)) => Bound::Included(prefix),
        (None, None) => Bound::Unbounded,
    }
}

fn past_prefix(filter: &Filter, id: &ThreadId) -> bool {
    let prefix = filter.prefix.as_deref().unwrap_or("");
    !id.as_str().starts_with(prefix) && id.as_str() > prefix
}

fn in_memory(
    core: &Core,
    filter: &Filter,
    from: &Bound<ThreadId>,
    wanted: usize,
    now: StoreTime,
) -> Found {
    let mut found = Found { matching: Vec::new(), known: Vec::new(), upto: None };
    let state = core.state();
    let threads = state.threads.range((from.as_ref(), Bound::Unbounded));
    for (id, thread) in threads {
        if past_prefix(filter, id) {
            break;
        }
        found.known.push(id.clone());
        if thread.exists && filter.admits(id, &thread.row) {
            found.matching.push(thread.info(id, now));
        }
        if found.matching.len() >= wanted || found.known.len() >= EMBEDDED_LIST_LOOK_MAX {
            found.upto = Some(id.clone());
            break;
        }
    }
    found
}

fn in_table(
    core: &Core,
    filter: &Filter,
    (from, upto): (&Bound<ThreadId>, Option<&ThreadId>),
    known: &[ThreadId],
    (wanted, now): (usize, StoreTime),
) -> Result<Vec<ThreadInfo>> {
    core.reading(&ThreadId::system(), |transaction| {
        let threads = transaction.open_table(THREADS)?;
        let bytes = |id: &ThreadId| id.as_str().as_bytes().to_vec();
        let (from, upto) = (
            from.as_ref().map(bytes),
            upto.map_or(Bound::Unbounded, |id| Bound::Included(bytes(id))),
        );
        let range = (as_slice(&from), as_slice(&upto));
        let mut items = Vec::new();
        let mut last: Option<ThreadId> = None;
        for stored in threads.range::<&[u8]>(range)? {
            let (key, value) = stored?;
            let damaged = |why: &str| StoreError::Damaged {
                thread: ThreadId::system(),
                n: 0,
                why: format!("the row of {:?}: {why}", String::from_utf8_lossy(key.value())).into(),
            };
            let id = std::str::from_utf8(key.value()).ok().and_then(|id| ThreadId::any(id).ok());
            let Some(id) = id else {
                return Ok(Err(damaged("its key is not a thread id")));
            };
            // A damaged tree can lead in a circle.
            if last.replace(id.clone()).is_some_and(|last| last >= id) {
                return Ok(Err(damaged("it is out of order")));
            }
            if past_prefix(filter, &id) {
                break;
            }
            if known.binary_search(&id).is_ok() {
                continue;
            }
            let thread = match tables::read_thread(key.value(), value.value()) {
                Ok(thread) => thread,
                Err(why) => return Ok(Err(damaged(why))),
            };
            if filter.admits(&id, &thread.row) {
                items.push(thread.info(&id, now));
                if items.len() >= wanted {
                    break;
                }
            }
        }
        Ok(Ok(items))
    })
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(bytes) => Bound::Included(bytes),
        Bound::Excluded(bytes) => Bound::Excluded(bytes),
        Bound::Unbounded => Bound::Unbounded,
    }
}
