//! The live calls, sorted by what the rule asks about them.
//!
//! A thread may have very many live calls, and little of them changes in a turn. Each call is
//! looked at when something about it has changed (it is asked, refused, under way, or written
//! about, or its time has come), and filed under what came of that. A turn then takes the first
//! of what is filed: it costs what has changed, and not how many calls are live.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{Act, Blocked, Next};
use crate::{
    history::{
        CallKind, Decision, Declared, Divergence, DivergenceKind, Doubt, History, Instead, decide,
    },
    id::{Position, StepId, StoreTime},
    keyed::Keyed,
};

/// What is known of the thread besides its live calls.
pub struct View<'a> {
    /// The records, the ones just appended included.
    pub history: &'a History,
    /// The calls as the code makes them, by their numbers.
    pub declared: &'a dyn Fn(u64) -> Option<Declared<'a>>,
    /// The lowest position below [`History::live_from`] that opened a call which the code has
    /// not made yet.
    pub first_unmade: Option<Position>,
    /// How many signals of a name were delivered.
    pub delivered: &'a HashMap<Arc<str>, usize>,
    /// The store's clock.
    pub now: StoreTime,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The live calls of a thread, by numbers in the order in which they were made.
///
/// Whoever holds it says what happens to the calls, and [`next`](Self::next) decides. What it
/// decides depends on the calls as they are, and not on the way in which they came to be so.
#[derive(Debug, Clone)]
pub struct Queue {
    // Boxed: a node of the tree holds eleven, and most threads have one call at a time.
    calls: BTreeMap<u64, Box<Entry>>,
    /// Calls that stand behind each other: waits for one signal, and calls with one identity. The
    /// calls among them that ask or are under way.
    groups: HashMap<Group, BTreeSet<u64>, Keyed>,
    /// Calls about which something has changed.
    look: BTreeSet<u64>,
    offers: BTreeSet<(Position, u64)>,
    acts: BTreeMap<u64, Act>,
    diverged: BTreeMap<u64, Divergence>,
    blocked: BTreeMap<(u8, StoreTime, u64), Blocked>,
    timed: BTreeSet<(StoreTime, u64)>,
    busy: usize,
}

#[derive(Debug, Clone)]
struct Entry {
    group: Group,
    asked: bool,
    busy: bool,
    filed: Filed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Group {
    Signal(Arc<str>),
    Call(CallKind, StepId),
}

/// Under what a call is filed.
#[derive(Debug, Clone, Copy)]
enum Filed {
    Nothing,
    Offer(Position),
    Act,
    Diverged,
    Blocked((u8, StoreTime, u64)),
}

/// What came of looking at a call.
enum Seen {
    Nothing,
    Offer(Position),
    Act(Act),
    Diverged(Divergence),
    Blocked(Blocked),
}

impl Queue {
    /// The queue of a thread without live calls, which finds calls by hashes of this kind.
    #[must_use]
    pub fn new(keyed: Keyed) -> Self {
        Self {
            calls: BTreeMap::new(),
            groups: HashMap::with_hasher(keyed),
            look: BTreeSet::new(),
            offers: BTreeSet::new(),
            acts: BTreeMap::new(),
            diverged: BTreeMap::new(),
            blocked: BTreeMap::new(),
            timed: BTreeSet::new(),
            busy: 0,
        }
    }

    /// The code has made a call.
    pub fn make(&mut self, number: u64, kind: CallKind, id: &StepId) {
        let group = match kind {
            CallKind::Signal => Group::Signal(id.name.as_str().into()),
            kind => Group::Call(kind, id.clone()),
        };
        let entry = Entry { group, asked: false, busy: false, filed: Filed::Nothing };
        self.calls.insert(number, Box::new(entry));
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
    pub fn remove(&mut self, number: u64) {
        self.change(number, |entry| {
            entry.asked = false;
            entry.busy = false;
        });
        self.unfile(number);
        self.look.remove(&number);
        self.calls.remove(&number);
    }

    /// A record about the call with this identity was appended.
    pub fn recorded(&mut self, kind: CallKind, id: &StepId) {
        if let Some(members) = self.groups.get(&Group::Call(kind, id.clone())) {
            self.look.extend(members);
        }
    }

    /// A signal of this name was appended.
    pub fn signalled(&mut self, name: &Arc<str>) {
        let members = self.groups.get(&Group::Signal(name.clone()));
        self.look.extend(members.and_then(BTreeSet::first));
    }

    /// Whether a body or a probe of any call is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy > 0
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.calls.get_mut(&number) else {
            return;
        };
        let before = (entry.asked, entry.busy);
        change(entry);
        if (entry.asked, entry.busy) == before {
            return;
        }
        self.busy = self.busy + usize::from(entry.busy) - usize::from(before.1);
        let member = entry.asked || entry.busy;
        let members = match self.groups.get_mut(&entry.group) {
            Some(members) => members,
            None => self.groups.entry(entry.group.clone()).or_default(),
        };
        // The first of a group acts for all of it: who becomes it, or is it no more, is looked at.
        self.look.extend(members.first());
        if member {
            members.insert(number);
        } else {
            members.remove(&number);
        }
        self.look.extend(members.first());
        if members.is_empty() {
            self.groups.remove(&entry.group);
        }
        self.look.insert(number);
    }

    /// Decides what the thread does next. Total, and pure: it depends on the calls and on `view`
    /// only, and changes nothing but how the calls are filed.
    #[must_use]
    pub fn next(&mut self, view: &View<'_>) -> Next {
        while let Some((due, number)) = self.timed.first().copied().filter(|t| t.0 <= view.now) {
            self.timed.remove(&(due, number));
            self.look.insert(number);
        }
        while let Some(number) = self.look.pop_first() {
            self.unfile(number);
            let seen = self.see(number, view);
            self.file(number, seen);
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
        if let Some(divergence) = self.diverged.values().next() {
            return Next::Diverged(divergence.clone());
        }
        if !self.acts.is_empty() {
            return Next::Act(self.acts.values().cloned().collect());
        }
        let until = self.timed.first().map(|(due, _)| *due);
        match self.blocked.values().next() {
            _ if self.busy > 0 => Next::Wait(until),
            None => Next::Stalled,
            Some(first) => Next::Park { until, first: first.clone(), more: self.blocked.len() - 1 },
        }
    }

    fn see(&self, number: u64, view: &View<'_>) -> Seen {
        let Some(entry) = self.calls.get(&number) else {
            return Seen::Nothing;
        };
        let Some(declared) = (view.declared)(number) else {
            return Seen::Nothing;
        };
        if !entry.asked && !entry.busy {
            return Seen::Nothing;
        }
        let is_first = self.groups.get(&entry.group).and_then(BTreeSet::first) == Some(&number);
        if let Group::Signal(name) = &entry.group {
            let next = view.delivered.get(name).copied().unwrap_or(0);
            // The earliest wait for a name stands first in its queue.
            return match view.history.signals(name).get(next) {
                Some(signal) if is_first => Seen::Offer(signal.position),
                _ => Seen::Blocked(Blocked::Signal(name.clone())),
            };
        }
        let recorded = view.history.number(declared.kind, declared.id);
        let recorded = recorded.and_then(|number| view.history.calls().get(number));
        match recorded.and_then(|call| call.outcome.as_ref()) {
            Some(outcome) if entry.asked => return Seen::Offer(outcome.position),
            _ => {}
        }
        // Of twins by arguments the first that asks runs for all of them.
        if entry.busy || !is_first {
            return Seen::Nothing;
        }
        let id = declared.id;
        match decide(view.history, &declared, view.now) {
            Decision::Open if declared.kind == CallKind::Step => {
                Seen::Act(Act::Start { call: number, attempt: 1 })
            }
            Decision::Open => Seen::Act(Act::Open(number)),
            Decision::Start(attempt) => Seen::Act(Act::Start { call: number, attempt }),
            Decision::Ask => Seen::Act(Act::Probe(number)),
            Decision::Timer(due) if due <= view.now => Seen::Act(Act::Fire(number)),
            Decision::Timer(due) => Seen::Blocked(Blocked::Timer(id.clone(), due)),
            Decision::Later(due) => Seen::Blocked(Blocked::Retry(id.clone(), due)),
            Decision::AskLater(due) => Seen::Blocked(Blocked::Quiet(id.clone(), due)),
            Decision::Decide => Seen::Blocked(Blocked::Approval(id.clone())),
            Decision::Doubt(doubt) => {
                let misread = recorded.and_then(|call| view.history.misread(call));
                Seen::Blocked(match misread {
                    Some(why) if doubt == Doubt::Unreadable => {
                        Blocked::Misread(id.clone(), why.clone())
                    }
                    _ => Blocked::Doubt(id.clone(), doubt),
                })
            }
            Decision::Diverged(divergence) => Seen::Diverged(divergence),
            Decision::UnderWay | Decision::Outcome(_) => Seen::Nothing,
        }
    }

    fn file(&mut self, number: u64, seen: Seen) {
        let filed = match seen {
            Seen::Nothing => Filed::Nothing,
            Seen::Offer(position) => {
                self.offers.insert((position, number));
                Filed::Offer(position)
            }
            Seen::Act(act) => {
                self.acts.insert(number, act);
                Filed::Act
            }
            Seen::Diverged(divergence) => {
                self.diverged.insert(number, divergence);
                Filed::Diverged
            }
            Seen::Blocked(blocked) => {
                let (rank, time) = blocked.rank();
                if let Some(due) = blocked.until() {
                    self.timed.insert((due, number));
                }
                self.blocked.insert((rank, time, number), blocked);
                Filed::Blocked((rank, time, number))
            }
        };
        if let Some(entry) = self.calls.get_mut(&number) {
            entry.filed = filed;
        }
    }

    fn unfile(&mut self, number: u64) {
        let Some(entry) = self.calls.get_mut(&number) else {
            return;
        };
        match std::mem::replace(&mut entry.filed, Filed::Nothing) {
            Filed::Nothing => {}
            Filed::Offer(position) => {
                self.offers.remove(&(position, number));
            }
            Filed::Act => {
                self.acts.remove(&number);
            }
            Filed::Diverged => {
                self.diverged.remove(&number);
            }
            Filed::Blocked(key) => {
                let due = self.blocked.remove(&key).and_then(|blocked| blocked.until());
                if let Some(due) = due {
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
        for declared in self.calls.keys().filter_map(|number| (view.declared)(*number)) {
            let shown = || match declared.kind {
                CallKind::Step => declared.id.to_string(),
                kind => format!("{} {}", kind.as_str(), declared.id),
            };
            let recorded = view.history.number(declared.kind, declared.id);
            match recorded.and_then(|number| view.history.calls().get(number)) {
                None => return Instead::New(shown()),
                Some(call) if call.opened > missing && behind.is_none() => behind = Some(shown()),
                Some(_) => {}
            }
        }
        behind.map_or(Instead::Nothing, Instead::Behind)
    }
}
