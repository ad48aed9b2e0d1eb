//! Opening: look before touching, then read the rows, then what the log has beyond them.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, OnceLock, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};

use super::{
    aside,
    backend::{Backend, Gate},
    clock::{StoreClock, monotonic},
    core::{Core, Fault, Opened, guarded},
    disk::DiskFile,
    entry::{self, Entry, Head, Place},
    error::OpenError,
    lock,
    options::OpenOptions,
    state::{Durable, State},
    tables::{self, FORMAT_VERSION, GENESIS, LOG, META, STATE, Settled, THREADS},
};
use crate::{
    checkpointer::StoreIdentity,
    id::{StoreTime, ThreadId},
};

/// What every redb file begins with.
const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];
/// The header of a redb file with its two commit slots.
const HEADER_BYTES: usize = 320;
/// The flag, behind the magic, of a redb file that was not closed.
const RECOVERY_REQUIRED: u8 = 2;

/// Finds the file, locks it and opens it.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Core, OpenError> {
    let file = options.disk.open(path, true, options.follow).map_err(|source| {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::NotFound => OpenError::NotFound { path },
            io::ErrorKind::InvalidInput => OpenError::Refused { path, source },
            _ => OpenError::Io { path, what: "open it", source },
        }
    })?;
    lock::acquire(path, &*file, options.wait)?;
    // A maker that was killed right after it gave the journal its name left the other one.
    if file.names().is_ok_and(|names| names > 1) {
        aside::tidy(&*options.disk, path, Some(&*file));
    }
    open_file(path, file, options)
}

/// Opens a file that is locked. Whatever is wrong with it, it is left as it was.
pub(super) fn open_file(
    path: &Path,
    file: Arc<dyn DiskFile>,
    options: &OpenOptions,
) -> Result<Core, OpenError> {
    let since = monotonic();
    let damaged = |why: String| OpenError::Damaged { path: path.into(), why };
    let short = look(path, &*file)?;
    let gate = Gate::new(file);
    let (db, repaired) = match (database(path, &gate, options), short) {
        (Err(OpenError::Damaged { .. }), Some(short)) => return Err(short),
        (opened, _) => opened?,
    };
    let identity = identity(path, &db)?;
    let clock = StoreClock::new(options.time.clone());
    let read = guarded(|| {
        let transaction = db.begin_read()?;
        Ok(rebuild(&transaction, &clock))
    });
    let (state, found) = match read {
        Ok(Ok(read)) => read,
        Ok(Err(why)) => return Err(damaged(why)),
        Err(fault) => return Err(faulty(path, fault)),
    };
    let recovery = (repaired || !found.clean).then(|| since.elapsed());
    if let Some(time) = recovery {
        gate.release().map_err(|source| OpenError::Io {
            path: path.into(),
            what: "recover it",
            source,
        })?;
        tracing::info!(
            journal = %path.display(),
            milliseconds = time.as_millis(),
            "recovered a journal that was not closed"
        );
    }
    Ok(Core {
        path: path.into(),
        identity,
        clock,
        opened: RwLock::new(Some(Opened { db, gate })),
        state: Mutex::new(state),
        over: OnceLock::new(),
        found,
        recovery,
    })
}

/// Tells an empty, a foreign and a truncated file by its first bytes. Where the file was not
/// closed, its length may be on its way to another one: then being too short is only what explains
/// a later failure.
fn look(path: &Path, file: &dyn DiskFile) -> Result<Option<OpenError>, OpenError> {
    let path = || path.into();
    let io = |source| OpenError::Io { path: path(), what: "read it", source };
    let have = file.len().map_err(io)?;
    if have == 0 {
        return Err(OpenError::Empty { path: path() });
    }
    let mut header = [0; HEADER_BYTES];
    let there = usize::try_from(have).unwrap_or(usize::MAX).min(HEADER_BYTES);
    let (front, _) = header.split_at_mut(there);
    file.read_at(0, front).map_err(io)?;
    if !header.starts_with(&MAGIC) {
        let why = "it does not begin like one".into();
        return Err(OpenError::NotAJournal { path: path(), why });
    }
    let want = length(&header).unwrap_or(0).max(HEADER_BYTES as u64);
    let truncated = (have < want).then(|| OpenError::Truncated { path: path(), have, want });
    let unclean = header.get(MAGIC.len()).is_some_and(|flags| flags & RECOVERY_REQUIRED != 0);
    match truncated {
        Some(error) if !unclean || have < HEADER_BYTES as u64 => Err(error),
        truncated => Ok(truncated),
    }
}

/// The length that a redb header asks for: a page of header, full regions, and a partial one.
fn length(header: &[u8]) -> Option<u64> {
    let number = |at: usize| -> Option<u64> {
        let bytes = header.get(at..at + 4)?.try_into().ok()?;
        Some(u64::from(u32::from_le_bytes(bytes)))
    };
    let (page, region_header, region_data) = (number(12)?, number(16)?, number(20)?);
    let (full, trailing) = (number(24)?, number(28)?);
    let region = region_header.checked_add(region_data)?;
    let partial = if trailing > 0 { region_header.checked_add(trailing)? } else { 0 };
    let pages = full.checked_mul(region)?.checked_add(partial)?.checked_add(1)?;
    pages.checked_mul(page)
}

fn database(
    path: &Path,
    gate: &Arc<Gate>,
    options: &OpenOptions,
) -> Result<(Database, bool), OpenError> {
    let repaired = Arc::new(AtomicBool::new(false));
    let opened = guarded(|| {
        let mut builder = redb::Builder::new();
        let seen = Arc::clone(&repaired);
        builder.set_cache_size(options.cache_bytes);
        builder.set_check_integrity_on_open(options.verify);
        builder.set_repair_callback(move |_| seen.store(true, Ordering::Relaxed));
        Ok(builder.create_with_backend(Backend(Arc::clone(gate)))?)
    });
    match opened {
        Ok(db) => Ok((db, repaired.load(Ordering::Relaxed))),
        Err(fault) => Err(faulty(path, fault)),
    }
}

fn faulty(path: &Path, fault: Fault) -> OpenError {
    let path = path.into();
    match fault {
        Fault::Damage(why) if why.contains("file format version") => {
            OpenError::NotAJournal { path, why: format!("its storage has another format: {why}") }
        }
        Fault::Damage(why) => OpenError::Damaged { path, why },
        Fault::Io(why) => OpenError::Io { path, what: "read it", source: io::Error::other(why) },
    }
}

/// Tells another program's file, a newer journal and a damaged one.
fn identity(path: &Path, db: &Database) -> Result<StoreIdentity, OpenError> {
    let foreign = |why: &str| OpenError::NotAJournal { path: path.into(), why: why.into() };
    let genesis = guarded(|| {
        let transaction = db.begin_read()?;
        let meta = match transaction.open_table(META) {
            Ok(meta) => meta,
            Err(redb::TableError::Storage(error)) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        Ok(meta.get(GENESIS)?.map(|stored| stored.value().to_vec()))
    });
    let genesis = genesis.map_err(|fault| faulty(path, fault))?;
    let genesis = genesis.ok_or_else(|| foreign("it is the database of another program"))?;
    match tables::read_genesis(&genesis) {
        Ok(Ok(identity)) => Ok(identity),
        Ok(Err(found)) => Err(OpenError::Newer { path: path.into(), found, known: FORMAT_VERSION }),
        Err(why) => {
            Err(OpenError::Damaged { path: path.into(), why: format!("its identity: {why}") })
        }
    }
}

/// Memory as it was: the rows, and what the log has beyond them.
fn rebuild(transaction: &ReadTransaction, clock: &StoreClock) -> Result<(State, Settled), String> {
    let text = |error: redb::Error| error.to_string();
    let found = settled(transaction).map_err(text)??;
    let mut state = State::settled_upto(found.upto, found.threads);
    let latest = rows(transaction, &mut state, found.threads).map_err(text)?;
    clock.not_before(latest);
    replay(transaction, &mut state, &found, clock).map_err(text)??;
    Ok((state, found))
}

type Read<T> = Result<T, redb::Error>;

fn settled(transaction: &ReadTransaction) -> Read<Result<Settled, String>> {
    let meta = transaction.open_table(META)?;
    let Some(stored) = meta.get(STATE)? else {
        return Ok(Err("its state is missing".into()));
    };
    Ok(tables::read_settled(stored.value()).map_err(|why| format!("its state: {why}")))
}

/// Reads every row of the table of threads. What is wrong there is kept in the state, so that
/// other threads can still be read.
fn rows(transaction: &ReadTransaction, state: &mut State, count: u64) -> Read<StoreTime> {
    let mut latest = StoreTime(0);
    let mut seen = 0;
    let threads = transaction.open_table(THREADS)?;
    for stored in threads.iter()? {
        let (key, value) = stored?;
        seen += 1;
        let id = String::from_utf8_lossy(key.value());
        let Ok(id) = ThreadId::any(&id) else {
            state.damaged = Some((ThreadId::system(), "a key in the table of threads".into()));
            continue;
        };
        match tables::read_thread(key.value(), value.value()) {
            Ok(thread) => {
                latest = latest.max(thread.tail.time);
                let away = thread.row.status.is_ended();
                state.admit_stored(id, thread, away);
            }
            Err(why) => {
                let why = format!("its row in the table of threads: {why}");
                state.damaged = Some((id, why.into()));
            }
        }
    }
    if seen != count && state.damaged.is_none() {
        let why = format!("the table of threads has {seen} rows and must have {count}");
        state.damaged = Some((ThreadId::system(), why.into()));
    }
    Ok(latest)
}

/// Applies what stands in the log beyond the tables.
fn replay(
    transaction: &ReadTransaction,
    state: &mut State,
    found: &Settled,
    clock: &StoreClock,
) -> Read<Result<(), String>> {
    let log = transaction.open_table(LOG)?;
    if let Err(why) = joins(&log, found.upto)? {
        return Ok(Err(why));
    }
    for stored in log.range(found.upto.key()..)? {
        let (key, value) = stored?;
        let (leaf, sub) = key.value();
        let place = Place { leaf, sub };
        if found.clean || place != state.next {
            return Ok(Err(format!("the log has an entry at {leaf}.{sub} that does not belong")));
        }
        let bytes = value.value().len();
        let (thread, durable) = match entry::parse(place, value.value()) {
            Ok(Entry::Records(head, _)) => (head.thread.clone(), Durable::Records(head)),
            Ok(Entry::Message(to, message)) => (to.clone(), Durable::Message(to, message.id)),
            Err(why) => return Ok(Err(format!("the log at {leaf}.{sub}: {why}"))),
        };
        if state.is_away(&thread) {
            let key = thread.as_str().as_bytes();
            let row = transaction.open_table(THREADS)?.get(key)?.map(|v| v.value().to_vec());
            let row = row.ok_or("missing").and_then(|row| tables::read_thread(key, &row));
            match row {
                Ok(row) => state.admit_stored(thread.clone(), row, false),
                Err(why) => return Ok(Err(format!("the row of {thread:?}: {why}"))),
            }
        }
        if let Durable::Records(head) = &durable {
            if !follows(state, head) {
                return Ok(Err(format!("the log at {leaf}.{sub} does not follow {thread:?}")));
            }
            clock.not_before(head.time);
        }
        state.apply(place, bytes, durable);
    }
    Ok(Ok(()))
}

/// Whether the last entry that the tables know of is where the log ends for them.
fn joins(
    log: &redb::ReadOnlyTable<(u64, u32), &'static [u8]>,
    upto: Place,
) -> Read<Result<(), String>> {
    if upto == Place::default() {
        return Ok(Ok(()));
    }
    let before = log.range(..upto.key())?.next_back().transpose()?;
    let Some((key, value)) = before else {
        return Ok(Err("the log is empty and must not be".into()));
    };
    let (leaf, sub) = key.value();
    let place = Place { leaf, sub };
    let count = match entry::parse(place, value.value()) {
        Ok(Entry::Records(head, _)) => head.count(),
        Ok(Entry::Message(..)) => 0,
        Err(why) => return Ok(Err(format!("the log at {leaf}.{sub}: {why}"))),
    };
    if place.after(count) == upto {
        Ok(Ok(()))
    } else {
        let (to_leaf, to_sub) = upto.key();
        Ok(Err(format!("the log ends at {leaf}.{sub} and must reach {to_leaf}.{to_sub}")))
    }
}

fn follows(state: &State, head: &Head) -> bool {
    match state.threads.get(&head.thread) {
        Some(thread) => head.at == thread.tail.next && head.prev == thread.tail.head,
        // A row that cannot be read is reported already; what follows it is not applied.
        None => head.row.is_some() || state.damaged.is_some(),
    }
}
