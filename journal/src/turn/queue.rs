//! The live calls, sorted by what the rule asks about them.
//!
//! A thread may have very many live calls, and little of them changes in a turn. Each call is
//! looked at when something about it has changed (it is asked, refused, under way, or written
//! about, or its time has come), and filed under what came of that. A turn then takes the first
//! of what is filed: it costs what has changed, and not how many calls are live.

use std::{collections::HashMap, sync::Arc};

use super::{
    Act, Blocked, Next, Sorted,
    lines::{Line, Lines},
    numbered::Numbered,
};
use crate::{
    history::{
        CallKind, Decision, Declared, Divergence, DivergenceKind, Doubt, History, Instead,
        decide_recorded,
    },
    id::{Position, StoreTime},
    keyed::Keyed,
};

/// A live call, as whoever runs the thread keeps it.
pub trait Made {
    /// The call as the code makes it.
    fn declared(&self) -> Declared<'_>;
}

impl Made for Declared<'_> {
    fn declared(&self) -> Declared<'_> {
        *self
    }
}

impl<M: Made> Made for Box<M> {
    #[inline]
    fn declared(&self) -> Declared<'_> {
        (**self).declared()
    }
}

/// What is known of the thread besides its live calls.
#[derive(Debug)]
pub struct View<'a> {
    /// The records, the ones just appended included.
    pub history: &'a History,
    /// The lowest position below [`History::live_from`] that opened a call which the code has
    /// not made yet.
    pub first_unmade: Option<Position>,
    /// How many signals of a name were delivered.
    pub delivered: &'a HashMap<Arc<str>, usize>,
    /// The store's clock.
    pub now: StoreTime,
}

/// The live calls of a thread, by numbers in the order in which they were made.
///
/// Whoever runs the thread keeps them here and says what happens to them, and
/// [`next`](Self::next) decides. What it decides depends on the calls as they are, and not on the
/// way in which they came to be so. `C` is small: a box, or a borrowed call.
#[derive(Debug, Clone)]
pub struct Queue<C> {
    calls: Numbered<Entry<C>>,
    lines: Lines,
    /// Calls about which something has changed.
    look: Vec<u64>,
    offers: Sorted<(Position, u64)>,
    acts: Sorted<u64>,
    diverged: Sorted<u64>,
    blocked: Sorted<(u8, StoreTime, u64)>,
    timed: Sorted<(StoreTime, u64)>,
    busy: usize,
}

#[derive(Debug, Clone)]
struct Entry<C> {
    call: C,
    /// The line in which it stands.
    line: usize,
    asked: bool,
    busy: bool,
    /// It is among those to look at.
    look: bool,
    filed: Filed,
}

/// What came of looking at a call: it is filed under that.
#[derive(Debug, Clone)]
enum Filed {
    Nothing,
    Offer(Position),
    Act(Act),
    Diverged(Box<Divergence>),
    Blocked(Box<Blocked>),
}

impl<C: Made> Queue<C> {
    /// The queue of a thread without live calls, which finds calls by hashes of this kind.
    #[must_use]
    pub fn new(keyed: Keyed) -> Self {
        Self {
            calls: Numbered::new(),
            lines: Lines::new(keyed),
            look: Vec::new(),
            offers: Sorted::new(),
            acts: Sorted::new(),
            diverged: Sorted::new(),
            blocked: Sorted::new(),
            timed: Sorted::new(),
            busy: 0,
        }
    }

    /// The code has made a call; `recorded` is its number among the recorded calls.
    pub fn make(&mut self, number: u64, call: C, recorded: Option<usize>) {
        let Declared { kind, id, .. } = call.declared();
        let line = self.lines.join(kind, id, recorded);
        let entry =
            Entry { call, line, asked: false, busy: false, look: false, filed: Filed::Nothing };
        self.calls.insert(number, entry);
    }

    /// A live call.
    #[must_use]
    #[inline]
    pub fn get(&self, number: u64) -> Option<&C> {
        self.calls.get(number).map(|entry| &entry.call)
    }

    /// A live call, to change what does not identify it.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut C> {
        self.calls.get_mut(number).map(|entry| &mut entry.call)
    }

    /// The live calls, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &C)> {
        self.calls.iter().map(|(number, entry)| (number, &entry.call))
    }

    /// The number that a live call has among the recorded calls.
    #[must_use]
    #[inline]
    pub fn recorded(&self, number: u64) -> Option<usize> {
        self.lines.get(self.calls.get(number)?.line)?.recorded()
    }

    /// Whether the future of a live call was polled since its outcome was last refused.
    #[must_use]
    pub fn is_asked(&self, number: u64) -> bool {
        self.calls.get(number).is_some_and(|entry| entry.asked)
    }

    /// Whether a body or a probe of any call is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// Says whether its future was polled since its outcome was last refused.
    pub fn set_asked(&mut self, number: u64, asked: bool) {
        self.change(number, |entry| entry.asked = asked);
    }

    /// Says whether its body or its probe is under way.
    pub fn set_busy(&mut self, number: u64, busy: bool) {
        self.change(number, |entry| entry.busy = busy);
    }

    /// The call was given its outcome, or dropped.
    pub fn remove(&mut self, number: u64) -> Option<C> {
        self.change(number, |entry| (entry.asked, entry.busy) = (false, false));
        let entry = self.calls.remove(number)?;
        self.unfile(number, entry.filed);
        self.lines.leave(entry.line);
        Some(entry.call)
    }

    /// A live call was opened: it is the recorded call with this number.
    pub fn opened(&mut self, number: u64, recorded: usize) {
        if let Some(entry) = self.calls.get(number) {
            self.lines.opened(entry.line, recorded);
            self.written(recorded);
        }
    }

    /// A record about the recorded call with this number was appended.
    pub fn written(&mut self, recorded: usize) {
        if let Some(line) = self.lines.about(recorded) {
            for number in line.ready.iter() {
                look(&mut self.calls, &mut self.look, *number);
            }
        }
    }

    /// A signal of this name was appended.
    pub fn signalled(&mut self, name: &str) {
        if let Some(first) = self.lines.waiting(name).and_then(|line| line.ready.first()) {
            look(&mut self.calls, &mut self.look, *first);
        }
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Entry<C>)) {
        let Some(entry) = self.calls.get_mut(number) else {
            return;
        };
        let before = (entry.asked, entry.busy);
        change(entry);
        if (entry.asked, entry.busy) == before {
            return;
        }
        self.busy = self.busy + usize::from(entry.busy) - usize::from(before.1);
        let ready = entry.asked || entry.busy;
        look(&mut self.calls, &mut self.look, number);
        let line = self.calls.get(number).and_then(|entry| self.lines.get_mut(entry.line));
        let Some(line) = line else { return };
        let first = line.ready.first().copied();
        if ready {
            line.ready.insert(number);
        } else {
            line.ready.remove(&number);
        }
        // The first one acts for all: who becomes it, or is it no more, is looked at.
        if first != line.ready.first().copied() {
            for number in [first, line.ready.first().copied()].into_iter().flatten() {
                look(&mut self.calls, &mut self.look, number);
            }
        }
    }

    /// Decides what the thread does next. Total, and pure: it depends on the calls and on `view`
    /// only, and changes nothing but how the calls are filed.
    #[must_use]
    pub fn next(&mut self, view: &View<'_>) -> Next {
        while let Some((due, number)) = self.timed.first().copied().filter(|t| t.0 <= view.now) {
            self.timed.remove(&(due, number));
            look(&mut self.calls, &mut self.look, number);
        }
        while let Some(number) = self.look.pop() {
            self.look_at(number, view);
        }
        if let Some((position, call)) = self.offers.first().copied() {
            return match view.first_unmade {
                Some(unmade) if unmade < position => self.not_made(view, unmade),
                _ => Next::Offer { call, position },
            };
        }
        if let Some(unmade) = view.first_unmade {
            return self.not_made(view, unmade);
        }
        self.quiescent()
    }

    fn quiescent(&self) -> Next {
        let filed = |number: &u64| self.calls.get(*number).map(|entry| &entry.filed);
        if let Some(Filed::Diverged(divergence)) = self.diverged.first().and_then(filed) {
            return Next::Diverged((**divergence).clone());
        }
        if !self.acts.is_empty() {
            let act = |filed: &Filed| match filed {
                Filed::Act(act) => Some(act.clone()),
                _ => None,
            };
            return Next::Act(self.acts.iter().filter_map(filed).filter_map(act).collect());
        }
        let until = self.timed.first().map(|(due, _)| *due);
        match self.blocked.first().and_then(|(_, _, number)| filed(number)) {
            _ if self.busy > 0 => Next::Wait(until),
            Some(Filed::Blocked(first)) => {
                Next::Park { until, first: (**first).clone(), more: self.blocked.len() - 1 }
            }
            _ => Next::Stalled,
        }
    }

    /// Looks at a call.
    fn see(&self, number: u64, entry: &Entry<C>, view: &View<'_>) -> Filed {
        if !entry.asked && !entry.busy {
            return Filed::Nothing;
        }
        let declared = entry.call.declared();
        let line = self.lines.get(entry.line);
        let is_first = line.and_then(|line| line.ready.first()) == Some(&number);
        let id = declared.id;
        if declared.kind == CallKind::Signal {
            let name = id.name.as_str();
            let next = view.delivered.get(name).copied().unwrap_or(0);
            // The earliest wait for a name stands first in its line.
            return match view.history.signals(name).get(next) {
                Some(signal) if is_first => Filed::Offer(signal.position),
                _ => Filed::Blocked(Box::new(Blocked::Signal(name.into()))),
            };
        }
        let recorded = line.and_then(Line::recorded);
        let call = recorded.and_then(|number| view.history.calls().get(number));
        match call.and_then(|call| call.outcome.as_ref()) {
            Some(outcome) if entry.asked => return Filed::Offer(outcome.position),
            _ => {}
        }
        // Of twins by arguments the first that asks runs for all of them.
        if entry.busy || !is_first {
            return Filed::Nothing;
        }
        let blocked = match decide_recorded(view.history, recorded, &declared, view.now) {
            Decision::Open if declared.kind == CallKind::Step => {
                return Filed::Act(Act::Start { call: number, attempt: 1 });
            }
            Decision::Open => return Filed::Act(Act::Open(number)),
            Decision::Start(attempt) => return Filed::Act(Act::Start { call: number, attempt }),
            Decision::Ask => return Filed::Act(Act::Probe(number)),
            Decision::Timer(due) if due <= view.now => return Filed::Act(Act::Fire(number)),
            Decision::Timer(due) => Blocked::Timer(id.clone(), due),
            Decision::Later(due) => Blocked::Retry(id.clone(), due),
            Decision::AskLater(due) => Blocked::Quiet(id.clone(), due),
            Decision::Decide => Blocked::Approval(id.clone()),
            Decision::Doubt(doubt) => match call.and_then(|call| view.history.misread(call)) {
                Some(why) if doubt == Doubt::Unreadable => {
                    Blocked::Misread(id.clone(), why.clone())
                }
                _ => Blocked::Doubt(id.clone(), doubt),
            },
            Decision::Diverged(divergence) => return Filed::Diverged(Box::new(divergence)),
            Decision::UnderWay | Decision::Outcome(_) => return Filed::Nothing,
        };
        Filed::Blocked(Box::new(blocked))
    }

    /// Files a call under what it is found to be.
    fn look_at(&mut self, number: u64, view: &View<'_>) {
        let Some(entry) = self.calls.get(number) else {
            return;
        };
        let seen = self.see(number, entry, view);
        if let Some(entry) = self.calls.get_mut(number) {
            entry.look = false;
            let before = std::mem::replace(&mut entry.filed, seen);
            self.unfile(number, before);
        }
        let Some(entry) = self.calls.get(number) else {
            return;
        };
        match &entry.filed {
            Filed::Nothing => {}
            Filed::Offer(position) => self.offers.insert((*position, number)),
            Filed::Act(_) => self.acts.insert(number),
            Filed::Diverged(_) => self.diverged.insert(number),
            Filed::Blocked(blocked) => {
                let (rank, time) = blocked.rank();
                self.blocked.insert((rank, time, number));
                if let Some(due) = blocked.until() {
                    self.timed.insert((due, number));
                }
            }
        }
    }

    /// A call is not filed under this any more.
    fn unfile(&mut self, number: u64, filed: Filed) {
        match filed {
            Filed::Nothing => {}
            Filed::Offer(position) => self.offers.remove(&(position, number)),
            Filed::Act(_) => self.acts.remove(&number),
            Filed::Diverged(_) => self.diverged.remove(&number),
            Filed::Blocked(blocked) => {
                let (rank, time) = blocked.rank();
                self.blocked.remove(&(rank, time, number));
                if let Some(due) = blocked.until() {
                    self.timed.remove(&(due, number));
                }
            }
        }
    }

    fn not_made(&self, view: &View<'_>, opened: Position) -> Next {
        let call = view.history.opened_at(opened).map(|c| c.id.to_string()).unwrap_or_default();
        let kind = DivergenceKind::NotMade { instead: self.instead(view, opened) };
        Next::Diverged(Divergence { call, at: opened, kind })
    }

    /// What the code does where its records have the call opened at this position: the first new
    /// call that it has made, or else the first one that is recorded behind the missing one.
    fn instead(&self, view: &View<'_>, missing: Position) -> Instead {
        let mut behind = None;
        for (number, call) in self.iter() {
            let declared = call.declared();
            let shown = || match declared.kind {
                CallKind::Step => declared.id.to_string(),
                kind => format!("{} {}", kind.as_str(), declared.id),
            };
            match self.recorded(number).and_then(|number| view.history.calls().get(number)) {
                None => return Instead::New(shown()),
                Some(call) if call.opened > missing && behind.is_none() => behind = Some(shown()),
                Some(_) => {}
            }
        }
        behind.map_or(Instead::Nothing, Instead::Behind)
    }
}

/// Notes that a call is to be looked at.
#[inline]
fn look<C>(calls: &mut Numbered<Entry<C>>, noted: &mut Vec<u64>, number: u64) {
    if let Some(entry) = calls.get_mut(number).filter(|entry| !entry.look) {
        entry.look = true;
        noted.push(number);
    }
}
