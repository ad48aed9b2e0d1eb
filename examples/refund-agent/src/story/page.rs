//! What the story shows while it goes on.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};

use super::Options;
use super::children::{BankChild, Places, word};
use crate::agent::Outcome;
use crate::agent::holds::{HoldAt, Point};
use crate::agent::note::{Decision, Note};
use crate::money::{Currency, Money};
use crate::requests::Entry;

/// Standard output: with colours on a terminal that has them, and plain elsewhere.
#[derive(Debug)]
pub(super) struct Page {
    colours: bool,
}

/// How a piece of text looks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    Plain,
    Faint,
    Bold,
    Good,
    Bad,
}

impl Page {
    pub(super) fn new() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { colours: io::stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    /// One line. What comes from data is shown by [`Shown`].
    pub(super) fn line(&mut self, look: Look, text: impl Display) {
        let code = match look {
            Look::Plain => "",
            Look::Faint => "2",
            Look::Bold => "1",
            Look::Good => "32",
            Look::Bad => "31",
        };
        let mut out = io::stdout().lock();
        let written = if self.colours && !code.is_empty() {
            writeln!(out, "\x1b[{code}m{text}\x1b[0m")
        } else {
            writeln!(out, "{text}")
        };
        // Whoever watched has gone; the story goes to its end, and its exit code still tells.
        let _unseen = written.and_then(|()| out.flush());
    }

    pub(super) fn title(&mut self, options: &Options, places: &Places, entries: &[Entry]) {
        let what = format!(
            "{} lines of requests, a bank in mode {}, seed {}",
            entries.len(),
            word(options.bank_mode),
            options.seed
        );
        self.line(Look::Bold, what);
        let journal = places.journal.to_string_lossy();
        self.line(Look::Faint, format_args!("journal  {}", Shown(&journal)));
    }

    pub(super) fn bank(&mut self, bank: &BankChild) {
        let text = format!("bank     pid {} at {}", bank.pid(), bank.url);
        self.line(Look::Faint, text);
    }

    pub(super) fn life(&mut self, number: usize, pid: u32, holds: &[HoldAt]) {
        let until = match holds {
            [] => "is left alone".to_owned(),
            holds => {
                let holds: Vec<_> = holds.iter().map(ToString::to_string).collect();
                format!("will be killed at {}", holds.join(" or "))
            }
        };
        self.line(Look::Bold, format_args!("\nagent {number}  pid {pid}  {until}"));
    }

    pub(super) fn kill(&mut self, number: usize, pid: u32, point: Point, thread: &str) {
        let text = format!(
            "KILL {number}   pid {pid}  SIGKILL at {point} of {}: {}",
            Shown(thread),
            point.meaning()
        );
        self.line(Look::Bad, text);
    }

    pub(super) fn asked(&mut self, thread: &str) {
        self.line(Look::Plain, format_args!("  {:<10} waits for a person", Shown(thread)));
    }

    pub(super) fn decision(&mut self, decision: &Decision) {
        let verb = if decision.granted { "grants" } else { "denies" };
        let text = format!(
            "  {:<10} {} {verb}: {}",
            Shown(&decision.thread),
            Shown(&decision.by),
            Shown(&decision.reason)
        );
        self.line(Look::Plain, text);
    }

    pub(super) fn note(&mut self, note: &Note) {
        match note {
            Note::Opened { threads, interrupted, waiting, in_doubt } => {
                let text = format!(
                    "  journal open: {threads} threads, {interrupted} interrupted, {waiting} \
                     waiting for a person, {in_doubt} in doubt"
                );
                self.line(Look::Faint, text);
            }
            // Said once before, or followed by a line that says more.
            Note::Ended { before: true, .. } | Note::Begun { .. } => {}
            Note::Ended { thread, outcome, .. } => {
                let thread = Shown(thread);
                self.line(Look::Plain, format_args!("  {thread:<10} {}", Told(outcome)));
            }
            Note::Stopped { thread, in_doubt, why } => {
                let what = if *in_doubt { "in doubt" } else { "stopped" };
                let text = format!("  {:<10} {what}: {}", Shown(thread), Shown(why));
                self.line(Look::Bad, text);
            }
            Note::Decided { thread, refused: Some(why) } => {
                let text = format!("  {:<10} answer refused: {}", Shown(thread), Shown(why));
                self.line(Look::Faint, text);
            }
            Note::Decided { .. } | Note::Asked { .. } | Note::Holding { .. } | Note::Finished => {}
        }
    }
}

/// Text from data, with everything that could steer a terminal, or turn the writing direction,
/// escaped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a>(pub(super) &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut safe = String::with_capacity(self.0.len());
        for c in self.0.chars() {
            let steers = c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
                || matches!(c, '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
            if steers {
                safe.extend(c.escape_default());
            } else {
                safe.push(c);
            }
        }
        f.pad(&safe)
    }
}

/// How a request ended, in one line.
struct Told<'a>(&'a Outcome);

impl Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Outcome::Refunded { receipt } => {
                let id = Shown(&receipt.id);
                match Currency::from_code(&receipt.currency) {
                    Some(currency) => {
                        let amount = Money::new(receipt.amount_minor, currency);
                        write!(f, "refunded {amount} as {id}")
                    }
                    None => write!(f, "refunded as {id}"),
                }
            }
            Outcome::Rejected { by, why } => {
                write!(f, "rejected by the {}: {}", Shown(by), Shown(why))
            }
            Outcome::Denied { by, why } => write!(f, "denied by {}: {}", Shown(by), Shown(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_data_steers_the_terminal() {
        let text = "a\x1b[31m\r\n\u{9b}2J\u{202e}\u{2066}Zoë 🦊";
        let shown = Shown(text).to_string();
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(!shown.contains('\u{202e}') && shown.ends_with("Zoë 🦊"));
        assert_eq!(format!("{:<6}|", Shown("a\n")), "a\\n   |");
    }
}
