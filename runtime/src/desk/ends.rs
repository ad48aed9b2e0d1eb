//! How bodies and probes end, and which records that becomes.

use std::{sync::Arc, time::Duration};

use deedbook_journal::{
    failure::Failure,
    history::{Answer, AttemptEnd, Doubt, Ended, ended},
    id::{Position, StoreTime},
    pen::Draft,
    policy::Terms,
    record::{Kind, Link, Place, Role},
};

use super::{BodyEnd, Desk, Work};
use crate::{
    error::Class,
    planted::{Broken, planted},
    policy::Probe,
    retry::Retry,
};

/// The outcome of a step of the whole journal.
pub(crate) struct Reused {
    pub(crate) answer: Answer,
    /// The operation key that was sent downstream, unless the step is a read.
    pub(crate) key: Option<Arc<str>>,
    /// The record that settled it.
    pub(crate) link: Link,
}

impl Desk {
    /// An attempt whose body never began.
    pub(super) fn not_started(&mut self, number: u64, attempt: u32) {
        let Some(opened) = self.opened(number) else {
            return;
        };
        let draft = self.draft(Kind::StepFail).with(|h| {
            h.call = Some(opened);
            h.attempt = Some(attempt);
            h.why = Some("not_started".into());
        });
        self.append(draft);
    }

    /// A body returned a value.
    pub(crate) fn body_returned(&mut self, number: u64, result: Vec<u8>) {
        if self.trouble.is_some() && self.is_read(number) {
            // It may have misused the context: let it say so again.
            return;
        }
        if let Some((opened, attempt)) = self.attempt_of(number) {
            let draft = self.draft(Kind::StepDone).with(|h| {
                h.call = Some(opened);
                h.attempt = Some(attempt);
            });
            if planted(Broken::SettleTwice) {
                self.append(draft.clone().payload(Role::Result, result.clone()));
            }
            self.append(draft.payload(Role::Result, result));
        }
    }

    /// A step of the whole journal has its outcome there: this thread gets a copy, and with it the
    /// position in which it is given.
    pub(crate) fn reused(&mut self, number: u64, reused: Reused) {
        self.set_work(number, Work::Idle);
        let Some(call) = self.calls.get(number) else {
            return;
        };
        if self.recorded(number).is_some() {
            // A twin was faster: what it brought is the outcome of both.
            return;
        }
        let (place, args) = (Place::of(&call.id), call.args.clone().unwrap_or_default());
        let policy = call.terms.map(|terms| terms.policy);
        let (verdict, role, bytes) = match reused.answer {
            Answer::Value(bytes) => ("done", Some(Role::Result), bytes.to_vec()),
            Answer::Unstored(bytes) => ("done", Some(Role::Error), bytes.to_vec()),
            Answer::Failed(bytes) => ("failed", Some(Role::Error), bytes.to_vec()),
            _ => ("done", None, Vec::new()),
        };
        let draft = self.draft(Kind::StepReused).with(|h| {
            h.place = Some(place);
            h.policy = policy;
            h.verdict = Some(verdict.into());
            h.key = reused.key;
            h.link = Some(Box::new(reused.link));
        });
        let draft = draft.payload(Role::Args, args);
        let draft = match role {
            Some(role) => draft.payload(role, bytes),
            None => draft,
        };
        self.append_about(number, draft);
    }

    /// A body ended without a storable value.
    pub(crate) fn body_ended(&mut self, number: u64, end: BodyEnd) {
        let Some((opened, attempt)) = self.attempt_of(number) else {
            return;
        };
        let mut wait = None;
        let (ended_as, failure) = match end {
            BodyEnd::Unstorable(failure) => {
                let draft = self.draft(Kind::StepDone).with(|h| {
                    h.call = Some(opened);
                    h.attempt = Some(attempt);
                    h.why = Some("result_not_stored".into());
                });
                self.append_with(draft, Role::Error, &failure);
                return;
            }
            BodyEnd::Failed(error) => {
                wait = error.retry_after;
                let ended = match error.class {
                    Class::Terminal if planted(Broken::RetryTerminal) => Ended::NotApplied,
                    Class::Terminal => Ended::Terminal,
                    Class::NotApplied => Ended::NotApplied,
                    Class::Unlabelled => Ended::Ambiguous(Doubt::Unlabelled),
                };
                (ended, error.failure)
            }
            BodyEnd::Panicked(message) => {
                let failure = Failure::new(format!("the body panicked: {message}")).code("panic");
                (Ended::Ambiguous(Doubt::Panic), failure)
            }
            BodyEnd::TimedOut => {
                let failure = Failure::new("the body took longer than its timeout").code("timeout");
                (Ended::Ambiguous(Doubt::Timeout), failure)
            }
        };
        let due = wait.map(|wait| self.now.after(wait));
        let due = due.unwrap_or_else(|| self.next_attempt_after(number, attempt));
        self.end_attempt(opened, attempt, ended_as, due, Some(&failure));
    }

    /// When the attempt after this one may start, if its body did not say.
    fn next_attempt_after(&mut self, number: u64, attempt: u32) -> StoreTime {
        if planted(Broken::RetryAtOnce) {
            return self.now;
        }
        let retry = self.calls.get(number).map_or_else(Retry::default, |c| c.retry);
        self.now.after(self.random.jitter(retry.wait_after(attempt)))
    }

    pub(super) fn end_attempt(
        &mut self,
        opened: Position,
        attempt: u32,
        ended_as: Ended,
        due: StoreTime,
        failure: Option<&Failure>,
    ) {
        let Some(call) = self.history.opened_at(opened) else {
            return;
        };
        let Some(terms) = &call.terms else { return };
        let record = ended(call, terms, ended_as, due);
        let draft = self.draft(record.kind.into()).with(|h| {
            h.call = Some(opened);
            h.attempt = Some(attempt);
            h.why = Some(record.why.into());
            h.due = record.due;
        });
        match failure {
            Some(failure) => self.append_with(draft, Role::Error, failure),
            None => self.append(draft),
        };
    }

    /// A probe answered.
    pub(crate) fn probe_ended(&mut self, number: u64, answer: Result<Probe<Vec<u8>>, BodyEnd>) {
        let Some((opened, _)) = self.attempt_of(number) else {
            return;
        };
        let again = self.calls.get(number).map_or_else(Retry::default, |c| c.retry);
        let recorded = self.history.opened_at(opened);
        let probes = recorded.map_or(0, |c| c.probes);
        // A person was faster. Only that it did happen is still news, if the person said no.
        let settled = recorded.is_some_and(|c| c.outcome.is_some());
        let cleared = recorded
            .and_then(|c| c.attempts.last())
            .is_some_and(|a| matches!(a.end, AttemptEnd::Cleared { .. }));
        if settled || (cleared && !matches!(answer, Ok(Probe::Happened(_)))) {
            return;
        }
        let draft = self.draft(Kind::StepResolve).with(|h| {
            h.call = Some(opened);
            h.by = Some("probe".into());
        });
        let verdict = |draft: Draft, word: &str| draft.with(|h| h.verdict = Some(word.into()));
        match answer {
            Ok(Probe::Happened(value)) => {
                let draft = verdict(draft, "happened");
                self.append(draft.payload(Role::Result, value));
            }
            Ok(Probe::DidNotHappen) => {
                self.append(verdict(draft, "did_not_happen"));
            }
            other => {
                let wait = again.wait_after(probes + 1).max(Duration::from_secs(1));
                let due = self.now.after(self.random.jitter(wait));
                let draft = verdict(draft, "inconclusive").with(|h| h.due = Some(due));
                match other {
                    Err(BodyEnd::Failed(error)) => {
                        self.append_with(draft, Role::Error, &error.failure);
                    }
                    Err(BodyEnd::Panicked(message)) => {
                        let failure = Failure::new(format!("the probe panicked: {message}"));
                        self.append_with(draft, Role::Error, &failure);
                    }
                    Err(BodyEnd::Unstorable(failure)) => {
                        self.append_with(draft, Role::Error, &failure);
                    }
                    _ => {
                        self.append(draft);
                    }
                }
            }
        }
    }

    /// A body that was out of time ended after all: kept as evidence.
    pub(crate) fn late(&mut self, number: u64, attempt: u32, result: Result<Vec<u8>, Failure>) {
        self.late = self.late.saturating_sub(1);
        let Some(opened) = self.opened(number) else {
            return;
        };
        let draft = self.draft(Kind::StepLate).with(|h| {
            h.call = Some(opened);
            h.attempt = Some(attempt);
        });
        match result {
            Ok(bytes) => {
                self.append(draft.payload(Role::Result, bytes));
            }
            Err(failure) => {
                self.append_with(draft, Role::Error, &failure);
            }
        }
    }

    /// A late body runs on.
    pub(crate) fn keep_late(&mut self) {
        self.late += 1;
        self.late_until = self.now.after(Terms::QUIET_BEYOND_TIMEOUT);
    }

    /// A late body was dropped.
    pub(crate) fn drop_late(&mut self) {
        self.late = self.late.saturating_sub(1);
    }

    /// The future of a call was dropped. Only drops inside a poll of the workflow that returns
    /// normally are decisions of the program; everything else equals a crash.
    pub(crate) fn dropped(&mut self, number: u64) {
        if self.torn_down || !self.polled_here() || std::thread::panicking() {
            return;
        }
        let Some(call) = self.calls.get(number) else {
            return;
        };
        let attempt = match call.work {
            Work::Running { attempt, probe: false, .. } => Some((attempt, true)),
            Work::Granted { attempt, probe: false, .. } => Some((attempt, false)),
            _ => None,
        };
        let opened = self.opened(number);
        if let (Some((attempt, entered)), Some(opened)) = (attempt, opened) {
            if entered {
                let ended_as = Ended::Ambiguous(Doubt::Dropped);
                let due = self.next_attempt_after(number, attempt);
                self.end_attempt(opened, attempt, ended_as, due, None);
            } else {
                self.not_started(number, attempt);
            }
        }
        self.forget(number);
    }

    /// Records the bodies that are still running as unknown: the thread is cancelled.
    pub(crate) fn abandon_running(&mut self) {
        let running: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, c)| !matches!(c.work, Work::Idle))
            .map(|(number, _)| number)
            .collect();
        for number in running {
            let (attempt, entered) = match self.set_work(number, Work::Idle) {
                Work::Running { attempt, probe: false, .. } => (attempt, true),
                Work::Granted { attempt, probe: false, .. } => (attempt, false),
                _ => continue,
            };
            let Some(opened) = self.opened(number) else {
                continue;
            };
            if entered {
                let ended_as = Ended::Ambiguous(Doubt::Cancelled);
                let due = self.next_attempt_after(number, attempt);
                self.end_attempt(opened, attempt, ended_as, due, None);
            } else {
                self.not_started(number, attempt);
            }
        }
    }

    /// Records that granted bodies never began: this run stops, and knows that much.
    pub(crate) fn give_back(&mut self) {
        let granted: Vec<_> = self
            .calls
            .iter()
            .filter_map(|(number, call)| match call.work {
                Work::Granted { attempt, probe: false, .. } => Some((number, attempt)),
                _ => None,
            })
            .collect();
        for (number, attempt) in granted {
            self.set_work(number, Work::Idle);
            self.not_started(number, attempt);
        }
    }

    /// The position that opened the call with a running attempt, and the attempt's number. The
    /// call is idle from now on.
    pub(super) fn attempt_of(&mut self, number: u64) -> Option<(Position, u32)> {
        let opened = self.opened(number)?;
        match self.set_work(number, Work::Idle) {
            Work::Running { attempt, .. } => Some((opened, attempt)),
            work => {
                self.set_work(number, work);
                None
            }
        }
    }

    pub(super) fn is_read(&self, number: u64) -> bool {
        let terms = self.calls.get(number).and_then(|c| c.terms);
        terms.is_some_and(|t| !t.policy.has_effect())
    }
}
