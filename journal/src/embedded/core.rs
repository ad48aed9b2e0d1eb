//! What the line, the keeper, the readers and the handle share.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};

use redb::{Database, ReadTransaction, ReadableDatabase};
use tokio::sync::{Notify, Semaphore};

use super::{
    anchor::Anchor,
    backend::Gate,
    clock::StoreClock,
    copy::Changes,
    drain::Plan,
    log::{Segment, Segments, Tail},
    planted::{Broken, planted},
    state::{State, Thread},
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard},
    tables::{self, Settled, THREADS},
};
use crate::{
    admit::refused,
    checkpointer::{StoreError, StoreIdentity},
    id::ThreadId,
};

/// The open file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) db: Database,
    pub(super) gate: Arc<Gate>,
}

/// Shared by all threads of a home.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) path: PathBuf,
    pub(super) identity: StoreIdentity,
    pub(super) clock: StoreClock,
    /// `None` once it is closed.
    pub(super) opened: RwLock<Option<Opened>>,
    pub(super) state: Mutex<State>,
    /// Why nothing works any more.
    pub(super) over: OnceLock<StoreError>,
    /// What the tables said when the journal was opened.
    pub(super) found: Settled,
    /// The newest generation of the log when the journal was opened.
    pub(super) newest: u64,
    /// The last frame that was found then: for a fault that is planted.
    pub(super) tail: Option<Tail>,
    pub(super) recovery: Option<Duration>,
    pub(super) segments: Segments,
    /// Where a file of the log ends, in bytes.
    pub(super) log_bytes: u64,
    /// Told after every drain.
    pub(super) drained: Notify,
    /// What remembers how far the journal had come.
    pub(super) anchor: Mutex<Anchor>,
    /// Whether nothing may be written.
    pub(super) read_only: bool,
    /// What drains change while the tables are copied.
    pub(super) copying: Mutex<Option<Changes>>,
    /// Whoever examines it takes one.
    pub(super) examining: Arc<Semaphore>,
}

/// What went wrong in the storage library.
#[derive(Debug)]
pub(super) enum Fault {
    /// The system refused, so that nothing more is known about the file.
    Io(String),
    /// The file is not as it should be.
    Damage(String),
}

impl Fault {
    pub(super) fn into_why(self) -> String {
        match self {
            Self::Io(why) | Self::Damage(why) => why,
        }
    }

    pub(super) fn why(&self) -> &str {
        match self {
            Self::Io(why) | Self::Damage(why) => why,
        }
    }
}

/// Runs code of the storage library: its panics, which damage can cause, end here.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(match error {
            redb::Error::Corrupted(why) => Fault::Damage(why),
            // Damage can also show itself as a place beyond the end of the file.
            redb::Error::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Fault::Damage(format!("a page lies beyond the end of the file: {e}"))
            }
            redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TableDoesNotExist(_)
            | redb::Error::TypeDefinitionChanged { .. } => Fault::Damage(error.to_string()),
            other => Fault::Io(other.to_string()),
        }),
        Err(panic) => Err(Fault::Damage(panic_text(&*panic))),
    }
}

/// Carries out what the storage library did when it opened the file.
fn released(gate: &Gate) -> Result<(), Fault> {
    gate.release().map_err(|error| Fault::Io(error.to_string()))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the storage library panicked: {}", text.unwrap_or("without a word"))
}

impl Core {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn opened(&self) -> RwLockReadGuard<'_, Option<Opened>> {
        self.opened.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the open file away from everybody.
    pub(super) fn take_opened(&self) -> Option<Opened> {
        self.opened.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether calls are still answered.
    pub(super) fn alive(&self) -> Result<(), StoreError> {
        match self.over.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Whether what changes something is taken.
    pub(super) fn writable(&self) -> Result<(), StoreError> {
        if self.read_only {
            let path = self.path.display();
            return Err(refused(format!("{path} was opened to be read only; open it for writing")));
        }
        self.alive()
    }

    /// Names the journal in front of what went wrong with it.
    fn about(&self, why: &str) -> Arc<str> {
        format!("{}: {why}", self.path.display()).into()
    }

    /// Ends it all. The first reason stays.
    pub(super) fn end(&self, why: &str) -> StoreError {
        let failed = StoreError::Failed { why: self.about(why) };
        self.over.get_or_init(|| failed).clone()
    }

    /// Ends it all behind a write that may have happened.
    pub(super) fn end_unknown(&self, why: &str) -> StoreError {
        let failed = self.end(why);
        if planted(Broken::CallItFailed) {
            return failed;
        }
        StoreError::Unknown { why: self.about(why) }
    }

    /// Has the anchor say how far the journal has come: all that memory knows of is durable.
    pub(super) fn cast_anchor(&self) {
        let (upto, head) = {
            let state = self.state();
            (state.next, state.head)
        };
        self.anchor.lock().unwrap_or_else(PoisonError::into_inner).say(upto, head);
    }

    /// What drains change while the tables are copied.
    pub(super) fn copying(&self) -> MutexGuard<'_, Option<Changes>> {
        self.copying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the log may grow: what is not drained is what opening after a crash reads again.
    pub(super) fn has_room(&self) -> bool {
        (self.state().unsettled.1 as u64) < self.log_bytes.saturating_mul(2)
    }

    /// Whether the file of the log needs to be filled, or the next one to be made.
    pub(super) fn log_runs_short(&self, state: &State) -> bool {
        let short = |segment: &Segment, at: u64| {
            segment.is_short(at, self.log_bytes)
                || (at >= self.log_bytes / 2 && self.segments.may_make_ready())
        };
        state.segment.as_ref().is_some_and(|(segment, at)| short(segment, *at))
    }

    /// Makes the tables durable as they were found. Where the sync of their last commit failed the
    /// system shows what the disk does not have, and a file of the log that they say to have
    /// settled is still needed; the storage library writes its header again when it opens a file
    /// that was not closed.
    pub(super) fn secure_tables(&self) -> Result<(), StoreError> {
        if planted(Broken::TrustFoundTables) {
            return Ok(());
        }
        let opened = self.opened();
        let opened = opened.as_ref().ok_or(StoreError::Closed)?;
        released(&opened.gate).map_err(|fault| self.end(fault.why()))
    }

    /// Writes a plan into the tables: one transaction, always in two phases. A failure before the
    /// commit is `Failed`, one in it `Unknown`; both end the handle.
    pub(super) fn transact(&self, plan: Plan, clean: bool) -> Result<(), StoreError> {
        self.writable()?;
        let opened = self.opened();
        let opened = opened.as_ref().ok_or(StoreError::Closed)?;
        let generation = plan.generation();
        let prepared = released(&opened.gate).and_then(|()| {
            guarded(|| {
                let mut transaction = opened.db.begin_write()?;
                let safe = !planted(Broken::OnePhaseCommit);
                transaction.set_two_phase_commit(safe);
                transaction.set_quick_repair(safe);
                let drained = plan.write(&transaction, clean)?;
                Ok((transaction, drained))
            })
        });
        let (transaction, drained) = prepared.map_err(|fault| self.end(fault.why()))?;
        {
            // Whoever copies the tables sees a drain and hears of it, or neither.
            let mut copying = self.copying();
            let committed = guarded(|| Ok(transaction.commit()?));
            committed.map_err(|fault| self.end_unknown(fault.why()))?;
            if let Some(changes) = &mut *copying {
                changes.note(&drained);
            }
        }
        let freed = self.state().settle(&drained);
        // Only now, with nobody kept waiting for the state.
        drop((drained, freed));
        self.segments.release(generation);
        self.drained.notify_waiters();
        Ok(())
    }

    /// Runs a read of the tables for `thread`.
    pub(super) fn reading<T>(
        &self,
        thread: &ThreadId,
        run: impl FnOnce(&ReadTransaction) -> Result<Result<T, StoreError>, redb::Error>,
    ) -> Result<T, StoreError> {
        self.alive()?;
        let opened = self.opened();
        let Some(opened) = &*opened else {
            return Err(StoreError::Closed);
        };
        let read = guarded(|| {
            let transaction = opened.db.begin_read()?;
            run(&transaction)
        });
        match read {
            Ok(result) => result,
            Err(Fault::Damage(why)) => {
                Err(StoreError::Damaged { thread: thread.clone(), n: 0, why: why.into() })
            }
            Err(Fault::Io(why)) => Err(self.end(&why)),
        }
    }

    /// A thread as its table has it.
    pub(super) fn stored_thread(&self, id: &ThreadId) -> Result<Thread, StoreError> {
        self.reading(id, |transaction| {
            let threads = transaction.open_table(THREADS)?;
            let key = id.as_str().as_bytes();
            let damaged =
                |why: &str| StoreError::Damaged { thread: id.clone(), n: 0, why: why.into() };
            Ok(match threads.get(key)? {
                Some(stored) => tables::read_thread(key, stored.value()).map_err(&damaged),
                None => Err(damaged("its row is missing")),
            })
        })
    }

    /// Has the thread in memory, if there is one. Only who has the right to write calls this.
    pub(super) fn load(&self, id: &ThreadId) -> Result<bool, StoreError> {
        {
            let state = self.state();
            if state.threads.contains_key(id) {
                return Ok(true);
            }
            if let Some(damaged) = state.damage(id) {
                return Err(damaged);
            }
            if !state.is_away(id) {
                return Ok(false);
            }
        }
        let thread = self.stored_thread(id)?;
        self.state().admit_stored(id.clone(), thread, false);
        Ok(true)
    }
}
