//! What a record says, and what its payloads are to it.

/// What happened. A kind that this version does not know keeps its word, so that it can be shown
/// and verified, and is refused by replay.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the words are the format's; record-format.md explains each")]
pub enum Kind {
    RunStart,
    RunEnd,
    ThreadStart,
    ThreadResume,
    ThreadContinue,
    ThreadFork,
    ThreadEnd,
    StepIntent,
    StepDone,
    StepFail,
    StepUnknown,
    StepDenied,
    StepResolve,
    StepReused,
    StepLate,
    ChildStart,
    ChildEnd,
    ApprovalRequest,
    ApprovalDecide,
    Signal,
    MessageRefused,
    TimerSet,
    TimerFired,
    Clock,
    ClockStep,
    Marker,
    Override,
    Export,
    Seal,
    Anchor,
    KeyRotate,
    Redact,
    Prune,
    Restore,
    Unknown(Box<str>),
}

macro_rules! words {
    ($($kind:ident = $word:literal,)*) => {
        impl Kind {
            /// Every kind of format version 1.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The word in the header's field `k`.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$kind => $word,)*
                    Self::Unknown(word) => word,
                }
            }

            /// The kind with this word.
            #[must_use]
            pub fn from_word(word: &str) -> Self {
                match word {
                    $($word => Self::$kind,)*
                    _ => Self::Unknown(word.into()),
                }
            }
        }
    };
}

words! {
    RunStart = "run.start",
    RunEnd = "run.end",
    ThreadStart = "thread.start",
    ThreadResume = "thread.resume",
    ThreadContinue = "thread.continue",
    ThreadFork = "thread.fork",
    ThreadEnd = "thread.end",
    StepIntent = "step.intent",
    StepDone = "step.done",
    StepFail = "step.fail",
    StepUnknown = "step.unknown",
    StepDenied = "step.denied",
    StepResolve = "step.resolve",
    StepReused = "step.reused",
    StepLate = "step.late",
    ChildStart = "child.start",
    ChildEnd = "child.end",
    ApprovalRequest = "approval.request",
    ApprovalDecide = "approval.decide",
    Signal = "signal",
    MessageRefused = "message.refused",
    TimerSet = "timer.set",
    TimerFired = "timer.fired",
    Clock = "clock",
    ClockStep = "clock.step",
    Marker = "marker",
    Override = "override",
    Export = "export",
    Seal = "seal",
    Anchor = "anchor",
    KeyRotate = "key.rotate",
    Redact = "redact",
    Prune = "prune",
    Restore = "restore",
}

/// What a payload is to its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The arguments of a step.
    Args,
    /// An error: kind, message and causes.
    Error,
    /// The input of a thread.
    Input,
    /// A remark, a reason, or process facts.
    Note,
    /// The result of a step or of a thread.
    Result,
    /// What a person was shown before deciding.
    Shown,
    /// The content of a signal, a marker or a recorded reading.
    Value,
}

impl Role {
    /// Every role, in the order of their words.
    pub const ALL: [Self; 7] =
        [Self::Args, Self::Error, Self::Input, Self::Note, Self::Result, Self::Shown, Self::Value];

    /// The word in the header's field `pay`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Args => "args",
            Self::Error => "error",
            Self::Input => "input",
            Self::Note => "note",
            Self::Result => "result",
            Self::Shown => "shown",
            Self::Value => "value",
        }
    }

    /// The role with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == word)
    }
}
