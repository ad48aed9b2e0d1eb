//! What the programs of all peers have in common: the work, and how they are told to do it.
//!
//! `benches/peers/python/protocol.py` is the same for the programs in Python. A program is started
//! as `peer MODE FOLDER LEDGER [ID STEPS]`, keeps its journal in the folder, and answers on
//! standard output, a line at a time after `peer: `, as libraries write there too:
//!
//! | mode | what it does |
//! | --- | --- |
//! | `rate` | says `ready`; for each line `ID WORKFLOWS STEPS` runs that many workflows at once and says the seconds from the begin of the first body to the end of the last step |
//! | `record` | makes the steps and says `hung` when the next body begins, which never returns |
//! | `replay` | resumes such a workflow: the body that was cut off returns now, and the next one, the first new one, does not; says the seconds from its own start to the begin of that, and how many recorded steps it executed again |
//! | `kill` | begins or resumes the workflow and says `done` at its end; bodies and finished steps are lines of the ledger |

use std::{
    env,
    error::Error,
    fs::{File, OpenOptions},
    future::pending,
    io::{self, BufRead as _, Write as _},
    path::PathBuf,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// Whatever went wrong: the run says so instead of a figure.
pub type Failed = Box<dyn Error + Send + Sync>;

/// What a peer gives.
pub type Result<T> = std::result::Result<T, Failed>;

/// A journal of a peer, with the workflow of [`Stage`] on it.
pub trait Peer: Sized {
    /// Opens the journal in [`Stage::folder`], or makes one, as its documentation says to; begins
    /// to resume what is unfinished.
    fn open(stage: &'static Stage) -> Result<Self>;

    /// Runs workflows of this many steps at once to their end, each under its id. One that exists
    /// is resumed, or waited for.
    fn run(&self, ids: &[String], steps: u32) -> Result<()>;
}

/// What a program is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Rate,
    Record,
    Replay,
    Kill,
}

/// Where the work happens: bodies and finished steps are told here.
#[derive(Debug)]
pub struct Stage {
    /// Where the journal is to be.
    pub folder: PathBuf,
    mode: Mode,
    workflow: Option<(String, u32)>,
    ledger: Mutex<File>,
    started: Instant,
    again: AtomicU64,
    first_body: Mutex<Option<Instant>>,
    last_finish: Mutex<Option<Instant>>,
}

/// Does what the arguments of the process say.
pub fn drive<P: Peer>() {
    let started = Instant::now();
    if let Err(error) = told(started).and_then(|stage| stage.drive::<P>()) {
        eprintln!("{error}");
        std::process::exit(1);
    }
    // Nothing is closed: what ends a process here is a kill.
    std::process::exit(0);
}

fn told(started: Instant) -> Result<&'static Stage> {
    let mut arguments = env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or(format!("no {what}"));
    let mode = match next("mode")?.as_str() {
        "rate" => Mode::Rate,
        "record" => Mode::Record,
        "replay" => Mode::Replay,
        "kill" => Mode::Kill,
        other => return Err(format!("no mode is called {other}").into()),
    };
    let folder = PathBuf::from(next("folder")?);
    let ledger = OpenOptions::new().append(true).create(true).open(next("ledger")?)?;
    let workflow = match mode {
        Mode::Rate => None,
        _ => Some((next("id")?, next("number of steps")?.parse()?)),
    };
    let stage = Stage {
        folder,
        mode,
        workflow,
        ledger: Mutex::new(ledger),
        started,
        again: AtomicU64::new(0),
        first_body: Mutex::default(),
        last_finish: Mutex::default(),
    };
    Ok(STAGE.get_or_init(|| stage))
}

static STAGE: OnceLock<Stage> = OnceLock::new();

/// The stage, for a workflow that can have no captures. Ends the process outside of [`drive`].
pub fn stage() -> &'static Stage {
    STAGE.get().unwrap_or_else(|| {
        eprintln!("no stage is set");
        std::process::exit(1)
    })
}

impl Stage {
    fn drive<P: Peer>(&'static self) -> Result<()> {
        let peer = P::open(self)?;
        match (&self.workflow, self.mode) {
            (Some((id, steps)), Mode::Kill) => {
                peer.run(std::slice::from_ref(id), *steps)?;
                say("done")
            }
            // One step more that is cut off, and one that is new.
            (Some((id, steps)), _) => peer.run(std::slice::from_ref(id), steps + 2),
            (None, _) => {
                say("ready")?;
                for line in io::stdin().lock().lines() {
                    self.round(&peer, &line?)?;
                }
                Ok(())
            }
        }
    }

    fn round<P: Peer>(&self, peer: &P, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let mut next = || words.next().ok_or("a round is ID WORKFLOWS STEPS");
        let (id, workflows, steps) = (next()?, next()?.parse::<u32>()?, next()?.parse()?);
        let ids: Vec<String> = (0..workflows).map(|at| format!("{id}-{at}")).collect();
        *held(&self.first_body) = None;
        peer.run(&ids, steps)?;
        let span = held(&self.last_finish).zip(*held(&self.first_body));
        let (last, first) = span.ok_or("no step was made")?;
        say(&seconds(last - first))
    }

    /// The folder, as text.
    pub fn place(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Whether the program is killed on purpose: a lease of the dead one is to be short then.
    pub fn is_killed(&self) -> bool {
        self.mode != Mode::Rate
    }

    /// The body of the step with this number. Notes that it begins, and returns at once; the one
    /// that is to hang never returns.
    pub async fn body(&self, number: u32) -> String {
        if self.begins(number) {
            pending::<()>().await;
        }
        result(number)
    }

    /// The same for a peer that blocks.
    pub fn blocking_body(&self, number: u32) -> String {
        if self.begins(number) {
            loop {
                thread::park();
            }
        }
        result(number)
    }

    /// Whether the body is to hang.
    fn begins(&self, number: u32) -> bool {
        let now = Instant::now();
        let recorded = self.workflow.as_ref().map_or(0, |(_, steps)| *steps);
        match self.mode {
            Mode::Rate => {
                held(&self.first_body).get_or_insert(now);
            }
            Mode::Kill => self.note('b', number),
            Mode::Record if number == recorded => {
                say("hung").unwrap_or_default();
                return true;
            }
            Mode::Replay if number < recorded => {
                self.again.fetch_add(1, SeqCst);
            }
            Mode::Replay if number > recorded => {
                let line = format!("{} {}", seconds(now - self.started), self.again.load(SeqCst));
                say(&line).unwrap_or_default();
                return true;
            }
            Mode::Record | Mode::Replay => {}
        }
        false
    }

    /// Notes that the workflow has the result of the step with this number.
    pub fn finished(&self, number: u32) {
        match self.mode {
            Mode::Rate => *held(&self.last_finish) = Some(Instant::now()),
            Mode::Kill => self.note('f', number),
            Mode::Record | Mode::Replay => {}
        }
    }

    /// One write: a kill finds a line there, or not.
    fn note(&self, what: char, number: u32) {
        let written = held(&self.ledger).write_all(format!("{what} {number}\n").as_bytes());
        if let Err(error) = written {
            eprintln!("the ledger cannot be written: {error}");
            std::process::exit(1);
        }
    }
}

/// The arguments of the step with this number: 200 B.
pub fn arguments(number: u32) -> String {
    format!("{:<200}", format!("order {number:010}: two tickets, row 7, refundable until the day"))
}

/// What its body returns: 100 B.
pub fn result(number: u32) -> String {
    format!("{:<100}", format!("receipt {number:010}: accepted by the bank, value today"))
}

fn say(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "peer: {line}")?;
    Ok(out.flush()?)
}

fn seconds(took: Duration) -> String {
    format!("{:.9}", took.as_secs_f64())
}

fn held<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_200_bytes_of_arguments_and_100_of_result() {
        for number in [0, 7, u32::MAX] {
            assert_eq!(arguments(number).len(), 200);
            assert_eq!(result(number).len(), 100);
        }
    }
}
