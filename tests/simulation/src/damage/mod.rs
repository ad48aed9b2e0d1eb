//! Bytes change under a journal that nobody has open: an error or no harm, never other data, never
//! a panic, never an endless loop, and what is not damaged stays readable.
//!
//! What no check on the spot can see is counted under a name of its own ([`Residual`]); it is
//! always a state that was acknowledged once, and only where that name allows it.

pub mod apart;
mod fixture;
mod harm;

use std::path::Path;

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, StoreError},
    embedded::{Embedded, OpenError},
    id::ThreadId,
};
use harness::SimDisk;

use self::harm::{Harm, harms};
pub use self::{
    fixture::{Fixture, Which},
    harm::Stride,
};
use crate::{
    book::{Model, Reading, leaves, one_more, thread, wait},
    crew::Tally,
    look::note,
    look::{Wrong, unpanicked},
};

/// What is not detected, as `docs/internals/log.md` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residual {
    /// The last frame of a log that was not marked looks torn.
    LastFrame,
    /// A log that was cut at or before its last frames, or is an older copy of itself.
    CutLog,
    /// An older copy of everything.
    OlderCopy,
}

impl Residual {
    fn name(self) -> &'static str {
        match self {
            Self::LastFrame => "not detected: the last frame looks torn",
            Self::CutLog => "not detected: a log that was cut",
            Self::OlderCopy => "not detected: an older copy of everything",
        }
    }

    /// Which one a harm may be, if any.
    fn of(fixture: &Fixture, harm: &Harm) -> Option<Self> {
        match harm {
            Harm::OldJournal { .. } => Some(Self::OlderCopy),
            Harm::OldFile { .. } if fixture.files.len() == 1 => Some(Self::OlderCopy),
            Harm::Cut { file, .. } | Harm::OldFile { file, .. } if fixture.is_log(*file) => {
                Some(Self::CutLog)
            }
            _ => {
                let (file, from, to) = harm.reach()?;
                let (of, last) = fixture.last_frame.as_ref()?;
                let hit = file == *of && from < last.end && to > last.start;
                (fixture.which == Which::Unmarked && hit).then_some(Self::LastFrame)
            }
        }
    }
}

/// How a damaged journal is opened.
pub type Open = fn(&SimDisk) -> Result<Embedded, OpenError>;

/// Cases, by their numbers.
pub type Cases = std::ops::Range<usize>;

/// How many cases there are.
#[must_use]
pub fn count(fixture: &Fixture, stride: Stride) -> usize {
    harms(fixture, stride).len()
}

/// The command that runs a case again.
pub(crate) fn again(which: Which, stride: Stride, at: usize) -> String {
    let (which, every) = (which.name(), stride.0);
    format!("deedbook-simulation damage --journal {which} --stride {every} --at {at}")
}

/// Runs cases one after the other in this process, and says which one comes next.
///
/// The storage library can end the process here: [`apart::run`] survives that.
#[must_use]
pub fn run(
    fixture: &Fixture,
    stride: Stride,
    cases: Cases,
    open: Open,
    next: impl Fn(usize, &Tally),
) -> Tally {
    let mut all = Tally::default();
    let harms = harms(fixture, stride);
    for (at, harm) in harms.iter().enumerate().take(cases.end).skip(cases.start) {
        next(at, &all);
        let Some(image) = harm.done(fixture) else {
            continue;
        };
        all.count("cases");
        let mut counts = Tally::default();
        let ran = unpanicked(|| one(fixture, harm, &image, open, &mut counts));
        all.merge(counts);
        if let Err(wrong) = ran {
            note(&mut all, &again(fixture.which, stride, at), &format!("{harm:?}"), &wrong);
        }
    }
    all
}

fn one(
    fixture: &Fixture,
    harm: &Harm,
    image: &SimDisk,
    open: Open,
    tally: &mut Tally,
) -> Result<(), Wrong> {
    let book = match open(image) {
        Ok(book) => book,
        Err(error) => {
            if image.operations() != 0 {
                return Err(Wrong::Other(format!("changed although it was refused: {error}")));
            }
            return refused(&error, tally);
        }
    };
    let seen = wait(survey(&book, fixture))?;
    match seen {
        Seen { damaged: 0, found, .. } if found == fixture.model => {
            tally.count("harmless");
        }
        Seen { damaged: 0, found, .. } => {
            let earlier = fixture.earlier.contains(&found);
            match Residual::of(fixture, harm).filter(|_| earlier) {
                Some(residual) => tally.count(residual.name()),
                None => return Err(silent(&found, fixture)),
            }
        }
        Seen { damaged, readable, .. } => {
            tally.count("reported when read");
            tally.add("threads damaged", damaged);
            tally.add("threads readable beside damage", readable);
        }
    }
    // Whatever is damaged: writing works or says so.
    let mut more = Model::default();
    let written = wait(one_more(&book, &mut more));
    tally.count(if written.is_ok() { "written to" } else { "not written to" });
    Ok(())
}

fn refused(error: &OpenError, tally: &mut Tally) -> Result<(), Wrong> {
    tally.count("refused when opened");
    match error {
        OpenError::Damaged { .. }
        | OpenError::Truncated { .. }
        | OpenError::NotAJournal { .. }
        | OpenError::LogMissing { .. }
        | OpenError::NotFound { .. }
        | OpenError::Empty { .. }
        | OpenError::Newer { .. }
        | OpenError::Older { .. }
        | OpenError::RolledBack { .. }
        | OpenError::Io { .. } => Ok(()),
        other => Err(Wrong::Unopenable(format!("refused as something else: {other}"))),
    }
}

fn silent(found: &Model, fixture: &Fixture) -> Wrong {
    let wanted = &fixture.model;
    let differs = wanted.0.iter().find(|(id, thread)| found.0.get(*id) != Some(thread));
    let what = differs.map_or_else(
        || "there are more threads".to_owned(),
        |(id, wanted)| {
            let there = found.0.get(id).map_or(0, |thread| thread.payloads.len());
            format!("{id} has {there} records of {}", wanted.payloads.len())
        },
    );
    Wrong::Other(format!("other data, and no error: {what}"))
}

/// What is read of a damaged journal.
struct Seen {
    /// Threads and lists that are told to be damaged.
    damaged: u64,
    /// Threads that are whole.
    readable: u64,
    /// What was read.
    found: Model,
}

/// Reads everything, each thread by itself. A thread that is read must be right, whatever became
/// of the others.
async fn survey(book: &Embedded, fixture: &Fixture) -> Result<Seen, Wrong> {
    let mut seen = Seen { damaged: 0, readable: 0, found: Model::default() };
    let listed = match book.list(&Filter::default(), None, 1000).await {
        Ok(page) => page.items,
        Err(error) => {
            seen.damaged += reported(&error)?;
            Vec::new()
        }
    };
    let ids = fixture.model.0.keys().map(|id| ThreadId::new(id.as_str()).unwrap());
    let listed_ids = listed.iter().map(|thread| thread.id.clone());
    let mut ids: Vec<_> = ids.chain(listed_ids).collect();
    ids.sort();
    ids.dedup();
    for id in ids {
        match thread(book, &id, Reading::Plain).await {
            Ok(mut found) => {
                let row = listed.iter().find(|thread| thread.id == id);
                found.ended = row.is_some_and(|thread| thread.row.status.is_ended());
                let wanted = fixture.model.0.get(id.as_str());
                let whole = wanted.is_some_and(|wanted| {
                    (&wanted.payloads, &wanted.inbox) == (&found.payloads, &found.inbox)
                });
                seen.readable += u64::from(whole);
                if whole && thread(book, &id, Reading::Verified).await.is_err() {
                    return Err(Wrong::Other(format!("{id} is whole and cannot be exported")));
                }
                if !whole && seen.damaged > 0 && !fixture.has_had(id.as_str(), &found) {
                    return Err(Wrong::Other(format!("{id} is read as something else")));
                }
                seen.found.0.insert(id.as_str().to_owned(), found);
            }
            // A thread of the tables that is not known any more.
            Err(StoreError::NoSuchThread) => {}
            Err(error) => seen.damaged += reported(&error)?,
        }
    }
    match leaves(book).await {
        Ok(leaves) if seen.damaged == 0 && leaves != seen.found.records() => {
            Err(Wrong::Other(format!("the log has {leaves} records, and the threads have others")))
        }
        Ok(_) => Ok(seen),
        Err(error) => {
            seen.damaged += reported(&error)?;
            Ok(seen)
        }
    }
}

/// An error that tells of damage.
fn reported(error: &StoreError) -> Result<u64, Wrong> {
    match error {
        StoreError::Damaged { .. } | StoreError::Failed { .. } => Ok(1),
        other => Err(Wrong::Unopenable(format!("an error that tells nothing: {other}"))),
    }
}

/// Whether a file is one of the log.
pub(crate) fn is_log(path: &Path) -> bool {
    path.to_string_lossy().contains("-log")
}
