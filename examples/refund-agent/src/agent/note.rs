//! What the agent and the story say to each other: one JSON object a line, on the agent's
//! standard output and input.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::Outcome;
use super::holds::Point;

/// What the agent says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// The journal is open.
    Opened {
        /// Threads in it.
        threads: usize,
        /// Threads that were cut off at work or asleep, and go on now.
        interrupted: usize,
        /// Threads that wait for a person.
        waiting: usize,
        /// Threads in doubt.
        in_doubt: usize,
    },
    /// A thread has begun.
    Begun {
        /// Which.
        thread: String,
    },
    /// A thread waits for a person.
    Asked {
        /// Which.
        thread: String,
    },
    /// A person's answer has arrived.
    Decided {
        /// For which thread.
        thread: String,
        /// Why the answer does not count, if it does not.
        refused: Option<String>,
    },
    /// A thread has ended.
    Ended {
        /// Which.
        thread: String,
        /// How.
        outcome: Outcome,
        /// Whether it had ended before this process began.
        before: bool,
    },
    /// A thread cannot go on by itself.
    Stopped {
        /// Which.
        thread: String,
        /// Whether it is in doubt; else it failed, diverged, or was refused.
        in_doubt: bool,
        /// Why.
        why: String,
    },
    /// The process stands at this instant, and waits to be killed.
    Holding {
        /// The instant.
        point: Point,
        /// The thread that stands there.
        thread: String,
    },
    /// Every request has ended or stopped, and the journal is closed.
    Finished,
}

/// A person's answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// For which thread.
    pub thread: String,
    /// Whether it is granted.
    pub granted: bool,
    /// By whom.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// Says it on standard output. Once nobody listens, nothing is said.
pub fn say(note: &Note) {
    let mut line = serde_json::to_vec(note).unwrap_or_default();
    line.push(b'\n');
    let mut out = io::stdout().lock();
    // Whoever listened is gone; the work goes on.
    let _unheard = out.write_all(&line).and_then(|()| out.flush());
}
