//! Reading: records of a thread, its inbox, the log. What the tables have comes first, then what
//! only memory has.

use std::collections::{BTreeMap, VecDeque};

use redb::{Range, ReadOnlyTable, ReadTransaction};

use super::{
    chunk::{self, Head},
    core::Core,
    drain::Rewrite,
    entry::Place,
    state::{Extent, Fresh, Waiting},
    tables::{self, EXTENTS, INBOX, RECORDS},
};
use crate::{
    admit::refused,
    bytes::Bytes,
    checkpointer::{LogEntry, Message, Page, RecordPage, StoreError},
    id::{LogIndex, Position, ThreadId},
    limits::{EMBEDDED_LOG_ENTRIES_MAX, EMBEDDED_READ_BYTES_MAX},
    record::{Record, RecordHash, Role},
};

type Result<T> = std::result::Result<T, StoreError>;
type Records = ReadOnlyTable<(u64, u32), &'static [u8]>;
type Lists = ReadOnlyTable<(u64, u64), &'static [u8]>;

/// What memory knows of a thread, at one moment.
struct Seen {
    no: u64,
    next: Position,
    head: RecordHash,
    /// What the tables may not have yet.
    fresh: Vec<Fresh>,
    /// Payloads that are gone and that the tables may still have.
    erased: Vec<(Position, Role)>,
}

impl Seen {
    /// The position from which on memory has the records.
    fn in_memory(&self) -> Position {
        self.fresh.first().map_or(self.next, |f| f.appended.at)
    }

    /// A record without what was erased from it.
    fn without_erased(&self, n: Position, record: &mut Record) {
        for (_, role) in self.erased.iter().filter(|(at, _)| *at == n) {
            record.payloads.retain(|p| p.role != *role);
        }
    }
}

fn damaged(thread: &ThreadId, n: Position, why: impl Into<String>) -> StoreError {
    StoreError::Damaged { thread: thread.clone(), n, why: why.into().into() }
}

/// Finds a thread, in memory or in its table.
fn seen(core: &Core, id: &ThreadId) -> Result<Seen> {
    let erased = {
        let state = core.state();
        let erased = state.erasures.iter().filter(|(of, ..)| of == id);
        let erased: Vec<_> = erased.map(|(_, n, role)| (*n, *role)).collect();
        if let Some(thread) = state.threads.get(id).filter(|t| t.exists) {
            return Ok(Seen {
                no: thread.no,
                next: thread.tail.next,
                head: thread.tail.head,
                fresh: thread.appends().cloned().collect(),
                erased,
            });
        }
        if let Some(error) = state.damage(id) {
            return Err(error);
        }
        if !state.is_away(id) {
            return Err(StoreError::NoSuchThread);
        }
        erased
    };
    let thread = core.stored_thread(id)?;
    let (next, head) = (thread.tail.next, thread.tail.head);
    Ok(Seen { no: thread.no, next, head, fresh: Vec::new(), erased })
}

/// The extents of a thread in their order, as its stored lists have them.
struct Extents<'t> {
    lists: Range<'t, (u64, u64), &'static [u8]>,
    list: VecDeque<Extent>,
}

impl<'t> Extents<'t> {
    /// The extents from the list on that holds `from`.
    fn from(table: &'t Lists, no: u64, from: Position) -> std::result::Result<Self, redb::Error> {
        let mut upto = table.range((no, 0)..=(no, from))?;
        let start = upto.next_back().transpose()?.map_or((no, 0), |(key, _)| key.value());
        let lists = table.range(start..=(no, u64::MAX))?;
        Ok(Self { lists, list: VecDeque::new() })
    }

    /// The next extent, or what is wrong with a list.
    fn next(
        &mut self,
    ) -> std::result::Result<Option<std::result::Result<Extent, String>>, redb::Error> {
        loop {
            if let Some(extent) = self.list.pop_front() {
                return Ok(Some(Ok(extent)));
            }
            let Some(stored) = self.lists.next().transpose()? else {
                return Ok(None);
            };
            let key = stored.0.value();
            match tables::read_extents(key, stored.1.value()) {
                Ok(list) => self.list = list.into(),
                Err(why) => return Ok(Some(Err(format!("a list of extents: {why}")))),
            }
        }
    }
}

/// The bytes of the chunk at a place; `None` where parts are missing.
fn assemble(table: &Records, place: Place) -> std::result::Result<Option<Bytes>, redb::Error> {
    let mut range = table.range(place.key()..)?;
    let Some((key, first)) = range.next().transpose()? else {
        return Ok(None);
    };
    let Ok((length, parts)) = chunk::extent(first.value()) else {
        return Ok(None);
    };
    if key.value() != place.key() {
        return Ok(None);
    }
    if parts == 1 {
        return Ok(Some(first.value().into()));
    }
    let mut stored = Vec::with_capacity(length.min(EMBEDDED_READ_BYTES_MAX));
    stored.extend_from_slice(first.value());
    for sub in (place.sub..).take(parts as usize).skip(1) {
        match range.next().transpose()? {
            Some((key, part)) if key.value() == (place.leaf, sub) => {
                stored.extend_from_slice(part.value());
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(stored.into()))
}

/// A chunk as read.
struct Chunk {
    head: Head,
    records: Vec<Record>,
    /// How many keys it has.
    keys: u32,
}

/// The chunk of an extent, parsed and checked.
fn load(
    core: &Core,
    id: &ThreadId,
    extent: Extent,
    table: &Records,
) -> std::result::Result<Result<Chunk>, redb::Error> {
    let n = extent.first;
    let Some(stored) = assemble(table, extent.place)? else {
        return Ok(Err(damaged(id, n, "a part of its chunk is missing")));
    };
    let (head, body) = match chunk::parse(extent.place, &stored) {
        Ok(parsed) => parsed,
        Err(why) => return Ok(Err(changed(core, id, extent, &stored, why))),
    };
    if head.thread != *id || head.at != n {
        return Ok(Err(damaged(id, n, "another record stands in its place")));
    }
    let records = chunk::unpack(&head, &stored, body).map_err(|(n, why)| damaged(id, n, why));
    Ok(records.map(|records| Chunk { head, records, keys: chunk::keys(stored.len()) }))
}

/// Which record of a chunk that is not what it was has changed, as far as that can be told.
fn changed(core: &Core, id: &ThreadId, extent: Extent, stored: &Bytes, why: &str) -> StoreError {
    let parsed = chunk::parse_damaged(stored);
    let parsed = parsed.filter(|(head, _)| head.thread == *id && head.at == extent.first);
    let Some((head, body)) = parsed else {
        return damaged(id, extent.first, why);
    };
    let records = match chunk::unpack(&head, stored, body) {
        Ok(records) => records,
        Err((n, why)) => return damaged(id, n, why),
    };
    let mut prev = head.prev;
    for (n, record) in (head.at..).zip(&records) {
        if let Err(why) = record.verify_at(&core.identity.log_id, &prev, id, n) {
            return damaged(id, n, why);
        }
        prev = record.hash;
    }
    damaged(id, extent.first, why)
}

/// Records of a thread: see [`crate::checkpointer::Checkpointer::read`].
pub(super) fn read(
    core: &Core,
    id: &ThreadId,
    from: Position,
    bytes_max: usize,
) -> Result<RecordPage> {
    read_counting(core, id, from, bytes_max, 0).map(|(page, _)| page)
}

/// The same, and how many of the records stand in the log before `mark`.
pub(super) fn read_counting(
    core: &Core,
    id: &ThreadId,
    from: Position,
    bytes_max: usize,
    mark: LogIndex,
) -> Result<(RecordPage, u64)> {
    core.alive()?;
    let seen = seen(core, id)?;
    if from >= seen.next {
        return Ok((Page { items: Vec::new(), next: None }, 0));
    }
    let mut page = Filling::new(from, bytes_max.min(EMBEDDED_READ_BYTES_MAX), mark);
    if from < seen.in_memory() {
        let read =
            core.reading(id, |transaction| in_tables(core, transaction, id, &seen, &mut page));
        // Where redb itself stumbled, say at least from where on.
        read.map_err(|error| match error {
            StoreError::Damaged { thread, n: 0, why } => {
                StoreError::Damaged { thread, n: page.expected, why }
            }
            other => other,
        })?;
    }
    for fresh in &seen.fresh {
        if page.next.is_some() {
            break;
        }
        let appended = &fresh.appended;
        let tail = appended.tail();
        if tail.next > from {
            let records = (fresh.place.leaf..).zip(appended.records.iter().cloned());
            page.take(id, (appended.at, appended.prev), (tail.next, tail.head), records)?;
        }
    }
    if page.next.is_none() && (page.expected < seen.next || page.prev != Some(seen.head)) {
        return Err(damaged(id, page.expected, "its records end before the thread does"));
    }
    for (n, record) in page.items.iter_mut().filter(|_| !seen.erased.is_empty()) {
        seen.without_erased(*n, record);
    }
    Ok((Page { items: page.items, next: page.next }, page.before_mark))
}

/// Fills a page with what the tables have before what memory has.
fn in_tables(
    core: &Core,
    transaction: &ReadTransaction,
    id: &ThreadId,
    seen: &Seen,
    page: &mut Filling,
) -> std::result::Result<Result<()>, redb::Error> {
    let (table, lists) = (transaction.open_table(RECORDS)?, transaction.open_table(EXTENTS)?);
    let (from, upto) = (page.from, seen.in_memory());
    let mut extents = Extents::from(&lists, seen.no, from)?;
    // The extent that holds `from` is the last one that begins at or before it.
    let mut held: Option<Extent> = None;
    loop {
        // A drain may meanwhile have brought more into the tables than memory is known to lack.
        let next = match extents.next()?.transpose() {
            Ok(next) => next.filter(|e| e.first < upto),
            Err(why) => return Ok(Err(damaged(id, page.expected, why))),
        };
        if let (Some(extent), true) = (held, next.is_none_or(|e| e.first > from)) {
            let loaded = match load(core, id, extent, &table)? {
                Ok(loaded) => loaded,
                Err(error) => return Ok(Err(error)),
            };
            let (first, last) =
                ((loaded.head.at, loaded.head.prev), (loaded.head.end(), loaded.head.last()));
            let leaves = loaded.head.shapes.iter().map(|shape| shape.leaf);
            if let Err(error) = page.take(id, first, last, leaves.zip(loaded.records)) {
                return Ok(Err(error));
            }
            if page.next.is_some() {
                return Ok(Ok(()));
            }
        }
        if next.is_none() {
            return Ok(Ok(()));
        }
        held = next;
    }
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
    mark: LogIndex,
    before_mark: u64,
}

impl Filling {
    fn new(from: Position, bytes_max: usize, mark: LogIndex) -> Self {
        Self {
            from,
            expected: from,
            prev: None,
            items: Vec::new(),
            bytes: 0,
            bytes_max,
            next: None,
            mark,
            before_mark: 0,
        }
    }

    /// Takes a run of records, each with its place in the log, that begins at one position behind
    /// one hash and ends at another, as far as the page has room.
    fn take(
        &mut self,
        id: &ThreadId,
        (at, before): (Position, RecordHash),
        (end, last): (Position, RecordHash),
        records: impl Iterator<Item = (LogIndex, Record)>,
    ) -> Result<()> {
        let follows = match self.prev {
            Some(prev) => at == self.expected && before == prev,
            None => at <= self.from && self.from < end,
        };
        if !follows || (at == 0) != (before == RecordHash::ZERO) {
            return Err(damaged(id, self.expected, "what stands there does not follow"));
        }
        for (n, (leaf, record)) in (at..).zip(records).filter(|(n, _)| *n >= self.from) {
            self.bytes = self.bytes.saturating_add(record.size());
            if self.bytes > self.bytes_max && !self.items.is_empty() {
                self.next = Some(n);
                return Ok(());
            }
            self.before_mark += u64::from(leaf < self.mark);
            self.items.push((n, record));
        }
        self.expected = end;
        self.prev = Some(last);
        Ok(())
    }
}

/// Whether there is a payload to erase.
pub(super) fn has_payload(core: &Core, id: &ThreadId, n: Position, role: Role) -> Result<bool> {
    let page = read(core, id, n, 1)?;
    let Some((_, record)) = page.items.first() else {
        return Err(refused(format!("there is no record {n} to erase in")));
    };
    Ok(record.payload(role).is_some())
}

/// The chunks that have what was erased, without it.
pub(super) fn without_erased(core: &Core) -> Result<Vec<Rewrite>> {
    let erasures = core.state().erasures.clone();
    let mut rewrites: BTreeMap<Place, Rewrite> = BTreeMap::new();
    for (id, n, role) in erasures {
        let (place, chunk) = match chunk_with(core, &id, n) {
            Ok(found) => found,
            // Nobody can read the payload there, and the rest must not wait for it.
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::error!(thread = %id, n, %error, "an erased payload stays in a damaged chunk");
                continue;
            }
            Err(error) => return Err(error),
        };
        let Chunk { head, records, keys } = chunk;
        let rewrite =
            rewrites.entry(place).or_insert_with(|| Rewrite { place, keys, head, records });
        let at = usize::try_from(n.saturating_sub(rewrite.head.at)).unwrap_or(usize::MAX);
        if let Some(record) = rewrite.records.get_mut(at) {
            record.payloads.retain(|p| p.role != role);
        }
    }
    Ok(rewrites.into_values().collect())
}

/// The chunk that holds record `n` of a thread, and its place.
fn chunk_with(core: &Core, id: &ThreadId, n: Position) -> Result<(Place, Chunk)> {
    let seen = seen(core, id)?;
    core.reading(id, |transaction| {
        let (table, lists) = (transaction.open_table(RECORDS)?, transaction.open_table(EXTENTS)?);
        let mut extents = Extents::from(&lists, seen.no, n)?;
        let mut held: Option<Extent> = None;
        while let Some(extent) = extents.next()? {
            match extent {
                Ok(extent) if extent.first <= n => held = Some(extent),
                Ok(_) => break,
                Err(why) => return Ok(Err(damaged(id, n, why))),
            }
        }
        let Some(extent) = held else {
            return Ok(Err(damaged(id, n, "no chunk holds it")));
        };
        let loaded = load(core, id, extent, &table)?;
        Ok(loaded.map(|chunk| (extent.place, chunk)))
    })
}

/// The unconsumed messages of a thread.
pub(super) fn inbox(core: &Core, id: &ThreadId) -> Result<Vec<Message>> {
    core.alive()?;
    let Some((next, inbox)) = waiting(core, id)? else {
        seen(core, id)?;
        return Ok(Vec::new());
    };
    let mut messages = Vec::with_capacity(inbox.len());
    for Waiting { id: message_id, place, message } in inbox {
        if let Some(message) = message {
            messages.push(Message::clone(&message));
            continue;
        }
        let found = core.reading(id, |transaction| {
            let table = transaction.open_table(INBOX)?;
            let Some(stored) = table.get(place.key())? else {
                return Ok(Ok(Err("its place in the inbox is empty")));
            };
            Ok(Ok(match tables::read_message(place, stored.value()) {
                Ok((to, message)) if to == *id && message.id == message_id => Ok(message),
                Ok(_) => Err("something else stands in its place"),
                Err(why) => Err(why),
            }))
        })?;
        match found {
            Ok(message) => messages.push(message),
            Err(why) => {
                // Consumed meanwhile, it may have gone.
                let still = |(_, inbox): (Position, Vec<Waiting>)| {
                    inbox.iter().any(|w| (w.id, w.place) == (message_id, place))
                };
                if waiting(core, id)?.is_some_and(still) {
                    return Err(damaged(id, next, format!("message {message_id}: {why}")));
                }
            }
        }
    }
    Ok(messages)
}

/// Where a thread goes on, and the messages that wait for it, wherever it is.
fn waiting(core: &Core, id: &ThreadId) -> Result<Option<(Position, Vec<Waiting>)>> {
    {
        let state = core.state();
        if let Some(thread) = state.threads.get(id).filter(|t| t.exists) {
            return Ok(Some((thread.tail.next, thread.inbox.clone())));
        }
        if state.damage(id).is_some() || !state.is_away(id) {
            return Ok(None);
        }
    }
    let thread = core.stored_thread(id)?;
    Ok(Some((thread.tail.next, thread.inbox)))
}

/// Leaves of the Merkle log: see [`crate::checkpointer::Checkpointer::log`].
pub(super) fn log(core: &Core, from: LogIndex, max: usize) -> Result<Page<LogEntry, LogIndex>> {
    core.alive()?;
    let max = max.min(EMBEDDED_LOG_ENTRIES_MAX);
    // What only memory has is looked at first: a drain may bring it into the tables meanwhile.
    let (end, leaves) = {
        let state = core.state();
        let fresh = state.appends_from(from).take(max);
        let leaves = fresh.flat_map(|fresh| {
            let appended = &fresh.appended;
            let records = (fresh.place.leaf..).zip(appended.at..).zip(&appended.records);
            records.map(|((index, n), record)| LogEntry {
                index,
                thread: appended.thread.clone(),
                n,
                hash: record.hash,
            })
        });
        (state.next.leaf, leaves.filter(|l| l.index >= from).collect::<Vec<_>>())
    };
    let in_memory = leaves.first().map_or(end, |l| l.index);
    let mut items = Vec::new();
    while items.len() < max {
        let expected = from.saturating_add(items.len() as u64);
        if expected >= in_memory {
            break;
        }
        let drained = drained_with(core, expected)?;
        let upto = in_memory.min(expected.saturating_add((max - items.len()) as u64));
        let before = items.len();
        items.extend(drained.into_iter().filter(|l| (expected..upto).contains(&l.index)));
        let contiguous = (expected..).zip(items.iter().skip(before)).all(|(k, l)| l.index == k);
        if items.len() == before || !contiguous {
            let why = format!("leaf {expected} is not where it should be");
            return Err(damaged(&ThreadId::system(), 0, why));
        }
    }
    let rest = from.saturating_add(items.len() as u64);
    let room = max.saturating_sub(items.len());
    items.extend(leaves.into_iter().filter(|l| l.index >= rest).take(room));
    let next = from.saturating_add(items.len() as u64);
    Ok(Page { items, next: (next < end).then_some(next) })
}

/// The leaves of the drain that brought a leaf into the tables, in their order.
fn drained_with(core: &Core, leaf: LogIndex) -> Result<Vec<LogEntry>> {
    let nowhere = ThreadId::system();
    core.reading(&nowhere, |transaction| {
        let table = transaction.open_table(RECORDS)?;
        let mut upto = table.range(..=(leaf, u32::MAX))?;
        let Some(base) = upto.next_back().transpose()?.map(|(key, _)| key.value().0) else {
            return Ok(Ok(Vec::new()));
        };
        let mut leaves = Vec::new();
        let mut from = (base, 0);
        // A chunk that lost a payload leaves keys behind it empty: where the next one begins is
        // the next key.
        while let Some((key, _)) = { table.range(from..=(base, u32::MAX))?.next().transpose()? } {
            let (leaf_of, sub) = key.value();
            let place = Place { leaf: leaf_of, sub };
            let why =
                |why: &str| damaged(&nowhere, 0, format!("leaf {leaf} or one beside it: {why}"));
            // In a damaged tree a range gives anything, and could do so for ever.
            if (leaf_of, sub) < from {
                return Ok(Err(why("keys are out of order")));
            }
            let Some(stored) = assemble(&table, place)? else {
                return Ok(Err(why("a part of a chunk is missing")));
            };
            let head = match chunk::parse(place, &stored) {
                Ok((head, _)) => head,
                Err(problem) => {
                    let found = chunk::parse_damaged(&stored).map(|(head, _)| head);
                    let of = |head: Head| {
                        let extent = Extent { first: head.at, place };
                        changed(core, &head.thread, extent, &stored, problem)
                    };
                    return Ok(Err(found.map_or_else(|| why(problem), of)));
                }
            };
            for (n, shape) in (head.at..).zip(&head.shapes) {
                let thread = head.thread.clone();
                leaves.push(LogEntry { index: shape.leaf, thread, n, hash: shape.hash });
            }
            from = (base, sub.saturating_add(chunk::keys(stored.len())));
        }
        leaves.sort_by_key(|l| l.index);
        Ok(Ok(leaves))
    })
}
