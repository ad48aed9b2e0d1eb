//! What a step allows after a crash.

use std::time::Duration;

/// The policy of a step, as declared and as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// No effect outside: it may run again as long as its outcome is not durable.
    Read,
    /// The downstream honours the operation key: it may be sent again under the same key.
    Idempotent,
    /// The downstream can be asked whether the effect happened.
    Reconcile,
    /// Neither: an attempt that may have had its effect is left to a person.
    AtMostOnce,
}

impl Policy {
    /// The word in records and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Reconcile => "reconcile",
            Self::AtMostOnce => "at_most_once",
        }
    }

    /// The policy with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Read, Self::Idempotent, Self::Reconcile, Self::AtMostOnce]
            .into_iter()
            .find(|p| p.as_str() == word)
    }

    /// Whether a body under this policy may change the world outside.
    #[must_use]
    pub fn has_effect(self) -> bool {
        !matches!(self, Self::Read)
    }
}

/// What a step declares beside its policy; recorded in its intent, and settled by after a crash
/// as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The policy.
    pub policy: Policy,
    /// How long an attempt may take.
    pub timeout: Duration,
    /// How long after the first send the downstream honours the operation key
    /// ([`Policy::Idempotent`]); `None` for ever.
    pub window: Option<Duration>,
    /// How long after the last send a probe's "it did not happen" counts
    /// ([`Policy::Reconcile`]).
    pub quiet: Duration,
    /// Whether the thread may end while this step is in doubt.
    pub abandon: bool,
    /// How many attempts there may be, those that died with their process included.
    pub attempts_max: u32,
}

impl Terms {
    /// How long an attempt may take, unless the step says otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(300);
    /// What is added to the timeout before a probe's "it did not happen" counts, unless the step
    /// says otherwise: a request sent at the last moment may still be on its way.
    pub const QUIET_BEYOND_TIMEOUT: Duration = Duration::from_secs(60);
    /// How many attempts there may be, unless the step says otherwise.
    pub const ATTEMPTS_MAX: u32 = 10;
    /// Kept free before the end of a window, for clocks that differ and requests in flight.
    pub const WINDOW_MARGIN: Duration = Duration::from_secs(60);

    /// The terms of a policy with every default.
    #[must_use]
    pub const fn of(policy: Policy) -> Self {
        Self {
            policy,
            timeout: Self::TIMEOUT,
            window: None,
            quiet: Duration::from_secs(
                Self::TIMEOUT.as_secs() + Self::QUIET_BEYOND_TIMEOUT.as_secs(),
            ),
            abandon: false,
            attempts_max: Self::ATTEMPTS_MAX,
        }
    }

    /// How long after the last send a probe's "it did not happen" counts, unless the step says
    /// otherwise: the timeout, and a minute.
    #[must_use]
    pub const fn usual_quiet(&self) -> Duration {
        self.timeout.saturating_add(Self::QUIET_BEYOND_TIMEOUT)
    }

    /// The margin kept free before the end of a window: a minute, or a tenth of a window shorter
    /// than ten minutes.
    #[must_use]
    pub fn margin(window: Duration) -> Duration {
        Self::WINDOW_MARGIN.min(window / 10)
    }
}
