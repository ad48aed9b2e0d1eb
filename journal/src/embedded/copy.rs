//! Copying the tables into a new file, while others write to them.
//!
//! A transaction that reads keeps every page from being used again that is freed meanwhile, so
//! that a file grows behind one that lasts. So the tables are read in short ones, which see
//! different states; drains say what they change behind the copy, and that is copied again, until
//! it is little. The last of it is read at one moment, with the word of the tables how far they
//! go then: that is the copy. Records need no such moment: what is below the mark never changes,
//! but for erasures, which drains tell too.

use std::{collections::BTreeSet, mem, ops::Bound, sync::Arc};

use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableTable, Table, WriteTransaction};

use super::{
    backend::{Backend, Gate},
    code::Torn,
    core::{Core, Fault, guarded},
    disk::DiskFile,
    entry::Place,
    progress::{Progress, Stage, Watch},
    state::Drained,
    sync::MutexGuard,
    tables::{self, Ascending, EXTENTS, INBOX, POSTED, RECORDS, Settled, THREADS},
};
use crate::{
    checkpointer::StoreError,
    id::{LogIndex, ThreadId},
    limits::{
        EMBEDDED_COPY_BYTES, EMBEDDED_COPY_CACHE_BYTES, EMBEDDED_COPY_CHANGED_MAX,
        EMBEDDED_COPY_COMMIT_BYTES, EMBEDDED_COPY_FEW, EMBEDDED_COPY_ROUNDS_MAX,
    },
};

/// Why there is no copy.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The journal could not be read, or not be drained.
    Journal(StoreError),
    /// The new file could not be written.
    Target(Fault),
    /// Somebody else copies it.
    Busy,
    /// It changed faster than it could be copied.
    Outpaced,
    /// Whoever wanted it does not want it any more.
    Stopped,
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Journal(error)
    }
}

impl From<Fault> for CopyError {
    fn from(fault: Fault) -> Self {
        Self::Target(fault)
    }
}

type Result<T> = std::result::Result<T, CopyError>;
type Read<T> = std::result::Result<T, redb::Error>;
type Bytes = &'static [u8];
type Stored<K> = Vec<(K, Vec<u8>)>;

/// What drains have changed behind a copy.
#[derive(Debug, Default)]
pub(super) struct Changes {
    threads: BTreeSet<ThreadId>,
    /// Too many changed to name them.
    many: bool,
    /// Chunks that were written again, and how many keys they have.
    chunks: Vec<(Place, u32)>,
}

impl Changes {
    pub(super) fn note(&mut self, drained: &Drained) {
        self.chunks.extend(&drained.rewritten);
        self.many |= self.threads.len() >= EMBEDDED_COPY_CHANGED_MAX;
        if self.many {
            self.threads.clear();
        } else {
            self.threads.extend(drained.threads.iter().map(|(id, ..)| id.clone()));
        }
    }
}

/// Drains tell what they change for as long as this lives.
struct Watching<'c>(&'c Core);

impl<'c> Watching<'c> {
    fn begin(core: &'c Core) -> Result<Self> {
        let mut copying = core.copying();
        if copying.is_some() {
            return Err(CopyError::Busy);
        }
        *copying = Some(Changes::default());
        Ok(Self(core))
    }

    /// What has changed since this was asked last.
    fn take(&self) -> Changes {
        take(&mut self.0.copying())
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        *self.0.copying() = None;
    }
}

fn take(copying: &mut MutexGuard<'_, Option<Changes>>) -> Changes {
    copying.as_mut().map(mem::take).unwrap_or_default()
}

/// Copies everything that was acknowledged before this call, and some of what comes meanwhile,
/// into an empty file: a journal that was closed. What it must hold.
///
/// `settle` brings what is only in the log into the tables.
pub(super) fn copy(
    core: &Core,
    file: &Arc<dyn DiskFile>,
    settle: &mut dyn FnMut() -> std::result::Result<(), StoreError>,
    watch: &mut Watch<'_>,
) -> Result<Settled> {
    let watching = Watching::begin(core)?;
    settle()?;
    let target = Target::new(file)?;
    let mut copying = Copying { core, target, from: Bound::Unbounded, watch };
    let upto = core.state().settled.leaf;
    copying.records(upto)?;
    let mut changed = watching.take();
    // What has changed by now is seen by the first look at all threads.
    (changed.threads, changed.many) = (BTreeSet::new(), true);
    for round in 1.. {
        let last = round >= EMBEDDED_COPY_ROUNDS_MAX;
        let more = watching.take();
        changed.chunks.extend(more.chunks);
        changed.threads.extend(more.threads);
        if mem::take(&mut changed.many) || more.many {
            if last {
                break;
            }
            changed.threads.clear();
            copying.all_threads()?;
            continue;
        }
        if changed.threads.len() > EMBEDDED_COPY_FEW && !last {
            copying.threads(&mem::take(&mut changed.threads))?;
            continue;
        }
        settle()?;
        let Some(settled) = copying.moment(&mut changed)? else {
            changed.many = true;
            continue;
        };
        copying.again(&mem::take(&mut changed.chunks), settled.upto.leaf)?;
        copying.records(settled.upto.leaf)?;
        // An erasure behind the moment may be in the records already, and its note is not.
        let behind = watching.take();
        if behind.chunks.is_empty() {
            copying.target.finish(core, &settled)?;
            return Ok(Settled { clean: true, ..settled });
        }
        if last {
            break;
        }
        changed = behind;
    }
    Err(CopyError::Outpaced)
}

/// A thread as its tables have it.
struct Row {
    id: Vec<u8>,
    row: Vec<u8>,
    lists: Stored<(u64, u64)>,
    posted: Stored<(u64, [u8; 16])>,
    waiting: Stored<(u64, u32)>,
}

impl Row {
    fn bytes(&self) -> usize {
        // With what the keys take.
        let lists: usize = self.lists.iter().map(|(_, list)| list.len() + 16).sum();
        let posted: usize = self.posted.iter().map(|(_, seal)| seal.len() + 24).sum();
        let waiting: usize = self.waiting.iter().map(|(_, message)| message.len() + 12).sum();
        [self.id.len(), self.row.len(), lists, posted, waiting].iter().sum()
    }

    fn write(&self, to: &mut ThreadTables<'_>) -> Read<()> {
        // What waited when it was copied before, and has been consumed since.
        let before = to.threads.get(&self.id[..])?.map(|row| row.value().to_vec());
        let before = before.and_then(|row| tables::read_thread(&self.id, &row).ok());
        for waiting in before.iter().flat_map(|thread| &thread.inbox) {
            to.inbox.remove(waiting.place.key())?;
        }
        to.threads.insert(&self.id[..], &self.row[..])?;
        for (key, list) in &self.lists {
            to.lists.insert(*key, &list[..])?;
        }
        for (key, seal) in &self.posted {
            to.posted.insert(*key, &seal[..])?;
        }
        for (key, message) in &self.waiting {
            to.inbox.insert(*key, &message[..])?;
        }
        Ok(())
    }
}

/// The tables that threads stand in, to be written.
struct ThreadTables<'t> {
    threads: Table<'t, Bytes, Bytes>,
    lists: Table<'t, (u64, u64), Bytes>,
    posted: Table<'t, (u64, [u8; 16]), Bytes>,
    inbox: Table<'t, (u64, u32), Bytes>,
}

/// The same tables, to be read.
struct Source {
    threads: ReadOnlyTable<Bytes, Bytes>,
    lists: ReadOnlyTable<(u64, u64), Bytes>,
    posted: ReadOnlyTable<(u64, [u8; 16]), Bytes>,
    inbox: ReadOnlyTable<(u64, u32), Bytes>,
}

impl Source {
    fn open(transaction: &ReadTransaction) -> Read<Self> {
        Ok(Self {
            threads: transaction.open_table(THREADS)?,
            lists: transaction.open_table(EXTENTS)?,
            posted: transaction.open_table(POSTED)?,
            inbox: transaction.open_table(INBOX)?,
        })
    }

    /// The thread that has this row, or what is wrong with it.
    fn thread(&self, id: &[u8], row: &[u8]) -> Read<std::result::Result<Row, StoreError>> {
        let damaged = |why: &str| {
            let why = format!("the row of {:?}: {why}", String::from_utf8_lossy(id));
            StoreError::Damaged { thread: ThreadId::system(), n: 0, why: why.into() }
        };
        let thread = match tables::read_thread(id, row) {
            Ok(thread) => thread,
            Err(why) => return Ok(Err(damaged(why))),
        };
        let no = thread.no;
        let mut found = Row {
            id: id.into(),
            row: row.into(),
            lists: Vec::new(),
            posted: Vec::new(),
            waiting: Vec::new(),
        };
        for list in self.lists.range((no, 0)..=(no, u64::MAX))? {
            let (key, list) = list?;
            found.lists.push((key.value(), list.value().into()));
        }
        for seal in self.posted.range((no, [0; 16])..=(no, [u8::MAX; 16]))? {
            let (key, seal) = seal?;
            found.posted.push((key.value(), seal.value().into()));
        }
        for waiting in &thread.inbox {
            let key = waiting.place.key();
            let Some(message) = self.inbox.get(key)? else {
                return Ok(Err(damaged("a message that waits is not in the inbox")));
            };
            found.waiting.push((key, message.value().into()));
        }
        Ok(Ok(found))
    }
}

/// A copy that is being made.
struct Copying<'c, 'w> {
    core: &'c Core,
    target: Target,
    /// Behind the last part of a record that was copied.
    from: Bound<(u64, u32)>,
    watch: &'c mut Watch<'w>,
}

impl Copying<'_, '_> {
    fn reading<T>(
        &self,
        run: impl FnOnce(&ReadTransaction) -> Read<std::result::Result<T, StoreError>>,
    ) -> Result<T> {
        Ok(self.core.reading(&ThreadId::system(), run)?)
    }

    /// Says how far it has come; whether that is still wanted.
    fn step(&mut self) -> Result<()> {
        let records = match self.from {
            Bound::Included((leaf, _)) | Bound::Excluded((leaf, _)) => leaf,
            Bound::Unbounded => 0,
        };
        let (of, bytes) = (self.core.state().next.leaf, self.target.bytes);
        let goes_on = (self.watch)(Progress { stage: Stage::Copy, records, of, bytes });
        if goes_on { Ok(()) } else { Err(CopyError::Stopped) }
    }

    /// Copies the records below a leaf that were not copied yet.
    fn records(&mut self, upto: LogIndex) -> Result<()> {
        loop {
            let range = (self.from, Bound::Excluded((upto, 0)));
            let (mut parts, mut bytes) = (Vec::new(), 0);
            if !matches!(self.from, Bound::Excluded(from) if from >= (upto, 0)) {
                let mut order = Ascending::after(&self.from);
                parts = self.reading(|transaction| {
                    let mut parts = Vec::new();
                    for part in transaction.open_table(RECORDS)?.range(range)? {
                        let (key, part) = part?;
                        if let Err(why) = order.next(key.value()) {
                            return Ok(Err(out_of_order("records", why)));
                        }
                        bytes += part.value().len();
                        parts.push((key.value(), part.value().to_vec()));
                        if bytes >= EMBEDDED_COPY_BYTES {
                            break;
                        }
                    }
                    Ok(Ok(parts))
                })?;
            }
            let Some((last, _)) = parts.last() else {
                return Ok(());
            };
            self.from = Bound::Excluded(*last);
            self.target.write(bytes, |transaction| {
                let mut table = transaction.open_table(RECORDS)?;
                for (key, part) in &parts {
                    table.insert(*key, &part[..])?;
                }
                Ok(())
            })?;
            self.step()?;
        }
    }

    /// Copies chunks below a leaf as they are now.
    fn again(&mut self, chunks: &[(Place, u32)], upto: LogIndex) -> Result<()> {
        for (place, keys) in chunks.iter().filter(|(place, _)| place.leaf < upto) {
            let end = (place.leaf, place.sub.saturating_add(*keys));
            let now = self.reading(|transaction| {
                let mut now = Vec::new();
                for part in transaction.open_table(RECORDS)?.range(place.key()..end)? {
                    let (key, part) = part?;
                    now.push((key.value(), part.value().to_vec()));
                }
                Ok(Ok(now))
            })?;
            self.target.write(now.iter().map(|(_, part)| part.len()).sum(), |transaction| {
                let mut table = transaction.open_table(RECORDS)?;
                for sub in place.sub..end.1 {
                    table.remove((place.leaf, sub))?;
                }
                for (key, part) in &now {
                    table.insert(*key, &part[..])?;
                }
                Ok(())
            })?;
        }
        self.step()
    }

    /// Copies all threads, each as it is when its turn comes.
    fn all_threads(&mut self) -> Result<()> {
        let mut from = Bound::Unbounded;
        loop {
            let rows = self.reading(|transaction| {
                let source = Source::open(transaction)?;
                let mut rows = Vec::new();
                let mut bytes = 0;
                let range = (from.as_ref().map(|id: &Vec<u8>| &id[..]), Bound::Unbounded);
                let mut order = Ascending::after(&from);
                for stored in source.threads.range::<&[u8]>(range)? {
                    let (id, row) = stored?;
                    if let Err(why) = order.next(id.value().to_vec()) {
                        return Ok(Err(out_of_order("threads", why)));
                    }
                    match source.thread(id.value(), row.value())? {
                        Ok(row) => rows.push(row),
                        Err(error) => return Ok(Err(error)),
                    }
                    bytes += rows.last().map_or(0, Row::bytes);
                    if bytes >= EMBEDDED_COPY_BYTES {
                        break;
                    }
                }
                Ok(Ok(rows))
            })?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            from = Bound::Excluded(last.id.clone());
            self.target.threads(&rows)?;
            self.step()?;
        }
    }

    /// Copies these threads, each as it is when its turn comes.
    fn threads(&mut self, ids: &BTreeSet<ThreadId>) -> Result<()> {
        let mut ids = ids.iter().peekable();
        while ids.peek().is_some() {
            let rows = self.reading(|transaction| some_threads(transaction, &mut ids))?;
            self.target.threads(&rows)?;
            self.step()?;
        }
        Ok(())
    }

    /// Copies what has changed as it is at one moment: how far the tables go then. `None` if too
    /// much has changed to be named.
    fn moment(&mut self, changed: &mut Changes) -> Result<Option<Settled>> {
        let (core, target) = (self.core, &mut self.target);
        let mut copying = core.copying();
        // The transaction begins while no drain can end.
        let moment = core.reading(&ThreadId::system(), |transaction| {
            let more = take(&mut copying);
            drop(copying);
            changed.chunks.extend(more.chunks);
            changed.threads.extend(more.threads);
            if more.many {
                return Ok(Ok(Ok(None)));
            }
            let settled = match tables::settled(transaction)? {
                Ok(settled) => settled,
                Err(why) => {
                    let thread = ThreadId::system();
                    return Ok(Err(StoreError::Damaged { thread, n: 0, why: why.into() }));
                }
            };
            let ids = mem::take(&mut changed.threads);
            let mut ids = ids.iter().peekable();
            while ids.peek().is_some() {
                let rows = match some_threads(transaction, &mut ids)? {
                    Ok(rows) => rows,
                    Err(error) => return Ok(Err(error)),
                };
                // What goes wrong with the new file is none of the journal's.
                if let Err(error) = target.threads(&rows) {
                    return Ok(Ok(Err(error)));
                }
            }
            Ok(Ok(Ok(Some(settled))))
        })?;
        self.step()?;
        moment
    }
}

/// Some of these threads, the first ones: as much as is read at once. One that is in no table yet
/// is not there.
fn some_threads<'i>(
    transaction: &ReadTransaction,
    ids: &mut impl Iterator<Item = &'i ThreadId>,
) -> Read<std::result::Result<Vec<Row>, StoreError>> {
    let source = Source::open(transaction)?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for id in ids {
        let id = id.as_str().as_bytes();
        let Some(row) = source.threads.get(id)? else {
            continue;
        };
        let row = match source.thread(id, row.value())? {
            Ok(row) => row,
            Err(error) => return Ok(Err(error)),
        };
        bytes += row.bytes();
        rows.push(row);
        if bytes >= EMBEDDED_COPY_BYTES {
            break;
        }
    }
    Ok(Ok(rows))
}

/// The new file.
struct Target {
    /// What is written and not committed.
    transaction: Option<WriteTransaction>,
    pending: usize,
    db: Database,
    bytes: u64,
}

impl Target {
    fn new(file: &Arc<dyn DiskFile>) -> Result<Self> {
        let gate = Gate::new(Arc::clone(file));
        gate.release().map_err(|error| Fault::Io(error.to_string()))?;
        let db = guarded(|| {
            let mut builder = redb::Builder::new();
            builder.set_cache_size(EMBEDDED_COPY_CACHE_BYTES);
            Ok(builder.create_with_backend(Backend(gate))?)
        })?;
        Ok(Self { transaction: None, pending: 0, db, bytes: 0 })
    }

    /// Writes something of so many bytes. It is committed when enough has come together, so that
    /// neither memory nor what a sync has to do grows with the journal.
    fn write(
        &mut self,
        bytes: usize,
        run: impl FnOnce(&WriteTransaction) -> Read<()>,
    ) -> Result<()> {
        let transaction = match self.transaction.take() {
            Some(transaction) => transaction,
            None => guarded(|| {
                let mut transaction = self.db.begin_write()?;
                transaction.set_two_phase_commit(true);
                Ok(transaction)
            })?,
        };
        guarded(|| run(&transaction))?;
        self.transaction = Some(transaction);
        self.pending = self.pending.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.pending >= EMBEDDED_COPY_COMMIT_BYTES { self.commit() } else { Ok(()) }
    }

    fn threads(&mut self, rows: &[Row]) -> Result<()> {
        self.write(rows.iter().map(Row::bytes).sum(), |transaction| {
            let mut to = ThreadTables {
                threads: transaction.open_table(THREADS)?,
                lists: transaction.open_table(EXTENTS)?,
                posted: transaction.open_table(POSTED)?,
                inbox: transaction.open_table(INBOX)?,
            };
            rows.iter().try_for_each(|row| row.write(&mut to))
        })
    }

    fn commit(&mut self) -> Result<()> {
        self.pending = 0;
        match self.transaction.take() {
            Some(transaction) => Ok(guarded(|| Ok(transaction.commit()?))?),
            None => Ok(()),
        }
    }

    /// Says whose journal it is, how far it goes, and that it was closed.
    fn finish(mut self, core: &Core, settled: &Settled) -> Result<()> {
        let settled = Settled { clean: true, ..*settled };
        self.write(0, |transaction| tables::begin(transaction, &core.identity, &settled))?;
        self.commit()?;
        // A file grows by doubling; what it does not need of that is given back.
        guarded(|| Ok(self.db.compact()?))?;
        Ok(guarded(|| Ok(self.db.close()?))?)
    }
}

fn out_of_order(table: &str, why: Torn) -> StoreError {
    let why = format!("the table of {table}: {why}");
    StoreError::Damaged { thread: ThreadId::system(), n: 0, why: why.into() }
}
