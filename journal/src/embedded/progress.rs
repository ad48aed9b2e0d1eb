//! How far something has come that takes its time.

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Records are copied into another file.
    Copy,
    /// Every page and every record is read and checked.
    Verify,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Records that are done.
    pub records: u64,
    /// Records in all, as far as is known; more may come while a journal is written to.
    pub of: u64,
    /// Bytes that were read for it.
    pub bytes: u64,
}

/// Who is told how far it has come. What it says decides whether to go on.
pub(super) type Watch<'w> = dyn FnMut(Progress) -> bool + Send + 'w;
