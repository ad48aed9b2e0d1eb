//! Recorded calls that the code has not made yet.

use deedbook_journal::{history::History, id::Position};

/// Which of the calls that were recorded when the thread was taken hold of the code has made.
#[derive(Debug)]
pub(super) struct Unmade {
    /// By the numbers of the calls, in the order in which they were opened.
    made: Vec<bool>,
    /// Every call before this one was made.
    first: usize,
}

impl Unmade {
    /// The recorded calls of this episode.
    pub(super) fn of(history: &History) -> Self {
        let episode = history.episode_from();
        let made = history.calls().iter().map(|call| call.opened < episode).collect();
        let mut unmade = Self { made, first: 0 };
        unmade.pass();
        unmade
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first >= self.made.len()
    }

    /// The number of the first of them.
    pub(super) fn next(&self) -> Option<usize> {
        (!self.is_empty()).then_some(self.first)
    }

    /// The position that opened the first of them.
    pub(super) fn first(&self, history: &History) -> Option<Position> {
        history.calls().get(self.next()?).map(|call| call.opened)
    }

    /// The code has made the call with this number.
    pub(super) fn made(&mut self, number: usize) {
        if let Some(made) = self.made.get_mut(number) {
            *made = true;
            self.pass();
        }
    }

    /// The code does not make the calls of this name any more.
    pub(super) fn retire(&mut self, history: &History, name: &str) {
        for (made, call) in self.made.iter_mut().zip(history.calls()).skip(self.first) {
            *made |= call.id.name.as_str() == name;
        }
        self.pass();
    }

    fn pass(&mut self) {
        while self.made.get(self.first) == Some(&true) {
            self.first += 1;
        }
    }
}
