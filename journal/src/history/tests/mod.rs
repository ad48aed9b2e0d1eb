//! Tests of what records add up to, and a thread to write them into.

mod ends;
mod grammar;
mod random;
mod standing;

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    id::{Branch, Epoch, IdentityKind, Name},
    limits::ValueLimits,
    pen::{Draft, Pen},
    policy::{Policy, Terms},
    record::{Header, Kind, Place, RecordHash, Role},
    value,
};

const LOG_ID: [u8; 16] = [3; 16];
pub(crate) const SECRET: [u8; 32] = [5; 32];

/// A time in seconds.
pub(crate) fn at(secs: u64) -> StoreTime {
    StoreTime(secs * 1_000_000_000)
}

pub(crate) fn encoded<T: serde::Serialize>(value: T) -> Vec<u8> {
    value::encode(&value, &ValueLimits::new()).unwrap()
}

/// Attempts of 10 s; a key honoured for 1000 s, so until 940 s after the first; quiet after 70 s.
pub(crate) fn terms(policy: Policy) -> Terms {
    Terms {
        timeout: Duration::from_secs(10),
        window: Some(Duration::from_secs(1000)),
        quiet: Duration::from_secs(70),
        attempts_max: 3,
        ..Terms::of(policy)
    }
}

pub(crate) fn id(name: &str) -> StepId {
    StepId::positional(0, Branch::root(), Name::new(name).unwrap(), 0)
}

pub(crate) fn place(name: &str) -> Place {
    Place {
        episode: 0,
        branch: Branch::root(),
        name: Name::new(name).unwrap(),
        kind: IdentityKind::Positional,
        occurrence: 0,
        business_key: None,
    }
}

/// A thread that is written and folded, each record sealed and checked on the way.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub(crate) history: History,
    pub(crate) now: u64,
    pub(crate) epoch: u64,
    pen: Pen,
    last: Option<(Header, RecordHash)>,
}

impl Thread {
    /// A thread with its first record, at 100 s.
    pub(crate) fn new() -> Self {
        let mut thread = Self::empty();
        let start = thread.draft(Kind::ThreadStart);
        let start = start.with(|h| h.workflow = Some("refund".into()));
        thread.put(start.payload(Role::Input, encoded(1)));
        thread
    }

    pub(crate) fn empty() -> Self {
        let id = ThreadId::new("t").unwrap();
        Self {
            history: History::new(id.clone(), SECRET),
            now: 100,
            epoch: 1,
            pen: Pen::new(LOG_ID, id, Epoch(1), 0, RecordHash::ZERO),
            last: None,
        }
    }

    pub(crate) fn draft(&self, kind: Kind) -> Draft {
        Draft::new(self.history.thread(), kind)
    }

    /// Writes the record if it fits.
    pub(crate) fn attempt(&mut self, draft: Draft) -> Result<Position, String> {
        let mut pen = self.pen.clone();
        let (header, record) = pen.write(draft, at(self.now), &mut || [9; 32]);
        let before = self.last.as_ref().map_or(RecordHash::ZERO, |(_, hash)| *hash);
        let read = record.verify(&LOG_ID, &before).unwrap();
        assert_eq!(read, header, "what is written is what is read");
        let unchanged = format!("{:?}", self.history);
        let mut replaying = self.history.clone();
        let replayed = replaying.replay(&record).map_err(|error| error.to_string());
        assert_eq!(
            replayed,
            self.history.clone().apply(&read, &record.payloads).map_err(|e| e.to_string())
        );
        match self.history.apply(&read, &record.payloads) {
            Ok(()) => {
                assert_eq!(format!("{replaying:?}"), format!("{:?}", self.history));
                self.pen = pen;
                let n = header.n;
                self.last = Some((header, record.hash));
                Ok(n)
            }
            Err(error) => {
                let after = format!("{:?}", self.history);
                assert_eq!(after, unchanged, "a refused record changes nothing");
                Err(error.why.to_owned())
            }
        }
    }

    #[track_caller]
    pub(crate) fn put(&mut self, draft: Draft) -> Position {
        self.attempt(draft).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The process dies, and another takes hold of the thread.
    pub(crate) fn crash(&mut self) {
        self.epoch += 1;
        self.history.loaded();
        let (header, hash) = self.last.clone().unwrap();
        let id = self.history.thread().clone();
        self.pen = Pen::new(LOG_ID, id, Epoch(self.epoch), 0, RecordHash::ZERO);
        self.pen.pass(&header, hash);
        let resume = self.draft(Kind::ThreadResume);
        self.put(resume);
    }

    pub(crate) fn opening(&self, name: &str, terms: &Terms) -> Draft {
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap();
        let draft = self.draft(Kind::StepIntent).with(|h| {
            h.place = Some(place(name));
            h.attempt = Some(1);
            h.policy = Some(terms.policy);
            h.key = terms.policy.has_effect().then(|| "dk1_0".into());
            h.timeout_ms = Some(millis(terms.timeout));
            h.window_ms = terms.window.map(millis);
            h.quiet_ms = Some(millis(terms.quiet));
            h.attempts_max = Some(terms.attempts_max);
            h.abandon = terms.abandon;
        });
        draft.payload(Role::Args, encoded(7))
    }

    /// Opens a step: its first attempt begins.
    pub(crate) fn open(&mut self, name: &str, terms: &Terms) -> Position {
        let draft = self.opening(name, terms);
        self.put(draft)
    }

    /// A record about a call, for its last attempt where it has one.
    pub(crate) fn about(&self, kind: Kind, call: Position) -> Draft {
        let recorded = self.history.opened_at(call);
        let last = recorded.and_then(|c| c.attempts.last()).map(|a| a.number);
        self.draft(kind).with(|h| {
            h.call = Some(call);
            h.attempt = last;
        })
    }

    pub(crate) fn again(&self, call: Position) -> Draft {
        let next = |h: &mut Header| h.attempt = h.attempt.map(|n| n + 1);
        self.about(Kind::StepIntent, call).with(next)
    }

    pub(crate) fn done(&self, call: Position) -> Draft {
        self.about(Kind::StepDone, call).payload(Role::Result, encoded("ok"))
    }

    pub(crate) fn fail(&self, call: Position, why: &str, due: Option<u64>) -> Draft {
        let draft = self.about(Kind::StepFail, call).with(|h| {
            h.why = Some(why.into());
            h.due = due.map(at);
        });
        draft.payload(Role::Error, encoded(Failure::new("no")))
    }

    pub(crate) fn unknown(&self, call: Position, why: &str, due: Option<u64>) -> Draft {
        self.about(Kind::StepUnknown, call).with(|h| {
            h.why = Some(why.into());
            h.due = due.map(at);
        })
    }

    pub(crate) fn resolve(&self, call: Position, verdict: &str, by: &str) -> Draft {
        let draft = self.draft(Kind::StepResolve).with(|h| {
            h.call = Some(call);
            h.verdict = Some(verdict.into());
            h.by = Some(by.into());
        });
        match verdict {
            "happened" => draft.payload(Role::Result, encoded("seen")),
            "failed" => draft.payload(Role::Error, encoded(Failure::new("no"))),
            _ => draft,
        }
    }

    pub(crate) fn timer(&self, name: &str, due: u64) -> Draft {
        self.draft(Kind::TimerSet).with(|h| {
            h.place = Some(place(name));
            h.due = Some(at(due));
        })
    }

    pub(crate) fn approval(&self, name: &str) -> Draft {
        let draft = self.draft(Kind::ApprovalRequest);
        let draft = draft.with(|h| h.place = Some(place(name)));
        draft.payload(Role::Shown, encoded("42 EUR"))
    }

    pub(crate) fn signal(&self, name: &str, value: u32) -> Draft {
        let name: Arc<str> = name.into();
        let draft = self.draft(Kind::Signal).with(|h| h.why = Some(name));
        draft.payload(Role::Value, encoded(value))
    }

    pub(crate) fn standing(&self, call: Position) -> Standing {
        let call = self.history.opened_at(call).unwrap();
        self.history.standing(call, at(self.now))
    }
}

#[test]
fn find_reads_what_is_shown_and_never_guesses() {
    let mut thread = Thread::new();
    let pay = thread.open("pay/1", &terms(Policy::Read));
    thread.put(thread.approval("pay/1"));
    let find = |t: &Thread, kind, shown: &str| t.history.find(kind, shown).map(|c| c.opened);
    assert_eq!(find(&thread, CallKind::Step, "pay\\/1#0"), Some(pay));
    assert_eq!(find(&thread, CallKind::Approval, "pay\\/1#0"), Some(pay + 1));
    for other in ["pay/1#0", "pay\\/1#", "pay\\/1#00", "", "pay\\/1#1"] {
        assert_eq!(find(&thread, CallKind::Step, other), None, "{other}");
    }
    // Two calls by arguments whose fingerprints begin alike.
    let mut call = thread.history.calls[0].clone();
    let mut alike = |last: u8, outcome: Option<Outcome>| {
        let mut digits = [0; 32];
        digits[31] = last;
        let fingerprint = value::Fingerprint(digits);
        let identity = crate::id::Identity::Arguments { fingerprint, occurrence: 0 };
        call.id = StepId::scoped(Name::new("tool").unwrap(), identity);
        call.opened = 100 + u64::from(last);
        call.outcome = outcome;
        thread.history.calls.push(call.clone());
    };
    let settled = Outcome { position: 9, time: StoreTime(9), answer: Answer::Fired };
    alike(1, Some(settled));
    alike(2, None);
    let shown = "tool~00000000#0";
    assert_eq!(thread.history.find(CallKind::Step, shown).map(|c| c.opened), Some(102));
    let mut third = thread.history.calls[3].clone();
    third.opened = 103;
    thread.history.calls.push(third);
    assert!(thread.history.find(CallKind::Step, shown).is_none());
}
