//! Reading: records of a thread, its inbox, lists of threads, the log.

use std::{collections::VecDeque, ops::Bound};

use redb::{Range, ReadOnlyTable, ReadTransaction};

use super::{
    core::Core,
    entry::{self, Entry, Head, Place},
    state::Extent,
    tables::{self, EXTENTS, LOG},
};
use crate::{
    checkpointer::{LogEntry, Message, Page, RecordPage, StoreError},
    id::{LogIndex, Position, ThreadId},
    limits::{EMBEDDED_LOG_ENTRIES_MAX, EMBEDDED_READ_BYTES_MAX},
    record::{Record, RecordHash},
};

type Result<T> = std::result::Result<T, StoreError>;
type Log = ReadOnlyTable<(u64, u32), &'static [u8]>;

/// What memory knows of a thread, at one moment.
struct Seen {
    no: u64,
    next: Position,
    head: RecordHash,
    fresh: VecDeque<Extent>,
}

fn damaged(thread: &ThreadId, n: Position, why: impl Into<String>) -> StoreError {
    StoreError::Damaged { thread: thread.clone(), n, why: why.into().into() }
}

/// Finds a thread, in memory or in its table.
fn seen(core: &Core, id: &ThreadId) -> Result<Seen> {
    {
        let state = core.state();
        if let Some(thread) = state.threads.get(id).filter(|t| t.exists) {
            return Ok(Seen {
                no: thread.no,
                next: thread.tail.next,
                head: thread.tail.head,
                fresh: thread.fresh.iter().copied().collect(),
            });
        }
        if let Some(error) = state.damage(id) {
            return Err(error);
        }
        if !state.is_away(id) {
            return Err(StoreError::NoSuchThread);
        }
    }
    let thread = core.stored_thread(id)?;
    Ok(Seen {
        no: thread.no,
        next: thread.tail.next,
        head: thread.tail.head,
        fresh: VecDeque::new(),
    })
}

/// The extents of a thread in their order: those in stored lists, then those in memory.
struct Extents<'t> {
    lists: Range<'t, (u64, u64), &'static [u8]>,
    list: VecDeque<Extent>,
    fresh: VecDeque<Extent>,
    /// Positions below this were given out.
    given: Position,
}

impl Extents<'_> {
    /// The next extent, or what is wrong with a list.
    fn next(
        &mut self,
    ) -> std::result::Result<Option<std::result::Result<Extent, String>>, redb::Error> {
        loop {
            // Lists may meanwhile hold what was in memory when it was looked at.
            while let Some(extent) = self.list.pop_front() {
                if extent.first >= self.given {
                    self.given = extent.first + 1;
                    return Ok(Some(Ok(extent)));
                }
            }
            let Some(stored) = self.lists.next().transpose()? else {
                break;
            };
            let key = stored.0.value();
            match tables::read_extents(key, stored.1.value()) {
                Ok(list) => self.list = list.into(),
                Err(why) => return Ok(Some(Err(format!("a list of extents: {why}")))),
            }
        }
        while let Some(extent) = self.fresh.pop_front() {
            if extent.first >= self.given {
                self.given = extent.first + 1;
                return Ok(Some(Ok(extent)));
            }
        }
        Ok(None)
    }
}

/// Gets entries of the log: by going on where the last one stood, if the next stands there.
struct Cursor<'t> {
    log: &'t Log,
    range: Option<Range<'static, (u64, u32), &'static [u8]>>,
}

impl Cursor<'_> {
    fn get(
        &mut self,
        place: Place,
    ) -> std::result::Result<Option<redb::AccessGuard<'static, &'static [u8]>>, redb::Error> {
        if let Some(range) = &mut self.range
            && let Some((key, value)) = range.next().transpose()?
            && key.value() == place.key()
        {
            return Ok(Some(value));
        }
        let mut range = self.log.range(place.key()..)?;
        let found = range.next().transpose()?;
        self.range = Some(range);
        Ok(found.filter(|(key, _)| key.value() == place.key()).map(|(_, value)| value))
    }
}

/// One extent's entry, parsed and checked.
fn load(
    core: &Core,
    id: &ThreadId,
    extent: Extent,
    stored: Option<&[u8]>,
) -> Result<(Head, Vec<Record>)> {
    let n = extent.first;
    let stored = stored.ok_or_else(|| damaged(id, n, "its place in the log is empty"))?;
    let entry = entry::parse(extent.place, stored).map_err(|why| damaged(id, n, why))?;
    let Entry::Records(head, body) = entry else {
        return Err(damaged(id, n, "a message stands in its place"));
    };
    if head.thread != *id || head.at != n {
        return Err(damaged(id, n, "another record stands in its place"));
    }
    let records = entry::unpack(&core.identity.log_id, &head, body);
    let records = records.map_err(|(n, why)| damaged(id, n, why))?;
    Ok((head, records))
}

/// The extents from the one that holds `from` on.
fn extents_from<'t>(
    table: &'t ReadOnlyTable<(u64, u64), &'static [u8]>,
    seen: &Seen,
    from: Position,
) -> std::result::Result<Extents<'t>, redb::Error> {
    let mut upto = table.range((seen.no, 0)..=(seen.no, from))?;
    let start = upto.next_back().transpose()?.map_or((seen.no, 0), |(key, _)| key.value());
    Ok(Extents {
        lists: table.range(start..=(seen.no, u64::MAX))?,
        list: VecDeque::new(),
        fresh: seen.fresh.clone(),
        given: 0,
    })
}

/// Records of a thread: see [`crate::checkpointer::Checkpointer::read`].
pub(super) fn read(
    core: &Core,
    id: &ThreadId,
    from: Position,
    bytes_max: usize,
) -> Result<RecordPage> {
    core.alive()?;
    let seen = seen(core, id)?;
    if from >= seen.next {
        return Ok(Page { items: Vec::new(), next: None });
    }
    let page = core.reading(id, |transaction| {
        read_in(core, transaction, id, &seen, from, bytes_max.min(EMBEDDED_READ_BYTES_MAX))
    });
    // Where redb itself stumbled, say at least from where on.
    page.map_err(|error| match error {
        StoreError::Damaged { thread, n: 0, why } => StoreError::Damaged { thread, n: from, why },
        other => other,
    })
}

type ReadResult = std::result::Result<Result<RecordPage>, redb::Error>;

fn read_in(
    core: &Core,
    transaction: &ReadTransaction,
    id: &ThreadId,
    seen: &Seen,
    from: Position,
    bytes_max: usize,
) -> ReadResult {
    let (log, lists) = (transaction.open_table(LOG)?, transaction.open_table(EXTENTS)?);
    let mut extents = extents_from(&lists, seen, from)?;
    let mut cursor = Cursor { log: &log, range: None };
    let mut page = Filling::new(from, bytes_max);
    // The extent that holds `from` is the last one that begins at or before it.
    let mut held: Option<Extent> = None;
    loop {
        let next = match extents.next()?.transpose() {
            Ok(next) => next.filter(|e| e.first < seen.next),
            Err(why) => return Ok(Err(damaged(id, page.expected, why))),
        };
        if let (Some(extent), true) = (held, next.is_none_or(|e| e.first > from)) {
            let stored = cursor.get(extent.place)?;
            let loaded = load(core, id, extent, stored.as_ref().map(redb::AccessGuard::value));
            let full = loaded.and_then(|(head, records)| page.take(id, &head, records));
            match full {
                Ok(true) => return Ok(Ok(page.done())),
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        if next.is_none() {
            break;
        }
        held = next;
    }
    if page.expected < seen.next || page.prev != Some(seen.head) {
        let why = "the log ends before the thread does";
        return Ok(Err(damaged(id, page.expected, why)));
    }
    Ok(Ok(page.done()))
}

/// A page being filled.
struct Filling {
    from: Position,
    expected: Position,
    prev: Option<RecordHash>,
    items: Vec<(Position, Record)>,
    bytes: usize,
    bytes_max: usize,
    next: Option<Position>,
}

impl Filling {
    fn new(from: Position, bytes_max: usize) -> Self {
        Self {
            from,
            expected: from,
            prev: None,
            items: Vec::new(),
            bytes: 0,
            bytes_max,
            next: None,
        }
    }

    /// Takes the records of an extent; `true` when the page is full.
    fn take(&mut self, id: &ThreadId, head: &Head, records: Vec<Record>) -> Result<bool> {
        let follows = match self.prev {
            Some(prev) => head.at == self.expected && head.prev == prev,
            None => head.at <= self.from && self.from < head.tail().next,
        };
        if !follows || (head.at == 0) != (head.prev == RecordHash::ZERO) {
            return Err(damaged(id, self.expected, "what stands there does not follow"));
        }
        for (n, record) in (head.at..).zip(records).filter(|(n, _)| *n >= self.from) {
            self.bytes = self.bytes.saturating_add(record.size());
            if self.bytes > self.bytes_max && !self.items.is_empty() {
                self.next = Some(n);
                return Ok(true);
            }
            self.items.push((n, record));
        }
        self.expected = head.tail().next;
        self.prev = Some(head.tail().head);
        Ok(false)
    }

    fn done(self) -> RecordPage {
        Page { items: self.items, next: self.next }
    }
}

/// The entry that holds record `n` of a thread.
pub(super) fn entry_with(
    core: &Core,
    id: &ThreadId,
    n: Position,
) -> Result<(Place, Head, Vec<Record>)> {
    let seen = seen(core, id)?;
    if n >= seen.next {
        return Err(crate::admit::refused(format!("there is no record {n} to erase in")));
    }
    core.reading(id, |transaction| {
        let (log, lists) = (transaction.open_table(LOG)?, transaction.open_table(EXTENTS)?);
        let mut extents = extents_from(&lists, &seen, n)?;
        let mut held: Option<Extent> = None;
        while let Some(extent) = extents.next()? {
            match extent {
                Ok(extent) if extent.first <= n => held = Some(extent),
                Ok(_) => break,
                Err(why) => return Ok(Err(damaged(id, n, why))),
            }
        }
        let Some(extent) = held else {
            return Ok(Err(damaged(id, n, "no extent holds it")));
        };
        let stored = log.get(extent.place.key())?;
        let loaded = load(core, id, extent, stored.as_ref().map(redb::AccessGuard::value));
        Ok(loaded.map(|(head, records)| (extent.place, head, records)))
    })
}

/// The unconsumed messages of a thread.
pub(super) fn inbox(core: &Core, id: &ThreadId) -> Result<Vec<Message>> {
    core.alive()?;
    let places = |core: &Core| {
        let state = core.state();
        let thread = state.threads.get(id).filter(|t| t.exists);
        thread.map(|t| (t.tail.next, t.inbox.clone()))
    };
    let Some((next, inbox)) = places(core) else {
        seen(core, id)?;
        return Ok(Vec::new());
    };
    let mut messages = Vec::with_capacity(inbox.len());
    for (message_id, place) in inbox {
        let found = core.reading(id, |transaction| {
            let log = transaction.open_table(LOG)?;
            let Some(stored) = log.get(place.key())? else {
                return Ok(Ok(Err("its place in the log is empty")));
            };
            Ok(Ok(match entry::parse(place, stored.value()) {
                Ok(Entry::Message(to, message)) if to == *id && message.id == message_id => {
                    Ok(message)
                }
                Ok(_) => Err("something else stands in its place"),
                Err(why) => Err(why),
            }))
        })?;
        match found {
            Ok(message) => messages.push(message),
            Err(why) => {
                // Consumed meanwhile, it may have gone.
                let still = places(core).is_some_and(|(_, i)| i.contains(&(message_id, place)));
                if still {
                    return Err(damaged(id, next, format!("message {message_id}: {why}")));
                }
            }
        }
    }
    Ok(messages)
}

/// Leaves of the Merkle log: see [`crate::checkpointer::Checkpointer::log`].
pub(super) fn log(core: &Core, from: LogIndex, max: usize) -> Result<Page<LogEntry, LogIndex>> {
    core.alive()?;
    let end = core.state().next.leaf;
    let max = max.min(EMBEDDED_LOG_ENTRIES_MAX);
    let mut items = Vec::new();
    if from >= end || max == 0 {
        let next = (from < end).then_some(from);
        return Ok(Page { items, next });
    }
    let nowhere = ThreadId::system();
    let expected = core.reading(&nowhere, |transaction| {
        let log = transaction.open_table(LOG)?;
        let mut upto = log.range(..=(from, u32::MAX))?;
        let start = upto.next_back().transpose()?.map_or((0, 0), |(key, _)| key.value());
        // Messages may stand at the same leaf before the records do.
        let start = (start.0, 0);
        let mut expected = from;
        for stored in log.range((Bound::Included(start), Bound::Unbounded))? {
            let (key, value) = stored?;
            let (leaf, sub) = key.value();
            if leaf >= end || items.len() >= max {
                break;
            }
            let head = match entry::parse(Place { leaf, sub }, value.value()) {
                Ok(Entry::Records(head, _)) => head,
                Ok(Entry::Message(..)) => continue,
                Err(why) => return Ok(Err(damaged(&nowhere, 0, format!("leaf {leaf}: {why}")))),
            };
            for ((index, n), hash) in (leaf..).zip(head.at..).zip(head.hashes()) {
                if index == expected && items.len() < max {
                    expected += 1;
                    items.push(LogEntry { index, thread: head.thread.clone(), n, hash });
                }
            }
        }
        Ok(Ok(expected))
    })?;
    if items.len() < max && expected < end {
        let why = format!("leaf {expected} is not where it should be");
        return Err(damaged(&nowhere, 0, why));
    }
    Ok(Page { items, next: (expected < end).then_some(expected) })
}
