//! What the program says about itself: patches, retirements, episodes, derived values.

use std::sync::Arc;

use deedbook_journal::{
    history::CallKind,
    id::{Branch, Position},
    key::{KeyIdentity, KeyScope, Namespace, OperationKey},
    record::{Kind, Role},
    turn::{Queue, Sorted},
};

use super::{Desk, TurnMarks};

impl Desk {
    /// Begins the next episode: the code starts anew, with other input.
    pub(crate) fn next_episode(&mut self, input: Vec<u8>, build: Option<Arc<str>>) {
        let mut carry: Vec<_> = self.undelivered().collect();
        carry.sort_unstable();
        let draft = self.draft(Kind::ThreadContinue).with(|h| {
            h.build = build;
            h.carry = carry;
        });
        self.append(draft.payload(Role::Input, input));
        self.calls = Queue::new(self.history.keyed());
        self.offered = None;
        self.granted = Sorted::new();
        self.deadlines = Sorted::new();
        self.running = 0;
        self.occurrences.clear();
        self.derivations.clear();
        self.delivered.clear();
        self.taken = None;
        self.patches.clear();
        self.turn = TurnMarks::default();
        self.torn_down = false;
    }

    /// The positions of signals that nobody was given.
    pub(super) fn undelivered(&self) -> impl Iterator<Item = Position> {
        self.history.all_signals().flat_map(|(name, signals)| {
            let delivered = self.delivered.get(name).copied().unwrap_or(0);
            signals.iter().skip(delivered).map(|s| s.position)
        })
    }

    /// The code does not make calls of this name any more, and says so.
    pub(crate) fn retired(&mut self, name: &str) {
        self.unmade.retire(&self.history, name);
    }

    /// The answer to `patched(name)`.
    pub(crate) fn patched(&mut self, name: &str) -> bool {
        if let Some(recorded) = self.history.marker(name) {
            self.patches.insert(name.into());
            return recorded;
        }
        if !self.may_speak(|| format!("`patched({name:?})`")) {
            return false;
        }
        // New code may be taken only where the old code cannot have been: when every loaded
        // record was delivered or belongs to a call already made.
        let undelivered = self.calls.iter().any(|(number, _)| {
            self.opened(number).is_some_and(|opened| {
                opened < self.history.live_from()
                    && self.history.opened_at(opened).is_some_and(|c| {
                        c.outcome.as_ref().is_some_and(|o| o.position < self.history.live_from())
                    })
            })
        });
        let answer = self.unmade.is_empty() && !undelivered && !self.signals_waiting();
        let word = format!("patch:{name}");
        let draft = self.draft(Kind::Marker).with(|h| {
            h.why = Some(word.into());
            h.verdict = Some(if answer { "true" } else { "false" }.into());
        });
        self.append(draft);
        self.patches.insert(name.into());
        answer
    }

    /// Whether a loaded signal was not delivered to anybody who waits for it.
    pub(super) fn signals_waiting(&self) -> bool {
        self.calls.iter().filter(|(_, c)| c.kind == CallKind::Signal).any(|(_, c)| {
            let name = c.id.name.as_str();
            let delivered = self.delivered.get(name).copied().unwrap_or(0);
            self.history
                .signals(name)
                .get(delivered)
                .is_some_and(|s| s.position < self.history.live_from())
        })
    }

    /// A value that is equal in every execution and differs between places in the program.
    pub(crate) fn derived(&mut self, branch: &Branch, what: &str) -> uuid::Uuid {
        // A body's own call would not be repeated by a replay, and so shift those after it.
        let counts = self.may_speak(|| format!("`{}()`", what.trim_start_matches("deedbook:")));
        let counter = self.derivations.entry((branch.clone(), what.to_owned())).or_insert(0);
        let occurrence = *counter;
        *counter += u32::from(counts);
        let namespace = Namespace(self.identity.namespace);
        let episode = self.history.episode();
        let identity = KeyIdentity::Positional { episode, branch, occurrence };
        let scope = KeyScope::Thread(self.history.thread());
        OperationKey::derive(&namespace, scope, what, identity, 0).to_uuid()
    }
}
