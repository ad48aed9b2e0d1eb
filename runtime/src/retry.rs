//! How often, and how soon, an attempt is followed by another.

use std::time::Duration;

use deedbook_journal::policy::Terms;

/// How often and how soon a step is tried again: exponential, with up to a fifth taken off at
/// random. The time of the next attempt is recorded, so that a restart neither starts the count
/// anew nor shortens the wait.
///
/// ```
/// use std::time::Duration;
/// use deedbook::Retry;
///
/// let gentle = Retry::attempts(4).first(Duration::from_secs(1)).most(Duration::from_secs(60));
/// assert_eq!(gentle.wait_after(1), Duration::from_secs(1));
/// assert_eq!(gentle.wait_after(3), Duration::from_secs(4));
/// assert_eq!(gentle.wait_after(30), Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    pub(crate) attempts: u32,
    pub(crate) first: Duration,
    pub(crate) most: Duration,
}

impl Retry {
    /// At most this many attempts, the first included; at least one.
    #[must_use]
    pub const fn attempts(attempts: u32) -> Self {
        let attempts = if attempts == 0 { 1 } else { attempts };
        Self { attempts, first: Duration::from_millis(200), most: Duration::from_secs(30) }
    }

    /// One attempt.
    #[must_use]
    pub const fn never() -> Self {
        Self::attempts(1)
    }

    /// The wait after the first attempt. Default 200 ms.
    #[must_use]
    pub const fn first(mut self, wait: Duration) -> Self {
        self.first = wait;
        self
    }

    /// The longest wait. Default 30 s.
    #[must_use]
    pub const fn most(mut self, wait: Duration) -> Self {
        self.most = wait;
        self
    }

    /// The wait after this attempt, before anything is taken off at random.
    #[must_use]
    pub fn wait_after(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::attempts(Terms::ATTEMPTS_MAX)
    }
}
