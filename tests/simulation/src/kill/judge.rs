//! Reads what a chain of lives has left, and says whether it is right: the ledger, which is
//! outside of the journal and in the order in which things happened, against the journal's own
//! records.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use deedbook::{PolicyKind, ThreadId};
use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{Embedded, OpenOptions},
    limits::ValueLimits,
    record::{Kind, Record, Role},
    value::decode,
};

use super::{
    JOURNAL,
    agent::{EFFECTS, LOOK},
    ledger::{Ledger, Line, THREAD, header_of, mark_of},
};
use crate::book::wait;

/// What was seen that is right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Steps in doubt when a life said so.
    pub in_doubt: u64,
    /// Lives that came to the answer.
    pub answers: u64,
    /// Records that were acknowledged before their process was killed or ended.
    pub acknowledged: u64,
    /// Records that were on their way when their process was killed, and are there.
    pub unknown_and_kept: u64,
    /// The same, and are not there.
    pub unknown_and_lost: u64,
    /// Bodies that ran.
    pub bodies: u64,
}

/// A record as the judge needs it.
#[derive(Debug, Clone)]
struct Found {
    mark: u64,
    kind: Kind,
    step: Option<String>,
    attempt: u32,
    result: Option<String>,
}

/// What is known of a step at some moment.
#[derive(Debug, Default)]
struct Step {
    /// Attempts whose intent is durable, and whose outcome is not.
    open: BTreeSet<u32>,
    /// Whether an attempt ended, and nobody knows how.
    unknown: bool,
    /// Whether its outcome is durable, and what it is.
    settled: Option<Option<String>>,
    /// Attempts whose body has run.
    ran: BTreeSet<u32>,
    keys: BTreeSet<String>,
    receipts: Vec<String>,
}

#[derive(Debug)]
struct Judge<'a> {
    policy: PolicyKind,
    records: &'a [Found],
    steps: BTreeMap<String, Step>,
    /// Records on their way: position and mark.
    pending: Vec<(u64, u64)>,
    ended: bool,
    answer: Option<Vec<(String, String)>>,
    seen: Seen,
}

/// Judges a folder whose thread has ended and whose journal is closed.
///
/// # Errors
/// What is wrong.
pub(super) fn judge(folder: &Path, policy: PolicyKind) -> Result<Seen, String> {
    let records = records(folder)?;
    let steps = BTreeMap::new();
    let (pending, seen) = (Vec::new(), Seen::default());
    let records = records.as_slice();
    let mut judge = Judge { policy, records, steps, pending, ended: false, answer: None, seen };
    for line in Ledger::in_folder(folder).lines() {
        judge.line(line)?;
    }
    judge.end()
}

/// The records of the thread, checked as a chain.
fn records(folder: &Path) -> Result<Vec<Found>, String> {
    let open = Embedded::open(folder.join(JOURNAL), OpenOptions::new());
    let home = open.map_err(|error| format!("the journal cannot be opened: {error}"))?;
    let thread = ThreadId::new(THREAD).unwrap();
    let page = wait(home.read(&thread, 0, usize::MAX));
    let page = page.map_err(|error| format!("the journal cannot be read: {error}"))?;
    let mut prev = deedbook_journal::record::RecordHash::ZERO;
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut found = Vec::new();
    for (n, record) in &page.items {
        let checked = record.verify(&home.identity().log_id, &prev);
        checked.map_err(|why| format!("record {n}: {why}"))?;
        prev = record.hash;
        found.push(taken(*n, record, &mut names));
    }
    Ok(found)
}

fn taken(n: u64, record: &Record, names: &mut BTreeMap<u64, String>) -> Found {
    let header = header_of(record);
    if let Some(place) = &header.place {
        names.insert(n, place.name.as_str().to_owned());
    }
    let result = record.payload(Role::Result);
    let result = result.and_then(|result| decode(&result.bytes, &ValueLimits::new()).ok());
    Found {
        mark: mark_of(record),
        step: names.get(&header.call.unwrap_or(n)).cloned(),
        attempt: header.attempt.unwrap_or(0),
        kind: header.kind,
        result,
    }
}

impl Judge<'_> {
    fn line(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Life => self.life(),
            Line::Stores(n, mark) => self.pending.push((n, mark)),
            Line::Stored(next) => self.stored(next)?,
            Line::Runs(step, attempt, key) => self.runs(&step, attempt, key)?,
            Line::Effect(step, _, receipt) => self.step(&step).receipts.push(receipt),
            Line::Doubts(steps) => self.doubts(&steps)?,
            Line::Answer(answer) => self.answer(answer)?,
        }
        Ok(())
    }

    fn step(&mut self, name: &str) -> &mut Step {
        self.steps.entry(name.to_owned()).or_default()
    }

    fn is_there(&self, n: u64, mark: u64) -> bool {
        let at = usize::try_from(n).ok().and_then(|n| self.records.get(n));
        at.is_some_and(|record| record.mark == mark)
    }

    /// What the process before was storing when it ended is there as a whole, or not at all.
    fn life(&mut self) {
        for (n, mark) in std::mem::take(&mut self.pending) {
            if self.is_there(n, mark) {
                self.seen.unknown_and_kept += 1;
                self.take(n);
            } else {
                self.seen.unknown_and_lost += 1;
            }
        }
    }

    /// What was acknowledged is there.
    fn stored(&mut self, next: u64) -> Result<(), String> {
        let stored: Vec<_> = self.pending.extract_if(.., |(n, _)| *n < next).collect();
        for (n, mark) in stored {
            if !self.is_there(n, mark) {
                return Err(format!("record {n} was acknowledged and is not there"));
            }
            self.seen.acknowledged += 1;
            self.take(n);
        }
        Ok(())
    }

    /// A record is durable from here on.
    fn take(&mut self, n: u64) {
        let at = usize::try_from(n).ok().and_then(|n| self.records.get(n)).cloned();
        let Some(record) = at else { return };
        self.ended |= record.kind == Kind::ThreadEnd;
        let Some(name) = &record.step else { return };
        let step = self.step(name);
        match record.kind {
            Kind::StepIntent => drop(step.open.insert(record.attempt)),
            Kind::StepFail => drop(step.open.remove(&record.attempt)),
            Kind::StepUnknown => step.unknown |= step.open.remove(&record.attempt),
            Kind::StepDone => {
                (step.open, step.unknown) = (BTreeSet::new(), false);
                step.settled = Some(record.result);
            }
            Kind::StepResolve => {
                (step.open, step.unknown) = (BTreeSet::new(), false);
                step.settled = record.result.map(Some);
            }
            _ => {}
        }
    }

    /// No body runs again once its outcome is durable, none with an effect before its intent is,
    /// and none twice for one attempt.
    fn runs(&mut self, name: &str, attempt: u32, key: String) -> Result<(), String> {
        self.seen.bodies += 1;
        let effect = self.policy.has_effect() && name != LOOK;
        let never_twice = effect && self.policy == PolicyKind::AtMostOnce;
        let step = self.step(name);
        if step.settled.is_some() {
            return Err(format!("{name} runs again, and its outcome was durable"));
        }
        step.keys.insert(key);
        let first = step.ran.insert(attempt);
        if effect && !first {
            return Err(format!("attempt {attempt} of {name} runs twice"));
        }
        if never_twice && (step.unknown || step.open.range(..attempt).next().is_some()) {
            return Err(format!("{name} runs again, and nobody knows of the attempt before"));
        }
        if effect && !step.open.contains(&attempt) {
            return Err(format!("{name} runs before its intent is durable"));
        }
        Ok(())
    }

    /// In doubt is what was killed, or lost its answer, between intent and outcome; nothing else.
    fn doubts(&mut self, told: &[String]) -> Result<(), String> {
        let doubt = |step: &Step| !step.open.is_empty() || step.unknown;
        let wanted = self.steps.iter().filter(|(name, step)| *name != LOOK && doubt(step));
        let wanted: Vec<_> = wanted.map(|(name, _)| name.clone()).collect();
        if self.policy != PolicyKind::AtMostOnce {
            return Err(format!("{} are in doubt under {}", told.join(", "), self.policy.as_str()));
        }
        if wanted != told {
            return Err(format!("in doubt are {told:?}, and must be {wanted:?}"));
        }
        if wanted.is_empty() {
            return Err("it is told as in doubt, and no step is".to_owned());
        }
        self.seen.in_doubt += wanted.len() as u64;
        Ok(())
    }

    /// An answer is durable, the same for everybody, and nothing is in doubt behind it.
    fn answer(&mut self, answer: Vec<(String, String)>) -> Result<(), String> {
        self.seen.answers += 1;
        if !self.ended {
            return Err("the answer is given before the end of the thread is durable".to_owned());
        }
        let open = self.steps.iter().find(|(_, step)| !step.open.is_empty() || step.unknown);
        if let Some((name, _)) = open {
            return Err(format!("{name} was in the window, and nobody was told of a doubt"));
        }
        match &self.answer {
            Some(before) if *before != answer => {
                Err(format!("the answer was {before:?}, and is {answer:?}"))
            }
            _ => {
                self.answer = Some(answer);
                Ok(())
            }
        }
    }

    /// Counts the effects.
    fn end(mut self) -> Result<Seen, String> {
        let Some(answer) = self.answer.take() else {
            return Err("there is no answer".to_owned());
        };
        let names: Vec<_> = answer.iter().map(|(name, _)| name.as_str()).collect();
        if names != [&[LOOK], EFFECTS.as_slice()].concat() {
            return Err(format!("the answer is of {names:?}"));
        }
        for (name, receipt) in &answer {
            let step = self.steps.remove(name).unwrap_or_default();
            let stored = step.settled.flatten().unwrap_or_default();
            if stored.trim_end_matches('.') != receipt {
                return Err(format!("{name} is {stored:?} in the journal, and {receipt:?} to all"));
            }
            if name == LOOK || !self.policy.has_effect() {
                continue;
            }
            if step.receipts.len() != 1 || step.receipts.first() != Some(receipt) {
                return Err(format!("{name} was {receipt:?}, and happened {:?}", step.receipts));
            }
            if step.keys.len() != 1 {
                return Err(format!("{name} had more than one key: {:?}", step.keys));
            }
        }
        Ok(self.seen)
    }
}
