//! How much to measure.

use std::time::Duration;

/// How much to measure.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// About how long one measurement goes on.
    pub time: Duration,
    /// At least this many rounds.
    pub rounds: usize,
    /// Whether everything is small: to see that it works, not to take figures.
    pub quick: bool,
}

impl Effort {
    /// Rates over about this time each, and everything in full size.
    #[must_use]
    pub fn whole(time: Duration) -> Self {
        Self { time, rounds: 5, quick: false }
    }

    /// One round of each, and small.
    #[must_use]
    pub fn quick() -> Self {
        Self { time: Duration::ZERO, rounds: 1, quick: true }
    }

    /// One of two sizes.
    #[must_use]
    pub fn pick<T>(self, whole: T, quick: T) -> T {
        if self.quick { quick } else { whole }
    }
}
