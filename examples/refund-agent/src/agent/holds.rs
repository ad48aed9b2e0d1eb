//! The instants at which the story kills the agent.
//!
//! A held agent says where it stands and goes no further there, while the rest of it goes on;
//! the story then kills the process. The hooks stand around the bank's client and in the
//! workflow's code; the journal knows nothing of them.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use deedbook::ThreadId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::note::{self, Note};

/// How long a call is under way before it is held: long enough to have been sent, too short to
/// have been answered by a bank that takes [`crate::story`]'s time.
const UNDER_WAY: Duration = Duration::from_millis(4);

/// An instant worth a kill.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// The intent to pay is durable; nothing was sent.
    BeforeEffect,
    /// The bank has the request; there is no answer yet.
    InFlight,
    /// The bank has paid and has said so; the journal does not know.
    AfterEffect,
    /// Paid and recorded; the thread sleeps.
    Settling,
    /// Paid, recorded and settled; the letter is not begun.
    BetweenSteps,
    /// The letter is written; the journal does not know.
    AfterLetter,
    /// A person was asked; the thread is parked.
    AwaitingApproval,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::BeforeEffect,
        Self::InFlight,
        Self::AfterEffect,
        Self::Settling,
        Self::BetweenSteps,
        Self::AfterLetter,
        Self::AwaitingApproval,
    ];

    /// The word on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeEffect => "before-effect",
            Self::InFlight => "in-flight",
            Self::AfterEffect => "after-effect",
            Self::Settling => "settling",
            Self::BetweenSteps => "between-steps",
            Self::AfterLetter => "after-letter",
            Self::AwaitingApproval => "awaiting-approval",
        }
    }

    /// What is true at this instant.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::BeforeEffect => "the intent to pay is recorded, nothing is sent",
            Self::InFlight => "the bank is at work on the refund, no answer yet",
            Self::AfterEffect => "the bank has paid, the journal does not know it",
            Self::Settling => "paid and recorded, the thread sleeps",
            Self::BetweenSteps => "paid and settled, the letter is not begun",
            Self::AfterLetter => "the letter is written, the journal does not know it",
            Self::AwaitingApproval => "a person was asked, nothing runs",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The `nth` arrival at a point, counted from 1 in this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldAt {
    /// The point.
    pub point: Point,
    /// Which arrival.
    pub nth: u32,
}

impl fmt::Display for HoldAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.point, self.nth)
    }
}

impl FromStr for HoldAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (point, nth) = text.split_once(':').unwrap_or((text, "1"));
        let found = Point::ALL.into_iter().find(|known| known.as_str() == point);
        let point = found.ok_or_else(|| {
            let known: Vec<_> = Point::ALL.iter().map(|point| point.as_str()).collect();
            format!("{point:?} is not a point; the points are {}", known.join(", "))
        })?;
        match nth.parse() {
            Ok(nth) if nth > 0 => Ok(Self { point, nth }),
            _ => Err(format!("{nth:?} is not a count from 1; write {point}:2")),
        }
    }
}

/// Which instants are held. The default holds none.
#[derive(Debug)]
pub struct Holds {
    state: Mutex<State>,
    /// Whether the threads that an earlier kill has interrupted are past what was interrupted.
    recovered: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    at: Vec<HoldAt>,
    /// Not counted: a step that dies again and again would be parked as poison, and rightly so.
    interrupted: HashSet<ThreadId>,
    armed: bool,
    held: bool,
}

impl Default for Holds {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Holds {
    /// Holds that are not armed yet.
    #[must_use]
    pub fn new(at: Vec<HoldAt>) -> Self {
        let state = State { at, ..State::default() };
        Self { state: Mutex::new(state), recovered: watch::Sender::new(false) }
    }

    /// Begins to count. Arrivals of threads that an earlier kill has interrupted do not count.
    pub fn arm(&self, interrupted: HashSet<ThreadId>) {
        let mut state = self.lock();
        state.interrupted = interrupted;
        state.armed = true;
    }

    /// Says that the interrupted threads are past what was interrupted; holds wait for it, so
    /// that no kill meets one thread twice in the same step.
    pub fn recovered(&self) {
        self.recovered.send_replace(true);
    }

    /// Counts an arrival, and never returns from the one that is held.
    pub async fn reach(&self, point: Point, thread: &ThreadId) {
        if self.is_held(point, thread) {
            self.hold(point, thread).await;
        }
    }

    /// Counts an arrival, and never returns from the one that is held; `work` is then begun and
    /// left under way.
    pub async fn reach_during<T>(
        &self,
        point: Point,
        thread: &ThreadId,
        work: impl Future<Output = T>,
    ) -> T {
        if !self.is_held(point, thread) {
            return work.await;
        }
        self.until_recovered().await;
        let mut work = pin!(work);
        match tokio::time::timeout(UNDER_WAY, work.as_mut()).await {
            // Too quick to be held, as a refusal is: the next arrival is the one.
            Ok(over) => {
                self.hold_the_next(point);
                over
            }
            Err(_) => {
                self.hold(point, thread).await;
                work.await
            }
        }
    }

    /// Counts an arrival in a workflow's own code, which must not wait for anything that the
    /// journal does not know: it blocks its thread instead. Needs a runtime with several threads.
    pub fn reach_in_code(&self, point: Point, thread: &ThreadId) {
        if self.is_held(point, thread) {
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(self.hold(point, thread));
            });
        }
    }

    /// Whether this arrival is the one to be held; counts it.
    fn is_held(&self, point: Point, thread: &ThreadId) -> bool {
        let mut state = self.lock();
        if !state.armed || state.interrupted.contains(thread) {
            return false;
        }
        let Some(at) = state.at.iter_mut().find(|at| at.point == point && at.nth > 0) else {
            return false;
        };
        at.nth -= 1;
        at.nth == 0
    }

    fn hold_the_next(&self, point: Point) {
        let mut state = self.lock();
        if let Some(at) = state.at.iter_mut().find(|at| at.point == point) {
            at.nth = at.nth.max(1);
        }
    }

    async fn hold(&self, point: Point, thread: &ThreadId) {
        self.until_recovered().await;
        // The first one to get here is the instant; others go on as if nothing were held.
        if std::mem::replace(&mut self.lock().held, true) {
            return;
        }
        let thread = thread.to_string();
        note::say(&Note::Holding { point, thread });
        std::future::pending().await
    }

    async fn until_recovered(&self) {
        let mut told = self.recovered.subscribe();
        // The sender lives in `self`, so the wait ends by the value alone.
        let _recovered = told.wait_for(|is| *is).await.is_ok();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_as_they_are_written() {
        for point in Point::ALL {
            let at = HoldAt { point, nth: 3 };
            assert_eq!(at.to_string().parse(), Ok(at));
        }
        assert_eq!("in-flight".parse::<HoldAt>().unwrap().nth, 1);
        for bad in ["", "pay:1", "in-flight:0", "in-flight:x", "in-flight:"] {
            assert!(bad.parse::<HoldAt>().is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn the_nth_arrival_is_held_and_interrupted_threads_do_not_count() {
        let holds = Holds::new(vec!["before-effect:2".parse().unwrap()]);
        let [a, b, c] = ["a", "b", "c"].map(|id| ThreadId::new(id).unwrap());
        let point = Point::BeforeEffect;
        holds.reach(point, &a).await;
        holds.arm(HashSet::from([a.clone()]));
        holds.recovered();
        for thread in [&a, &b, &a] {
            holds.reach(point, thread).await;
        }
        holds.reach(Point::AfterEffect, &c).await;
        let short = Duration::from_millis(50);
        assert!(tokio::time::timeout(short, holds.reach(point, &c)).await.is_err());
        holds.reach(point, &c).await;
    }

    #[tokio::test]
    async fn an_arrival_that_is_too_quick_leaves_the_hold_to_the_next() {
        let holds = Holds::new(vec!["in-flight".parse().unwrap()]);
        let thread = ThreadId::new("a").unwrap();
        holds.arm(HashSet::new());
        holds.recovered();
        assert_eq!(holds.reach_during(Point::InFlight, &thread, async { 7 }).await, 7);
        let slow = holds.reach_during(Point::InFlight, &thread, std::future::pending::<()>());
        assert!(tokio::time::timeout(Duration::from_millis(50), slow).await.is_err());
        assert!(holds.lock().held);
    }

    #[tokio::test]
    async fn a_hold_waits_until_the_interrupted_threads_are_done() {
        let holds = Holds::new(vec!["after-effect".parse().unwrap()]);
        let thread = ThreadId::new("a").unwrap();
        holds.arm(HashSet::new());
        let short = Duration::from_millis(30);
        let held = holds.reach(Point::AfterEffect, &thread);
        assert!(tokio::time::timeout(short, held).await.is_err());
        assert!(!holds.lock().held);
    }
}
