//! What the records of a thread tell beside its calls: who said what, and what was a run.

use deedbook_journal::{
    checkpointer::Checkpointer,
    history::{Attempt, AttemptEnd, Call},
    id::{Position, ThreadId},
    record::{Header, Kind, Record},
};

use crate::{failure::Failure, read, read::Records, story::reason, text::safe};

/// What the records of a thread tell beside its calls.
#[derive(Default)]
pub(super) struct Around {
    /// Where runs of the code began.
    runs: Vec<Run>,
    /// What was refused, and why.
    pub(super) refused: Vec<(Position, String)>,
    /// The threads that outcomes were copied from, by where the copy stands.
    copies: Vec<(Position, String)>,
    /// How attempts ended that brought an outcome, by the call's place and the attempt's number.
    ends: Vec<(Position, u32, &'static str)>,
    /// What was said of a step, by others than the code.
    said: Vec<Said>,
}

struct Run {
    at: Position,
    /// Something in it is an act on the thread, from outside.
    acted: bool,
    /// Something in it is of the code.
    went_on: bool,
}

/// Something that was said of a step, or done about it.
pub(super) struct Said {
    at: Position,
    call: Position,
    /// In words: who, what, why.
    pub(super) words: String,
}

impl Around {
    pub(super) async fn read(home: &dyn Checkpointer, thread: &ThreadId) -> Result<Self, Failure> {
        let mut around = Self::default();
        let mut records = Records::new(home, thread.clone());
        while let Some((n, record)) = records.next().await? {
            around.take(n, &read::header(&record)?, &record);
        }
        Ok(around)
    }

    fn take(&mut self, n: Position, header: &Header, record: &Record) {
        match header.kind {
            Kind::ThreadStart | Kind::ThreadResume => {
                self.runs.push(Run { at: n, acted: false, went_on: false });
                return;
            }
            Kind::MessageRefused => {
                self.refused.push((n, header.why.as_deref().unwrap_or_default().to_owned()));
            }
            Kind::StepReused => {
                let of = header.link.as_ref().and_then(|link| link.thread.as_ref());
                self.copies.push((n, of.map(|id| id.as_str().to_owned()).unwrap_or_default()));
            }
            Kind::StepDone => self.ended(header, "it settled the step"),
            Kind::StepFail => match header.why.as_deref() {
                Some("terminal") => self.ended(header, "it failed for good"),
                Some("exhausted") => self.ended(header, "it failed, and was the last"),
                _ => {}
            },
            Kind::StepResolve | Kind::Override => self.says(n, header, record),
            _ => {}
        }
        let Some(run) = self.runs.last_mut() else { return };
        match header.kind {
            Kind::StepResolve
            | Kind::Override
            | Kind::Redact
            | Kind::StepLate
            | Kind::Signal
            | Kind::ApprovalDecide
            | Kind::MessageRefused
            | Kind::Marker => run.acted = true,
            _ => run.went_on = true,
        }
    }

    fn ended(&mut self, header: &Header, how: &'static str) {
        let (call, attempt) = (header.call.unwrap_or(header.n), header.attempt.unwrap_or(0));
        self.ends.push((call, attempt, how));
    }

    fn says(&mut self, n: Position, header: &Header, record: &Record) {
        let what = match header.verdict.as_deref() {
            Some("happened") => "said that it happened",
            Some("failed") => "said that it has failed for good",
            Some("did_not_happen") => "said that it did not happen",
            Some("fresh_key") => "let it happen anew, under a fresh key",
            _ => return,
        };
        let by = match header.by.as_deref() {
            // So says whoever asks the downstream.
            None | Some("probe") => "its downstream".to_owned(),
            Some("expiry") => "a caller for whom its outcome was not valid any more".to_owned(),
            Some(by) => safe(by),
        };
        let words = format!("{by} {what}{}", reason(record));
        self.said.push(Said { at: n, call: header.call.unwrap_or(n), words });
    }

    /// The thread that this call's outcome was copied from.
    pub(super) fn copied(&self, call: &Call) -> Option<&str> {
        self.copies.iter().find(|(n, _)| *n == call.opened).map(|(_, of)| &**of)
    }

    /// How many runs of the code began behind this place: not the acts of people on the thread.
    pub(super) fn runs_behind(&self, at: Position) -> u64 {
        let runs = self.runs.iter().filter(|run| run.at > at);
        runs.filter(|run| run.went_on || !run.acted).count() as u64
    }

    /// What was said that stands at this place, which settled a step.
    pub(super) fn said_at(&self, at: Position) -> Option<&Said> {
        self.said.iter().find(|said| said.at == at)
    }

    /// What became of an attempt, in words.
    pub(super) fn end(&self, call: &Call, attempt: &Attempt) -> String {
        let brought =
            self.ends.iter().find(|(of, n, _)| (*of, *n) == (call.opened, attempt.number));
        let ended = match (brought, &attempt.end) {
            (Some((.., how)), _) => (*how).to_owned(),
            (None, AttemptEnd::NotStarted) => "its body never began".to_owned(),
            (None, AttemptEnd::NoEffect(_)) => "certainly without an effect".to_owned(),
            (None, AttemptEnd::Ambiguous(doubt, _)) => format!("unknown: {doubt}"),
            (None, AttemptEnd::Open) => {
                "no end is recorded: under way, or its process died".to_owned()
            }
            (None, _) => "no result of its own is recorded".to_owned(),
        };
        // What was said before the next attempt is about this one.
        let next = call.attempts.iter().map(|other| other.at).find(|at| *at > attempt.at);
        let said = self.said.iter().filter(|said| {
            said.call == call.opened && said.at > attempt.at && next.is_none_or(|n| said.at < n)
        });
        said.fold(ended, |ended, said| format!("{ended}; {}", said.words))
    }
}
