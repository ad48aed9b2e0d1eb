//! Faults that are planted on purpose, to see that tests find them.
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
    /// A damaged frame before others is taken for a torn one (W5).
    IgnoreDamagedFrame,
    /// A journal that was not closed is opened without its log (W8).
    OpenWithoutLog,
    /// The name of a new file of the log is not made durable (W12).
    SkipFolderSync,
}

#[cfg(feature = "planted-faults")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Broken;

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Plants a fault in this process, in place of the one before; `None` plants none.
    pub fn plant(fault: Option<Broken>) {
        PLANTED.store(fault.map_or(0, |f| f as u8 + 1), Ordering::SeqCst);
    }

    pub(in super::super) fn planted(fault: Broken) -> bool {
        PLANTED.load(Ordering::Relaxed) == fault as u8 + 1
    }
}

#[cfg(feature = "planted-faults")]
pub use switch::plant;
#[cfg(feature = "planted-faults")]
pub(super) use switch::planted;

#[cfg(not(feature = "planted-faults"))]
pub(super) const fn planted(_fault: Broken) -> bool {
    false
}
