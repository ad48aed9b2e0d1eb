//! Faults that are planted on purpose, to see that tests find them; and chance that a seed decides.
//!
//! Only with the feature `planted-faults`, which no build for use has; without it nothing of this
//! is compiled but a constant `false`.

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// A frame is acknowledged without its sync.
    SkipSync,
    /// What is in line is told that it is durable before the frame is written.
    TellEarly,
    /// A file is used again under the generation that it had (W4).
    StaleGeneration,
    /// A drain takes a group that is written and not synced (W2).
    DrainUnsynced,
    /// A drain does not say how far the tables go (W3).
    DrainWithoutSettled,
    /// What was found is served as it is read, without making it durable (W6).
    TrustFoundFrames,
    /// The first write after an open goes behind the frames that were found (W6).
    AppendBehindFrames,
    /// A sync that failed is tried again, and what it says then is believed (W7).
    TrySyncAgain,
    /// A commit of the tables has one phase (W11).
    OnePhaseCommit,
    /// A checksum that does not fit is no error (G9).
    SkipChecksum,
    /// A damaged frame before others is taken for a torn one (W5).
    IgnoreDamagedFrame,
    /// A journal that was not closed is opened without its log (W8).
    OpenWithoutLog,
    /// The name of a new file of the log is not made durable (W12).
    SkipFolderSync,
    /// A new file of the log is used before its title is durable (W12).
    SkipTitleSync,
    /// Old files of the log go while what says that they are settled may not be durable (W6).
    TrustFoundTables,
    /// The files of the log are used again before the tables have what is in them (W3).
    ReleaseEarly,
    /// The handle lives on when the log could not be written (W7).
    LiveOn,
    /// A commit that failed and may have happened is said not to have happened (W7).
    CallItFailed,
    /// An older copy in the place of a newer one is opened (W5).
    IgnoreAnchor,
    /// A record of an owner that has lost its thread is taken (G6).
    SkipFence,
    /// Whoever is first in line is not woken when a round is over.
    LoseWakeup,
    /// One of those who wait for a write is not told that it has failed.
    LeaveOut,
}

impl Broken {
    /// Those that show on a disk.
    pub const ALL: [Self; 20] = [
        Self::SkipSync,
        Self::TellEarly,
        Self::StaleGeneration,
        Self::DrainUnsynced,
        Self::DrainWithoutSettled,
        Self::TrustFoundFrames,
        Self::AppendBehindFrames,
        Self::TrySyncAgain,
        Self::OnePhaseCommit,
        Self::SkipChecksum,
        Self::IgnoreDamagedFrame,
        Self::OpenWithoutLog,
        Self::SkipFolderSync,
        Self::SkipTitleSync,
        Self::TrustFoundTables,
        Self::ReleaseEarly,
        Self::LiveOn,
        Self::CallItFailed,
        Self::IgnoreAnchor,
        Self::SkipFence,
    ];

    /// Those that show in how threads wait for each other.
    pub const OF_WAITING: [Self; 3] = [Self::TellEarly, Self::LoseWakeup, Self::LeaveOut];
}

#[cfg(feature = "planted-faults")]
mod switch {
    use std::sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    };

    use super::Broken;

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Plants a fault in this process, in place of the one before; `None` plants none.
    pub fn plant(fault: Option<Broken>) {
        PLANTED.store(fault.map_or(0, |f| f as u8 + 1), Ordering::SeqCst);
    }

    static CHANCE: Mutex<Option<u64>> = Mutex::new(None);

    /// Draws what is drawn by chance in this process from a seed; `None` for real chance. For
    /// tests that need the same bytes twice, and do one thing after the other.
    pub fn draw_from(seed: Option<u64>) {
        *CHANCE.lock().unwrap_or_else(PoisonError::into_inner) = seed;
    }

    /// What the seed gives next, if there is one.
    pub(in super::super) fn drawn<const N: usize>() -> Option<[u8; N]> {
        let mut chance = CHANCE.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = chance.as_mut()?;
        *seed = seed.wrapping_add(1);
        let mut bytes = [0; N];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        Some(bytes)
    }

    pub(in super::super) fn planted(fault: Broken) -> bool {
        PLANTED.load(Ordering::Relaxed) == fault as u8 + 1
    }
}

#[cfg(feature = "planted-faults")]
pub use switch::{draw_from, plant};
#[cfg(feature = "planted-faults")]
pub(super) use switch::{drawn, planted};

#[cfg(not(feature = "planted-faults"))]
pub(super) const fn planted(_fault: Broken) -> bool {
    false
}

#[cfg(not(feature = "planted-faults"))]
pub(super) const fn drawn<const N: usize>() -> Option<[u8; N]> {
    None
}
