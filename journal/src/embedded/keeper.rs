//! The one thread of the home that is not a reader: it drains the log, makes room in it, begins
//! and ends its generations, and marks it when it is idle. Nobody waits for it but those who
//! begin, erase, close, or write faster than it drains.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    core::{Core, guarded},
    create,
    drain::{self, Plan},
    entry::Entry,
    group::{Element, Group},
    line::Line,
    log::Log,
    planted::{Broken, planted},
    reader,
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
        receive,
    },
    writer::Writer,
};
use crate::{admit::refused, checkpointer::StoreError, id::Position, record::Role};

type Result<T> = std::result::Result<T, StoreError>;

/// After how long without a write the log says that everything in it is synced.
const IDLE: Duration = Duration::from_millis(100);

/// What the keeper is asked for.
#[derive(Debug)]
pub(super) enum Job {
    /// There may be something to do.
    Look,
    /// Somebody wants to write, and the log has not begun.
    Begin,
    Erase(Box<Erasure>, oneshot::Sender<Result<Position>>),
    /// Somebody wants everything that is in the log in the tables.
    Settle(oneshot::Sender<Result<()>>),
    Close(oneshot::Sender<Result<()>>),
    /// The handle is gone.
    Stop,
}

/// A payload to delete, and the note about it.
#[derive(Debug)]
pub(super) struct Erasure {
    pub(super) n: Position,
    pub(super) role: Role,
    pub(super) note: Element,
}

/// Runs until the handle is gone. Without a close before that, the files are as after a crash.
pub(super) fn run(line: Arc<Line>, jobs: &Receiver<Job>) {
    let mut keeper = Keeper { core: Arc::clone(&line.core), line, seen: None };
    let mut asleep = true;
    loop {
        let job = if asleep {
            jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            receive(jobs, IDLE)
        };
        match job {
            Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(job) => {
                keeper.wake();
                keeper.job(job);
                asleep = false;
            }
            Err(RecvTimeoutError::Timeout) => asleep = keeper.idle(),
        }
        keeper.look();
    }
    keeper.let_go();
}

/// The keeper's own.
struct Keeper {
    core: Arc<Core>,
    line: Arc<Line>,
    /// Where the log stood when nothing had happened for a while.
    seen: Option<(u64, u64)>,
}

impl Keeper {
    fn job(&self, job: Job) {
        // A caller that went away does not want its answer.
        match job {
            Job::Begin => {
                let mut writer = self.line.writer();
                // What went wrong has ended the handle, and is told to everybody in line. Whoever
                // is first there may have been woken before, and not look again.
                let _ = self.begin(&mut writer);
                self.line.serve_once(&mut writer);
            }
            Job::Erase(erasure, reply) => drop(reply.send(self.erase(*erasure))),
            Job::Settle(reply) => drop(reply.send(self.settle())),
            Job::Close(reply) => drop(reply.send(self.close())),
            Job::Look | Job::Stop => return,
        }
        self.line.pass_on();
    }

    fn wake(&mut self) {
        self.line.asleep.store(false, Ordering::Release);
        self.seen = None;
    }

    /// Nothing came for a while: marks a log that has not moved. Whether to sleep until told.
    fn idle(&mut self) -> bool {
        // While it moves those in line are served, and nobody is to take the right to write from
        // them.
        let now = self.log_at();
        if now != self.seen {
            self.seen = now;
            return false;
        }
        // Said before the log is looked at: whoever writes afterwards tells.
        self.line.asleep.store(true, Ordering::Release);
        let mut writer = self.line.writer();
        // Whoever was woken to write for all, and is not polled, must not hold up the others.
        self.line.serve_once(&mut writer);
        let idle = self.log_at() == self.seen;
        if idle {
            self.mark(&mut writer);
        } else {
            self.line.asleep.store(false, Ordering::Release);
        }
        self.seen = self.log_at();
        let marked = idle && writer.log.is_some();
        drop(writer);
        self.line.pass_on();
        // Nobody waits for it.
        if marked && self.core.alive().is_ok() {
            self.core.cast_anchor();
        }
        idle
    }

    /// The generation of the log, and where it stands.
    fn log_at(&self) -> Option<(u64, u64)> {
        let state = self.core.state();
        state.segment.as_ref().map(|(_, at)| (state.frame.0, *at))
    }

    fn mark(&self, writer: &mut Writer) {
        let Some(log) = writer.log.as_mut().filter(|_| self.core.alive().is_ok()) else {
            return;
        };
        let place = self.core.state().next;
        match log.mark(place) {
            Ok(None) => {}
            Ok(Some(hash)) => {
                let mut state = self.core.state();
                state.frame = (log.generation(), hash);
                state.segment = Some((Arc::clone(log.segment()), log.at()));
            }
            Err(error) => drop(self.core.end(&format!("the log could not be marked: {error}"))),
        }
    }

    /// Does what is due. What goes wrong ends the handle.
    fn look(&self) {
        self.line.looking();
        if self.core.alive().is_err() {
            self.line.disband();
            return;
        }
        let (due, segment, generation, log) = {
            let state = self.core.state();
            let due = drain::is_due(&state, self.core.log_bytes);
            (due, state.segment.clone(), state.frame.0, state.log)
        };
        if let Some((segment, at)) = segment {
            let filled = segment.fill(at, self.core.log_bytes).and_then(|()| {
                let early = at >= self.core.log_bytes / 2;
                if early { self.core.segments.make_ready(generation + 1, log) } else { Ok(()) }
            });
            if let Err(error) = filled {
                self.core.end(&format!("the log could not be made ready ahead: {error}"));
            }
        }
        if due {
            drop(self.drain(|plan| plan, false));
        }
        if self.core.alive().is_err() {
            self.line.disband();
        }
    }

    /// Brings what is in the log into the tables, and says what `change` makes of the plan.
    fn drain(&self, change: impl FnOnce(Plan) -> Plan, clean: bool) -> Result<()> {
        // Before the plan: it takes what it takes for good.
        let rewrites = reader::without_erased(&self.core)?;
        let plan = Plan::take(&mut self.core.state()).with(rewrites);
        self.core.transact(change(plan), clean)
    }

    /// Brings what is in the log into the tables, if there is anything that they do not have.
    fn settle(&self) -> Result<()> {
        self.core.alive()?;
        if self.core.state().unsettled.0 == 0 {
            return Ok(());
        }
        self.core.writable()?;
        let mut writer = self.line.writer();
        if writer.log.is_none() {
            return self.begin(&mut writer);
        }
        drop(writer);
        self.drain(|plan| plan, false)
    }

    /// Begins a generation: the file first, durable with its name, then the word of the tables,
    /// together with what the log had from before. Only then may anything be acknowledged.
    fn begin(&self, writer: &mut Writer) -> Result<()> {
        if writer.log.is_some() {
            return Ok(());
        }
        self.core.alive()?;
        if planted(Broken::AppendBehindFrames)
            && let Some(tail) = &self.core.tail
        {
            let (log, last) = {
                let state = self.core.state();
                (state.log, state.frame.1)
            };
            let behind = Log::behind(log, tail, last);
            writer.log = Some(behind.map_err(|error| self.core.end(&error.to_string()))?);
            self.line.begun();
            return Ok(());
        }
        let again = u64::from(!planted(Broken::StaleGeneration));
        let generation = self.core.newest.saturating_add(again);
        self.begin_as(writer, generation)?;
        self.line.begun();
        Ok(())
    }

    fn begin_as(&self, writer: &mut Writer, generation: u64) -> Result<()> {
        let id = if planted(Broken::StaleGeneration) {
            self.core.state().log
        } else {
            create::random::<16>().map_err(|error| {
                self.core.end(&format!("the log could not be given an id: {error}"))
            })?
        };
        // A new file takes the name of an old one, and that is removed.
        self.core.secure_tables()?;
        let segment = self.core.segments.make(generation, id).map_err(|error| {
            self.core.end(&format!("a file of the log could not be made: {error}"))
        })?;
        self.drain(|plan| plan.in_generation(generation, id), false)?;
        let mut state = self.core.state();
        let log = Log::begin(id, segment, state.frame.1);
        state.frame.0 = generation;
        state.log = id;
        state.segment = Some((Arc::clone(log.segment()), log.at()));
        writer.log = Some(log);
        Ok(())
    }

    /// Makes the note and the erasure durable as one frame, then takes the payload out of the
    /// tables, and the files of the log that had it out of the folder.
    fn erase(&self, erasure: Erasure) -> Result<Position> {
        let mut writer = self.line.writer();
        self.begin(&mut writer)?;
        self.line.serve(&mut writer);
        let Erasure { n, role, note } = erasure;
        let id = note.append.thread.clone();
        if !reader::has_payload(&self.core, &id, n, role)? {
            let role = role.as_str();
            return Err(refused(format!("record {n} has no payload {role} to erase")));
        }
        let mut group = Group::new(&self.core);
        let next = group.append(note)?;
        group.push(Entry::Erased(id, n, role));
        writer.commit(group)?;
        // From here on it is recorded: what goes wrong leaves only the bytes behind, for the next
        // process to remove.
        self.scrub(&mut writer)
            .map_err(|error| StoreError::Unknown { why: error.to_string().into() })?;
        Ok(next)
    }

    /// Takes what was erased out of the tables, and the files of the log that had it away.
    fn scrub(&self, writer: &mut Writer) -> Result<()> {
        // Behind a file that may have been made ready.
        let generation = self.core.state().frame.0.saturating_add(2);
        self.drain(|plan| plan, false)?;
        self.begin_as(writer, generation)?;
        self.core.segments.remove_before(generation).map_err(|error| {
            self.core.end(&format!("a file of the log could not be removed: {error}"))
        })
    }

    /// Drains everything, says that the journal is clean, and lets go of the files: what is left
    /// is one.
    fn close(&self) -> Result<()> {
        let mut writer = self.line.writer();
        self.line.serve(&mut writer);
        self.core.alive()?;
        let wrote = writer.log.take().is_some() || !(self.core.found.clean || self.core.read_only);
        if wrote {
            // Later than every file, so that none is looked for when the journal is opened.
            let (now, log) = {
                let state = self.core.state();
                (state.frame.0, state.log)
            };
            let generation = now.max(self.core.newest).saturating_add(1);
            if planted(Broken::ReleaseEarly) {
                let _ = self.core.segments.remove_before(u64::MAX);
            }
            self.drain(|plan| plan.in_generation(generation, log), true)?;
        }
        self.core.over.get_or_init(|| StoreError::Closed);
        drop(writer);
        self.line.disband();
        let opened = self.core.take_opened().ok_or(StoreError::Closed)?;
        guarded(|| Ok(opened.db.close()?))
            .map_err(|fault| StoreError::Failed { why: fault.why().into() })?;
        if wrote && let Err(error) = self.core.segments.remove_before(u64::MAX) {
            // The tables have everything, and say so.
            tracing::warn!(%error, "a file of a closed journal's log could not be removed");
        }
        if wrote {
            self.core.cast_anchor();
        }
        Ok(())
    }

    /// Lets go of the tables as a crash would.
    fn let_go(&self) {
        let opened = self.core.take_opened();
        // Without a close nothing says that the journal is clean; an error here changes nothing.
        let _ = guarded(|| {
            drop(opened);
            Ok(())
        });
    }
}
