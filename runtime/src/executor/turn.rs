//! One turn: poll, offer, act.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context as Cx, Poll, Waker},
};

use deedbook_journal::{id::StoreTime, limits::TURN_POLLS_MAX, turn::Next};

use super::{After, Polled, Run, SPINS_MAX, earlier, ended_early, parked_row, root, stalled};
use crate::{
    desk::{Desk, Trouble, TurnMarks},
    step::panic_message,
    workflow::Stop,
};

impl Run {
    /// Polls, offers and acts until there is nothing to do but wait, or for long enough.
    pub(super) fn turn(&mut self) -> After {
        for _ in 0..TURN_POLLS_MAX {
            let (expires, cancelled) = {
                let mut desk = self.shared.lock();
                let expires = desk.expire();
                desk.wake_bodies(&self.shared.wakeups.take_bodies());
                (expires, desk.cancelled())
            };
            if cancelled {
                return self.wind_down(expires);
            }
            if self.finished.is_some() {
                return After::Finish;
            }
            if self.root.is_none() {
                return After::Input("it was erased".to_owned());
            }
            match self.poll_root() {
                Polled::Pending => {}
                Polled::Ready(Ok(result)) => self.finished = Some(Ok(result)),
                Polled::Ready(Err(Stop::Failed(error))) => {
                    self.finished = Some(Err(error.into_failure()));
                }
                Polled::Ready(Err(Stop::InputUnreadable(why))) => return After::Input(why),
                Polled::Panicked(message) => return After::Panicked(message),
            }
            let mut desk = self.shared.lock();
            let (trouble, continues) = (desk.trouble.take(), desk.continues_with.take());
            if let Some(trouble) = trouble {
                return After::Trouble(trouble);
            }
            if let Some(input) = continues {
                drop(desk);
                match self.next_episode(input) {
                    Ok(()) => continue,
                    Err(trouble) => return After::Trouble(trouble),
                }
            }
            if self.finished.is_some() {
                desk.history.set_code_is_over(true);
                return After::Finish;
            }
            if desk.has_a_batch() {
                return After::GoOn;
            }
            let after = self.decide(&mut desk, expires);
            drop(desk);
            match after {
                Some(after) if !self.shared.wakeups.peek_root() => return after,
                Some(after @ After::Trouble(_)) => return after,
                _ => {}
            }
        }
        After::GoOn
    }

    /// Carries out what `next` says until it says to wait; `None` to poll again.
    fn decide(&self, desk: &mut Desk, expires: Option<StoreTime>) -> Option<After> {
        loop {
            match desk.next() {
                // Something that woke the workflow meanwhile is not from here: a poll without an
                // offer shows whether it drives the code.
                Next::Offer { .. } if self.shared.wakeups.peek_root() => return None,
                Next::Offer { call, .. } => {
                    desk.offer(call);
                    return None;
                }
                // Every body, probe, timer and request begins with an act, reads as well.
                Next::Act(_) if self.house.options.replay_only => {
                    return Some(After::Wait { until: None, row: None });
                }
                Next::Act(acts) => {
                    for act in &acts {
                        desk.act(act);
                    }
                    // An act that came to nothing would be decided on again, and for ever.
                    if let Some(trouble) = desk.trouble.take() {
                        return Some(After::Trouble(trouble));
                    }
                }
                Next::Wait(until) => {
                    let until = earlier(until, expires);
                    return Some(After::Wait { until, row: None });
                }
                Next::Park { until, first, more } => {
                    let waits = first.status_with(more);
                    let row = Some(parked_row(&self.row, waits, until, desk));
                    return Some(After::Wait { until, row });
                }
                Next::Diverged(divergence) => {
                    return Some(After::Trouble(Trouble::Diverged(divergence)));
                }
                Next::Stalled => {
                    return Some(After::Trouble(Trouble::Misused(stalled(desk))));
                }
            }
        }
    }

    /// One poll of the workflow, and again as long as it wakes itself.
    pub(super) fn poll_root(&mut self) -> Polled {
        let Some(root) = &mut self.root else {
            return Polled::Pending;
        };
        let waker = Waker::from(self.shared.wakeups.clone());
        let mut cx = Cx::from_waker(&waker);
        {
            let mut desk = self.shared.lock();
            desk.turn = TurnMarks::default();
            desk.begin_poll();
        }
        let mut spins = 0;
        let polled = loop {
            self.shared.wakeups.take_root();
            match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut *root).poll(&mut cx))) {
                Ok(Poll::Ready(result)) => break Polled::Ready(result),
                Ok(Poll::Pending) => {}
                Err(panic) => break Polled::Panicked(panic_message(&*panic)),
            }
            spins += 1;
            if spins == SPINS_MAX {
                let why = "the workflow keeps waking itself without waiting for anything; it may \
                           wait only for calls of its context";
                self.shared.lock().trouble(Trouble::Misused(why.to_owned()));
            }
            if !self.shared.wakeups.take_root() || spins == SPINS_MAX {
                break Polled::Pending;
            }
        };
        let mut desk = self.shared.lock();
        desk.end_poll();
        desk.withdraw();
        if !matches!(polled, Polled::Pending) {
            // Whatever the future still holds is dropped outside of a poll: not a decision.
            desk.torn_down = matches!(polled, Polled::Panicked(_));
            drop(desk);
            self.root = None;
            desk = self.shared.lock();
        }
        if self.polled && !desk.turn.taken {
            let went_on = match (&desk.turn.made, &polled) {
                (Some(call), _) => Some(format!("went on to {call}")),
                (None, Polled::Ready(_)) => Some("ended".to_owned()),
                _ => None,
            };
            if let Some(went_on) = went_on {
                let why = format!(
                    "the workflow {went_on} without an outcome from its context: something that \
                     deedbook does not know drove it (a channel, a real sleep, a task); put it \
                     into a step, or use `ctx.sleep` and `ctx.signal`"
                );
                desk.trouble(Trouble::Misused(why));
            }
        }
        self.polled = true;
        polled
    }

    /// Begins the next episode, if nothing of this one is open.
    pub(super) fn next_episode(&mut self, input: Vec<u8>) -> Result<(), Trouble> {
        let mut desk = self.shared.lock();
        if let Some(unmade) = desk.first_unmade() {
            return Err(Trouble::Diverged(ended_early(&desk, unmade)));
        }
        desk.history.set_code_is_over(true);
        let open = if desk.at_work() {
            Some("a body is under way; await it before".to_owned())
        } else {
            desk.doubts().first().map(|(id, _)| format!("step {id} is in doubt; settle it before"))
        };
        let wrong = self.hosted.as_ref().map(|h| h.check_input(&input, &desk.limits));
        let wrong = wrong.and_then(Result::err).map(|why| format!("its input is wrong: {why}"));
        if let Some(why) = open.or(wrong) {
            return Err(Trouble::Misused(format!("the thread cannot continue as new: {why}")));
        }
        desk.history.set_code_is_over(false);
        desk.torn_down = true;
        drop(desk);
        let root_before = self.root.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(root_before)));
        let build = self.house.options.build.clone();
        self.shared.lock().next_episode(input, build);
        self.root = self.hosted.clone().and_then(|hosted| root(hosted, &self.shared));
        self.polled = false;
        Ok(())
    }

    /// Polls the workflow for its bodies' sake: nothing is offered, so its code does not go on.
    pub(super) fn poll_bodies(&mut self) {
        let bodies = self.shared.wakeups.take_bodies();
        self.shared.lock().wake_bodies(&bodies);
        if self.polled {
            self.poll_root();
        }
    }

    /// A cancelled thread: nothing new begins; what runs may come to its end, for a while.
    pub(super) fn wind_down(&mut self, expires: Option<StoreTime>) -> After {
        self.poll_bodies();
        let mut desk = self.shared.lock();
        let now = desk.now;
        let grace = *self.grace.get_or_insert(now.after(self.house.options.cancel_grace));
        if desk.running() && now < grace {
            return After::Wait { until: earlier(Some(grace), expires), row: None };
        }
        desk.abandon_running();
        After::Cancel
    }
}
