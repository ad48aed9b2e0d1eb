//! The world outside, and lives of a book in it.
//!
//! An [`Outside`] is what bodies and probes talk to: it does what a test has scripted, and keeps
//! every request with its key, so that a test counts effects where they happen. A [`Life`] is one
//! process's time with a book on the home in memory: it ends in a crash, and the next one begins
//! with what the crash left.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use deedbook::{
    Attempt, Builder, Deedbook, Error, Operation, Probe, Row, Status, StepError, StoreTime,
    ThreadId, ThreadInfo, VirtualClock, Workflow,
};
use deedbook_journal::{
    checkpointer::Checkpointer,
    record::{Header, Kind, Record},
};
use deedbook_memory::{MemoryHome, MemoryOptions, MemorySnapshot};
use serde::{Serialize, Serializer};

/// What a body does when it runs.
#[derive(Debug, Clone)]
pub enum Does {
    /// It has its effect and returns this.
    Returns(u32),
    /// It fails without saying whether it had its effect.
    Fails,
    /// It fails, and says that it had no effect.
    NotApplied,
    /// It fails, says that it had no effect, and when to come back.
    Busy(Duration),
    /// It fails without saying whether it had its effect, and says when to come back.
    BusyOrNot(Duration),
    /// It fails for good.
    Terminal,
    /// It panics.
    Panics,
    /// It never comes back.
    Hangs,
    /// It returns this when the test says [`Outside::let_go`].
    Waits(u32),
}

/// What a probe answers.
#[derive(Debug, Clone)]
pub enum Says {
    /// It happened, with this result.
    Happened(u32),
    /// It did not happen.
    DidNotHappen,
    /// It cannot tell.
    Inconclusive,
    /// The look-up itself fails.
    Fails,
    /// It panics.
    Panics,
    /// It never comes back.
    Hangs,
}

/// One request as it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The operation key; empty for a read.
    pub key: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// When the first attempt that may have had its effect began; zero for a read.
    pub first_started_at: StoreTime,
}

/// What bodies and probes talk to.
#[derive(Debug, Clone, Default)]
pub struct Outside(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    let_go: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct State {
    does: VecDeque<Does>,
    says: VecDeque<Says>,
    sent: Vec<Sent>,
    asked: Vec<Sent>,
}

impl Outside {
    /// A world in which bodies do these things in turn, and return 7 after that.
    #[must_use]
    pub fn that(does: impl IntoIterator<Item = Does>) -> Self {
        let outside = Self::default();
        outside.then(does);
        outside
    }

    /// What bodies do next.
    pub fn then(&self, does: impl IntoIterator<Item = Does>) {
        self.state().does.extend(does);
    }

    /// What probes answer next; when nothing is scripted, that it did not happen.
    pub fn says(&self, says: impl IntoIterator<Item = Says>) {
        self.state().says.extend(says);
    }

    /// Lets one body that [waits](Does::Waits) come back.
    pub fn let_go(&self) {
        self.0.let_go.notify_one();
    }

    /// The requests of bodies so far.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        self.state().sent.clone()
    }

    /// The numbers of the attempts so far.
    #[must_use]
    pub fn attempts(&self) -> Vec<u32> {
        self.state().sent.iter().map(|s| s.attempt).collect()
    }

    /// How many different keys came in.
    #[must_use]
    pub fn keys(&self) -> usize {
        let mut keys: Vec<_> = self.sent().into_iter().map(|s| s.key).collect();
        keys.sort();
        keys.dedup();
        keys.len()
    }

    /// The requests of probes so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Sent> {
        self.state().asked.clone()
    }

    /// The body of a step with an effect.
    ///
    /// # Errors
    /// As scripted.
    pub async fn send(&self, operation: Operation) -> Result<u32, StepError> {
        self.request(sent(&operation)).await
    }

    /// The body of a read.
    ///
    /// # Errors
    /// As scripted.
    pub async fn look(&self, attempt: Attempt) -> Result<u32, StepError> {
        let sent =
            Sent { key: String::new(), attempt: attempt.number(), first_started_at: StoreTime(0) };
        self.request(sent).await
    }

    /// The probe of a step.
    ///
    /// # Errors
    /// As scripted.
    pub async fn ask(&self, operation: Operation) -> Result<Probe<u32>, StepError> {
        let says = {
            let mut state = self.state();
            state.asked.push(sent(&operation));
            state.says.pop_front()
        };
        match says.unwrap_or(Says::DidNotHappen) {
            Says::Happened(value) => Ok(Probe::Happened(value)),
            Says::DidNotHappen => Ok(Probe::DidNotHappen),
            Says::Inconclusive => Ok(Probe::Inconclusive),
            Says::Fails => Err(StepError::new("the look-up failed")),
            Says::Panics => panic!("the probe broke"),
            Says::Hangs => std::future::pending().await,
        }
    }

    async fn request(&self, sent: Sent) -> Result<u32, StepError> {
        let does = {
            let mut state = self.state();
            state.sent.push(sent);
            state.does.pop_front()
        };
        match does.unwrap_or(Does::Returns(7)) {
            Does::Returns(value) => Ok(value),
            Does::Fails => Err(StepError::new("connection reset")),
            Does::NotApplied => Err(StepError::new("no connection").not_applied()),
            Does::Busy(after) => {
                Err(StepError::new("too many requests").not_applied().retry_after(after))
            }
            Does::BusyOrNot(after) => Err(StepError::new("unavailable").retry_after(after)),
            Does::Terminal => Err(StepError::new("account closed").code("closed").terminal()),
            Does::Panics => panic!("the body broke"),
            Does::Hangs => std::future::pending().await,
            Does::Waits(value) => {
                self.0.let_go.notified().await;
                Ok(value)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sent(operation: &Operation) -> Sent {
    Sent {
        key: operation.key().to_owned(),
        attempt: operation.attempt(),
        first_started_at: operation.first_started_at(),
    }
}

/// A value that cannot be recorded.
#[derive(Debug, Clone, Copy)]
pub struct Unstorable;

impl Serialize for Unstorable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("a handle cannot be written down"))
    }
}

impl<'de> serde::Deserialize<'de> for Unstorable {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Ok(Self)
    }
}

/// One process's time with a book on the home in memory.
#[derive(Debug)]
pub struct Life {
    /// The book.
    pub book: Deedbook,
    /// Its home.
    pub home: Arc<MemoryHome>,
    /// Its clock.
    pub clock: VirtualClock,
}

impl Life {
    /// The first life.
    pub async fn first(clock: &VirtualClock, host: impl FnOnce(Builder) -> Builder) -> Self {
        let source = deedbook::Clock::source(clock);
        let options = MemoryOptions::new();
        let options = match source {
            Some(source) => options.time(source),
            None => options,
        };
        Self::on(MemoryHome::new(options), clock, host).await
    }

    /// The life after a crash.
    pub async fn after(
        crash: MemorySnapshot,
        clock: &VirtualClock,
        host: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let home = MemoryHome::from_snapshot(crash, deedbook::Clock::source(clock));
        Self::on(home, clock, host).await
    }

    async fn on(
        home: MemoryHome,
        clock: &VirtualClock,
        host: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let home = Arc::new(home);
        let builder =
            Deedbook::on(home.clone()).clock(clock.clone()).look_every(Duration::from_secs(1));
        let book = host(builder).start().await.expect("the book starts");
        Self { book, home, clock: clock.clone() }
    }

    /// Ends this life as a crash does, and says what it leaves.
    #[must_use]
    pub fn crash(self) -> MemorySnapshot {
        self.home.snapshot()
    }

    /// Lets everything go on that can without time passing.
    pub async fn settle(&self) {
        settle().await;
    }

    /// The thread as listed.
    pub async fn info(&self, thread: &str) -> ThreadInfo {
        let info = self.book.status(thread).await.expect("the home answers");
        info.expect("the thread is there")
    }

    /// The thread's row.
    pub async fn row(&self, thread: &str) -> Row {
        self.settle().await;
        self.info(thread).await.row
    }

    /// Lets time pass, from one thing to the next, until the thread has this status.
    ///
    /// # Panics
    /// It does not come to that.
    pub async fn until(&self, thread: &str, status: Status) -> Row {
        for _ in 0..2_000 {
            let row = self.row(thread).await;
            if row.status == status {
                return row;
            }
            assert!(!row.status.is_ended(), "ended as {row:?}, not {status}");
            assert!(self.clock.advance_to_next(), "nobody waits: {row:?}");
        }
        panic!("it does not come to {status}: {:?}", self.row(thread).await);
    }

    /// The end of a thread that ends without time passing.
    ///
    /// # Errors
    /// As [`Deedbook::wait`].
    ///
    /// # Panics
    /// It does not end: a test that waits for ever tells nobody why.
    pub async fn ended<W: Workflow>(&self, thread: &str) -> Result<W::Output, Error> {
        let mut wait = std::pin::pin!(self.book.wait::<W>(thread));
        for _ in 0..200 {
            let polled = std::future::poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await;
            if let Poll::Ready(ended) = polled {
                return ended;
            }
            self.settle().await;
        }
        panic!("it does not end: {:?}", self.info(thread).await.row);
    }

    /// Lets this time pass in small steps.
    pub async fn pass(&self, time: Duration) {
        for _ in 0..20 {
            self.settle().await;
            self.clock.advance(time / 20);
        }
        self.settle().await;
    }

    /// The thread's durable records.
    pub async fn records(&self, thread: &str) -> Vec<(Header, Record)> {
        let id = ThreadId::new(thread).expect("a thread id");
        let page = self.home.read(&id, 0, usize::MAX).await;
        let records = page.expect("the home answers").items.into_iter();
        records
            .map(|(_, record)| (Header::parse(&record.header).expect("a header"), record))
            .collect()
    }

    /// What the thread's durable records say, in short: kind and, where there is one, why or
    /// verdict (`step.unknown timeout`).
    pub async fn story(&self, thread: &str) -> Vec<String> {
        let records = self.records(thread).await.into_iter();
        records.map(|(header, _)| told(&header)).collect()
    }

    /// How many of the thread's durable records are of this kind.
    pub async fn count(&self, thread: &str, kind: Kind) -> usize {
        let records = self.records(thread).await;
        records.iter().filter(|(h, _)| h.kind == kind).count()
    }
}

fn told(header: &Header) -> String {
    let kind = header.kind.as_str();
    match (&header.why, &header.verdict) {
        (Some(word), _) | (None, Some(word)) => format!("{kind} {word}"),
        (None, None) => kind.to_owned(),
    }
}

/// Lets every task go on that can without time passing. For runtimes of one thread.
pub async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}
