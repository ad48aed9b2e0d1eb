//! Finding and opening the journal.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use deedbook_control::{ConnectError, Owner, Remote};
use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CreateError, CreateOptions, Embedded, OpenError, OpenOptions},
    value::text::shell_word,
};

use crate::{
    failure::{Failure, code},
    text::safe,
};

/// How long to wait for somebody who is just letting go of the journal.
pub(crate) const WAIT: Duration = Duration::from_millis(250);

/// What is wanted of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// To write to it.
    Write,
    /// To write to it, and to read it where it cannot be written to.
    WriteIfPossible,
}

/// A journal that is open, wherever that is.
pub(crate) enum Opened {
    /// In this process.
    Here(Embedded),
    /// In the process that holds it.
    There(Remote),
}

impl Opened {
    pub(crate) fn home(&self) -> &dyn Checkpointer {
        match self {
            Self::Here(home) => home,
            Self::There(home) => home,
        }
    }

    /// The process that holds it, if that is another one.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Here(_) => None,
            Self::There(home) => Some(home.owner()),
        }
    }
}

/// Opens the journal, or reaches it where another process holds it. Never makes one.
pub(crate) async fn open(journal: Option<&Path>, access: Access) -> Result<Opened, Failure> {
    let path = path(journal)?;
    let not = |error: OpenError| not_opened(path, &error, access);
    Ok(match here_or_there(path, not, |wait| here(path, access, wait)).await? {
        Found::Here(home) => Opened::Here(home),
        Found::There(home) => Opened::There(home),
    })
}

/// What was done with a journal here, or who else has it.
pub(crate) enum Found<T> {
    Here(T),
    There(Remote),
}

/// Does something with a journal that nobody has open, or reaches whoever has it. `here` is given
/// how long to wait for somebody who is just letting go of it; `not` says why it failed there.
pub(crate) async fn here_or_there<T>(
    path: &Path,
    not: impl Fn(OpenError) -> Failure,
    mut here: impl FnMut(Duration) -> Result<T, OpenError>,
) -> Result<Found<T>, Failure> {
    // Whoever holds it and lets others in need not be waited for.
    let mut why = match here(Duration::ZERO) {
        Err(OpenError::Locked { .. }) => match Remote::connect(path).await {
            Ok(home) => return Ok(Found::There(home)),
            Err(why) => why,
        },
        done => return done.map(Found::Here).map_err(not),
    };
    let error = match here(WAIT) {
        Err(error @ OpenError::Locked { .. }) => error,
        done => return done.map(Found::Here).map_err(not),
    };
    if why.may_pass() {
        match Remote::connect(path).await {
            Ok(home) => return Ok(Found::There(home)),
            Err(last) => why = last,
        }
    }
    Err(locked(&error, &why))
}

fn here(path: &Path, access: Access, wait: Duration) -> Result<Embedded, OpenError> {
    let options = OpenOptions::new().wait(wait);
    match Embedded::open(path, options.clone()) {
        Err(error) if access == Access::WriteIfPossible && is_forbidden(&error) => {
            Embedded::open(path, options.read_only(true))
        }
        opened => opened,
    }
}

fn not_opened(path: &Path, error: &OpenError, access: Access) -> Failure {
    let hint = access == Access::Write && is_forbidden(error);
    match failure(path, error) {
        Failure::Said { code, message } if hint => Failure::of(
            code,
            format!(
                "{message}; what only looks (`threads`, `show`, `export`, `verify`) works all \
                 the same"
            ),
        ),
        failure => failure,
    }
}

/// Why a journal that another process holds cannot be reached, and what to do.
pub(crate) fn locked(error: &OpenError, why: &ConnectError) -> Failure {
    let said = safe(&error.to_string());
    let more = match why {
        ConnectError::NotServed => {
            "a program lets the tool work beside it with `deedbook_control::serve`".to_owned()
        }
        other => safe(&other.to_string()),
    };
    Failure::of(code::LOCKED, format!("{said}; {more}"))
}

/// Why a command does not work while another process holds the journal.
pub(crate) fn alone(path: &Path, error: &OpenError, instead: &str) -> Failure {
    match failure(path, error) {
        Failure::Said { code: code::LOCKED, message } => {
            Failure::of(code::LOCKED, format!("{message}; {instead}"))
        }
        failure => failure,
    }
}

/// How the tool opens journals.
pub(crate) fn options() -> OpenOptions {
    OpenOptions::new().wait(WAIT)
}

/// The journal that is meant.
pub(crate) fn path(journal: Option<&Path>) -> Result<&Path, Failure> {
    let path = named(journal)?;
    if is_standard_output(path) {
        return Err(Failure::new(format!(
            "{}: standard output is this journal, and what is written would destroy it; send the \
             output elsewhere",
            safe(&path.to_string_lossy())
        )));
    }
    Ok(path)
}

/// Why a journal could not be opened, and what to do.
pub(crate) fn failure(path: &Path, error: &OpenError) -> Failure {
    let said = safe(&error.to_string());
    match error {
        OpenError::Locked { .. } => Failure::of(code::LOCKED, said),
        OpenError::NotFound { .. } => {
            let word = shell_word(path.as_os_str().as_bytes());
            let journal = word.map_or_else(String::new, |word| format!(" --journal {word}"));
            Failure::new(format!("{said}; `deedbook init{journal}` makes one"))
        }
        _ => Failure::new(said),
    }
}

/// Whether the system does not let the file be written to, or has no room for it.
fn is_forbidden(error: &OpenError) -> bool {
    use io::ErrorKind as Kind;
    let OpenError::Io { source, .. } = error else {
        return false;
    };
    matches!(
        source.kind(),
        Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge
    )
}

/// Makes a journal.
pub(crate) fn create(
    journal: Option<&Path>,
    namespace: Option<[u8; 16]>,
) -> Result<(PathBuf, Embedded), Failure> {
    let path = named(journal)?;
    let mut options = CreateOptions::new();
    if let Some(namespace) = namespace {
        options = options.namespace(namespace);
    }
    let made = Embedded::create(path, options).map_err(|error| {
        let said = safe(&error.to_string());
        match error {
            CreateError::Open { source: OpenError::Locked { .. }, .. } => {
                Failure::of(code::LOCKED, said)
            }
            _ => Failure::new(said),
        }
    })?;
    Ok((path.to_owned(), made))
}

/// Whether the shell was told to write into the journal (`export >> JOURNAL`). The lock does not
/// keep a shell's descriptor out.
fn is_standard_output(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let output = place(Path::new("/dev/stdout"));
    output.is_some() && output == place(path)
}

fn named(journal: Option<&Path>) -> Result<&Path, Failure> {
    match journal {
        Some(path) if !path.as_os_str().is_empty() => Ok(path),
        _ => Err(Failure::usage(
            "no journal is named; use `--journal FILE`, or set DEEDBOOK_JOURNAL",
        )),
    }
}
