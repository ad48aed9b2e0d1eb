//! Calls that stand behind each other.

use std::collections::HashMap;

use super::Sorted;
use crate::{
    history::CallKind,
    id::{Name, StepId},
    keyed::Keyed,
};

/// The lines in which the live calls stand, each in one: calls with one identity behind each
/// other, and waits for one signal. What is recorded is found by its number, so that only new
/// identities are looked for by what they are.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    /// Some of them are free.
    lines: Vec<Line>,
    free: Vec<usize>,
    /// By the numbers of recorded calls: one more than the line of the live calls that they are,
    /// and zero where there are none.
    recorded: Vec<usize>,
    new: HashMap<(CallKind, StepId), usize, Keyed>,
    signals: HashMap<Name, usize, Keyed>,
}

/// A line.
#[derive(Debug, Clone)]
pub(super) struct Line {
    of: Of,
    /// How many live calls stand in it.
    live: usize,
    /// Those among them that ask or are under way: the first one acts for all.
    pub(super) ready: Sorted<u64>,
}

/// Whose line it is.
#[derive(Debug, Clone)]
enum Of {
    Nobody,
    /// Of the recorded call with this number.
    Recorded(usize),
    /// Of a call that is not recorded.
    New(CallKind, StepId),
    /// Of those that wait for a signal.
    Signal(Name),
}

impl Line {
    /// The number that its calls have among the recorded calls.
    #[inline]
    pub(super) fn recorded(&self) -> Option<usize> {
        match self.of {
            Of::Recorded(number) => Some(number),
            _ => None,
        }
    }
}

impl Lines {
    pub(super) fn new(keyed: Keyed) -> Self {
        Self {
            lines: Vec::new(),
            free: Vec::new(),
            recorded: Vec::new(),
            new: HashMap::with_hasher(keyed),
            signals: HashMap::with_hasher(keyed),
        }
    }

    /// A call more stands in line; `recorded` is its number among the recorded calls.
    pub(super) fn join(&mut self, kind: CallKind, id: &StepId, recorded: Option<usize>) -> usize {
        // Where a line is formed, if there is none yet.
        let free = self.free.last().copied().unwrap_or(self.lines.len());
        let line = match (kind, recorded) {
            (CallKind::Signal, _) => *self.signals.entry(id.name.clone()).or_insert(free),
            (_, Some(number)) => self.number(number, free),
            (kind, None) => *self.new.entry((kind, id.clone())).or_insert(free),
        };
        if line == free {
            let of = match (kind, recorded) {
                (CallKind::Signal, _) => Of::Signal(id.name.clone()),
                (_, Some(number)) => Of::Recorded(number),
                (kind, None) => Of::New(kind, id.clone()),
            };
            match self.free.pop().and_then(|free| self.lines.get_mut(free)) {
                Some(free) => free.of = of,
                None => self.lines.push(Line { of, live: 0, ready: Sorted::new() }),
            }
        }
        if let Some(joined) = self.lines.get_mut(line) {
            joined.live += 1;
        }
        line
    }

    /// The line of the recorded call with this number, which is `line` if there is none yet.
    fn number(&mut self, number: usize, line: usize) -> usize {
        if self.recorded.len() <= number {
            self.recorded.resize(number + 1, 0);
        }
        let Some(recorded) = self.recorded.get_mut(number) else { return line };
        if *recorded == 0 {
            *recorded = line + 1;
        }
        *recorded - 1
    }

    /// A call leaves the line; nothing is left of one without calls.
    pub(super) fn leave(&mut self, line: usize) {
        let Some(left) = self.lines.get_mut(line) else { return };
        left.live = left.live.saturating_sub(1);
        if left.live == 0 {
            self.rename(line, Of::Nobody);
            self.free.push(line);
        }
    }

    /// The calls in the line, which were new, are the recorded call with this number.
    pub(super) fn opened(&mut self, line: usize, number: usize) {
        let known = self.lines.get(line).and_then(Line::recorded) == Some(number);
        if !known && self.number(number, line) == line {
            self.rename(line, Of::Recorded(number));
        }
    }

    /// Says whose line it is from now on: it is not found any more by what it was.
    fn rename(&mut self, line: usize, of: Of) {
        let Some(renamed) = self.lines.get_mut(line) else { return };
        match std::mem::replace(&mut renamed.of, of) {
            Of::Nobody => {}
            Of::Recorded(number) => {
                if let Some(recorded) = self.recorded.get_mut(number) {
                    *recorded = 0;
                }
            }
            Of::New(kind, id) => {
                self.new.remove(&(kind, id));
            }
            Of::Signal(name) => {
                self.signals.remove(&name);
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, line: usize) -> Option<&Line> {
        self.lines.get(line)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, line: usize) -> Option<&mut Line> {
        self.lines.get_mut(line)
    }

    /// The line of the live calls that are the recorded call with this number.
    #[inline]
    pub(super) fn about(&self, number: usize) -> Option<&Line> {
        self.lines.get(self.recorded.get(number)?.checked_sub(1)?)
    }

    /// The line of those that wait for a signal of this name.
    pub(super) fn waiting(&self, name: &str) -> Option<&Line> {
        self.lines.get(*self.signals.get(name)?)
    }
}
