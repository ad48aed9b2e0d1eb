//! The embedded home: one redb file and a write-ahead log beside it, for one process.
//!
//! **On disk.** A commit is one frame in the `log`, with one sync. The tables of the redb file
//! follow in `drain`s, in long runs by thread, and say how far they go; opening reads what the
//! log has behind that. A journal that was closed is the one redb file.
//! `docs/internals/log.md` is the protocol, `docs/decisions/0002-log.md` has the figures.
//!
//! **In memory.** Every unfinished thread (its row and its tail), and what is not drained yet; of
//! the ended threads a hash of the id. Opening reads all rows and no drained record.
//!
//! **Who does what.** Callers write for each other (`line`); the `keeper` drains and does what is
//! rare; two readers serve records and lists.
//!
//! **When something fails.** After an error of the system in a write, or a panic of the storage
//! library in one, the handle is dead: those who wait hear [`StoreError::Unknown`] if the write
//! may have happened and [`StoreError::Failed`] if not. What a read finds damaged is
//! [`StoreError::Damaged`] and leaves the rest readable.

mod anchor;
mod aside;
mod backend;
mod backup;
#[cfg(feature = "planted-faults")]
pub mod bare;
mod check;
mod chunk;
mod clock;
mod code;
mod committer;
mod compact;
mod copy;
mod core;
mod create;
mod disk;
mod doctor;
mod drain;
mod entry;
mod error;
mod faulty;
mod group;
mod keeper;
mod line;
mod list;
mod lock;
mod log;
mod open;
mod options;
pub mod planted;
mod progress;
mod reader;
mod state;
mod sync;
mod tables;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

pub use self::{
    backup::{Backup, journal_of},
    clock::{StoreClock, TimeSource},
    compact::{CompactError, Compacted},
    disk::{Disk, DiskFile, RealDisk},
    doctor::{Examination, Finding, Verdict},
    error::{BackupError, CreateError, Holder, OpenError},
    faulty::{CountingDisk, FaultKind, IoCounts},
    log::files_of,
    options::{CommitBy, CreateOptions, OpenOptions},
    progress::{Progress, Stage},
};
use self::{
    core::Core,
    group::Element,
    keeper::{Erasure, Job as KeeperJob},
    line::Line,
    sync::{
        Mutex,
        mpsc::{self, Receiver, Sender},
        thread::{self, JoinHandle},
    },
    writer::Ask,
};
use crate::{
    admit,
    checkpointer::{
        Append, BoxFuture, Checkpointer, Claim, Filter, Lease, LogEntry, Message, Page, Posted,
        RecordPage, StoreError, StoreIdentity, ThreadInfo,
    },
    id::{Epoch, LogIndex, Position, StoreTime, ThreadId},
    limits::{EMBEDDED_CHECK_BYTES_MAX, EMBEDDED_READERS},
    record::{Record, Role},
};

type Result<T> = std::result::Result<T, StoreError>;
type Job = Box<dyn FnOnce(&Core) + Send>;

/// A journal in one file.
///
/// Dropping it without [`Checkpointer::close`] is a crash: everything acknowledged is there, and
/// the next open recovers. Creating, opening and dropping block the calling thread for as long as
/// the disk takes.
pub struct Embedded {
    core: Arc<Core>,
    line: Arc<Line>,
    readers: Option<Sender<Job>>,
    committer: Option<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// What there is to say about an open journal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbeddedInfo {
    /// Where it is.
    pub path: PathBuf,
    /// The version of its format.
    pub format_version: u8,
    /// Its log id.
    pub log_id: [u8; 16],
    /// How long recovery took when it was opened; `None` if it had been closed.
    pub recovery: Option<Duration>,
    /// Threads, ended ones included.
    pub threads: u64,
    /// Records of all threads.
    pub records: u64,
    /// The length of its redb file; 0 once it is closed.
    pub file_bytes: u64,
    /// About how many bytes of records are in the log and not in the redb file yet.
    pub undrained_bytes: u64,
}

impl Embedded {
    /// Makes a journal and opens it. It is made aside and gets its name when it is complete and
    /// durable, so that nobody ever sees half of one; of several that try at once, one succeeds.
    ///
    /// # Errors
    /// [`CreateError::AlreadyExists`] if there is something at the path; else what the system said.
    pub fn create(
        path: impl AsRef<Path>,
        options: CreateOptions,
    ) -> std::result::Result<Self, CreateError> {
        let path = path.as_ref();
        let core = create::create(path, &options)?;
        Self::start(core, options.open.by).map_err(|source| CreateError::Io {
            path: path.into(),
            what: "start threads for it",
            source,
        })
    }

    /// Opens a journal. It never makes one, and leaves whatever it refuses as it was.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        path: impl AsRef<Path>,
        options: OpenOptions,
    ) -> std::result::Result<Self, OpenError> {
        let path = path.as_ref();
        let core = open::open(path, &options)?;
        Self::start(core, options.by).map_err(|source| OpenError::Io {
            path: path.into(),
            what: "start threads for it",
            source,
        })
    }

    fn start(core: Core, by: CommitBy) -> std::io::Result<Self> {
        let core = Arc::new(core);
        let (keeper, keeper_jobs) = mpsc::channel();
        let (readers, jobs) = mpsc::channel();
        let jobs = Arc::new(Mutex::new(jobs));
        let (bell, ear) = committer::bell();
        let line = Arc::new(Line::new(Arc::clone(&core), keeper, bell, by));
        let mut threads = Vec::new();
        let shared = Arc::clone(&line);
        threads.push(spawn("deedbook-keeper", move || keeper::run(shared, &keeper_jobs))?);
        let mut committer = None;
        if by != CommitBy::Caller {
            let shared = Arc::clone(&line);
            committer = Some(spawn("deedbook-commit", move || committer::run(&shared, &ear))?);
        }
        for _ in 0..EMBEDDED_READERS {
            let (shared, jobs) = (Arc::clone(&core), Arc::clone(&jobs));
            threads.push(spawn("deedbook-reader", move || serve(&shared, &jobs))?);
        }
        Ok(Self { core, line, readers: Some(readers), committer, threads })
    }

    /// What there is to say about it.
    #[must_use]
    pub fn info(&self) -> EmbeddedInfo {
        let (threads, records, undrained) = {
            let state = self.core.state();
            (state.count, state.next.leaf, state.unsettled.1)
        };
        let opened = self.core.opened();
        let file_bytes = opened.as_ref().and_then(|o| o.gate.file_len().ok());
        EmbeddedInfo {
            path: self.core.path.clone(),
            format_version: tables::FORMAT_VERSION,
            log_id: self.core.identity.log_id,
            recovery: self.core.recovery,
            threads,
            records,
            file_bytes: file_bytes.unwrap_or(0),
            undrained_bytes: undrained as u64,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// Who has the journal in this file open, as well as the system tells; `None` if nobody is
    /// known to. It takes no lock, and so gets in nobody's way.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn holder(path: impl AsRef<Path>) -> std::io::Result<Option<Holder>> {
        let file = RealDisk.open(path.as_ref(), false, false)?;
        Ok(Some(lock::holder(&*file)).filter(|holder| holder.pid.is_some()))
    }

    /// Has the keeper do something, and waits for it.
    async fn keeper<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> KeeperJob) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.line.send(job(reply));
        answer.await.map_err(|_| self.gone())
    }

    /// Has a reader do something, and waits for it.
    async fn read_off<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Core) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |core| drop(reply.send(run(core))));
        let sent = self.readers.as_ref().is_some_and(|r| r.send(job).is_ok());
        if !sent {
            return Err(self.gone());
        }
        answer.await.map_err(|_| self.gone())?
    }

    /// Closes it, and waits for that on this thread.
    fn close_now(self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.line.send(KeeperJob::Close(reply));
        // The caller's thread may be one of an async runtime, which must not wait so itself.
        let waited = thread::scope(|scope| scope.spawn(|| answer.blocking_recv()).join());
        waited.map_err(|_| self.gone())?.map_err(|_| self.gone())?
    }

    /// A thread of the home ended without an answer: it never should.
    fn gone(&self) -> StoreError {
        self.core.end("a thread of the journal has ended")
    }

    /// Checks an element before it gets in line, so that whoever writes need not; what is sealed
    /// costs nothing to check.
    fn element(&self, append: Append) -> Element {
        if append.records.seal().is_some() {
            return Element { append, checked: None };
        }
        let bytes: usize = append.records.iter().map(Record::size).sum();
        let before = {
            let state = self.core.state();
            state.threads.get(&append.thread).map(|t| t.tail)
        };
        let checked = before.filter(|_| bytes <= EMBEDDED_CHECK_BYTES_MAX).and_then(|before| {
            // What is refused here may follow what is being written: the round decides.
            let after = admit::admit(&self.core.identity.log_id, &before, &append).ok()?;
            Some((before, after))
        });
        Element { append, checked }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("path", &self.core.path).finish_non_exhaustive()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // First, for it may be writing what somebody asked for who has gone: the keeper lets go of
        // the lock, and then the files are another's.
        self.line.stop();
        if let Some(committer) = self.committer.take() {
            drop(committer.join());
        }
        self.line.send(KeeperJob::Stop);
        self.readers = None;
        for thread in self.threads.drain(..) {
            // Whatever ended a thread was answered where it happened.
            drop(thread.join());
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}

/// A reader: takes one job after another until the handle is gone.
fn serve(core: &Core, jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(core),
            Err(_) => return,
        }
    }
}

impl Checkpointer for Embedded {
    fn identity(&self) -> &StoreIdentity {
        &self.core.identity
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime>> {
        Box::pin(async move {
            self.core.alive()?;
            Ok(self.core.clock.now())
        })
    }

    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position>>> {
        Box::pin(async move {
            let count = group.len();
            if let Err(error) = self.core.writable() {
                return vec![Err(error); count];
            }
            let elements = group.into_iter().map(|a| self.element(a)).collect();
            let results = self.line.ask(|reply| Ask::Append(elements, reply)).await;
            results.unwrap_or_else(|error| vec![Err(error); count])
        })
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage>> {
        let thread = thread.clone();
        Box::pin(self.read_off(move |core| reader::read(core, &thread, from, bytes_max)))
    }

    fn post<'a>(&'a self, to: &'a ThreadId, message: Message) -> BoxFuture<'a, Result<Posted>> {
        Box::pin(async move {
            self.core.writable()?;
            self.line.ask(|reply| Ask::Post(to.clone(), message, reply)).await?
        })
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Message>>> {
        let thread = thread.clone();
        Box::pin(self.read_off(move |core| reader::inbox(core, &thread)))
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>>> {
        Box::pin(async move {
            self.core.writable()?;
            self.line.ask(|r| Ask::Claim(which, holder.into(), ttl, r)).await?
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>>> {
        Box::pin(async move {
            self.core.alive()?;
            self.line.ask(|reply| Ask::Renew(leases.to_vec(), ttl, reply)).await
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>>> {
        let (filter, after) = (filter.clone(), after.cloned());
        Box::pin(
            self.read_off(move |core| {
                list::list(core, &filter, after.as_ref(), max, core.clock.now())
            }),
        )
    }

    fn log(&self, from: LogIndex, max: usize) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>>> {
        Box::pin(self.read_off(move |core| reader::log(core, from, max)))
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            self.core.writable()?;
            if note.thread != *thread {
                return Err(admit::refused("the note about an erasure is of another thread"));
            }
            let note = self.element(note);
            let erasure = Box::new(Erasure { n, role, note });
            self.keeper(|reply| KeeperJob::Erase(erasure, reply)).await?
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.keeper(KeeperJob::Close).await? })
    }
}
