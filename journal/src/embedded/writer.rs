//! The one thread that writes: it takes what has come, commits it together, and answers.

use std::{
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};

use redb::WriteTransaction;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    core::{Core, Fault, guarded},
    group::{Element, Group, Pending},
    reader,
    settle::{self, Outcome, Plan},
    state::{Durable, Thread},
    tables::{LOG, Settled},
};
use crate::{
    admit::refused,
    checkpointer::{Claim, Lease, Message, Posted, StoreError},
    id::{Epoch, Position, StoreTime, ThreadId},
    limits::{EMBEDDED_GROUP_BYTES_MAX, EMBEDDED_GROUP_ELEMENTS_MAX},
    record::Role,
};

type Result<T> = std::result::Result<T, StoreError>;
type Reply<T> = oneshot::Sender<T>;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Ask {
    Append(Vec<Element>, Reply<Vec<Result<Position>>>),
    Post(ThreadId, Message, Reply<Result<Posted>>),
    Erase(Erasure, Reply<Result<Position>>),
    Claim(Claim, Arc<str>, Duration, Reply<Result<Vec<Lease>>>),
    Renew(Vec<(ThreadId, Epoch)>, Duration, Reply<Vec<Option<StoreTime>>>),
    Close(Reply<Result<()>>),
}

/// A payload to delete, and the note about it.
#[derive(Debug)]
pub(super) struct Erasure {
    pub(super) n: Position,
    pub(super) role: Role,
    pub(super) note: Element,
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

/// The writer's own.
struct Writer {
    core: Arc<Core>,
    /// 0 until the first write after this open.
    generation: u64,
}

/// Runs until every handle is gone. Without a close before that, the file is as after a crash.
pub(super) fn run(core: Arc<Core>, requests: &Receiver<Request>) {
    let mut writer = Writer { core, generation: 0 };
    while let Ok(first) = requests.recv() {
        writer.round(first, requests);
    }
    let opened = writer.core.opened.write();
    let opened = opened.unwrap_or_else(std::sync::PoisonError::into_inner).take();
    // Without a close nothing says that the journal is clean; an error here changes nothing.
    let _ = guarded(|| {
        drop(opened);
        Ok(())
    });
}

impl Writer {
    /// One round: what writes first and is committed together, then what only needs the state
    /// after it.
    fn round(&mut self, first: Request, requests: &Receiver<Request>) {
        let core = Arc::clone(&self.core);
        let mut group = Group::new(&core);
        let (mut answers, mut later, mut turns) = (Vec::new(), Vec::new(), Vec::new());
        let mut elements = 0;
        let mut next = Some(first);
        while let Some(Request { ask, _turn }) = next {
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
                    let posted = self.core.alive().and_then(|()| group.post(&to, &message));
                    answers.push(Answer::Post(reply, posted));
                }
                other => later.push(other),
            }
            let full =
                elements >= EMBEDDED_GROUP_ELEMENTS_MAX || group.bytes >= EMBEDDED_GROUP_BYTES_MAX;
            next = if full { None } else { requests.try_recv().ok() };
        }
        let committed = self.commit(group, false);
        for answer in answers {
            answer.send(&committed);
        }
        for ask in later {
            self.after(ask);
        }
    }

    /// Makes a group durable. Where it fails, the handle is dead.
    fn commit(&mut self, group: Group<'_>, settle: bool) -> Result<()> {
        if group.entries.is_empty() {
            return Ok(());
        }
        self.core.alive()?;
        let plan = {
            let state = self.core.state();
            (settle || settle::is_due(&state)).then(|| Plan::of(&state))
        };
        let entries = group.entries;
        let outcome = self.transact(plan, false, |transaction| {
            let mut log = transaction.open_table(LOG)?;
            for entry in &entries {
                log.insert(entry.place.key(), &entry.stored[..])?;
            }
            Ok(())
        })?;
        let mut state = self.core.state();
        if let Some(listed) = outcome {
            state.settle(listed);
        }
        for Pending { place, stored, durable } in entries {
            if let Some(durable) = durable {
                if let Durable::Records(head) = &durable {
                    self.core.clock.not_before(head.time);
                }
                state.apply(place, stored.len(), durable);
            }
        }
        Ok(())
    }

    /// One transaction, always in two phases. A failure before the commit is `Failed`, one in it
    /// `Unknown`; both end the handle.
    fn transact(
        &mut self,
        plan: Option<Plan>,
        clean: bool,
        write: impl FnOnce(&WriteTransaction) -> std::result::Result<(), redb::Error>,
    ) -> Result<Option<Outcome>> {
        let core = Arc::clone(&self.core);
        let opened = core.opened();
        let opened = opened.as_ref().ok_or(StoreError::Closed)?;
        let first = self.generation == 0;
        let generation = core.found.generation + 1;
        let prepared = opened.gate.release().map_err(|e| Fault::Io(e.to_string()));
        let prepared = prepared.and_then(|()| {
            guarded(|| {
                let mut transaction = opened.db.begin_write()?;
                transaction.set_two_phase_commit(true);
                let mut outcome = None;
                match plan {
                    Some(plan) => outcome = Some(plan.write(&transaction, generation, clean)?),
                    None if first => {
                        let touched = Settled { clean: false, generation, ..core.found };
                        settle::write_state(&transaction, &touched)?;
                    }
                    None => {}
                }
                write(&transaction)?;
                Ok((transaction, outcome))
            })
        });
        let (transaction, outcome) = prepared.map_err(|fault| self.core.end(fault.why()))?;
        guarded(|| Ok(transaction.commit()?)).map_err(|fault| {
            self.core.end(fault.why());
            StoreError::Unknown { why: fault.why().into() }
        })?;
        self.generation = generation;
        Ok(outcome)
    }

    /// What does not join a group.
    fn after(&mut self, ask: Ask) {
        // A caller that went away does not want its answer.
        match ask {
            Ask::Claim(which, by, ttl, reply) => drop(reply.send(self.claim(which, &by, ttl))),
            Ask::Renew(leases, ttl, reply) => drop(reply.send(self.renew(&leases, ttl))),
            Ask::Erase(erasure, reply) => drop(reply.send(self.erase(erasure))),
            Ask::Close(reply) => drop(reply.send(self.close())),
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

    /// Rewrites one entry without the payload, and appends the note, in one commit. What is
    /// settled goes along, so that no consumed message keeps the content.
    fn erase(&mut self, erasure: Erasure) -> Result<Position> {
        self.core.alive()?;
        let Erasure { n, role, note } = erasure;
        let core = Arc::clone(&self.core);
        let id = note.append.thread.clone();
        let mut group = Group::new(&core);
        let next = group.append(note)?;
        let (place, mut head, mut records) = reader::entry_with(&core, &id, n)?;
        if !head.forget(n, role) {
            let role = role.as_str();
            return Err(refused(format!("record {n} has no payload {role} to erase")));
        }
        let at = usize::try_from(n - head.at).ok().and_then(|at| records.get_mut(at));
        if let Some(record) = at {
            record.payloads.retain(|p| p.role != role);
        }
        group.entries.push(Pending {
            place,
            stored: super::entry::records(place, &head, records.iter()),
            durable: None,
        });
        self.commit(group, true)?;
        Ok(next)
    }

    /// Settles, says that the journal is clean, and lets go of the file.
    fn close(&mut self) -> Result<()> {
        self.core.alive()?;
        if self.generation > 0 || !self.core.found.clean {
            let plan = Plan::of(&self.core.state());
            let outcome = self.transact(Some(plan), true, |_| Ok(()))?;
            if let Some(listed) = outcome {
                self.core.state().settle(listed);
            }
        }
        self.core.over.get_or_init(|| StoreError::Closed);
        let opened = self.core.opened.write();
        let opened = opened.unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(opened) = opened else {
            return Err(StoreError::Closed);
        };
        guarded(|| Ok(opened.db.close()?))
            .map_err(|fault| StoreError::Failed { why: fault.why().into() })
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
