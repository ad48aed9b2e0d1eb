//! What the journal knows, folded as it becomes durable.

use std::collections::HashSet;

use deedbook_journal::{
    history::History,
    id::ThreadId,
    record::{Header, Record},
};

/// The durable history of the thread, and what of it the world checks against.
#[derive(Debug, Clone)]
pub struct Durable {
    /// The history.
    pub history: History,
    settled: HashSet<String>,
    intents: HashSet<(String, u32)>,
    frozen: bool,
}

impl Durable {
    /// Nothing is durable.
    #[must_use]
    pub fn new(thread: ThreadId, secret: [u8; 32]) -> Self {
        Self {
            history: History::new(thread, secret),
            settled: HashSet::new(),
            intents: HashSet::new(),
            frozen: false,
        }
    }

    /// Takes in records from the next one on.
    ///
    /// # Errors
    /// A record does not fit its thread.
    pub fn take(&mut self, records: &[Record]) -> Result<(), String> {
        if self.frozen {
            return Ok(());
        }
        for record in records {
            let header = Header::parse(&record.header).map_err(|error| error.to_string())?;
            let applied = self.history.apply(&header, &record.payloads);
            applied.map_err(|error| format!("a durable record does not fit: {error}"))?;
            let Some(call) = self.history.opened_at(header.call.unwrap_or(header.n)) else {
                continue;
            };
            if let (Some(attempt), Some(key)) = (header.attempt, &call.key) {
                self.intents.insert((key.to_string(), attempt));
            }
            if call.outcome.is_some() {
                self.settled.insert(call.id.to_string());
                self.settled.extend(call.key.as_deref().map(str::to_owned));
                if call.terms.is_some_and(|terms| !terms.policy.has_effect()) {
                    self.settled.insert(call.id.name.to_string());
                }
            }
        }
        Ok(())
    }

    /// Takes in no further records: those of a replay follow another end.
    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Whether the step with this id, as shown, or with this operation key, or the read of
    /// this name, is settled.
    #[must_use]
    pub fn is_settled(&self, step: &str) -> bool {
        self.settled.contains(step)
    }

    /// Whether this attempt under this key may begin: its intent is durable.
    #[must_use]
    pub fn has_intent(&self, key: &str, attempt: u32) -> bool {
        self.intents.contains(&(key.to_owned(), attempt))
    }
}
