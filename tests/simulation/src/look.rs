//! Opens what is left on a disk, compares it with what must be there, and writes on.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
    thread,
};

use deedbook_journal::{checkpointer::Checkpointer, embedded::OpenError};
use harness::SimDisk;

use crate::{
    book::{Model, create, everything, one_more, open, wait},
    crew::Tally,
};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'m> {
    /// One of these must be there.
    pub allowed: &'m [&'m Model],
    /// Whether there may be no journal yet: then one must be made.
    pub may_be_absent: bool,
    /// Whether to look at everything again behind the record that is written, to close, and to
    /// look once more: it takes as long as the rest.
    pub close: bool,
}

/// Why an image is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// It could not be opened, read or written to.
    Unopenable(String),
    /// It holds something else than what was acknowledged.
    Other(String),
    /// Code panicked.
    Panic(String),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unopenable(why) | Self::Other(why) => f.write_str(why),
            Self::Panic(why) => write!(f, "a panic: {why}"),
        }
    }
}

/// Opens an image, compares, and writes one record more: what was found, or what is wrong.
///
/// # Errors
/// What is wrong.
pub fn look(image: &SimDisk, wanted: Wanted<'_>) -> Result<Model, Wrong> {
    unpanicked(|| {
        let book = match open(image) {
            Err(OpenError::NotFound { .. }) if wanted.may_be_absent => {
                image.unlock();
                create(image).map_err(|error| Wrong::Unopenable(error.to_string()))?
            }
            opened => opened.map_err(|error| Wrong::Unopenable(error.to_string()))?,
        };
        let found = wait(async {
            let found = everything(&book).await.map_err(failed)?;
            if !wanted.allowed.contains(&&found) {
                return Err(other(&found, wanted.allowed));
            }
            let mut more = found.clone();
            one_more(&book, &mut more).await.map_err(failed)?;
            if wanted.close {
                same(&everything(&book).await.map_err(failed)?, &more)?;
                book.close().await.map_err(failed)?;
            }
            Ok((found, more))
        });
        drop(book);
        let (found, more) = found?;
        if wanted.close {
            image.unlock();
            let book = open(image).map_err(|error| Wrong::Unopenable(error.to_string()))?;
            same(&wait(everything(&book)).map_err(failed)?, &more)?;
        }
        Ok(found)
    })
}

fn failed(error: deedbook_journal::checkpointer::StoreError) -> Wrong {
    Wrong::Unopenable(error.to_string())
}

fn same(found: &Model, wanted: &Model) -> Result<(), Wrong> {
    if found == wanted {
        return Ok(());
    }
    let differs = wanted.0.iter().find(|(id, thread)| found.0.get(*id) != Some(thread));
    let id = differs.map_or("another thread", |(id, _)| id.as_str());
    Err(Wrong::Other(format!("one more record has changed {id}")))
}

fn other(found: &Model, allowed: &[&Model]) -> Wrong {
    let wanted: Vec<_> = allowed.iter().map(|model| model.records().to_string()).collect();
    let wanted = wanted.join(" or ");
    Wrong::Other(format!("{} records are there, and must be {wanted}", found.records()))
}

/// Runs a case: counts it, and notes what is wrong in it under the command that runs it again.
pub(crate) fn tried(
    tally: &mut Tally,
    counted: &'static str,
    again: &str,
    case: impl FnOnce(&mut Tally) -> Result<(), Wrong>,
) {
    tally.at(again);
    tally.count(counted);
    let mut counts = Tally::default();
    let ran = unpanicked(|| case(&mut counts));
    tally.merge(counts);
    if let Err(wrong) = ran {
        note(tally, again, "", &wrong);
    }
}

/// Counts what is wrong as what it is.
pub(crate) fn note(tally: &mut Tally, again: &str, how: &str, wrong: &Wrong) {
    tally.count(match wrong {
        Wrong::Unopenable(_) => "unopenable",
        Wrong::Other(_) => "other than acknowledged",
        Wrong::Panic(_) => "panics",
    });
    tally.fail(again, format!("{how}: {wrong}"));
}

/// Runs something whose panics are findings.
///
/// # Errors
/// What it says, or that it panicked.
pub fn unpanicked<T>(run: impl FnOnce() -> Result<T, Wrong>) -> Result<T, Wrong> {
    hush();
    let before = QUIET.replace(true);
    let ran = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(before);
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Wrong::Panic(text.unwrap_or_else(|| "without a word".into())))
    })
}

/// Panics that are caught are not printed: damage makes the storage library panic by the hundred.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            let ours = thread::current().name().is_some_and(|name| name.starts_with("deedbook-"));
            if std::env::var_os("PANICS").is_some() || !ours && !QUIET.get() {
                print(panic);
            }
        }));
    });
}
