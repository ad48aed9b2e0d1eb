//! Random workflows: a [`Program`] is made by a seed, and run by an [`Interpreter`].
//!
//! A program is data, so that whoever asks a question about any workflow can make thousands of
//! them, print one, or change a line of it.

mod interpreter;
pub mod sweep;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use deedbook::PolicyKind;

pub use interpreter::Interpreter;
pub(crate) use interpreter::{FIRST_WAIT, value_of};

use crate::{random::Random, world::Fate};

/// A random workflow.
pub type Program = Arc<Vec<Line>>;

/// One line of a random workflow. Every line has its own number, and its name is made of it.
#[derive(Debug, Clone)]
pub enum Line {
    /// A step with an effect.
    Effect {
        /// Its number.
        number: u64,
        /// Its policy.
        policy: PolicyKind,
        /// What becomes of the first, second, … request; the last one for all further ones.
        fates: Vec<Fate>,
        /// How often a probe cannot tell.
        inconclusive: u64,
    },
    /// A look at the world that fails so often.
    Read {
        /// Its number.
        number: u64,
        /// How often it fails first.
        fails: u64,
    },
    /// A timer.
    Sleep(u64, Duration),
    /// A wait for a signal.
    Signal(u64),
    /// A question to a person.
    Approval(u64),
    /// A question to a person who does not answer in time.
    Unanswered(u64, Duration),
    /// A reading of the clock.
    Now,
    /// Blocks side by side.
    Map(u64, Vec<Vec<Self>>),
    /// Two blocks side by side.
    Join(u64, Vec<Self>, Vec<Self>),
    /// The two race, and what the loser did is left as it is.
    Select(u64, Vec<Self>, Vec<Self>),
    /// Three calls that are one by their arguments: two at once, and one later.
    Same(u64),
    /// One name, called so often: each is a step of its own.
    Repeat(u64, u64),
    /// As many signals of one name, one after the other.
    Signals(u64, u64),
    /// A step under a business key.
    Key(u64, PolicyKind),
}

impl Line {
    /// The blocks inside it.
    #[must_use]
    pub fn blocks(&self) -> Vec<&[Self]> {
        match self {
            Self::Map(_, blocks) => blocks.iter().map(Vec::as_slice).collect(),
            Self::Join(_, left, right) | Self::Select(_, left, right) => vec![left, right],
            _ => Vec::new(),
        }
    }

    /// Its number; a reading of the clock has none.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Effect { number, .. }
            | Self::Read { number, .. }
            | Self::Sleep(number, _)
            | Self::Signal(number)
            | Self::Approval(number)
            | Self::Unanswered(number, _)
            | Self::Map(number, _)
            | Self::Join(number, ..)
            | Self::Select(number, ..)
            | Self::Same(number)
            | Self::Repeat(number, _)
            | Self::Signals(number, _)
            | Self::Key(number, _) => Some(*number),
            Self::Now => None,
        }
    }
}

/// Every line, those inside of others included, with whether a race may leave it undone.
#[must_use]
pub fn every_line(lines: &[Line]) -> Vec<(&Line, bool)> {
    fn walk<'a>(lines: &'a [Line], raced: bool, found: &mut Vec<(&'a Line, bool)>) {
        for line in lines {
            found.push((line, raced));
            let raced = raced || matches!(line, Line::Select(..));
            line.blocks().into_iter().for_each(|block| walk(block, raced, found));
        }
    }
    let mut found = Vec::new();
    walk(lines, false, &mut found);
    found
}

/// The numbers of the lines of which a race may leave something undone.
#[must_use]
pub fn in_a_race(lines: &[Line]) -> BTreeSet<u64> {
    let raced = every_line(lines).into_iter().filter(|(_, raced)| *raced);
    raced.filter_map(|(line, _)| line.number()).collect()
}

/// The signals that it waits for: the number of the line, and how many.
#[must_use]
pub fn signals(lines: &[Line]) -> Vec<(u64, u64)> {
    let found = every_line(lines).into_iter().filter_map(|(line, _)| match line {
        Line::Signal(number) => Some((*number, 1)),
        Line::Signals(number, count) => Some((*number, *count)),
        _ => None,
    });
    found.collect()
}

/// How long the timer of this name runs, as the program has it.
#[must_use]
pub fn runs(lines: &[Line], timer: &str) -> Option<Duration> {
    every_line(lines).into_iter().find_map(|(line, _)| match line {
        Line::Sleep(number, time) if timer == format!("sleep{number}") => Some(*time),
        Line::Unanswered(number, time) if timer == format!("approval unanswered{number}") => {
            Some(*time)
        }
        _ => None,
    })
}

/// The number of the line that made a call of this name (`read12`).
#[must_use]
pub fn line_of(name: &str) -> Option<u64> {
    name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// Makes random workflows.
#[derive(Debug)]
pub struct Maker {
    random: Random,
    lines: u64,
}

impl Maker {
    /// The workflow of this seed.
    #[must_use]
    pub fn program(seed: u64) -> Program {
        let mut maker = Self { random: Random::new(seed ^ 0x5eed), lines: 0 };
        let length = 2 + maker.random.below(4);
        Arc::new((0..length).map(|_| maker.line(2)).collect())
    }

    fn line(&mut self, depth: u64) -> Line {
        self.lines += 1;
        let number = self.lines;
        match self.random.below(if depth == 0 { 12 } else { 15 }) {
            0..=3 => self.effect(number),
            4 => Line::Read { number, fails: self.random.below(3) },
            5 => Line::Sleep(number, self.seconds()),
            6 => {
                if self.random.once_in(2) {
                    Line::Signal(number)
                } else {
                    Line::Now
                }
            }
            7 if self.random.once_in(3) => Line::Unanswered(number, self.seconds()),
            7 => Line::Approval(number),
            8 => Line::Same(number),
            9 => {
                let policies = [PolicyKind::Idempotent, PolicyKind::AtMostOnce];
                Line::Key(number, policies[self.random.index(policies.len())])
            }
            10 => Line::Repeat(number, 2 + self.random.below(2)),
            11 => Line::Signals(number, 2 + self.random.below(2)),
            12 => Line::Select(number, self.block(depth), self.block(depth)),
            13 => {
                let branches = 1 + self.random.below(3);
                Line::Map(number, (0..branches).map(|_| self.block(depth)).collect())
            }
            _ => Line::Join(number, self.block(depth), self.block(depth)),
        }
    }

    fn seconds(&mut self) -> Duration {
        Duration::from_secs(1 + self.random.below(100))
    }

    fn block(&mut self, depth: u64) -> Vec<Line> {
        let length = 1 + self.random.below(2);
        (0..length).map(|_| self.line(depth - 1)).collect()
    }

    fn effect(&mut self, number: u64) -> Line {
        let policies = [PolicyKind::Idempotent, PolicyKind::Reconcile, PolicyKind::AtMostOnce];
        let policy = policies[self.random.index(policies.len())];
        let mut fates = Vec::new();
        // What happened stays so: after it only the answer may still go astray.
        let mut happened = false;
        for _ in 0..self.random.below(3) {
            let fate = match self.random.below(if happened { 3 } else { 5 }) {
                0 => Fate::HappensUnlabelled,
                1 => Fate::Panics,
                2 => Fate::Hangs,
                3 => Fate::FailsUnlabelled,
                _ => Fate::NotApplied,
            };
            happened |= !matches!(fate, Fate::FailsUnlabelled | Fate::NotApplied);
            fates.push(fate);
        }
        let fails = !happened && self.random.once_in(5);
        fates.push(if fails { Fate::Terminal } else { Fate::Happens });
        Line::Effect { number, policy, fates, inconclusive: self.random.below(2) }
    }
}
