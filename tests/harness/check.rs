//! What is checked, by name.

/// A promise that is checked again and again, and counted each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// No effect before its intent is durable.
    Intent,
    /// No effect and no read after its outcome is durable.
    Settled,
    /// One outcome a step.
    OneOutcome,
    /// A key is of one step with one set of arguments, and of no other.
    Keys,
    /// A body runs again only for a reason that is recorded.
    Attempts,
    /// A step that may happen once happens at most once.
    AtMostOnce,
    /// A doubt is settled by somebody, and never passed over.
    Doubts,
    /// A replay does nothing, and sees what the first run saw.
    Replay,
    /// A replay of a part of the records sees the beginning of it.
    Prefix,
    /// Changed code is told so.
    Changed,
    /// No record of an older epoch behind one of a newer one.
    Fence,
    /// No timer and no second attempt before its time.
    Time,
    /// Signals are neither lost nor doubled, and come in the order of their records.
    Signals,
    /// Nothing begins in a thread that is cancelled.
    Cancelled,
    /// What is told of an end is what is recorded.
    Told,
    /// No success after an error on the same handle.
    Dead,
    /// No panic comes out.
    Panic,
    /// Every thread ends.
    Ends,
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Intent,
        Self::Settled,
        Self::OneOutcome,
        Self::Keys,
        Self::Attempts,
        Self::AtMostOnce,
        Self::Doubts,
        Self::Replay,
        Self::Prefix,
        Self::Changed,
        Self::Fence,
        Self::Time,
        Self::Signals,
        Self::Cancelled,
        Self::Told,
        Self::Dead,
        Self::Panic,
        Self::Ends,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Intent => "P5 no effect before its intent",
            Self::Settled => "P5 no effect after its outcome",
            Self::OneOutcome => "P5 one outcome a step",
            Self::Keys => "P5 one key a step",
            Self::Attempts => "P5 a body runs again for a recorded reason",
            Self::AtMostOnce => "P7 at most once",
            Self::Doubts => "P7 doubts are settled",
            Self::Replay => "P8 a replay does and sees the same",
            Self::Prefix => "P8 a part sees the beginning",
            Self::Changed => "P8 changed code is told so",
            Self::Fence => "P9 epochs go up",
            Self::Time => "P10 nothing early",
            Self::Signals => "P10 signals once and in order",
            Self::Cancelled => "P10 nothing begins once cancelled",
            Self::Told => "P11 what is told is recorded",
            Self::Dead => "P12 no success after an error",
            Self::Panic => "P12 no panic comes out",
            Self::Ends => "P13 every thread ends",
        }
    }
}
