//! The thread that commits for many: where a crowd is in line, no caller's thread stands still for
//! a sync, and while one group becomes durable all of them make the next.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    line::Line,
    sync::mpsc::{Receiver, Sender, channel},
};

/// What the committer is told.
#[derive(Debug)]
enum Call {
    /// Somebody is in line.
    Commit,
    /// The handle is gone.
    Stop,
}

/// How to reach the committer.
#[derive(Debug, Clone)]
pub(super) struct Bell(Sender<Call>);

/// Where the committer hears.
#[derive(Debug)]
pub(super) struct Ear(Receiver<Call>);

pub(super) fn bell() -> (Bell, Ear) {
    let (sender, receiver) = channel();
    (Bell(sender), Ear(receiver))
}

impl Bell {
    pub(super) fn ring(&self) {
        // A committer that is gone has ended with the handle.
        drop(self.0.send(Call::Commit));
    }

    pub(super) fn stop(&self) {
        drop(self.0.send(Call::Stop));
    }
}

/// Runs until the handle is gone.
pub(super) fn run(line: &Arc<Line>, ear: &Ear) {
    while let Ok(Call::Commit) = ear.0.recv() {
        // Those in line would wait for ever for a thread that is gone.
        if catch_unwind(AssertUnwindSafe(|| line.commit_all())).is_err() {
            line.core.end("the thread that commits has panicked");
            line.called_off();
            line.disband();
        }
    }
}
