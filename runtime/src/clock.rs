//! Time: the wall clock that homes are given, and waiting for a time.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use deedbook_journal::{checkpointer::BoxFuture, id::StoreTime};
use tokio::sync::Notify;

/// Nanoseconds since 1970 by some wall clock.
pub type TimeSource = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A clock: what time it is, and how to wait.
///
/// The time that is recorded is the *store's* ([`Checkpointer::now`]), which a home derives from
/// [`Clock::source`] and never lets go back.
///
/// [`Checkpointer::now`]: deedbook_journal::checkpointer::Checkpointer::now
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall clock for a home to read; `None` for the machine's own clocks.
    fn source(&self) -> Option<TimeSource>;

    /// Resolves when the time `until` has come, if it is `now`.
    fn sleep(&self, now: StoreTime, until: StoreTime) -> BoxFuture<'static, ()>;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn source(&self) -> Option<TimeSource> {
        None
    }

    #[expect(clippy::disallowed_methods, reason = "this module owns waiting")]
    fn sleep(&self, now: StoreTime, until: StoreTime) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(until.since(now)))
    }
}

/// A clock that stands still until it is moved: for tests.
///
/// ```
/// use std::time::Duration;
/// use deedbook::VirtualClock;
///
/// let clock = VirtualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<Virtual>);

#[derive(Debug, Default)]
struct Virtual {
    state: Mutex<VirtualState>,
    moved: Notify,
}

#[derive(Debug)]
struct VirtualState {
    now: StoreTime,
    /// The times that somebody sleeps until.
    sleepers: Vec<StoreTime>,
}

impl Default for VirtualState {
    fn default() -> Self {
        // 2026-01-01, so that times look like times.
        Self { now: StoreTime(1_767_225_600_000_000_000), sleepers: Vec::new() }
    }
}

impl VirtualClock {
    /// A clock at 2026-01-01T00:00:00Z.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> StoreTime {
        self.0.state().now
    }

    /// Moves the clock.
    pub fn advance(&self, by: Duration) {
        let mut state = self.0.state();
        state.now = state.now.after(by);
        drop(state);
        self.0.moved.notify_waiters();
    }

    /// Moves the clock to the earliest time that somebody sleeps until, and says whether there
    /// was one.
    pub fn advance_to_next(&self) -> bool {
        let mut state = self.0.state();
        let now = state.now;
        let Some(next) = state.sleepers.iter().copied().filter(|t| *t > now).min() else {
            return false;
        };
        state.now = next;
        drop(state);
        self.0.moved.notify_waiters();
        true
    }
}

impl Virtual {
    fn state(&self) -> std::sync::MutexGuard<'_, VirtualState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    fn source(&self) -> Option<TimeSource> {
        let clock = self.clone();
        Some(Arc::new(move || clock.now().0))
    }

    fn sleep(&self, _now: StoreTime, until: StoreTime) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            let _sleeper = Sleeper::new(&clock, until);
            loop {
                let moved = clock.0.moved.notified();
                let mut moved = std::pin::pin!(moved);
                // Listening before looking: a move in between is not missed.
                moved.as_mut().enable();
                if clock.now() >= until {
                    return;
                }
                moved.await;
            }
        })
    }
}

/// Somebody who sleeps, for as long as it lives.
struct Sleeper {
    clock: VirtualClock,
    until: StoreTime,
}

impl Sleeper {
    fn new(clock: &VirtualClock, until: StoreTime) -> Self {
        clock.0.state().sleepers.push(until);
        Self { clock: clock.clone(), until }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let mut state = self.clock.0.state();
        if let Some(at) = state.sleepers.iter().position(|t| *t == self.until) {
            state.sleepers.swap_remove(at);
        }
    }
}
