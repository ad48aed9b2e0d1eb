//! Damage in processes of their own: the storage library can end one.
//!
//! A child says on standard output which case comes next, and what it has counted before; whoever
//! started it goes on behind the case in which a child died.

use std::{
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use deedbook_journal::embedded::planted::{Broken, plant};

use super::{Cases, Fixture, Open, Stride, Which, again, count, run as run_here};
use crate::crew::{Crew, Tally};

/// Cases of one child.
const BLOCK: usize = 2000;

/// The cases in which the process ended.
pub const ABORTED: &str = "ended by the storage library";

/// Runs every case of these journals, in children of `program`.
///
/// # Errors
/// A journal could not be made.
pub fn run(
    crew: &Crew,
    program: &Path,
    all: &[Which],
    stride: Stride,
    plant: Option<Broken>,
) -> Result<Tally, String> {
    let mut blocks = Vec::new();
    for which in all {
        let cases = count(&Fixture::new(*which)?, stride);
        let block = |from| (*which, from..cases.min(from + BLOCK));
        blocks.extend((0..cases).step_by(BLOCK).map(block));
    }
    Ok(crew.run("damage", &blocks, |(which, cases), tally| {
        let mut cases = cases.clone();
        while !cases.is_empty() {
            let asked = Asked { which: *which, stride, plant, verified: false };
            let ran = child(program, asked, &cases, crew.stops, tally);
            if crew.stops && !tally.failures.is_empty() {
                break;
            }
            match ran {
                Ok(None) => break,
                Ok(Some(died)) => {
                    tally.count("cases");
                    tally.count(ABORTED);
                    verified(program, asked, died, tally);
                    cases.start = died + 1;
                }
                Err(error) => {
                    tally.fail(&again(*which, stride, cases.start), error);
                    break;
                }
            }
        }
    }))
}

/// What a child is asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    which: Which,
    stride: Stride,
    plant: Option<Broken>,
    /// Whether it verifies every page when it opens a journal.
    verified: bool,
}

/// A case in which the process ended does not end it where every page is verified first.
fn verified(program: &Path, asked: Asked, at: usize, tally: &mut Tally) {
    let mut unused = Tally::default();
    let asked = Asked { verified: true, ..asked };
    if !matches!(child(program, asked, &(at..at + 1), false, &mut unused), Ok(None)) {
        let again = again(asked.which, asked.stride, at);
        tally.fail(&again, "the process ends, although every page is verified first");
    }
}

/// Runs cases in a child: the case in which it died, if it did.
fn child(
    program: &Path,
    asked: Asked,
    cases: &Cases,
    stops: bool,
    tally: &mut Tally,
) -> io::Result<Option<usize>> {
    let Asked { which, stride, plant, verified } = asked;
    let mut child = Command::new(program)
        .args(["damage", "--lines", "--journal", which.name()])
        .args(["--stride", &stride.0.to_string()])
        .args(plant.map(|fault| format!("--plant={fault:?}")))
        .args(verified.then_some("--verified"))
        .args(["--at", &cases.start.to_string(), "--until", &cases.end.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let at = listen(&mut child, which, stride, (cases.start, stops), tally)?;
    let ended = child.wait()?;
    match ended.code() {
        Some(_) => Ok(None),
        None => Ok(Some(at)),
    }
}

/// Takes in what a child says: the last case that it began.
fn listen(
    child: &mut Child,
    which: Which,
    stride: Stride,
    (first, stops): (usize, bool),
    tally: &mut Tally,
) -> io::Result<usize> {
    let mut at = first;
    let Some(out) = child.stdout.take() else {
        return Ok(at);
    };
    let mut failed = None;
    for line in BufReader::new(out).lines() {
        let line = line?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "at" => {
                at = rest.parse().unwrap_or(at);
                tally.at(&again(which, stride, at));
            }
            "again" => failed = Some(rest.to_owned()),
            "why" => {
                tally.fail(&failed.take().unwrap_or_default(), rest);
                if stops {
                    child.kill()?;
                    break;
                }
            }
            times => tally.add(rest.to_owned(), times.parse().unwrap_or(0)),
        }
    }
    Ok(at)
}

/// The child's part: runs cases and says so.
///
/// # Errors
/// The journal could not be made, or nobody listens.
pub fn serve(
    which: Which,
    stride: Stride,
    cases: Cases,
    fault: Option<Broken>,
    open: Open,
) -> Result<(), String> {
    let fixture = Fixture::new(which)?;
    plant(fault);
    let told = std::cell::RefCell::new(Tally::default());
    let say = |at: Option<usize>, tally: &Tally| -> io::Result<()> {
        let mut out = io::stdout().lock();
        let mut told = told.borrow_mut();
        for (name, times) in &tally.counts {
            let new = times - told.of(name);
            if new > 0 {
                writeln!(out, "{new} {name}")?;
            }
        }
        for failure in tally.failures.iter().skip(told.failures.len()) {
            let why = failure.why.replace('\n', " ");
            writeln!(out, "again {}\nwhy {why}", failure.again)?;
        }
        *told = tally.clone();
        if let Some(at) = at {
            writeln!(out, "at {at}")?;
        }
        out.flush()
    };
    let gone = std::cell::Cell::new(None);
    let all = run_here(&fixture, stride, cases, open, |at, tally| {
        if let Err(error) = say(Some(at), tally) {
            gone.set(Some(error.to_string()));
        }
    });
    say(None, &all).map_err(|error| error.to_string())?;
    gone.take().map_or(Ok(()), Err)
}
