//! What a process that holds a journal gives to whoever lets others reach it.

use std::{fmt, sync::Arc};

use crate::{checkpointer::Checkpointer, embedded::Embedded, id::ThreadId};

type Notice = Arc<dyn Fn(&ThreadId) + Send + Sync>;

/// A journal in the hands of this process: its home, the file that it lives in, and who runs its
/// threads.
///
/// A book gives one (`Holding::from(&book)`); a program without one makes it of its home.
#[derive(Clone)]
pub struct Holding {
    home: Arc<dyn Checkpointer>,
    file: Option<Arc<Embedded>>,
    notice: Option<Notice>,
}

impl Holding {
    /// A home of any kind.
    #[must_use]
    pub fn of(home: Arc<dyn Checkpointer>) -> Self {
        Self { home, file: None, notice: None }
    }

    /// A home that is a file: what only a file can do (a backup) can be done through it.
    #[must_use]
    pub fn of_file(file: Arc<Embedded>) -> Self {
        Self { home: Arc::clone(&file) as _, file: Some(file), notice: None }
    }

    /// Says that this process runs threads, and what is to be called when somebody else has done
    /// something to one. It must not block.
    #[must_use]
    pub fn run_by(mut self, notice: impl Fn(&ThreadId) + Send + Sync + 'static) -> Self {
        self.notice = Some(Arc::new(notice));
        self
    }

    /// The home.
    #[must_use]
    pub fn home(&self) -> &Arc<dyn Checkpointer> {
        &self.home
    }

    /// The file, if the home is one.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<Embedded>> {
        self.file.as_ref()
    }

    /// Whether this process runs threads.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.notice.is_some()
    }

    /// Somebody else has done something to this thread: whoever runs it takes it up.
    pub fn noticed(&self, thread: &ThreadId) {
        if let Some(notice) = &self.notice {
            notice(thread);
        }
    }
}

impl From<Arc<Embedded>> for Holding {
    fn from(file: Arc<Embedded>) -> Self {
        Self::of_file(file)
    }
}

impl From<Arc<dyn Checkpointer>> for Holding {
    fn from(home: Arc<dyn Checkpointer>) -> Self {
        Self::of(home)
    }
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holding")
            .field("home", &self.home)
            .field("runs", &self.runs())
            .finish_non_exhaustive()
    }
}
