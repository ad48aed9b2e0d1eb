//! What came of all threads of an export.

use std::{
    fmt::{self, Display},
    path::{Path, PathBuf},
};

use deedbook::{Divergence, DivergenceKind, OtherPolicy};

/// How many threads are told of one by one.
const TOLD_MAX: usize = 50;

/// What a [`ReplayCheck`](crate::ReplayCheck) has found.
#[derive(Debug)]
pub struct Replays {
    path: PathBuf,
    /// What is wrong with the file.
    pub(super) file: Vec<String>,
    pub(super) threads: Vec<WasReplayed>,
    pub(super) gone: usize,
    pub(super) knows_namespace: bool,
}

/// What came of one thread.
#[derive(Debug)]
#[non_exhaustive]
pub struct WasReplayed {
    /// The thread's id.
    pub thread: String,
    /// Its workflow.
    pub workflow: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Its steps that the code makes under another policy than is recorded. That is no
    /// divergence: for what is recorded the recorded policy holds.
    pub other_policies: Vec<OtherPolicy>,
}

/// What a replay comes to.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It goes as recorded: to the recorded end with the recorded outcome, to where the record
    /// ends, or to where the thread was cancelled.
    Replays,
    /// The code disagrees with the records.
    Diverges(Divergence),
    /// It ends otherwise than recorded, or not where it ended then.
    OtherResult {
        /// How it ended then.
        recorded: String,
        /// What the code does there now.
        now: String,
    },
    /// It cannot go on: the code panics, waits for something that is not in the journal, or
    /// cannot read the recorded input.
    Stops(String),
    /// Its workflow is not hosted.
    NoSuchWorkflow,
    /// Its records are not whole.
    Damaged(String),
    /// A payload that a replay needs was erased: nothing can be said of it, and nothing is wrong.
    Erased(String),
}

impl Verdict {
    /// Whether something is wrong with the thread or with the code.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        !matches!(self, Self::Replays | Self::Erased(_))
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Replays => "as recorded",
            Self::Diverges(_) => "diverged",
            Self::OtherResult { .. } => "ended otherwise",
            Self::Stops(_) => "stopped",
            Self::NoSuchWorkflow => "of a workflow that is not hosted",
            Self::Damaged(_) => "damaged",
            Self::Erased(_) => "not replayed, for payloads that were erased",
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replays => f.write_str("as recorded"),
            Self::Diverges(divergence) => write!(f, "diverged: {divergence}"),
            Self::OtherResult { recorded, now } => {
                write!(f, "ended otherwise: recorded is {recorded}; now: {now}")
            }
            Self::Stops(why) => write!(f, "stopped: {why}"),
            Self::NoSuchWorkflow => f.write_str(
                "its workflow is not hosted here; host it, or say with `.gone(..)` that its \
                 threads need no code any more",
            ),
            Self::Damaged(why) => {
                write!(f, "damaged: {why}; export it anew, or ask `deedbook verify --export`")
            }
            Self::Erased(why) => write!(f, "erased: {why}"),
        }
    }
}

impl Replays {
    pub(super) fn of(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path, file: Vec::new(), threads: Vec::new(), gone: 0, knows_namespace: false }
    }

    /// Whether the file is whole, at least one thread was replayed, and nothing is wrong with any.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        let replayed = self.count(|verdict| *verdict == Verdict::Replays);
        self.file.is_empty() && replayed > 0 && self.count(Verdict::is_wrong) == 0
    }

    /// What came of each thread, in the order of their ids.
    #[must_use]
    pub fn threads(&self) -> &[WasReplayed] {
        &self.threads
    }

    /// What is wrong with the file itself: lines that are no records, or that are missing.
    #[must_use]
    pub fn file(&self) -> &[String] {
        &self.file
    }

    /// How many threads have such a verdict.
    #[must_use]
    pub fn count(&self, such: impl Fn(&Verdict) -> bool) -> usize {
        self.threads.iter().filter(|thread| such(&thread.verdict)).count()
    }
}

impl Display for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads.len();
        writeln!(f, "{}: {threads} thread{}", self.path.display(), plural(threads))?;
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for thread in &self.threads {
            let words = thread.verdict.words();
            match counts.iter_mut().find(|(known, _)| *known == words) {
                Some((_, count)) => *count += 1,
                None => counts.push((words, 1)),
            }
        }
        for (words, count) in counts {
            writeln!(f, "  {count:>6} {words}")?;
        }
        if self.gone > 0 {
            writeln!(f, "  {:>6} not replayed, of workflows that are gone", self.gone)?;
        }
        for wrong in &self.file {
            writeln!(f, "- the file: {wrong}")?;
        }
        if self.count(|verdict| *verdict == Verdict::Replays) == 0 {
            writeln!(f, "- nothing was replayed as recorded, so nothing is shown by this")?;
        }
        let told = |was: &&WasReplayed| was.verdict != Verdict::Replays;
        for was in self.threads.iter().filter(told).take(TOLD_MAX) {
            writeln!(f, "- {:?} ({}) {}", was.thread, was.workflow, was.verdict)?;
        }
        let more = self.threads.iter().filter(told).count().saturating_sub(TOLD_MAX);
        if more > 0 {
            writeln!(f, "- and {more} more")?;
        }
        self.notes(f)
    }
}

impl Replays {
    /// What helps to read the rest.
    fn notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.threads.iter().flat_map(|was| {
            was.other_policies.iter().map(move |other| format!("{:?}: {other}", was.thread))
        });
        for other in others.take(TOLD_MAX) {
            writeln!(f, "  note: {other}; what is recorded keeps its policy")?;
        }
        let arguments = |verdict: &Verdict| match verdict {
            Verdict::Diverges(divergence) => {
                matches!(divergence.kind, DivergenceKind::Arguments(_))
            }
            Verdict::OtherResult { .. } => true,
            _ => false,
        };
        if !self.knows_namespace && self.count(arguments) > 0 {
            writeln!(
                f,
                "  note: if the value comes from `ctx.uuid()` or `ctx.random()`, give the journal's \
                 namespace with `ReplayCheck::namespace`"
            )?;
        }
        Ok(())
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
