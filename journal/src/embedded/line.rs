//! The line before the log: who waits, and who commits.
//!
//! There is no thread that writes. Whoever has something to write gets in line, lets others do
//! the same, and then, if nobody is writing, writes for everybody in line: handing a record to a
//! thread and back costs half of what the sync does. While one writes, the next group comes
//! together. `docs/decisions/0002-log.md` has the figures. With [`CommitBy::Thread`] the keeper
//! writes instead, and no caller's thread ever blocks.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, PoisonError, TryLockError},
    task::{Context, Poll, Waker},
};

use tokio::sync::{Semaphore, oneshot};

use super::{
    core::Core,
    drain,
    keeper::Job,
    options::CommitBy,
    planted::{Broken, planted},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::Sender,
    },
    writer::{Ask, Request, Writer},
};
use crate::{checkpointer::StoreError, limits::EMBEDDED_QUEUE_MAX};

type Result<T> = std::result::Result<T, StoreError>;

/// The line.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) core: Arc<Core>,
    writer: Mutex<Writer>,
    queue: Mutex<VecDeque<Ticket>>,
    numbers: AtomicU64,
    places: Arc<Semaphore>,
    keeper: Sender<Job>,
    by: CommitBy,
    /// Whether a write has begun a generation of the log.
    begun: AtomicBool,
    /// Whether the keeper was told and has not looked yet.
    hinted: AtomicBool,
    /// Whether the keeper sleeps until it is told.
    pub(super) asleep: AtomicBool,
}

/// A request in line.
#[derive(Debug)]
struct Ticket {
    number: u64,
    request: Request,
    waker: Option<Waker>,
}

impl Line {
    pub(super) fn new(core: Arc<Core>, keeper: Sender<Job>, by: CommitBy) -> Self {
        Self {
            writer: Mutex::new(Writer::new(Arc::clone(&core))),
            core,
            queue: Mutex::default(),
            numbers: AtomicU64::new(0),
            places: Arc::new(Semaphore::new(EMBEDDED_QUEUE_MAX)),
            keeper,
            by,
            begun: AtomicBool::new(false),
            hinted: AtomicBool::new(false),
            asleep: AtomicBool::new(true),
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Ticket>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gets in line with a request, and waits for its answer.
    pub(super) async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T> {
        let turn = Arc::clone(&self.places).acquire_owned().await;
        let turn = turn.map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let request = Request { ask: ask(reply), _turn: turn };
        if request.ask.writes() {
            self.room().await?;
        }
        let waiting =
            Waiting { line: self, number: self.number(), answer, stage: Stage::New(request) };
        waiting.await.ok_or_else(|| self.core.end("a request got no answer"))
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until the drains have caught up, so that recovery stays short.
    async fn room(&self) -> Result<()> {
        loop {
            let drained = self.core.drained.notified();
            let mut drained = std::pin::pin!(drained);
            drained.as_mut().enable();
            self.core.alive()?;
            if self.core.has_room() {
                return Ok(());
            }
            self.tell();
            drained.await;
        }
    }

    /// Writes for everybody in line, if nobody does.
    fn lead(&self) {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Whoever writes looks at the line again when it is done.
            Err(TryLockError::WouldBlock) => return,
        };
        let begun = self.may_write(&writer);
        writer.round(|| self.next(begun));
        drop(writer);
        self.pass_on();
        self.hint();
    }

    /// Whether those who write are served: the log has begun, or it is over. What has ended only
    /// answers, and must answer everybody: who is first would else be woken for nothing, again and
    /// again.
    fn may_write(&self, writer: &Writer) -> bool {
        writer.log.is_some() || self.core.alive().is_err()
    }

    /// The right to write, for the keeper. [`Line::pass_on`] must follow.
    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever is first in line. Who writes stays there until the log has begun: the keeper was
    /// told to begin it, and comes.
    fn next(&self, begun: bool) -> Option<Request> {
        let mut queue = self.queue();
        let may = begun || !queue.front()?.request.ask.writes();
        if may { Some(queue.pop_front()?.request) } else { None }
    }

    /// Writes for everybody in line until nobody is who may write, with the right to write in
    /// hand.
    pub(super) fn serve(&self, writer: &mut Writer) {
        let begun = self.may_write(writer);
        let mut served = true;
        while served {
            served = false;
            writer.round(|| {
                let next = self.next(begun);
                served |= next.is_some();
                next
            });
        }
    }

    /// Whoever is first in line may write now.
    pub(super) fn pass_on(&self) {
        let mut queue = self.queue();
        let Some(first) = queue.front_mut() else {
            return;
        };
        let waker = first.waker.take();
        // Whoever gets in line to write before the log has begun has the keeper begin it, which
        // serves everybody then: told before that, the keeper would only tell itself again.
        let may = self.begun.load(Ordering::Acquire) || !first.request.ask.writes();
        drop(queue);
        match (self.by, waker) {
            (CommitBy::Caller, Some(_)) if planted(Broken::LoseWakeup) => {}
            (CommitBy::Caller, Some(waker)) => waker.wake(),
            // It was woken before, and has not looked yet.
            (CommitBy::Caller, None) => {}
            (CommitBy::Thread, _) if may => self.send(Job::Write),
            (CommitBy::Thread, _) => {}
        }
    }

    /// A write has begun a generation: from now on callers write.
    pub(super) fn begun(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Tells the keeper if there is something for it to do.
    fn hint(&self) {
        let due = self.asleep.load(Ordering::Acquire) || {
            let state = self.core.state();
            drain::is_due(&state, self.core.log_bytes) || self.core.log_runs_short(&state)
        };
        if due && self.begun.load(Ordering::Acquire) {
            self.tell();
        }
    }

    fn tell(&self) {
        if !self.hinted.swap(true, Ordering::AcqRel) {
            self.send(Job::Look);
        }
    }

    /// The keeper is about to look.
    pub(super) fn looking(&self) {
        self.hinted.store(false, Ordering::Release);
    }

    pub(super) fn send(&self, job: Job) {
        // A keeper that is gone has ended the handle, or is being joined.
        drop(self.keeper.send(job));
    }

    /// The handle has ended: everybody in line gets to hear it.
    pub(super) fn disband(&self) {
        self.serve(&mut self.writer());
        self.core.drained.notify_waiters();
    }
}

/// Where a request is on its way.
#[derive(Debug)]
enum Stage {
    New(Request),
    /// In line, or in somebody's round.
    InLine,
    Done,
}

/// A request that waits for its answer. Dropped, it leaves the line, unless somebody has it in a
/// round already.
#[derive(Debug)]
struct Waiting<'l, T> {
    line: &'l Line,
    number: u64,
    answer: oneshot::Receiver<T>,
    stage: Stage,
}

impl<T> Waiting<'_, T> {
    /// Gets in line. Others that are ready get their turn before anything is written, so that a
    /// group comes together even where one thread runs all tasks.
    fn get_in_line(&self, request: Request, cx: &Context<'_>) {
        let line = self.line;
        let begun = line.begun.load(Ordering::Acquire) || !request.ask.writes();
        let ticket = Ticket { number: self.number, request, waker: Some(cx.waker().clone()) };
        line.queue().push_back(ticket);
        // Told only now: the keeper must find the ticket.
        match line.by {
            _ if !begun => line.send(Job::Begin),
            CommitBy::Caller => cx.waker().wake_by_ref(),
            CommitBy::Thread => line.send(Job::Write),
        }
    }

    /// Whether it is still in line and may write for everybody there. It is woken when it is first.
    fn may_lead(&self, cx: &Context<'_>) -> bool {
        let mut queue = self.line.queue();
        let own = queue.iter_mut().find(|ticket| ticket.number == self.number);
        own.is_some_and(|ticket| {
            ticket.waker = Some(cx.waker().clone());
            // The keeper begins the log for those who write, and serves them then.
            let begun = self.line.begun.load(Ordering::Acquire) || !ticket.request.ask.writes();
            begun && self.line.by == CommitBy::Caller
        })
    }
}

impl<T> Future for Waiting<'_, T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        match std::mem::replace(&mut this.stage, Stage::InLine) {
            Stage::New(request) => this.get_in_line(request, cx),
            Stage::InLine if this.may_lead(cx) => this.line.lead(),
            Stage::InLine | Stage::Done => {}
        }
        let Poll::Ready(answer) = Pin::new(&mut this.answer).poll(cx) else {
            return Poll::Pending;
        };
        this.stage = Stage::Done;
        Poll::Ready(answer.ok())
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::InLine) {
            self.line.queue().retain(|ticket| ticket.number != self.number);
            // It may have been woken to write for the others.
            self.line.pass_on();
        }
    }
}
