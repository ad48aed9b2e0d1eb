//! The person who is asked: scripted, and of one mind about each request however often asked.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::plan::Seeded;
use crate::agent::note::Decision;

const NAME: &str = "user:kim";

/// A person with questions on the desk.
#[derive(Debug)]
pub(super) struct Person {
    seed: u64,
    questions: VecDeque<String>,
    /// Asked in any life of the agent.
    asked: HashSet<String>,
    answered: HashSet<String>,
}

impl Person {
    /// How long an answer takes.
    pub(super) const ANSWERS_EVERY: Duration = Duration::from_millis(120);

    pub(super) fn new(seed: u64) -> Self {
        Self { seed, questions: VecDeque::new(), asked: HashSet::new(), answered: HashSet::new() }
    }

    /// A new agent asks again what is still open.
    pub(super) fn begin_life(&mut self) {
        self.questions.clear();
    }

    /// Puts a question on the desk; `true` if it is new.
    pub(super) fn ask(&mut self, thread: &str) -> bool {
        self.questions.push_back(thread.to_owned());
        self.asked.insert(thread.to_owned())
    }

    pub(super) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// The answer to the oldest question, and whether it is given for the first time. An answer
    /// given shortly before a kill may not have arrived: it is given again, and if it had arrived
    /// the journal refuses the second.
    pub(super) fn answer(&mut self) -> Option<(Decision, bool)> {
        let thread = self.questions.pop_front()?;
        let is_new = self.answered.insert(thread.clone());
        Some((self.decide(thread), is_new))
    }

    /// Grants three of four.
    fn decide(&self, thread: String) -> Decision {
        let mut seeded = Seeded::new(self.seed);
        for byte in thread.bytes() {
            seeded = Seeded::new(seeded.next() ^ u64::from(byte));
        }
        let granted = seeded.below(4) > 0;
        let reason = if granted { "the photos show it" } else { "nothing in the file supports it" };
        Decision { thread, granted, by: NAME.to_owned(), reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_does_not_change_their_mind() {
        let mut person = Person::new(7);
        let mut granted = 0;
        for n in 0..100 {
            let thread = format!("rq-{n}");
            assert!(person.ask(&thread));
            assert!(!person.ask(&thread));
            let (first, is_new) = person.answer().unwrap();
            let (second, is_new_again) = person.answer().unwrap();
            assert_eq!(first, second);
            assert!(is_new && !is_new_again && !person.has_questions());
            granted += u32::from(first.granted);
        }
        assert!((50..95).contains(&granted), "{granted}");
    }
}
