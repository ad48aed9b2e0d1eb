//! What people said of steps in doubt, and whether it can still be said otherwise.

use std::{collections::BTreeMap, sync::Arc};

use super::{AttemptEnd, Call, Doubt, History};
use crate::{
    id::Position,
    record::{Gist, Kind},
};

/// The words of people, by the steps that they are about. There are few.
#[derive(Debug, Clone, Default)]
pub(super) struct Said {
    words: BTreeMap<Position, Word>,
    /// The last record that tells of a decision of the workflow's code.
    went_on: Option<Position>,
}

#[derive(Debug, Clone, Default)]
struct Word {
    /// The record that settled the step.
    settled: Option<Position>,
    /// The code was given it, as the run that holds the thread knows.
    given: bool,
    /// Why it could not be given to the code.
    misread: Option<Arc<str>>,
}

impl Said {
    /// A record has been taken in.
    pub(super) fn passed(&mut self, gist: &Gist<'_>, kind: &Kind) {
        if by_the_code(gist, kind) {
            self.went_on = Some(gist.n);
        }
    }

    /// A person said of the step opened there what became of it.
    pub(super) fn say(&mut self, opened: Position, at: Position, settles: bool) {
        self.words.insert(opened, Word { settled: settles.then_some(at), ..Word::default() });
    }

    /// What a person said cannot be read as what the code expects.
    pub(super) fn misread(&mut self, opened: Position, why: Option<Arc<str>>) {
        self.words.insert(opened, Word { misread: why, ..Word::default() });
    }

    /// Whether the step's outcome is what a person said.
    pub(super) fn is_outcome(&self, call: &Call) -> bool {
        let settled = self.words.get(&call.opened).and_then(|word| word.settled);
        settled.is_some() && settled == call.outcome.as_ref().map(|o| o.position)
    }
}

/// Whether the record tells of something that the workflow's code did.
fn by_the_code(gist: &Gist<'_>, kind: &Kind) -> bool {
    let why = |word: &str| gist.why.is_some_and(|why| why.is(word));
    match kind {
        Kind::StepIntent | Kind::StepReused => gist.call.is_none(),
        Kind::TimerSet
        | Kind::ApprovalRequest
        | Kind::Clock
        | Kind::ChildStart
        | Kind::ThreadContinue
        | Kind::ThreadEnd => true,
        Kind::Marker => !why("cancel"),
        Kind::StepUnknown | Kind::StepFail => why(Doubt::Dropped.as_str()),
        _ => false,
    }
}

impl History {
    /// Whether a person, who has said what became of this step, can still say otherwise: as far
    /// as the records tell, and the run that holds the thread knows, the code was not given it,
    /// and nothing was done because of it.
    #[must_use]
    pub fn may_be_settled_again(&self, call: &Call) -> bool {
        let Some(word) = self.said.words.get(&call.opened) else {
            return false;
        };
        if call.outcome.is_some() {
            let behind = |at: Position| self.said.went_on.is_none_or(|went_on| went_on < at);
            return self.said.is_outcome(call) && !word.given && word.settled.is_some_and(behind);
        }
        // That it did not happen is acted on by the next attempt, which is not there yet.
        let last = call.attempts.last();
        last.is_some_and(|a| matches!(a.end, AttemptEnd::Cleared { by_person: true, .. }))
    }

    /// Whether the step's outcome is what a person said.
    #[must_use]
    pub fn settled_by_person(&self, call: &Call) -> bool {
        self.said.is_outcome(call)
    }

    /// Says that the code was given what a person said of the step opened at this position: it
    /// stays so, although no record tells.
    pub fn set_given(&mut self, opened: Position) {
        if let Some(word) = self.said.words.get_mut(&opened) {
            word.given = true;
        }
    }

    /// Whether the run that holds the thread knows that the code was given it.
    #[must_use]
    pub fn was_given(&self, opened: Position) -> bool {
        self.said.words.get(&opened).is_some_and(|word| word.given)
    }

    /// Why what a person said of this step could not be given to the code: the type that it
    /// expects, and what does not fit it.
    #[must_use]
    pub fn misread(&self, call: &Call) -> Option<&Arc<str>> {
        self.said.words.get(&call.opened)?.misread.as_ref()
    }
}
