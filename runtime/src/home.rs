//! Which home a book lives in: the one place of the runtime that names any.

use std::{path::PathBuf, sync::Arc};

use deedbook_journal::checkpointer::Checkpointer;

use crate::{clock::Clock, error::Error};

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
    pub(crate) fn open(self, clock: &dyn Clock) -> Result<Arc<dyn Checkpointer>, Error> {
        match self {
            Self::Given(home) => Ok(home),
            Self::Memory => {
                let options = deedbook_memory::MemoryOptions::new().time(clock.source());
                Ok(Arc::new(deedbook_memory::MemoryHome::new(options)))
            }
            Self::Open(_) | Self::Create(_) | Self::OpenOrCreate(_) => {
                Err(Error::new(crate::error::ErrorKind::Open, "not yet"))
            }
        }
    }
}
