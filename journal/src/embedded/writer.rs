//! One round of writing: what has come is committed together, then what only needs the state
//! after it is answered.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    core::Core,
    entry::Entry,
    group::{Element, Group},
    log::Log,
    planted::{Broken, planted},
    state::Thread,
};
use crate::{
    checkpointer::{Claim, Lease, Message, Posted, StoreError},
    id::{Epoch, Position, StoreTime, ThreadId},
    limits::{EMBEDDED_GROUP_BYTES_MAX, EMBEDDED_GROUP_ELEMENTS_MAX},
};

type Result<T> = std::result::Result<T, StoreError>;
type Reply<T> = oneshot::Sender<T>;

/// What a round is asked for.
#[derive(Debug)]
pub(super) enum Ask {
    Append(Vec<Element>, Reply<Vec<Result<Position>>>),
    Post(ThreadId, Message, Reply<Result<Posted>>),
    Claim(Claim, Arc<str>, Duration, Reply<Result<Vec<Lease>>>),
    Renew(Vec<(ThreadId, Epoch)>, Duration, Reply<Vec<Option<StoreTime>>>),
}

impl Ask {
    /// The thread to which it writes; the first one of several.
    pub(super) fn writes_to(&self) -> Option<&ThreadId> {
        match self {
            Self::Append(elements, _) => elements.first().map(|element| &element.append.thread),
            Self::Post(to, ..) => Some(to),
            Self::Claim(..) | Self::Renew(..) => None,
        }
    }

    /// Whether it makes something durable.
    pub(super) fn writes(&self) -> bool {
        matches!(self, Self::Append(..) | Self::Post(..))
    }
}

/// A request, and its place in the queue until it is answered.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) ask: Ask,
    pub(super) _turn: OwnedSemaphorePermit,
}

/// An answer that waits for a commit.
enum Answer {
    Append(Reply<Vec<Result<Position>>>, Vec<Result<Position>>),
    Post(Reply<Result<Posted>>, Result<Posted>),
}

/// The right to write: whoever has it is the only one.
#[derive(Debug)]
pub(super) struct Writer {
    core: Arc<Core>,
    /// `None` until the first write after this open has begun a generation.
    pub(super) log: Option<Log>,
}

impl Writer {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, log: None }
    }

    /// One round over what `next` gives.
    pub(super) fn round(&mut self, mut next: impl FnMut() -> Option<Request>) {
        let core = Arc::clone(&self.core);
        let mut group = Group::new(&core);
        let (mut answers, mut later, mut turns) = (Vec::new(), Vec::new(), Vec::new());
        let mut elements = 0;
        while elements < EMBEDDED_GROUP_ELEMENTS_MAX && group.bytes < EMBEDDED_GROUP_BYTES_MAX {
            let Some(Request { ask, _turn }) = next() else {
                break;
            };
            turns.push(_turn);
            elements += 1;
            match ask {
                Ask::Append(all, reply) => {
                    elements += all.len();
                    let stage = |element| {
                        self.core.alive()?;
                        group.append(element)
                    };
                    let results = all.into_iter().map(stage).collect();
                    answers.push(Answer::Append(reply, results));
                }
                Ask::Post(to, message, reply) => {
                    let posted = self.core.alive().and_then(|()| group.post(&to, message));
                    answers.push(Answer::Post(reply, posted));
                }
                other => later.push(other),
            }
        }
        if planted(Broken::TellEarly) {
            answers.drain(..).for_each(|answer| answer.send(&Ok(())));
        }
        let committed = self.commit(group);
        if planted(Broken::LeaveOut) && committed.is_err() {
            std::mem::forget(answers.pop());
        }
        for answer in answers {
            // It wakes somebody: what their waker does is theirs, and the others are to be told.
            if catch_unwind(AssertUnwindSafe(|| answer.send(&committed))).is_err() {
                tracing::error!("a waker has panicked that was told of an append");
            }
        }
        for ask in later {
            self.after(ask);
        }
    }

    /// Makes a group durable, and only then known. Where it fails, the handle is dead.
    pub(super) fn commit(&mut self, group: Group<'_>) -> Result<()> {
        if group.entries.is_empty() {
            return Ok(());
        }
        self.core.alive()?;
        self.turn()?;
        let Some(log) = &mut self.log else {
            return Err(self.core.end("its log was not begun"));
        };
        let (first, entries) = (group.first, group.entries);
        let hash = log.append(first, entries.iter()).map_err(|error| {
            if planted(Broken::LiveOn) {
                return StoreError::Unknown { why: error.to_string().into() };
            }
            self.core.end_unknown(&format!("the log could not be written: {error}"))
        })?;
        let mut state = self.core.state();
        for entry in entries {
            if let Entry::Appended(appended) = &entry {
                self.core.clock.not_before(appended.time);
            }
            state.apply(entry);
        }
        state.frame = (log.generation(), hash);
        state.segment = Some((Arc::clone(log.segment()), log.at()));
        Ok(())
    }

    /// Goes on in the next file of the log if it is time to.
    fn turn(&mut self) -> Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let place = self.core.state().next;
        match log.turn(&self.core.segments, place, self.core.log_bytes) {
            Ok(None) => Ok(()),
            Ok(Some(hash)) => {
                self.core.state().frame = (log.generation(), hash);
                Ok(())
            }
            Err(error) => Err(self.core.end(&format!("the log could not be turned: {error}"))),
        }
    }

    /// What does not join a group.
    fn after(&mut self, ask: Ask) {
        // A caller that went away does not want its answer.
        match ask {
            Ask::Claim(which, by, ttl, reply) => drop(reply.send(self.claim(which, &by, ttl))),
            Ask::Renew(leases, ttl, reply) => drop(reply.send(self.renew(&leases, ttl))),
            Ask::Append(..) | Ask::Post(..) => {}
        }
    }

    fn claim(&self, which: Claim, by: &Arc<str>, ttl: Duration) -> Result<Vec<Lease>> {
        self.core.alive()?;
        let now = self.core.clock.now();
        let until = now.after(ttl);
        match which {
            Claim::Thread { id, create } => {
                let there = self.core.load(&id)?;
                let mut state = self.core.state();
                if let Some(hold) = state.threads.get(&id).and_then(|t| t.held(now)) {
                    let by = Arc::clone(&hold.by);
                    return Err(StoreError::Held { by });
                }
                let exists = state.threads.get(&id).is_some_and(|t| t.exists);
                match create {
                    None if !exists => return Err(StoreError::NoSuchThread),
                    Some(row) if !there => {
                        state.threads.insert(id.clone(), Thread::new(row));
                    }
                    // A thread that was claimed and never written is made anew.
                    Some(row) if !exists => {
                        if let Some(thread) = state.threads.get_mut(&id) {
                            thread.row = row;
                        }
                    }
                    _ => {}
                }
                let lease = state.take(&id, by, until);
                Ok(lease.into_iter().collect())
            }
            Claim::Due { workflows, max } => {
                let mut state = self.core.state();
                let due = state.due(&workflows, max, now);
                Ok(due.iter().filter_map(|id| state.take(id, by, until)).collect())
            }
        }
    }

    fn renew(&self, leases: &[(ThreadId, Epoch)], ttl: Duration) -> Vec<Option<StoreTime>> {
        let until = self.core.clock.now().after(ttl);
        let mut state = self.core.state();
        let mut renewed = Vec::with_capacity(leases.len());
        for (id, epoch) in leases {
            let thread = state.threads.get_mut(id).filter(|t| t.epoch == *epoch);
            let Some(hold) = thread.map(|t| &mut t.hold) else {
                renewed.push(None);
                continue;
            };
            let held = hold.is_some();
            match hold {
                Some(_) if ttl.is_zero() => *hold = None,
                Some(hold) => hold.until = until,
                None => {}
            }
            state.reindex(id);
            renewed.push(held.then_some(until));
        }
        renewed
    }
}

impl Answer {
    fn send(self, committed: &Result<()>) {
        match self {
            Self::Append(reply, results) => {
                let told = results.into_iter().map(|r| told(r, committed)).collect();
                drop(reply.send(told));
            }
            Self::Post(reply, posted) => drop(reply.send(told(posted, committed))),
        }
    }
}

/// What is told of something that was taken into a group: a refusal stands whatever became of
/// the group.
fn told<T>(staged: Result<T>, committed: &Result<()>) -> Result<T> {
    match (staged, committed) {
        (Ok(_), Err(error)) => Err(error.clone()),
        (staged, _) => staged,
    }
}
