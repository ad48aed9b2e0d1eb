//! How far something has come, told on standard error.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use deedbook_journal::embedded::{Progress, Stage};

use crate::{
    args::Watch,
    text::{bytes, count},
};

/// How often it is told: on a terminal, where a line takes the place of the one before, and where
/// lines add up.
const EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// Tells how far it has come, where somebody wants to know.
pub(crate) struct Teller {
    on: bool,
    terminal: bool,
    last: Option<Instant>,
}

impl Teller {
    pub(crate) fn new(watch: &Watch) -> Self {
        let terminal = io::stderr().is_terminal();
        Self { on: terminal || watch.progress, terminal, last: None }
    }

    pub(crate) fn tell(&mut self, progress: Progress) {
        self.say(|| line(&progress));
    }

    /// How many there were so far, where nobody knows how many there are.
    pub(crate) fn count(&mut self, doing: &str, number: u64, what: &str) {
        self.say(|| format!("{doing}: {} so far", count(number, what)));
    }

    fn say(&mut self, line: impl FnOnce() -> String) {
        let [often, seldom] = EVERY;
        let every = if self.terminal { often } else { seldom };
        if !self.on || self.last.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        self.last = Some(now());
        let line = line();
        // Progress that cannot be shown is no reason to stop.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r{line}\u{1b}[K"),
            false => writeln!(io::stderr(), "{line}"),
        };
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if self.terminal && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

fn line(progress: &Progress) -> String {
    let what = match progress.stage {
        Stage::Copy => "copying",
        Stage::Verify => "verifying",
        _ => "at work",
    };
    let Progress { records, of, bytes: done, .. } = progress;
    format!("{what}: {records} of {of} records, {}", bytes(*done))
}

#[expect(clippy::disallowed_methods, reason = "a tool runs in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a tool runs in real time, and does nothing beside")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
