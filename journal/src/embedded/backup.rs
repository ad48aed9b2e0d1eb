//! A backup of a journal that is open, while it is written to.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{
    Embedded,
    aside::{self, Aside},
    check::{self, Stopped},
    copy::{self, CopyError},
    core::Core,
    disk::{Disk, DiskFile},
    error::{BackupError, OpenError},
    keeper::Job,
    log::files_of,
    open,
    options::OpenOptions,
    progress::{Progress, Watch},
    spawn,
    tables::Settled,
};
use crate::{
    checkpointer::StoreError, id::LogIndex, limits::EMBEDDED_COPY_CACHE_BYTES, record::RecordHash,
};

/// A copy that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Where it is.
    pub path: PathBuf,
    /// The log id of the journal.
    pub log_id: [u8; 16],
    /// Threads, ended ones included.
    pub threads: u64,
    /// Records of all threads.
    pub records: u64,
    /// The last place of the log that it has, and the hash of the record there; `None` if it has
    /// none.
    pub head: Option<(LogIndex, RecordHash)>,
    /// The length of the file, in bytes.
    pub file_bytes: u64,
}

type Result<T> = std::result::Result<T, BackupError>;

impl Embedded {
    /// Copies the journal into a new file while it is written to: everything that was acknowledged
    /// before this call, and some of what comes meanwhile. The copy is one file, a journal that
    /// was closed, with the same identity. It is made aside, readable by its owner only, made
    /// durable, read and checked to its last record, and then gets its name.
    ///
    /// `watch` is told how far it has come. Appends go on meanwhile and wait no longer than for a
    /// drain. It takes a thread of its own, as much disk as the journal, and about 150 MiB of
    /// memory, however large the journal is. One backup of a journal is made at a time.
    ///
    /// A thread that is written to in the original *and* in the copy is two threads under one id,
    /// with the same operation keys: run workflows on one of them only.
    ///
    /// # Errors
    /// See [`BackupError`]; nothing is left at the path then.
    ///
    /// **Cancel safety.** Dropped, it gives up and leaves nothing behind.
    ///
    /// ```
    /// use deedbook_journal::{checkpointer::Checkpointer, embedded::{CreateOptions, Embedded}};
    /// # let folder = std::env::temp_dir().join(format!("deedbook-backup-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let book = Embedded::create(folder.join("book.redb"), CreateOptions::new())?;
    /// let made = book.backup(folder.join("copy.redb"), |_| {}).await?;
    /// assert_eq!(made.records, 0);
    /// book.close().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn backup(
        &self,
        to: impl AsRef<Path>,
        watch: impl FnMut(Progress) + Send + 'static,
    ) -> std::result::Result<Backup, BackupError> {
        let path = to.as_ref().to_path_buf();
        let (reply, answer) = oneshot::channel();
        let (core, line, to) = (Arc::clone(&self.core), Arc::clone(&self.line), path.clone());
        let work = move || {
            let mut told = watch;
            let mut settle = || {
                let (settled, answer) = oneshot::channel();
                line.send(Job::Settle(settled));
                answer.blocking_recv().unwrap_or(Err(StoreError::Closed))
            };
            let mut watch = |progress| {
                told(progress);
                !reply.is_closed()
            };
            let made = backup(&core, &to, &mut settle, &mut watch);
            // Whoever waits hears of it when there is nothing more to tell. If nobody wants it any
            // more, and it is made, it stays.
            drop(told);
            drop(reply.send(made));
        };
        spawn("deedbook-backup", work).map_err(|source| BackupError::Io {
            path,
            what: "start a thread for it",
            source,
        })?;
        answer.await.unwrap_or(Err(BackupError::Journal(StoreError::Closed)))
    }
}

/// Makes a backup at `path`, on the disk of the journal.
pub(super) fn backup(
    core: &Core,
    path: &Path,
    settle: &mut dyn FnMut() -> std::result::Result<(), StoreError>,
    watch: &mut Watch<'_>,
) -> Result<Backup> {
    let disk = core.segments.disk();
    let failed = |(what, source): aside::Failed| match source.kind() {
        io::ErrorKind::AlreadyExists => BackupError::AlreadyExists { path: path.into() },
        _ => BackupError::Io { path: path.into(), what, source },
    };
    aside::tidy(&**disk, path, None);
    is_free(&**disk, path)?;
    let aside = Aside::make(disk, path).map_err(failed)?;
    let made = fill(core, path, aside.file(), settle, watch)?;
    aside.publish().map_err(failed)?;
    Ok(made)
}

/// Whether nothing has the name, nor a name that a journal of it needs.
fn is_free(disk: &dyn Disk, path: &Path) -> Result<()> {
    let listed = disk.list(aside::folder(path));
    let names = listed.map_err(|source| BackupError::Io {
        path: path.into(),
        what: "look into its folder",
        source,
    })?;
    let taken = files_of(path).into_iter().find(|file| {
        let name = file.file_name();
        name.is_some_and(|name| names.iter().any(|taken| taken == name))
    });
    if let Some(journal) = journal_of(path).filter(|journal| {
        let name = journal.file_name();
        name.is_some_and(|name| names.iter().any(|there| there == name))
    }) {
        return Err(BackupError::InTheWay { path: path.into(), other: journal });
    }
    match taken {
        None => Ok(()),
        Some(taken) if taken == path => Err(BackupError::AlreadyExists { path: path.into() }),
        Some(other) => Err(BackupError::InTheWay { path: path.into(), other }),
    }
}

/// The journal that a file of this name would belong to, beside its own.
///
/// ```
/// use deedbook_journal::embedded::journal_of;
///
/// assert_eq!(journal_of("refunds.redb-log0").unwrap().to_str(), Some("refunds.redb"));
/// assert_eq!(journal_of("refunds.redb"), None);
/// ```
pub fn journal_of(file: impl AsRef<Path>) -> Option<PathBuf> {
    let file = file.as_ref();
    let name = file.file_name()?.to_str()?;
    let (stem, _) = name.rsplit_once('-').filter(|(stem, _)| !stem.is_empty())?;
    let journal = file.with_file_name(stem);
    files_of(&journal).iter().any(|of| of == file).then_some(journal)
}

/// Copies the journal into an empty file, makes that durable and reads all of it. `path` is the
/// name that it will get.
pub(super) fn fill(
    core: &Core,
    path: &Path,
    file: &Arc<dyn DiskFile>,
    settle: &mut dyn FnMut() -> std::result::Result<(), StoreError>,
    watch: &mut Watch<'_>,
) -> Result<Backup> {
    let path = || path.into();
    let io = |what| move |source| BackupError::Io { path: path(), what, source };
    let settled = copy::copy(core, file, settle, watch).map_err(|error| match error {
        CopyError::Journal(source) => BackupError::Journal(source),
        CopyError::Target(fault) => BackupError::Storage { path: path(), why: fault.into_why() },
        CopyError::Busy => BackupError::Busy,
        CopyError::Outpaced => BackupError::Outpaced,
        CopyError::Stopped => BackupError::Stopped,
    })?;
    file.sync().map_err(io("make it durable"))?;
    verify(core, &path(), file, &settled, watch)
}

/// Reads a copy: it must be whole, and hold what it should.
fn verify(
    core: &Core,
    path: &Path,
    file: &Arc<dyn DiskFile>,
    settled: &Settled,
    watch: &mut Watch<'_>,
) -> Result<Backup> {
    let not = |why: String| BackupError::NotVerified { path: path.into(), why };
    let disk = Arc::clone(core.segments.disk());
    let options = OpenOptions::new().disk(disk).read_only(true).verify_pages(true);
    let options = options.cache_bytes(EMBEDDED_COPY_CACHE_BYTES);
    let opened = open::open_file(path, Arc::clone(file), &options);
    let copy = opened.map_err(|error: OpenError| not(error.to_string()))?;
    let sum = check::check(&copy, 1, watch).map_err(|Stopped| BackupError::Stopped)?;
    if let Some(damage) = sum.damage.first() {
        return Err(not(damage.to_string()));
    }
    let (threads, records) = (settled.threads, settled.upto.leaf);
    if (sum.threads, sum.records) != (threads, records) || copy.identity != core.identity {
        let (have, of) = (sum.records, sum.threads);
        return Err(not(format!(
            "it has {have} records of {of} threads and must have {records} of {threads}"
        )));
    }
    let file_bytes = file.len().map_err(|source| BackupError::Io {
        path: path.into(),
        what: "look at its length",
        source,
    })?;
    Ok(Backup {
        path: path.into(),
        log_id: core.identity.log_id,
        threads,
        records,
        head: sum.head.map(|entry| (entry.index, entry.hash)),
        file_bytes,
    })
}
