//! What a record says, in a sentence.

use std::collections::HashMap;

use deedbook_journal::{
    failure::Failure as Recorded,
    history::{Call, Doubt, History},
    id::{Position, StoreTime},
    limits::ValueLimits,
    record::{Header, Kind, Record, Role},
    value,
};

use crate::text::{count, cut, safe, shown, shown_text, span, time};

/// How much of an error or a reason is told, in characters.
const TOLD_CHARS_MAX: usize = 400;

/// Tells a thread's records one after another.
pub(crate) struct Story<'a> {
    history: &'a History,
    /// When the last attempt of each call began.
    started: HashMap<Position, StoreTime>,
    settled: u64,
}

impl<'a> Story<'a> {
    /// A story of the thread with this history.
    pub(crate) fn new(history: &'a History) -> Self {
        Self { history, started: HashMap::new(), settled: 0 }
    }

    /// The sentence for the next record; safe to print.
    pub(crate) fn tell(&mut self, header: &Header, record: &Record) -> String {
        use Kind as K;
        let by = header.by.as_deref().map_or_else(String::new, |by| format!(" by {}", safe(by)));
        match &header.kind {
            K::ThreadStart => start(header, &by),
            K::ThreadResume => {
                let (epoch, settled) = (header.epoch.0, self.settled);
                format!(
                    "taken up{by}{} (epoch {epoch}); replayed from records, not executed: {}",
                    build(header),
                    count(settled, "settled call")
                )
            }
            K::ThreadEnd => end(header, record, &by),
            K::StepIntent => self.intent(header),
            K::StepDone | K::StepFail | K::StepUnknown => self.ended(header, record),
            K::StepResolve => self.resolved(header, record, &by),
            K::StepReused => self.reused(header, record),
            K::Override => self.granted(header, record, &by),
            K::Redact => erased(header, record, &by),
            K::StepLate => format!("{}: a result that came too late is kept", self.subject(header)),
            K::TimerSet => {
                let due = header.due.map_or_else(|| "?".into(), time);
                format!("{}: set for {due}", self.subject(header))
            }
            K::TimerFired => {
                self.settled += 1;
                format!("{}: fired", self.subject(header))
            }
            K::ApprovalRequest => format!("{}: asked", self.subject(header)),
            K::ApprovalDecide => {
                self.settled += 1;
                let verdict = header.verdict.as_deref().map(safe).unwrap_or_default();
                format!("{}: {verdict}{by}{}", self.subject(header), reason(record))
            }
            K::Signal => format!("signal {}{by}", word(header)),
            K::MessageRefused => format!("a message{by} was refused: {}", word(header)),
            K::Clock => {
                self.settled += 1;
                format!("{}: {}", self.subject(header), time(header.time))
            }
            K::Marker => marker(header, record, &by),
            other => format!("{}{by}", safe(other.as_str())),
        }
    }

    fn call(&self, header: &Header) -> Option<&'a Call> {
        self.history.opened_at(header.call.unwrap_or(header.n))
    }

    fn subject(&self, header: &Header) -> String {
        match self.call(header) {
            Some(call) => format!("{} {}", call.kind.as_str(), safe(&call.id.to_string())),
            None => "a call".to_owned(),
        }
    }

    fn intent(&mut self, header: &Header) -> String {
        let opened = header.call.unwrap_or(header.n);
        self.started.insert(opened, header.time);
        let attempt = header.attempt.unwrap_or(0);
        let call = self.call(header);
        let policy = header.policy.or_else(|| call?.terms.map(|t| t.policy));
        let policy = policy.map_or("", |p| p.as_str());
        let key = header.key.as_deref().or_else(|| call?.key.as_deref());
        let key = key.map_or_else(String::new, |key| format!(", key {}", safe(key)));
        format!("{}: attempt {attempt} begins ({policy}{key})", self.subject(header))
    }

    fn took(&self, header: &Header) -> String {
        let started = header.call.and_then(|at| self.started.get(&at));
        started.map_or_else(String::new, |s| format!(" after {}", span(header.time.since(*s))))
    }

    fn ended(&mut self, header: &Header, record: &Record) -> String {
        let (subject, took) = (self.subject(header), self.took(header));
        let why = header.why.as_deref().unwrap_or_default();
        let error = failure(record);
        let next = match header.due {
            Some(due) => format!("; next attempt not before {}", time(due)),
            None => String::new(),
        };
        match header.kind {
            Kind::StepDone if why == "result_not_stored" => {
                self.settled += 1;
                format!("{subject}: executed{took}, and its result could not be stored{error}")
            }
            Kind::StepDone => {
                self.settled += 1;
                format!("{subject}: executed, done{took}")
            }
            Kind::StepFail if matches!(why, "terminal" | "exhausted") => {
                self.settled += 1;
                format!("{subject}: failed for good{took} ({why}){error}")
            }
            Kind::StepFail => {
                format!("{subject}: failed without an effect{took} ({}){error}{next}", safe(why))
            }
            _ => {
                let doubt = Doubt::from_word(why);
                let doubt = doubt.map_or_else(|| safe(why), |d| d.to_string());
                format!("{subject}: outcome unknown{took}: {doubt}{error}{next}")
            }
        }
    }

    /// The outcome of a step of the whole journal, in the story of who needed it.
    fn reused(&mut self, header: &Header, record: &Record) -> String {
        self.settled += 1;
        let verdict = header.verdict.as_deref().map(safe).unwrap_or_default();
        let of = header.link.as_ref().and_then(|link| link.thread.as_ref());
        let of = of.map_or_else(String::new, |id| format!(" by thread {}", safe(id.as_str())));
        format!("{}: settled{of}: {verdict}{}", self.subject(header), failure(record))
    }

    /// A settled step may happen anew.
    fn granted(&self, header: &Header, record: &Record, by: &str) -> String {
        let key = header.key.as_deref().map(safe).unwrap_or_default();
        let by = if by == " by expiry" { ", as its outcome is not valid any more" } else { by };
        format!("{}: may happen anew{by}, under key {key}{}", self.subject(header), reason(record))
    }

    fn resolved(&mut self, header: &Header, record: &Record, by: &str) -> String {
        let subject = self.subject(header);
        let by = if by.is_empty() { " by its probe" } else { by };
        let found = match header.verdict.as_deref() {
            Some("happened") => "it happened",
            Some("did_not_happen") => "it did not happen; it may run again under the same key",
            Some("failed") => "it has failed for good",
            Some("inconclusive") => "nobody can tell yet",
            _ => "settled",
        };
        self.settled += u64::from(matches!(header.verdict.as_deref(), Some("happened" | "failed")));
        format!("{subject}: settled{by}: {found}{}{}", failure(record), reason(record))
    }
}

fn start(header: &Header, by: &str) -> String {
    let workflow = header.workflow.as_deref().map(safe).unwrap_or_default();
    format!("workflow {workflow} begins{by}{}", build(header))
}

fn build(header: &Header) -> String {
    let build = header.build.as_deref();
    build.map_or_else(String::new, |build| format!(", build {}", safe(build)))
}

fn end(header: &Header, record: &Record, by: &str) -> String {
    let verdict = header.verdict.as_deref().map(safe).unwrap_or_default();
    let doubts = match header.doubts {
        Some(left) if left > 0 => format!(", with {} left", count(left, "open doubt")),
        _ => String::new(),
    };
    format!("the thread ends: {verdict}{by}{doubts}{}", failure(record))
}

fn marker(header: &Header, record: &Record, by: &str) -> String {
    let word = header.why.as_deref().unwrap_or_default();
    let verdict = header.verdict.as_deref().map(safe).unwrap_or_default();
    match word.strip_prefix("patch:") {
        _ if word == "cancel" => format!("cancellation is asked for{by}{}", reason(record)),
        Some(patch) => format!("patch {}: {verdict}", safe(patch)),
        None => format!("marker {}: {verdict}", safe(word)),
    }
}

fn word(header: &Header) -> String {
    header.why.as_deref().map(safe).unwrap_or_default()
}

/// An erasure: the record that it is about has another number than the one that says so.
fn erased(header: &Header, record: &Record, by: &str) -> String {
    let what = header.role.map_or("a payload", |role| role.as_str());
    let of = header.call.map_or_else(String::new, |n| format!(" of record {n}"));
    format!("{what}{of} erased{by}{}", reason(record))
}

/// The reason that a person gave.
pub(crate) fn reason(record: &Record) -> String {
    let Some(note) = record.payload(Role::Note) else {
        return String::new();
    };
    match shown_text(&note.bytes) {
        text if text.is_empty() => text,
        text => format!(" ({})", cut(&text, TOLD_CHARS_MAX)),
    }
}

/// The error that a record holds.
fn failure(record: &Record) -> String {
    let Some(error) = record.payload(Role::Error) else {
        return String::new();
    };
    let text = match value::decode::<Recorded>(&error.bytes, &ValueLimits::new()) {
        Ok(failure) => safe(&failure.to_string()),
        Err(_) => shown(&error.bytes),
    };
    format!(": {}", cut(&text, TOLD_CHARS_MAX))
}
