//! Why a journal cannot be reached through this process.

use std::{io, path::PathBuf};

use deedbook_journal::embedded::Holder;

/// Why there is no socket. Nothing is left of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The home is no file, so it says nothing of where a socket should be.
    #[error("this home lives in no file of its own; name the socket, with `serve_at`")]
    NoFile,
    /// It is served already.
    #[error("{}: somebody listens there already; stop that, or serve it once", path.display())]
    AlreadyServed {
        /// The socket.
        path: PathBuf,
    },
    /// Something else has the socket's name: no socket, or one of another user.
    #[error("{}: is no socket of this user; move it away", path.display())]
    InTheWay {
        /// What is there.
        path: PathBuf,
    },
    /// Another process has the journal.
    #[error("{}: in use by {holder}, which alone can let others reach it", path.display())]
    NotHolder {
        /// The journal.
        path: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// The system refused.
    #[error("{}: cannot make a socket: {source}", path.display())]
    Io {
        /// The socket, or the journal.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The server cannot run.
    #[error("cannot start to serve the journal: {0}")]
    Start(io::Error),
}
