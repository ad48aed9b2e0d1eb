//! Faults of the runtime that are planted on purpose, to see that tests find them; and chance that
//! a seed decides.
//!
//! Only with the feature `planted-faults`, which no build for use has; without it nothing of this
//! is compiled but a constant `false`. Both are those of one OS thread, so that simulations can
//! run side by side.

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// The second call of a place has the occurrence of the first one.
    ReuseOccurrence,
    /// Recorded arguments are not compared with those of the code.
    IgnoreArguments,
    /// A signal is delivered again after it was.
    StickySignal,
    /// A message is admitted twice.
    AdmitTwice,
    /// The latest outcome is offered first.
    OfferLatestFirst,
    /// A timer is set for half of its time.
    EarlyTimer,
    /// The next attempt does not wait.
    RetryAtOnce,
    /// What a probe says counts at once, with requests still on their way.
    BelieveProbeEarly,
    /// The operation key does not depend on the journal.
    KeyWithoutNamespace,
    /// The operation key does not depend on the thread.
    KeyWithoutScope,
    /// A body begins before its intent is durable.
    BodyBeforeIntent,
    /// The body of a settled step runs again in a replay.
    RunSettledAgain,
    /// A step is settled twice.
    SettleTwice,
    /// A step that may run once runs again when nobody knows whether it had its effect.
    RerunInDoubt,
    /// A step that failed for good is tried again.
    RetryTerminal,
    /// A cancelled thread goes on.
    IgnoreCancellation,
    /// A run goes on though another one has taken its thread over.
    IgnoreFence,
    /// An end is told before it is durable.
    TellEndEarly,
    /// No fault by itself: the runtime does not check what it writes.
    WriteUnchecked,
}

impl Broken {
    /// All that are faults by themselves.
    pub const ALL: [Self; 18] = [
        Self::ReuseOccurrence,
        Self::IgnoreArguments,
        Self::StickySignal,
        Self::AdmitTwice,
        Self::OfferLatestFirst,
        Self::EarlyTimer,
        Self::RetryAtOnce,
        Self::BelieveProbeEarly,
        Self::KeyWithoutNamespace,
        Self::KeyWithoutScope,
        Self::BodyBeforeIntent,
        Self::RunSettledAgain,
        Self::SettleTwice,
        Self::RerunInDoubt,
        Self::RetryTerminal,
        Self::IgnoreCancellation,
        Self::IgnoreFence,
        Self::TellEndEarly,
    ];
}

#[cfg(feature = "planted-faults")]
mod switch {
    use std::cell::Cell;

    use super::Broken;

    thread_local! {
        static PLANTED: Cell<u32> = const { Cell::new(0) };
        static CHANCE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Plants these faults on this OS thread, in place of those before.
    pub fn plant(faults: &[Broken]) {
        PLANTED.set(faults.iter().fold(0, |all, fault| all | 1 << (*fault as u32)));
    }

    /// Draws what the runtime draws by chance on this OS thread from a seed; `None` for real
    /// chance. For tests that need the same bytes twice.
    pub fn draw_from(seed: Option<u64>) {
        CHANCE.set(seed);
    }

    /// Fills `bytes` with what the seed gives next, if there is one.
    pub(crate) fn drawn(bytes: &mut [u8]) -> bool {
        let Some(mut seed) = CHANCE.get() else {
            return false;
        };
        for piece in bytes.chunks_mut(8) {
            // SplitMix64: any generator will do.
            seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            for (byte, drawn) in piece.iter_mut().zip((z ^ (z >> 31)).to_le_bytes()) {
                *byte = drawn;
            }
        }
        CHANCE.set(Some(seed));
        true
    }

    pub(crate) fn planted(fault: Broken) -> bool {
        PLANTED.get() & 1 << (fault as u32) != 0
    }
}

#[cfg(feature = "planted-faults")]
pub use switch::{draw_from, plant};
#[cfg(feature = "planted-faults")]
pub(crate) use switch::{drawn, planted};

#[cfg(not(feature = "planted-faults"))]
pub(crate) const fn planted(_fault: Broken) -> bool {
    false
}

#[cfg(not(feature = "planted-faults"))]
pub(crate) const fn drawn(_bytes: &mut [u8]) -> bool {
    false
}
