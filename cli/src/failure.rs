//! How a command ends that did not do as asked.

use std::io;

use deedbook_journal::{checkpointer::StoreError, operator::OperatorError, value::ValueError};

/// The exit codes; `docs/reference/cli.md` lists them.
pub(crate) mod code {
    /// As asked.
    pub(crate) const OK: u8 = 0;
    /// Not as asked.
    pub(crate) const FAILURE: u8 = 1;
    /// The command line cannot be understood.
    pub(crate) const USAGE: u8 = 2;
    /// What was verified does not hold.
    pub(crate) const NOT_VERIFIED: u8 = 3;
    /// There are open doubts.
    pub(crate) const DOUBTS: u8 = 4;
    /// Somebody else has the journal, or holds the thread.
    pub(crate) const LOCKED: u8 = 5;
    /// A call is recorded with other arguments.
    pub(crate) const CONFLICT: u8 = 6;
}

/// Why a command did not do as asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Whoever read the output has gone: nothing more to say, and nobody to say it to.
    ReaderGone,
    /// What to say, and the exit code.
    Said {
        /// The exit code.
        code: u8,
        /// Lower-case, without a full stop; parts from a journal made safe.
        message: String,
    },
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::of(code::FAILURE, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::of(code::USAGE, message)
    }

    pub(crate) fn of(code: u8, message: impl Into<String>) -> Self {
        Self::Said { code, message: message.into() }
    }

    /// Says in front what it is about.
    pub(crate) fn about(self, what: &str) -> Self {
        match self {
            Self::ReaderGone => self,
            Self::Said { code, message } => Self::of(code, format!("{what}: {message}")),
        }
    }

    /// Says in front what was done all the same, for whoever would do it again.
    pub(crate) fn after(self, done: &str) -> Self {
        match self {
            Self::ReaderGone => self,
            Self::Said { code, message } => Self::of(code, format!("{done}; {message}")),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::new(format!("cannot write the output: {error}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::from(io::Error::from(error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::Held { .. } => code::LOCKED,
            _ => code::FAILURE,
        };
        Self::of(code, error.to_string())
    }
}

impl From<OperatorError> for Failure {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Store(error) => error.into(),
            other => Self::new(other.to_string()),
        }
    }
}

impl From<ValueError> for Failure {
    fn from(error: ValueError) -> Self {
        Self::new(error.to_string())
    }
}

/// What a command comes to: the exit code, or why not.
pub(crate) type Outcome = Result<u8, Failure>;
