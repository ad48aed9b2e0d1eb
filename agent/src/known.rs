//! What the thread has done already: derived from its outcomes, equal in every replay.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    answer::{Outcome, Replayed},
    json::{canonical, differences},
    prepare::Prepared,
    tool::DynTool,
};

/// The scope of everything here, as it is told.
pub(crate) const THREAD: &str = "thread";
/// The scope of tools that are shared, as it is told.
pub(crate) const JOURNAL: &str = "journal";

/// What identifies a call within the thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) tool: String,
    /// The canonical text of the arguments that say which operation it is.
    pub(crate) text: String,
}

impl Identity {
    /// All arguments, or those that the tool says, and whatever a hook adds.
    pub(crate) fn of(tool: &DynTool, call: &Prepared) -> Self {
        let recorded = call.recorded();
        let text = match (&tool.terms.identity, &recorded) {
            (Some(names), Value::Object(members)) => {
                let which = |name: &String| name == crate::CONTEXT || names.contains(name);
                let members = members.iter().filter(|(name, _)| which(name));
                canonical(&Value::Object(members.map(|(k, v)| (k.clone(), v.clone())).collect()))
            }
            _ => canonical(&recorded),
        };
        Self { tool: call.tool.clone(), text }
    }
}

/// The operations of a thread.
#[derive(Debug, Default)]
pub(crate) struct Known {
    once: BTreeMap<Identity, Entry>,
    minted: BTreeMap<Identity, u32>,
}

#[derive(Debug)]
struct Entry {
    first: String,
    content: Value,
    outcome: Option<Outcome>,
    /// How often it failed without an effect.
    failures: u32,
}

/// What is known of an operation that is wanted again.
pub(crate) enum Before {
    /// Nothing that speaks against doing it: under this occurrence.
    New(u32),
    /// Its answer is there.
    Answer(Outcome, Replayed),
    /// It was the same operation with other content.
    Other(Outcome),
}

impl Known {
    /// Looks whether a call that is to be done once was done.
    pub(crate) fn before(&self, identity: &Identity, content: &Value) -> Before {
        let Some(entry) = self.once.get(identity) else {
            return Before::New(0);
        };
        let Some(outcome) = &entry.outcome else {
            return Before::New(entry.failures);
        };
        let differing = differences(&entry.content, content);
        if !differing.is_empty() {
            return Before::Other(Outcome::Conflict { first: entry.first.clone(), differing });
        }
        let replayed = Replayed { first: entry.first.clone(), scope: THREAD.to_owned() };
        Before::Answer(outcome.clone(), replayed)
    }

    /// A call that is to be done once has its outcome.
    pub(crate) fn settle(
        &mut self,
        identity: Identity,
        call: &str,
        content: &Value,
        outcome: &Outcome,
        shared: bool,
    ) {
        let entry = self.once.entry(identity).or_insert_with(|| Entry {
            first: call.to_owned(),
            content: content.clone(),
            outcome: None,
            failures: 0,
        });
        // What is shared has no second operation that only this thread knows of.
        if outcome.is_final()
            || shared && matches!(outcome, Outcome::Failed { .. } | Outcome::Conflict { .. })
        {
            call.clone_into(&mut entry.first);
            entry.content = content.clone();
            entry.outcome = Some(outcome.clone());
        } else if matches!(outcome, Outcome::Failed { .. }) {
            entry.failures += 1;
        }
    }

    /// Counts a wanted call of a tool that makes something new each time.
    pub(crate) fn mint(&mut self, identity: Identity) -> u32 {
        let next = self.minted.entry(identity).or_default();
        let occurrence = *next;
        *next += 1;
        occurrence
    }
}
