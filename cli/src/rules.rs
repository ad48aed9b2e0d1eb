//! The rules that the records of a thread keep, checked one record after another.
//!
//! They are checked from headers alone, apart from how a history is folded, so that a fault there
//! does not hide itself here.

use std::collections::{BTreeMap, HashMap};

use deedbook_journal::{
    id::{Epoch, Position, StoreTime, ThreadId},
    limits::ValueLimits,
    record::{Header, Kind, Record, RecordHash, Role},
    value,
};

/// What is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Journal,
    /// One thread of a journal.
    Thread,
    /// An exported file: of a whole journal, or of one thread.
    Export {
        whole: bool,
    },
}

impl What {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Thread => "one thread",
            Self::Export { .. } => "export",
        }
    }

    /// What `verify` does not tell of it, whatever it says otherwise.
    pub(crate) fn not_checked(self, erased: u64, kept: u64) -> Vec<&'static str> {
        let anchored = match self {
            Self::Export { .. } => {
                "not anchored: a cut tail or an older copy looks whole; compare with a copy kept \
                 elsewhere"
            }
            Self::Journal | Self::Thread => {
                "anchored by a file beside it only: an older copy of both looks whole; compare \
                 with a copy kept elsewhere"
            }
        };
        let mut not = vec![
            "unsigned: this detects accidents, not a rewrite by somebody who can write the file",
            anchored,
            "that the records tell the truth about the world outside",
        ];
        if matches!(self, Self::Thread | Self::Export { whole: false }) {
            not.push(
                "the order among other threads, and the starts of the processes that wrote the \
                 records: verify the whole journal for that",
            );
        }
        if matches!(self, Self::Export { .. }) {
            not.push("the time and the tool that the first line names");
        }
        if kept > 0 {
            not.push("payloads that were erased after they were written here: they are still here");
        }
        if erased > 0 {
            not.push("erased payloads: only their commitments are left");
        }
        not
    }
}

/// A thread as far as it was checked.
#[derive(Debug)]
pub(crate) struct Thread {
    id: ThreadId,
    pub(crate) next: Position,
    pub(crate) head: RecordHash,
    time: StoreTime,
    epoch: Epoch,
    run: Position,
    /// The last record that tells of a decision of the workflow's code.
    went_on: Option<Position>,
    calls: HashMap<Position, Opened>,
    /// Payloads that are listed and are not there, by record and role, and whether a record says
    /// that they were erased.
    gone: BTreeMap<(Position, &'static str), bool>,
    /// Which payloads were there, a bit a role, by record.
    there: Vec<u8>,
    /// Payloads that were there, though a later record says that they were erased: they were read
    /// before that.
    kept: Vec<(Position, Role)>,
}

/// The bit of a role.
fn bit(role: Role) -> u8 {
    Role::ALL.iter().position(|other| *other == role).map_or(0, |at| 1 << at)
}

/// A call that a record opened.
#[derive(Debug)]
struct Opened {
    by: Kind,
    /// The attempt, and whether it has its end.
    attempt: Option<(u32, bool)>,
    settled: bool,
    /// Where a person settled it, if one did.
    said: Option<Position>,
}

impl Thread {
    pub(crate) fn new(id: ThreadId) -> Self {
        Self {
            id,
            next: 0,
            head: RecordHash::ZERO,
            time: StoreTime(0),
            epoch: Epoch(0),
            run: 0,
            went_on: None,
            calls: HashMap::new(),
            gone: BTreeMap::new(),
            there: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Checks the next record.
    ///
    /// # Errors
    /// Which rule it breaks. Nothing behind it can be checked then.
    pub(crate) fn take(&mut self, log_id: &[u8; 16], record: &Record) -> Result<Header, String> {
        let header = record.verify(log_id, &self.head)?;
        self.place(&header)?;
        for payload in &record.payloads {
            let limits = ValueLimits::new().depth_max(128).bytes_max(usize::MAX);
            value::check(&payload.bytes, &limits)
                .map_err(|e| format!("payload {} cannot be read: {e}", payload.role.as_str()))?;
        }
        self.calls(&header)?;
        if by_the_code(&header) {
            self.went_on = Some(header.n);
        }
        for listed in header.payloads.iter().filter(|c| record.payload(c.role).is_none()) {
            self.gone.insert((header.n, listed.role.as_str()), false);
        }
        self.there.push(record.payloads.iter().fold(0, |bits, p| bits | bit(p.role)));
        self.next += 1;
        self.head = record.hash;
        self.time = header.time;
        self.epoch = header.epoch;
        Ok(header)
    }

    /// Payloads that are gone though no record says that somebody erased them: for a thread that
    /// was read to its end, since the record that says so comes later.
    pub(crate) fn vanished(&self) -> impl Iterator<Item = (Position, String)> {
        let untold = self.gone.iter().filter(|(_, told)| !**told);
        untold.map(|((n, role), _)| {
            (*n, format!("its payload {role} is gone, and no record says who erased it"))
        })
    }

    /// Payloads that were there when they were read, and that a later record says were erased.
    pub(crate) fn kept(&self) -> &[(Position, Role)] {
        &self.kept
    }

    fn erasure(&mut self, header: &Header) -> Result<(), String> {
        let of = header.call.zip(header.role);
        let (n, role) = of.ok_or("it does not say which payload was erased")?;
        if let Some(told) = self.gone.get_mut(&(n, role.as_str())) {
            *told = true;
            return Ok(());
        }
        let there = usize::try_from(n).ok().and_then(|n| self.there.get(n));
        if there.is_some_and(|bits| bits & bit(role) != 0) {
            self.kept.push((n, role));
            return Ok(());
        }
        Err(format!(
            "it says that payload {} of record {n} was erased, and there never was one",
            role.as_str()
        ))
    }

    fn place(&mut self, header: &Header) -> Result<(), String> {
        if header.thread != self.id {
            return Err(format!("it is a record of thread {:?}", header.thread));
        }
        if header.n != self.next {
            return Err(format!("it says that it is record {}, not {}", header.n, self.next));
        }
        if header.epoch < self.epoch {
            let (now, before) = (header.epoch.0, self.epoch.0);
            return Err(format!("its epoch {now} is below {before}, that of the record before"));
        }
        if header.time < self.time {
            let (now, before) = (header.time, self.time);
            return Err(format!("its time {now} is before {before}, that of the record before"));
        }
        if self.id.is_reserved() {
            return Ok(());
        }
        let starts = matches!(header.kind, Kind::ThreadStart | Kind::ThreadFork);
        if starts != (header.n == 0) {
            return Err("a thread starts once, with its first record".into());
        }
        if starts || header.kind == Kind::ThreadResume {
            self.run = header.n;
        }
        if header.run != self.run {
            let (says, is) = (header.run, self.run);
            return Err(format!("it belongs to the run of record {is} and says {says}"));
        }
        Ok(())
    }

    fn calls(&mut self, header: &Header) -> Result<(), String> {
        use Kind as K;
        match &header.kind {
            K::StepIntent => self.intent(header),
            K::TimerSet | K::ApprovalRequest | K::ChildStart => {
                self.open(header, None);
                Ok(())
            }
            K::StepDone | K::StepFail | K::StepUnknown => self.end(header),
            K::StepResolve | K::StepDenied => self.settlement(header),
            K::StepLate => self.about(header, &K::StepIntent).map(drop),
            K::TimerFired => self.settle(header, &K::TimerSet),
            K::ApprovalDecide => self.settle(header, &K::ApprovalRequest),
            K::ChildEnd => self.settle(header, &K::ChildStart),
            K::StepReused if header.call.is_none() => {
                let by = header.kind.clone();
                let opened = Opened { by, attempt: None, settled: true, said: None };
                self.calls.insert(header.n, opened);
                Ok(())
            }
            K::StepReused => self.settle(header, &K::StepIntent),
            K::Override => self.fresh_key(header),
            K::Redact => self.erasure(header),
            _ => Ok(()),
        }
    }

    fn open(&mut self, header: &Header, attempt: Option<(u32, bool)>) {
        let opened = Opened { by: header.kind.clone(), attempt, settled: false, said: None };
        self.calls.insert(header.n, opened);
    }

    fn intent(&mut self, header: &Header) -> Result<(), String> {
        let number = header.attempt.ok_or("an intent without an attempt number")?;
        if header.call.is_none() {
            if number != 1 {
                return Err(format!("a step begins with attempt {number}"));
            }
            self.open(header, Some((number, false)));
            return Ok(());
        }
        let call = self.about(header, &Kind::StepIntent)?;
        let before = call.attempt.map_or(0, |(n, _)| n);
        if call.settled {
            return Err("an attempt of a step that is settled".into());
        }
        if number != before + 1 {
            return Err(format!("attempt {number} follows attempt {before}"));
        }
        call.attempt = Some((number, false));
        Ok(())
    }

    /// The end of an attempt: at most one.
    fn end(&mut self, header: &Header) -> Result<(), String> {
        let call = self.about(header, &Kind::StepIntent)?;
        let (number, ended) = call.attempt.ok_or("a step without an attempt")?;
        if call.settled {
            return Err("a second outcome of a step that is settled".into());
        }
        if ended {
            return Err(format!("a second outcome of attempt {number}"));
        }
        if header.attempt.is_some_and(|n| n != number) {
            return Err(format!("an outcome of another attempt than {number}, the last"));
        }
        call.attempt = Some((number, true));
        call.settled = match header.kind {
            Kind::StepDone => true,
            Kind::StepFail => matches!(header.why.as_deref(), Some("terminal" | "exhausted")),
            _ => false,
        };
        Ok(())
    }

    fn settlement(&mut self, header: &Header) -> Result<(), String> {
        let went_on = self.went_on;
        let call = self.about(header, &Kind::StepIntent)?;
        let verdict = header.verdict.as_deref();
        let by_person = header.kind == Kind::StepResolve
            && header.by.as_deref().is_some_and(|by| by != "probe");
        let unreadable = verdict == Some("unreadable");
        if unreadable && call.said.is_none() {
            return Err("it says that nobody can read what nobody said".into());
        }
        // Until the code has gone on, a person may say otherwise.
        let again = by_person && call.said.is_some_and(|at| went_on.is_none_or(|w| w < at));
        if call.settled && !again && !unreadable {
            return Err("a settlement of a step that is settled".into());
        }
        let open = ["did_not_happen", "inconclusive", "unreadable"].map(Some).contains(&verdict);
        call.settled = !open;
        call.said = (by_person && !open).then_some(header.n);
        if let Some((_, ended)) = &mut call.attempt {
            *ended |= header.verdict.as_deref() != Some("inconclusive");
        }
        Ok(())
    }

    /// A settled step happens anew.
    fn fresh_key(&mut self, header: &Header) -> Result<(), String> {
        if header.verdict.as_deref() != Some("fresh_key") {
            return Ok(());
        }
        let call = self.about(header, &Kind::StepIntent)?;
        if !call.settled {
            return Err("a fresh key for a step that is not settled".into());
        }
        (call.settled, call.said) = (false, None);
        Ok(())
    }

    fn settle(&mut self, header: &Header, opener: &Kind) -> Result<(), String> {
        let call = self.about(header, opener)?;
        if call.settled {
            return Err("a second outcome of what is settled".into());
        }
        call.settled = true;
        Ok(())
    }

    fn about(&mut self, header: &Header, opener: &Kind) -> Result<&mut Opened, String> {
        let at = header.call.ok_or("it does not say which call it is about")?;
        let call = self.calls.get_mut(&at).filter(|c| c.by == *opener);
        call.ok_or_else(|| {
            format!("it is about record {at}, which is no earlier {}", opener.as_str())
        })
    }
}

/// Whether the record tells of a decision of the workflow's code.
fn by_the_code(header: &Header) -> bool {
    use Kind as K;
    match &header.kind {
        K::StepIntent | K::StepReused => header.call.is_none(),
        K::TimerSet | K::ApprovalRequest | K::Clock | K::ChildStart => true,
        K::ThreadContinue | K::ThreadEnd => true,
        K::Marker => header.why.as_deref() != Some("cancel"),
        K::StepUnknown | K::StepFail => header.why.as_deref() == Some("dropped"),
        _ => false,
    }
}
