//! Which home a book lives in: the one place of the runtime that names any.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{BackupError, CreateError, CreateOptions, Embedded, OpenError, OpenOptions},
    holding::Holding,
};
use deedbook_memory::{MemoryHome, MemoryOptions};

use crate::{
    book::Deedbook,
    clock::Clock,
    error::{Error, ErrorKind},
};

pub use deedbook_journal::embedded::{Backup, Progress, Stage};

/// A home that is open.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Checkpointer>,
    pub(crate) file: Option<File>,
}

/// A home that is a file.
#[derive(Clone)]
pub(crate) struct File(Arc<Embedded>);

impl File {
    pub(crate) async fn backup(
        &self,
        to: &Path,
        watch: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Backup, Error> {
        let made = self.0.backup(to, watch).await;
        made.map_err(|error| match error {
            BackupError::Journal(error) => error.into(),
            other => Error::new(ErrorKind::Refused, other.to_string()),
        })
    }
}

/// The journal of a book, for whoever lets others reach it: what they say to a thread is taken up
/// at once.
impl From<&Deedbook> for Holding {
    fn from(book: &Deedbook) -> Self {
        let holding = match &book.file {
            Some(File(file)) => Self::of_file(Arc::clone(file)),
            None => Self::of(Arc::clone(book.checkpointer())),
        };
        // A book that is gone takes nothing up, and is not kept for it.
        let worker = Arc::downgrade(&book.worker);
        holding.run_by(move |thread| {
            if let Some(worker) = worker.upgrade() {
                worker.notice(thread);
            }
        })
    }
}

/// A home to be opened.
#[derive(Debug)]
pub(crate) enum Home {
    Open(PathBuf),
    Create(PathBuf),
    OpenOrCreate(PathBuf),
    Memory,
    Given(Arc<dyn Checkpointer>),
}

impl Home {
    pub(crate) async fn open(self, clock: &dyn Clock, wait: Duration) -> Result<Opened, Error> {
        let mut options = OpenOptions::new().wait(wait);
        if let Some(source) = clock.source() {
            options = options.time(source);
        }
        match self {
            Self::Given(store) => Ok(Opened { store, file: None }),
            Self::Memory => {
                let memory = MemoryOptions::new();
                let memory = match clock.source() {
                    Some(source) => memory.time(source),
                    None => memory,
                };
                Ok(Opened { store: Arc::new(MemoryHome::new(memory)), file: None })
            }
            Self::Open(path) => blocking(move || Ok(Embedded::open(path, options)?)).await,
            Self::Create(path) => blocking(move || create(path, options)).await,
            Self::OpenOrCreate(path) => blocking(move || open_or_create(path, options)).await,
        }
    }
}

fn create(path: PathBuf, options: OpenOptions) -> Result<Embedded, Error> {
    Ok(Embedded::create(path, CreateOptions::new().open(options))?)
}

fn open_or_create(path: PathBuf, options: OpenOptions) -> Result<Embedded, Error> {
    match Embedded::open(&path, options.clone()) {
        Err(OpenError::NotFound { .. }) => {}
        opened => return Ok(opened?),
    }
    match Embedded::create(&path, CreateOptions::new().open(options.clone())) {
        // Somebody else was faster.
        Err(CreateError::AlreadyExists { .. }) => Ok(Embedded::open(path, options)?),
        created => Ok(created?),
    }
}

/// Opening takes as long as the disk takes: not on a worker of the async runtime.
async fn blocking(
    open: impl FnOnce() -> Result<Embedded, Error> + Send + 'static,
) -> Result<Opened, Error> {
    match tokio::task::spawn_blocking(open).await {
        Ok(home) => {
            let home = Arc::new(home?);
            Ok(Opened { file: Some(File(Arc::clone(&home))), store: home })
        }
        Err(error) => Err(Error::new(ErrorKind::Open, error.to_string())),
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Self::new(ErrorKind::Open, error.to_string())
    }
}

impl From<CreateError> for Error {
    fn from(error: CreateError) -> Self {
        Self::new(ErrorKind::Open, error.to_string())
    }
}
