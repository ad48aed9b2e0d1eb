//! Opening: look before touching, then read the rows, then what the log has behind them.

use std::{
    io,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};
use tokio::sync::{Notify, Semaphore};

use super::{
    anchor::{self, Anchor, Found},
    aside,
    backend::{Backend, Gate},
    clock::{StoreClock, monotonic},
    core::{Core, Fault, Opened, guarded},
    disk::DiskFile,
    entry::{Appended, Entry},
    error::OpenError,
    lock,
    log::{self, Problem, Segments, Tail},
    options::OpenOptions,
    planted::{Broken, planted},
    state::{State, Thread},
    sync::{Mutex, RwLock},
    tables::{self, FORMAT_VERSION, GENESIS, META, Settled, THREADS},
};
use crate::{
    checkpointer::StoreIdentity,
    id::{StoreTime, ThreadId},
    limits::EMBEDDED_EXAMINATIONS_MAX,
};

/// What every redb file begins with.
const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];
/// The header of a redb file with its two commit slots.
const HEADER_BYTES: usize = 320;
/// The flag, behind the magic, of a redb file that was not closed.
const RECOVERY_REQUIRED: u8 = 2;

/// Finds the file, locks it and opens it.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Core, OpenError> {
    let file = take(path, options)?;
    // A maker that was killed right after it gave the journal its name left the other one.
    if !options.read_only && file.names().is_ok_and(|names| names > 1) {
        aside::tidy(&*options.disk, path, Some(&*file));
    }
    open_file(path, file, options)
}

/// Finds the file and locks it.
pub(super) fn take(path: &Path, options: &OpenOptions) -> Result<Arc<dyn DiskFile>, OpenError> {
    loop {
        let file = options.disk.open(path, !options.read_only, options.follow);
        let file = file.map_err(|source| {
            let path = path.into();
            match source.kind() {
                io::ErrorKind::NotFound => OpenError::NotFound { path },
                io::ErrorKind::InvalidInput => OpenError::Refused { path, source },
                _ => OpenError::Io { path, what: "open it", source },
            }
        })?;
        lock::acquire(path, &*file, options.wait)?;
        // Whoever had the lock may have put a compacted file in its place.
        if !matches!(file.names(), Ok(0)) {
            return Ok(file);
        }
    }
}

/// What is read of a journal before it is used.
struct Known {
    identity: StoreIdentity,
    clock: StoreClock,
    segments: Segments,
    found: Settled,
    state: State,
    newest: u64,
    tail: Option<Tail>,
    anchor: Anchor,
}

/// Opens a file that is locked. Whatever is wrong with it, it is left as it was.
pub(super) fn open_file(
    path: &Path,
    file: Arc<dyn DiskFile>,
    options: &OpenOptions,
) -> Result<Core, OpenError> {
    let since = monotonic();
    let short = look(path, &*file)?;
    let gate = Gate::new(file);
    let (db, repaired) = match (database(path, &gate, options), short) {
        (Err(OpenError::Damaged { .. }), Some(short)) => return Err(short),
        (opened, _) => opened?,
    };
    let known = read(path, &db, options);
    let recovered = known.and_then(|known| {
        let recovery = (repaired || !known.found.clean).then(|| since.elapsed());
        if let Some(time) = recovery.filter(|_| !options.read_only) {
            recover(path, &gate, &known, time)?;
        }
        Ok((known, recovery))
    });
    let (known, recovery) = match recovered {
        Ok(recovered) => recovered,
        Err(error) => {
            // Over a damaged file the storage library can panic when it lets go.
            let _ = guarded(|| {
                drop(db);
                Ok(())
            });
            return Err(error);
        }
    };
    Ok(Core {
        path: path.into(),
        identity: known.identity,
        clock: known.clock,
        opened: RwLock::new(Some(Opened { db, gate })),
        state: Mutex::new(known.state),
        over: OnceLock::new(),
        found: known.found,
        newest: known.newest,
        tail: known.tail,
        recovery,
        segments: known.segments,
        log_bytes: options.log_bytes,
        drained: Notify::new(),
        anchor: Mutex::new(known.anchor),
        read_only: options.read_only,
        copying: Mutex::new(None),
        examining: Arc::new(Semaphore::new(EMBEDDED_EXAMINATIONS_MAX)),
    })
}

/// Reads all of it that is kept in memory.
fn read(path: &Path, db: &Database, options: &OpenOptions) -> Result<Known, OpenError> {
    let identity = identity(path, db)?;
    let clock = StoreClock::new(options.time.clone());
    let disk = Arc::clone(&options.disk);
    let segments = Segments::beside(path, disk, identity.log_id, !options.read_only);
    let read = guarded(|| {
        let transaction = db.begin_read()?;
        let settled = tables::settled(&transaction)?;
        let mut state = match &settled {
            Ok(settled) => State::settled_upto(settled.upto, settled.threads),
            Err(_) => State::default(),
        };
        clock.not_before(rows(&transaction, &mut state)?);
        Ok((settled, state))
    });
    let (found, mut state) = match read {
        Ok((Ok(found), state)) => (found, state),
        Ok((Err(why), _)) => return Err(OpenError::Damaged { path: path.into(), why }),
        Err(fault) => return Err(faulty(path, fault)),
    };
    let (newest, tail) = if options.tables_only {
        (found.generation, None)
    } else {
        behind(path, db, &segments, &found, &mut state, &clock)?
    };
    let anchor = anchor(path, options, &identity, &state)?;
    Ok(Known { identity, clock, segments, found, state, newest, tail, anchor })
}

/// Looks at the anchor: a journal that is behind it is refused, unless that is accepted.
fn anchor(
    path: &Path,
    options: &OpenOptions,
    identity: &StoreIdentity,
    state: &State,
) -> Result<Anchor, OpenError> {
    let found = anchor::look(&*options.disk, path, &identity.log_id).unwrap_or_else(|error| {
        tracing::warn!(journal = %path.display(), %error, "its anchor cannot be read");
        Found::Other
    });
    let behind = match &found {
        Found::Said(said) => Some(said.records()).filter(|_| said.upto > state.next),
        Found::Damaged | Found::Other => {
            tracing::warn!(journal = %path.display(), "what stands at the name of its anchor is none");
            None
        }
        Found::Nothing | Found::Foreign => None,
    };
    let disk = Arc::clone(&options.disk);
    let mut anchor = Anchor::new(disk, path, identity.log_id, &found);
    let Some(anchored) = behind else {
        return Ok(anchor);
    };
    let records = state.next.leaf;
    if planted(Broken::IgnoreAnchor) {
        return Ok(anchor);
    }
    if !options.accept_rollback {
        let (path, anchor) = (path.into(), anchor::beside(path));
        return Err(OpenError::RolledBack { path, anchor, records, anchored });
    }
    if !options.read_only {
        tracing::warn!(journal = %path.display(), records, anchored, "a rollback was accepted");
        anchor.say(state.next, state.head);
    }
    Ok(anchor)
}

/// Makes durable what was found of a journal that was not closed.
fn recover(path: &Path, gate: &Gate, known: &Known, time: Duration) -> Result<(), OpenError> {
    let secured = gate.release().and_then(|()| known.tail.iter().try_for_each(Tail::secure));
    let what = "recover it";
    secured.map_err(|source| OpenError::Io { path: path.into(), what, source })?;
    tracing::info!(
        journal = %path.display(),
        milliseconds = time.as_millis(),
        entries = known.state.unsettled.0,
        "recovered a journal that was not closed"
    );
    Ok(())
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
        Ok(Err(found)) => {
            let (path, known) = (path.into(), FORMAT_VERSION);
            Err(if found < known {
                OpenError::Older { path, found, known }
            } else {
                OpenError::Newer { path, found, known }
            })
        }
        Err(why) => {
            Err(OpenError::Damaged { path: path.into(), why: format!("its identity: {why}") })
        }
    }
}

type Read<T> = Result<T, redb::Error>;

/// Reads every row of the table of threads. What is wrong there is kept in the state, so that
/// other threads can still be read.
fn rows(transaction: &ReadTransaction, state: &mut State) -> Read<StoreTime> {
    let count = state.count;
    let mut latest = StoreTime(0);
    let mut seen = 0;
    let threads = transaction.open_table(THREADS)?;
    for stored in threads.iter()? {
        let (key, value) = stored?;
        seen += 1;
        // A damaged tree can lead in a circle.
        if seen > count {
            break;
        }
        let id = String::from_utf8_lossy(key.value());
        let Ok(id) = ThreadId::any(&id) else {
            state.damaged = Some((ThreadId::system(), "a key in the table of threads".into()));
            continue;
        };
        match tables::read_thread(key.value(), value.value()) {
            Ok(thread) => {
                latest = latest.max(thread.tail.time);
                let away = thread.rests();
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

/// Applies what the log has behind the tables: the newest generation that it has, and its last
/// frame.
fn behind(
    path: &Path,
    db: &Database,
    segments: &Segments,
    found: &Settled,
    state: &mut State,
    clock: &StoreClock,
) -> Result<(u64, Option<Tail>), OpenError> {
    state.frame = (found.generation, found.frame);
    state.log = found.log;
    if found.clean {
        return match log::newer(segments, found.generation) {
            Ok(None) => Ok((found.generation, None)),
            Ok(Some(log)) => Err(OpenError::Damaged {
                path: path.into(),
                why: format!(
                    "it is an older copy of itself: {} has what was written later. Put the newer \
                     copy back, or move the log away to go on without",
                    log.display()
                ),
            }),
            Err(source) => {
                Err(OpenError::Io { path: path.into(), what: "look at its log", source })
            }
        };
    }
    let damaged = |why: String| OpenError::Damaged { path: path.into(), why };
    let recovered = log::recover(segments, found);
    if planted(Broken::OpenWithoutLog) && recovered.is_err() {
        return Ok((found.generation, None));
    }
    let recovered = recovered.map_err(|problem| match problem {
        Problem::Missing(log) => OpenError::LogMissing { path: path.into(), log },
        Problem::Damaged(why) => damaged(why),
        Problem::Io(source) => OpenError::Io { path: path.into(), what: "read its log", source },
    })?;
    for (place, entry) in recovered.entries {
        let thread = entry.thread();
        if state.is_away(thread) {
            let row = stored_row(path, db, thread)?;
            state.admit_stored(thread.clone(), row, false);
        }
        if let Entry::Appended(appended) = &entry {
            if !follows(state, appended) {
                let leaf = place.leaf;
                return Err(damaged(format!("the log at leaf {leaf} does not follow {thread:?}")));
            }
            clock.not_before(appended.time);
        }
        state.apply(entry);
    }
    state.frame.1 = recovered.last;
    Ok((recovered.generation, recovered.tail))
}

fn stored_row(path: &Path, db: &Database, thread: &ThreadId) -> Result<Thread, OpenError> {
    let key = thread.as_str().as_bytes();
    let row = guarded(|| {
        let transaction = db.begin_read()?;
        let threads = transaction.open_table(THREADS)?;
        Ok(threads.get(key)?.map(|stored| stored.value().to_vec()))
    });
    let row = row.map_err(|fault| faulty(path, fault))?;
    let row = row.ok_or("it is missing").and_then(|row| tables::read_thread(key, &row));
    row.map_err(|why| OpenError::Damaged {
        path: path.into(),
        why: format!("the row of {thread:?}: {why}"),
    })
}

fn follows(state: &State, appended: &Appended) -> bool {
    match state.threads.get(&appended.thread) {
        Some(thread) => appended.at == thread.tail.next && appended.prev == thread.tail.head,
        // A row that cannot be read is reported already; what follows it is not applied.
        None => appended.row.is_some() || state.damaged.is_some(),
    }
}
