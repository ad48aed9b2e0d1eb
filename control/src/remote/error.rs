//! Why a journal cannot be reached.

use std::{io, path::PathBuf, time::Duration};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The journal is not there, or cannot be looked at.
    #[error("{}: {source}", path.display())]
    NoJournal {
        /// The journal.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody listens at any place where the journal's socket could be.
    #[error("nobody lets others reach this journal")]
    NotServed,
    /// What has the socket's name is none, or is another user's.
    #[error("{}: is no socket of this user; it is not used", path.display())]
    NotSafe {
        /// What is there.
        path: PathBuf,
    },
    /// Whoever listens holds another file than the one that has the journal's name now.
    #[error(
        "{}: whoever listens here (process {pid}) holds a file that had the journal's name before; \
         stop it", path.display()
    )]
    OtherFile {
        /// The socket.
        path: PathBuf,
        /// Who listens.
        pid: u32,
    },
    /// Whoever listens takes no more clients for now.
    #[error("{said}")]
    Busy {
        /// Its words.
        said: String,
    },
    /// Whoever listens does not take this client.
    #[error("{said}")]
    Refused {
        /// Its words.
        said: String,
    },
    /// Whoever listens went away before it answered.
    #[error("{}: whoever listened there has gone", path.display())]
    Gone {
        /// The socket.
        path: PathBuf,
    },
    /// Whoever listens does not answer.
    #[error("{}: no answer within {waited:?}", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// How long was waited for it.
        waited: Duration,
    },
    /// The system refused.
    #[error("{}: cannot connect: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ConnectError {
    /// Whether it may be otherwise a moment later: nobody listens yet, or somebody has just left.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NotServed | Self::Busy { .. } | Self::Gone { .. })
    }
}
