//! Where a world's durable part is: in this process, or in a folder that outlives it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use deedbook::{Checkpointer, TimeSource, ValueLimits, checkpointer::StoreIdentity};
use deedbook_journal::{
    embedded::{CreateOptions, Embedded, OpenOptions},
    value::{decode, encode},
};
use deedbook_memory::{MemoryHome, MemoryOptions, MemorySnapshot};

use crate::world::Kept;

/// Equal in all worlds, so that operations have the same keys in all of them.
const IDENTITY: StoreIdentity =
    StoreIdentity { log_id: [1; 16], namespace: [2; 16], secret: [3; 32] };

/// A process that another test of this program is starting has, for a moment, every file that is
/// open here, and with it the lock.
const LOCKED_MAX: Duration = Duration::from_secs(10);

/// A place.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A journal in memory.
    Memory(Arc<Mutex<Memory>>),
    /// A journal on disk, in a folder with the rest of the world.
    Folder(PathBuf),
}

/// What is durable in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    home: Option<Arc<MemoryHome>>,
    left: Option<MemorySnapshot>,
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// What is kept here from earlier runs.
    #[expect(clippy::expect_used, reason = "a test's own state is written whole")]
    pub(crate) fn kept(&self) -> Kept {
        let Self::Folder(folder) = self else { return Kept::default() };
        match fs::read(world_of(folder)) {
            Ok(bytes) => decode(&bytes, &ValueLimits::new()).expect("the world can be read"),
            Err(_) => Kept::default(),
        }
    }

    /// Keeps this for later runs. A killed process leaves the old state or the new one.
    #[expect(clippy::expect_used, reason = "a test that cannot keep its state is over")]
    pub(crate) fn keep(&self, kept: &Kept) {
        let Self::Folder(folder) = self else { return };
        let bytes = encode(kept, &ValueLimits::new()).expect("the world can be encoded");
        let aside = folder.join("world.new");
        fs::write(&aside, bytes).expect("the world can be written");
        fs::rename(&aside, world_of(folder)).expect("the world can be kept");
    }

    /// Whether an earlier run has left a journal here.
    pub(crate) fn has_begun(&self) -> bool {
        match self {
            Self::Memory(memory) => lock(memory).left.is_some(),
            Self::Folder(folder) => folder.join("again").exists(),
        }
    }

    /// Opens the journal, or makes it.
    pub(crate) fn open(&self, time: Option<TimeSource>) -> Result<Arc<dyn Checkpointer>, String> {
        match self {
            Self::Memory(memory) => {
                let mut memory = lock(memory);
                let home = match memory.left.clone() {
                    Some(left) => MemoryHome::from_snapshot(left, time),
                    None => {
                        let options = MemoryOptions::new().identity(IDENTITY);
                        MemoryHome::new(match time {
                            Some(time) => options.time(time),
                            None => options,
                        })
                    }
                };
                let home = Arc::new(home);
                memory.home = Some(Arc::clone(&home));
                Ok(home)
            }
            Self::Folder(folder) => {
                let open = OpenOptions::new().wait(LOCKED_MAX);
                let open = match time {
                    Some(time) => open.time(time),
                    None => open,
                };
                let path = folder.join("journal.redb");
                let home = if path.exists() {
                    Embedded::open(path, open).map_err(|error| error.to_string())?
                } else {
                    let StoreIdentity { log_id, namespace, secret } = IDENTITY;
                    let options = CreateOptions::new().open(open).log_id(log_id);
                    let options = options.namespace(namespace).secret(secret);
                    Embedded::create(path, options).map_err(|error| error.to_string())?
                };
                Ok(Arc::new(home))
            }
        }
    }

    /// A run has ended; the home it had open is let go of.
    pub(crate) fn end(&self) {
        match self {
            Self::Memory(memory) => {
                let mut memory = lock(memory);
                if let Some(home) = memory.home.take() {
                    memory.left = Some(home.snapshot());
                }
            }
            Self::Folder(folder) => drop(fs::write(folder.join("again"), "")),
        }
    }
}

fn lock(memory: &Mutex<Memory>) -> std::sync::MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

fn world_of(folder: &Path) -> PathBuf {
    folder.join("world")
}
