//! The store's clock: the wall clock, kept from going back.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use crate::id::StoreTime;

/// Wall time in nanoseconds since 1970-01-01T00:00:00Z; tests bring their own.
pub type TimeSource = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A clock that is never earlier than any time it has returned or was told of.
///
/// It follows the wall clock forward. When the wall clock is set back, it goes on by the
/// monotonic clock from where it was. With a [`TimeSource`] of its own it follows that instead,
/// and stands still while the source is behind.
pub struct StoreClock {
    source: Option<TimeSource>,
    /// The latest time and, without a source, the instant at which it was so.
    anchor: Mutex<(u64, Option<Instant>)>,
}

impl StoreClock {
    /// A clock that follows `source`, or the system's clocks without one.
    #[must_use]
    pub fn new(source: Option<TimeSource>) -> Self {
        let anchor = match &source {
            Some(_) => (0, None),
            None => (wall(), Some(monotonic())),
        };
        Self { source, anchor: Mutex::new(anchor) }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> StoreTime {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let (latest, since) = *anchor;
        match (&self.source, since) {
            (None, Some(since)) => {
                let instant = monotonic();
                let passed = instant.saturating_duration_since(since).as_nanos();
                let passed = u64::try_from(passed).unwrap_or(u64::MAX);
                *anchor = (wall().max(latest.saturating_add(passed)), Some(instant));
            }
            (Some(source), _) => anchor.0 = source().max(latest),
            (None, None) => anchor.0 = wall().max(latest),
        }
        StoreTime(anchor.0)
    }

    /// Whether it has been so late. The clock is read only where nobody has read it since.
    #[must_use]
    pub fn has_reached(&self, time: StoreTime) -> bool {
        let latest = self.anchor.lock().unwrap_or_else(PoisonError::into_inner).0;
        time.0 <= latest || time <= self.now()
    }

    /// Never again answers with a time before `time`.
    pub fn not_before(&self, time: StoreTime) {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        if time.0 > anchor.0 {
            *anchor = (time.0, anchor.1.map(|_| monotonic()));
        }
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreClock")
            .field("own_source", &self.source.is_some())
            .finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "this module owns the store's clock")]
fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "this module owns the store's clock")]
pub(super) fn monotonic() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn it_never_goes_back() {
        let wall = Arc::new(AtomicU64::new(100));
        let source = Arc::clone(&wall);
        let clock = StoreClock::new(Some(Arc::new(move || source.load(Ordering::Relaxed))));
        assert_eq!(clock.now(), StoreTime(100));
        wall.store(40, Ordering::Relaxed);
        assert_eq!(clock.now(), StoreTime(100));
        clock.not_before(StoreTime(150));
        assert_eq!(clock.now(), StoreTime(150));
        wall.store(151, Ordering::Relaxed);
        assert_eq!(clock.now(), StoreTime(151));
    }

    #[test]
    fn the_system_clock_goes_on_behind_a_recorded_time() {
        let clock = StoreClock::new(None);
        let future = clock.now().after(std::time::Duration::from_secs(3600));
        clock.not_before(future);
        let first = clock.now();
        assert!(first >= future);
        while clock.now() == first {}
        assert!(clock.now().since(future) < std::time::Duration::from_secs(60));
    }
}
