//! Giving back the space that a journal does not need: everything is copied into a new file, which
//! takes the place of the old one when it is verified.
//!
//! redb could move pages within the file. A crash in the middle of that leaves a file that has to
//! be repaired by reading all of it, and what was erased may still stand in it; a new file has
//! neither, and one rename decides.

use std::{io, path::Path, sync::Arc};

use super::{
    Embedded,
    aside::{self, Aside},
    backup::fill,
    error::{BackupError, OpenError},
    open,
    options::OpenOptions,
    progress::Progress,
};
use crate::{checkpointer::StoreError, id::LogIndex, record::RecordHash};

/// What compacting came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Threads, ended ones included.
    pub threads: u64,
    /// Records of all threads: as many as before.
    pub records: u64,
    /// The last place of the log and the hash of the record there: as before.
    pub head: Option<(LogIndex, RecordHash)>,
    /// The length of the file before, in bytes.
    pub bytes_before: u64,
    /// The length of the file now.
    pub bytes_after: u64,
}

/// Why a journal was not compacted. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// It could not be opened; a journal that somebody has open is not compacted.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// The journal was not closed by whoever had it before, and could not be brought in order.
    #[error("{0}")]
    Journal(#[from] StoreError),
    /// The new file could not be made.
    #[error("{0}")]
    Copy(#[from] BackupError),
}

impl Embedded {
    /// Writes a journal that nobody has open anew, without the space that it does not need. Nothing
    /// in it changes. The new file is made aside, verified to its last record, and takes the old
    /// one's place at one stroke, so that at any moment, whatever happens, one of the two is there
    /// whole. One that was not closed is recovered and closed first.
    ///
    /// It takes as much disk again as the journal will have, for as long as it lasts, and blocks
    /// the calling thread. `watch` is told how far it has come.
    ///
    /// # Errors
    /// See [`CompactError`].
    ///
    /// ```
    /// use deedbook_journal::{
    ///     checkpointer::Checkpointer,
    ///     embedded::{CreateOptions, Embedded, OpenOptions},
    /// };
    /// # let folder = std::env::temp_dir().join(format!("deedbook-compact-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let path = folder.join("book.redb");
    /// Embedded::create(&path, CreateOptions::new())?.close().await?;
    /// let done = Embedded::compact(&path, &OpenOptions::new(), |_| {})?;
    /// assert_eq!(done.records, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compact(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        mut watch: impl FnMut(Progress) + Send,
    ) -> Result<Compacted, CompactError> {
        let path = path.as_ref();
        let mut core = open::open(path, options)?;
        while !core.found.clean {
            // The lock goes with it: somebody else may come in between, and it is looked at again.
            drop(core);
            Self::open(path, options.clone())?.close_now()?;
            core = open::open(path, options)?;
        }
        let disk = Arc::clone(&options.disk);
        let io = |what, source: io::Error| BackupError::Io { path: path.into(), what, source };
        let before = match &*core.opened() {
            Some(opened) => opened.gate.file_len().map_err(|e| io("look at its length", e))?,
            None => 0,
        };
        let failed = |(what, source)| io(what, source);
        // What one that was killed has left.
        aside::tidy(&*disk, path, None);
        let aside = Aside::make(&disk, path).map_err(failed)?;
        // Nobody writes to a journal that is locked, so that the log has nothing.
        let mut settle = || Ok(());
        let mut watch = |progress| {
            watch(progress);
            true
        };
        let made = fill(&core, path, aside.file(), &mut settle, &mut watch)?;
        aside.replace().map_err(failed)?;
        Ok(Compacted {
            threads: made.threads,
            records: made.records,
            head: made.head,
            bytes_before: before,
            bytes_after: made.file_bytes,
        })
    }
}
