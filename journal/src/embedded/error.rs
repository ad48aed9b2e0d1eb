//! Why a journal could not be made or opened.

use std::{io, path::PathBuf, time::Duration};

use crate::checkpointer::StoreError;

/// Why a journal could not be made. Nothing is left at its path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Something has this name already; it was not touched.
    #[error("{}: there is something with this name already; open it, or choose another", path.display())]
    AlreadyExists {
        /// The path.
        path: PathBuf,
    },
    /// A file has a name that the journal's log needs. If a journal of this name was removed and
    /// had not been closed, it holds what was written there last.
    #[error(
        "{}: {} is in the way of its log, and may hold what was written last to a journal that \
         was not closed; put that journal back beside it, or move it away",
        path.display(), log.display()
    )]
    LogInTheWay {
        /// The path.
        path: PathBuf,
        /// The file.
        log: PathBuf,
    },
    /// The system refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The storage library failed.
    #[error("{}: cannot be made: {why}", path.display())]
    Storage {
        /// The path.
        path: PathBuf,
        /// What it said.
        why: String,
    },
    /// The journal is there and complete, and could not be opened.
    #[error("{source}; it was made all the same, so open it")]
    Open {
        /// The path.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
}

/// Why a journal could not be opened. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at the path. Opening never creates.
    #[error("{}: there is no journal; create one, or check the path", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// Another process, or another handle of this one, has it open.
    #[error("{}: in use by {holder}{}; let it end, or work through it", path.display(), waited_text(waited))]
    Locked {
        /// The path.
        path: PathBuf,
        /// Who has it, as well as the system tells.
        holder: Holder,
        /// How long was waited for it.
        waited: Duration,
    },
    /// The file has no bytes.
    #[error(
        "{}: is empty, so it is not a journal, or its content was lost; restore it from a \
         backup, or remove it and create a new one", path.display()
    )]
    Empty {
        /// The path.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{}: is not a journal ({why}); check the path", path.display())]
    NotAJournal {
        /// The path.
        path: PathBuf,
        /// How that was seen.
        why: String,
    },
    /// The file was written by a newer version.
    #[error(
        "{}: has format version {found} and this build reads up to {known}; use a newer build",
        path.display()
    )]
    Newer {
        /// The path.
        path: PathBuf,
        /// Its version.
        found: u8,
        /// The newest one known here.
        known: u8,
    },
    /// The file was written before formats were kept.
    #[error(
        "{}: has format version {found}, which only builds before the first release wrote; this \
         build reads {known}. Create a new journal, or read it with the build that made it",
        path.display()
    )]
    Older {
        /// The path.
        path: PathBuf,
        /// Its version.
        found: u8,
        /// The oldest one known here.
        known: u8,
    },
    /// The file is shorter than it says it is.
    #[error(
        "{}: is truncated: it has {have} bytes and must have {want}; restore it from a backup",
        path.display()
    )]
    Truncated {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        have: u64,
        /// The length it must have.
        want: u64,
    },
    /// What opening reads is damaged.
    #[error("{}: is damaged: {why}; restore it from a backup", path.display())]
    Damaged {
        /// The path.
        path: PathBuf,
        /// What does not match.
        why: String,
    },
    /// The write-ahead log of a journal that was not closed is not beside it, or is not its own.
    #[error(
        "{}: was not closed, and its log is missing or is not its own: what was written last \
         stands there. Put the files {}… back beside it, or restore it from a backup",
        path.display(), log.display()
    )]
    LogMissing {
        /// The path.
        path: PathBuf,
        /// The first of the names that the log may have, without its number.
        log: PathBuf,
    },
    /// The journal has less than its anchor remembers: an older copy was put back, or its log was
    /// cut.
    #[error(
        "{}: is older than it was: it has {} and had {} when {} was written. Put the newer files \
         back; or, to go on from this copy on purpose and give up what came after it, \
         `deedbook doctor --accept-rollback`",
        path.display(), Amount(*records, *anchored), Amount(*anchored, *records), anchor.display()
    )]
    RolledBack {
        /// The path.
        path: PathBuf,
        /// The anchor.
        anchor: PathBuf,
        /// How many records it has.
        records: u64,
        /// How many it had.
        anchored: u64,
    },
    /// A symbolic link, a folder or a device.
    #[error("{}: is refused: {source}; name the file itself", path.display())]
    Refused {
        /// The path.
        path: PathBuf,
        /// What it is.
        source: io::Error,
    },
    /// The system refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why there is no backup. Nothing is left at its path, nor aside of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Something has this name already; it was not touched.
    #[error("{}: there is something with this name already; choose another", path.display())]
    AlreadyExists {
        /// The path.
        path: PathBuf,
    },
    /// The name belongs to another journal's files, or another file has a name that a journal of
    /// this name needs.
    #[error(
        "{}: the name belongs to a journal together with {}; choose another name",
        path.display(), other.display()
    )]
    InTheWay {
        /// The path.
        path: PathBuf,
        /// The file.
        other: PathBuf,
    },
    /// The system refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The copy could not be written.
    #[error("{}: cannot be written: {why}", path.display())]
    Storage {
        /// The path.
        path: PathBuf,
        /// What the storage library said.
        why: String,
    },
    /// The journal could not be read.
    #[error("{0}")]
    Journal(StoreError),
    /// What was written is not what it should be: most likely the journal is damaged.
    #[error(
        "{}: the copy does not hold: {why}; nothing was left of it. `deedbook doctor` tells \
         whether the journal itself is damaged", path.display()
    )]
    NotVerified {
        /// The path.
        path: PathBuf,
        /// What does not match.
        why: String,
    },
    /// This journal is being copied already.
    #[error("another backup of this journal is under way; wait for it")]
    Busy,
    /// More changed than could be copied, again and again.
    #[error("the journal changed faster than it could be copied; try again when less is going on")]
    Outpaced,
    /// Whoever wanted it does not want it any more.
    #[error("the backup was given up")]
    Stopped,
}

/// So many records, beside another number of them.
struct Amount(u64, u64);

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self(here, there) if here == there => write!(f, "{here} records and fewer messages"),
            Self(1, _) => f.write_str("1 record"),
            Self(here, _) => write!(f, "{here} records"),
        }
    }
}

/// Who has a journal open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its process id, if the system tells.
    pub pid: Option<u32>,
    /// The name of its program, if the system tells.
    pub program: Option<String>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.pid, &self.program) {
            (Some(pid), Some(program)) => write!(f, "{program} (process {pid})"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, _) => f.write_str("another process"),
        }
    }
}

fn waited_text(waited: &Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(" after waiting {waited:?}") }
}
