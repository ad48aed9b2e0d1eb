//! The line before the log: who waits, and who commits.
//!
//! Whoever has something to write gets in line, lets others do the same unless it seems to be
//! alone, and then, if nobody is writing, writes for everybody in line: handing a record to a
//! thread and back costs half of what the sync does. Where many are in line that is little for
//! each of them, and a thread that stands still for a sync is much: then the
//! [`committer`](super::committer) writes. While one group is written, the next one comes together.
//! `docs/decisions/0002-log.md` has the figures.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, PoisonError, TryLockError},
    task::{Context, Poll, Waker},
};

use tokio::sync::{Semaphore, oneshot};

use super::{
    committer::Bell,
    core::Core,
    drain,
    keeper::Job,
    options::CommitBy,
    planted::{Broken, planted},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::Sender,
    },
    writer::{Ask, Request, Writer},
};
use crate::{
    checkpointer::StoreError,
    id::ThreadId,
    limits::{EMBEDDED_ALONE_MAX, EMBEDDED_CROWD, EMBEDDED_QUEUE_MAX},
};

type Result<T> = std::result::Result<T, StoreError>;

/// How many in line are many. Models have few threads.
const CROWD: usize = if cfg!(feature = "model") { 2 } else { EMBEDDED_CROWD };

/// The line.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) core: Arc<Core>,
    writer: Mutex<Writer>,
    queue: Mutex<VecDeque<Ticket>>,
    last: Mutex<Last>,
    numbers: AtomicU64,
    places: Arc<Semaphore>,
    keeper: Sender<Job>,
    committer: Bell,
    by: CommitBy,
    /// Whether the committer was told, or is at it, and will look at the line again.
    called: AtomicBool,
    /// For how many the committer wrote in its last two groups. Where one thread runs all tasks,
    /// those whose group is durable come back one by one, and are a crowd all the same.
    served: [AtomicUsize; 2],
    /// How many wait for the right to write who are not in line: they go first.
    waiting: AtomicUsize,
    /// Whether a write has begun a generation of the log.
    begun: AtomicBool,
    /// Whether the keeper was told and has not looked yet.
    hinted: AtomicBool,
    /// Whether the keeper sleeps until it is told.
    pub(super) asleep: AtomicBool,
}

/// Who came last.
#[derive(Debug, Default)]
struct Last {
    thread: Option<ThreadId>,
    /// How often in a row it went straight on.
    times: u32,
}

impl Last {
    /// Whether whoever writes to this thread goes straight on, as if nobody else were there: it
    /// came last time too, and has let others go first not long ago. To let them costs a lone
    /// caller a tenth of a sync, and where one thread runs all tasks they come only then.
    fn goes_on(&mut self, thread: Option<&ThreadId>) -> bool {
        let again = thread.is_some() && self.thread.as_ref() == thread;
        let goes_on = again && self.times < EMBEDDED_ALONE_MAX;
        self.times = if goes_on { self.times + 1 } else { 0 };
        if !again {
            self.thread = thread.cloned();
        }
        goes_on
    }
}

/// A request in line.
#[derive(Debug)]
struct Ticket {
    number: u64,
    request: Request,
    waker: Option<Waker>,
}

impl Line {
    pub(super) fn new(core: Arc<Core>, keeper: Sender<Job>, committer: Bell, by: CommitBy) -> Self {
        Self {
            writer: Mutex::new(Writer::new(Arc::clone(&core))),
            core,
            queue: Mutex::default(),
            last: Mutex::default(),
            numbers: AtomicU64::new(0),
            places: Arc::new(Semaphore::new(EMBEDDED_QUEUE_MAX)),
            keeper,
            committer,
            by,
            called: AtomicBool::new(false),
            served: Default::default(),
            waiting: AtomicUsize::new(0),
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
        if self.waiting.load(Ordering::Acquire) > 0 {
            // Whoever it is passes on.
            return;
        }
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Whoever writes looks at the line again when it is done.
            Err(TryLockError::WouldBlock) => return,
        };
        self.serve_once(&mut writer);
        drop(writer);
        self.pass_on();
        self.hint();
    }

    /// Writes once for everybody in line who may, with the right to write in hand: for how many.
    pub(super) fn serve_once(&self, writer: &mut Writer) -> usize {
        let begun = self.may_write(writer);
        let mut served = 0;
        writer.round(|| self.next(begun).inspect(|_| served += 1));
        served
    }

    /// Whether those who write are served: the log has begun, or it is over. What has ended only
    /// answers, and must answer everybody: who is first would else be woken for nothing, again and
    /// again.
    fn may_write(&self, writer: &Writer) -> bool {
        writer.log.is_some() || self.core.alive().is_err()
    }

    /// Writes for everybody in line, a group after the other, until nobody is or somebody else
    /// wants the right to write.
    pub(super) fn commit_all(&self) {
        loop {
            while self.waiting.load(Ordering::Acquire) == 0 {
                let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
                let served = self.serve_once(&mut writer);
                drop(writer);
                if served == 0 {
                    break;
                }
                self.note_served(served);
                self.hint();
            }
            // Said before the line is looked at once more: whoever comes behind that calls again.
            self.called_off();
            let left = self.waiting.load(Ordering::SeqCst) == 0 && self.somebody_may_write();
            if !left || self.called.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    fn note_served(&self, served: usize) {
        let [last, before] = &self.served;
        before.store(last.swap(served, Ordering::AcqRel), Ordering::Release);
    }

    /// Whether whoever is first in line is served at once: who writes has the keeper begin the
    /// log before.
    fn somebody_may_write(&self) -> bool {
        let queue = self.queue();
        queue.front().is_some_and(|first| self.is_served(first))
    }

    fn is_served(&self, ticket: &Ticket) -> bool {
        self.begun.load(Ordering::Acquire) || !ticket.request.ask.writes()
    }

    /// Has the committer look at the line.
    fn call_committer(&self) {
        if !self.called.swap(true, Ordering::SeqCst) {
            self.committer.ring();
        }
    }

    /// The committer is not at it any more.
    pub(super) fn called_off(&self) {
        self.called.store(false, Ordering::SeqCst);
    }

    /// Lets the committer go.
    pub(super) fn stop(&self) {
        self.committer.stop();
    }

    /// The right to write, for the keeper. [`Line::pass_on`] must follow.
    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        writer
    }

    /// Whether the committer writes for so many.
    fn by_committer(&self, in_line: usize) -> bool {
        match self.by {
            CommitBy::Either => {
                let served = self.served.iter().map(|group| group.load(Ordering::Acquire));
                in_line.max(served.sum()) >= CROWD
            }
            CommitBy::Caller => false,
            CommitBy::Thread => true,
        }
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
        while self.serve_once(writer) > 0 {}
    }

    /// Whoever is first in line may write now.
    pub(super) fn pass_on(&self) {
        let mut queue = self.queue();
        let in_line = queue.len();
        let Some(first) = queue.front_mut() else {
            return;
        };
        if self.by_committer(in_line) {
            // Whoever gets in line to write before the log has begun has the keeper begin it,
            // which serves everybody then.
            let may = self.is_served(first);
            drop(queue);
            if may {
                self.call_committer();
            }
            return;
        }
        // Without a waker it was woken before, and has not looked yet.
        let waker = first.waker.take().filter(|_| !planted(Broken::LoseWakeup));
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
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
        self.pass_on();
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
        let thread = request.ask.writes_to();
        let goes_on = line.last.lock().unwrap_or_else(PoisonError::into_inner).goes_on(thread);
        let ticket = Ticket { number: self.number, request, waker: Some(cx.waker().clone()) };
        let in_line = {
            let mut queue = line.queue();
            queue.push_back(ticket);
            queue.len()
        };
        // Told only now: whoever is told must find the ticket.
        if !begun {
            line.send(Job::Begin);
        } else if line.by_committer(in_line) {
            line.call_committer();
        } else if goes_on && in_line == 1 {
            line.lead();
        } else {
            cx.waker().wake_by_ref();
        }
    }

    /// Sees to it that it is written, if it is still in line: by itself, for everybody there, or
    /// by the committer. It is woken when it is first.
    fn see_to_it(&self, cx: &Context<'_>) {
        let line = self.line;
        let in_line = {
            let mut queue = line.queue();
            let in_line = queue.len();
            let Some(own) = queue.iter_mut().find(|ticket| ticket.number == self.number) else {
                return;
            };
            own.waker = Some(cx.waker().clone());
            // The keeper begins the log for those who write, and serves them then.
            if !line.is_served(own) {
                return;
            }
            in_line
        };
        if line.by_committer(in_line) {
            line.call_committer();
        } else {
            line.lead();
        }
    }
}

impl<T> Future for Waiting<'_, T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        match std::mem::replace(&mut this.stage, Stage::InLine) {
            Stage::New(request) => this.get_in_line(request, cx),
            Stage::InLine => this.see_to_it(cx),
            Stage::Done => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_alone_goes_on_and_lets_others_come_now_and_then() {
        let [one, other] = ["one", "other"].map(|id| ThreadId::new(id).unwrap());
        let mut last = Last::default();
        assert!(!last.goes_on(Some(&one)), "nobody knows yet that it is alone");
        for _ in 0..EMBEDDED_ALONE_MAX {
            assert!(last.goes_on(Some(&one)));
        }
        assert!(!last.goes_on(Some(&one)), "others never get their turn");
        assert!(last.goes_on(Some(&one)));
        assert!(!last.goes_on(Some(&other)) && !last.goes_on(Some(&one)), "they are two");
        assert!(!last.goes_on(None) && !last.goes_on(None), "it does not write");
    }
}
