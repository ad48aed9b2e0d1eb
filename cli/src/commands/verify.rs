//! `verify`: whether the records keep the rules, in a journal or in an exported file.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader},
};

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, StoreError},
    hex,
    id::{Position, ThreadId},
};

use crate::{
    args::Verify,
    failure::{Failure, Outcome, code},
    line::{Closing, Line, Opening, Totals, VERSION},
    out::{JSON_VERSION, Out, Style},
    read::{self, List, Log, Records},
    rules::{NOT_CHECKED, Thread},
    text::safe,
};

/// How many problems are told one by one.
const PROBLEMS_MAX: usize = 100;

/// What was found.
#[derive(Default)]
struct Findings {
    what: &'static str,
    totals: Totals,
    problems: Vec<String>,
    count: usize,
}

impl Findings {
    fn problem(&mut self, text: String) {
        self.count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }

    fn record(&mut self, thread: &ThreadId, n: Position, why: &str) {
        let thread = safe(thread.as_str());
        self.problem(format!("record {n} of thread {thread}: {}", safe(why)));
    }

    fn report(self, out: &mut Out<'_>) -> Outcome {
        let ok = self.count == 0;
        let verdict = if ok { code::OK } else { code::NOT_VERIFIED };
        if out.json {
            out.object(&serde_json::json!({
                "v": JSON_VERSION,
                "what": self.what,
                "ok": ok,
                "records": self.totals.records,
                "threads": self.totals.threads,
                "payloads": self.totals.payloads,
                "erased": self.totals.erased,
                "problems": self.problems,
                "problems_in_all": self.count,
                "not_checked": NOT_CHECKED,
            }))?;
            return Ok(verdict);
        }
        for problem in &self.problems {
            out.styled(Style::Alert, problem)?;
            out.end()?;
        }
        let Totals { records, threads, payloads, erased, .. } = self.totals;
        out.line(&format!(
            "{}: {records} records of {threads} threads, {payloads} payloads, {erased} erased",
            self.what
        ))?;
        match self.count {
            0 => out.styled(Style::Good, "consistent")?,
            count => out.styled(Style::Alert, &format!("{count} problem(s)"))?,
        }
        out.end()?;
        for not in NOT_CHECKED {
            out.line(&format!("not checked: {not}"))?;
        }
        Ok(verdict)
    }
}

pub(crate) async fn run(args: &Verify, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    let findings = match &args.thread {
        Some(thread) => one(home, read::thread_id(thread)?).await?,
        None => all(home).await?,
    };
    findings.report(out)
}

async fn one(home: &dyn Checkpointer, id: ThreadId) -> Result<Findings, Failure> {
    let mut findings = Findings { what: "one thread", ..Findings::default() };
    let info = read::info(home, &id).await?;
    let log_id = home.identity().log_id;
    let mut thread = Thread::new(id.clone());
    let mut records = Records::new(home, id.clone());
    loop {
        let next = records.next().await;
        let checked = match next {
            Ok(Some((_, record))) => thread.take(&log_id, &record).map(|h| (h, record)),
            Ok(None) => break,
            Err(StoreError::Damaged { n, why, .. }) => {
                findings.record(&id, n, &why);
                return Ok(findings);
            }
            Err(other) => return Err(read::about(&id, other)),
        };
        match checked {
            Ok((header, record)) => findings.totals.add(&header, &record),
            Err(why) => {
                findings.record(&id, thread.next, &why);
                return Ok(findings);
            }
        }
    }
    if (thread.next, thread.head) != (info.next, info.head) {
        findings.record(&id, thread.next, "the thread's end is not its last record");
    }
    Ok(findings)
}

async fn all(home: &dyn Checkpointer) -> Result<Findings, Failure> {
    let mut findings = Findings { what: "journal", ..Findings::default() };
    let mut threads = Threads::default();
    let log_id = home.identity().log_id;
    let mut log = Log::new(home);
    let mut place = 0;
    loop {
        let (entry, record) = match log.next().await {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(StoreError::Damaged { thread, n, why }) => {
                findings.record(&thread, n, &why);
                findings.problem(format!("the log ends at place {place}, where it is damaged"));
                return Ok(findings);
            }
            Err(other) => return Err(other.into()),
        };
        if entry.index != place {
            let index = entry.index;
            findings.problem(format!("place {place} of the log is missing; {index} follows"));
        }
        place = entry.index + 1;
        let checked = match record {
            Ok(record) if record.hash == entry.hash => Ok(record),
            Ok(_) => Err(format!("place {} of the log has another hash", entry.index)),
            Err(StoreError::Damaged { n, why, .. }) => {
                // The record itself, or another one that it is stored with.
                threads.give_up(&entry.thread, n, &why, &mut findings);
                continue;
            }
            Err(other) => return Err(other.into()),
        };
        threads.take(&log_id, &entry.thread, entry.n, checked, &mut findings);
    }
    let filter = Filter { reserved: true, ..Filter::default() };
    let mut list = List::new(home, filter);
    while let Some(info) = list.next().await? {
        threads.compare(&info.id, info.next, info.head, &mut findings);
    }
    for id in threads.0.into_keys() {
        let id = safe(id.as_str());
        findings.problem(format!("the log has records of thread {id}, which is not listed"));
    }
    Ok(findings)
}

/// Every thread on the way; one with a problem is not followed any further.
#[derive(Default)]
struct Threads(HashMap<ThreadId, Option<Thread>>);

impl Threads {
    fn take(
        &mut self,
        log_id: &[u8; 16],
        id: &ThreadId,
        n: Position,
        record: Result<deedbook_journal::record::Record, String>,
        findings: &mut Findings,
    ) {
        let entry = self.0.entry(id.clone());
        let Some(thread) = entry.or_insert_with(|| Some(Thread::new(id.clone()))) else {
            return;
        };
        let checked = record.and_then(|r| thread.take(log_id, &r).map(|header| (header, r)));
        match checked {
            Ok((header, record)) => findings.totals.add(&header, &record),
            Err(why) => self.give_up(id, n, &why, findings),
        }
    }

    /// Tells what is wrong with a thread, once, and follows it no further.
    fn give_up(&mut self, id: &ThreadId, n: Position, why: &str, findings: &mut Findings) {
        if !matches!(self.0.insert(id.clone(), None), Some(None)) {
            findings.record(id, n, why);
        }
    }

    fn compare(
        &mut self,
        id: &ThreadId,
        next: Position,
        head: deedbook_journal::record::RecordHash,
        findings: &mut Findings,
    ) {
        match self.0.remove(id) {
            // A problem of it is told already.
            Some(None) => {}
            Some(Some(thread)) if (thread.next, thread.head) == (next, head) => {}
            Some(Some(thread)) => {
                findings.record(id, thread.next, "the thread's end is not its last record");
            }
            None => {
                let id = safe(id.as_str());
                findings.problem(format!("thread {id} has no record in the log"));
            }
        }
    }
}

/// Verifies an exported file: no journal is needed.
pub(crate) fn export(args: &Verify, out: &mut Out<'_>) -> Outcome {
    let Some(path) = &args.export else {
        return Err(Failure::usage("no file is named"));
    };
    let shown = safe(&path.to_string_lossy());
    let file = File::open(path).map_err(|e| Failure::new(format!("cannot open {shown}: {e}")))?;
    let findings = lines(BufReader::new(file)).map_err(|e| e.about(&shown))?;
    findings.report(out)
}

fn lines(from: impl BufRead) -> Result<Findings, Failure> {
    let mut findings = Findings { what: "export", ..Findings::default() };
    let mut lines = from.split(b'\n');
    let mut next = |number: usize| -> Result<Option<Vec<u8>>, Failure> {
        let line = lines.next().transpose();
        line.map_err(|e| Failure::new(format!("line {number} cannot be read: {e}")))
    };
    let first = next(1)?.unwrap_or_default();
    let Ok(Opening { export: scope }) = serde_json::from_slice(&first) else {
        return Err(Failure::new("is not an export: its first line does not say so"));
    };
    if scope.v != VERSION {
        let v = scope.v;
        return Err(Failure::new(format!(
            "has export version {v} and this build reads {VERSION}; use a newer build"
        )));
    }
    let log_id = hex::decode(&scope.log_id);
    let log_id: [u8; 16] = log_id.ok_or_else(|| Failure::new("names no log id"))?;
    let mut threads = Threads::default();
    let mut number = 1;
    loop {
        number += 1;
        let Some(line) = next(number)? else {
            findings.problem("the closing line is missing: the export is not complete".into());
            return Ok(findings);
        };
        if line.starts_with(b"{\"end\"")
            && let Ok(Closing { end }) = serde_json::from_slice(&line)
        {
            // Threads that were not followed to their end are not counted.
            if findings.count == 0 && end != findings.totals {
                findings.problem("the closing line counts other records than there are".into());
            }
            if next(number + 1)?.is_some() {
                findings.problem(format!("line {} follows the closing line", number + 1));
            }
            return Ok(findings);
        }
        line_of(&line, number, &scope.thread, &log_id, &mut threads, &mut findings);
    }
}

fn line_of(
    line: &[u8],
    number: usize,
    only: &Option<String>,
    log_id: &[u8; 16],
    threads: &mut Threads,
    findings: &mut Findings,
) {
    let read: Line = match serde_json::from_slice(line) {
        Ok(read) => read,
        Err(error) => {
            findings
                .problem(format!("line {number} is not a record: {}", safe(&error.to_string())));
            return;
        }
    };
    let header = |record: &deedbook_journal::record::Record| {
        deedbook_journal::record::Header::parse(&record.header).map_err(|e| e.to_string())
    };
    let parts = read.record().and_then(|(r, prev)| header(&r).map(|h| (h, r, prev)));
    let (header, record, prev) = match parts {
        Ok(parts) => parts,
        Err(why) => {
            findings.problem(format!("line {number}: {}", safe(&why)));
            return;
        }
    };
    if only.as_deref().is_some_and(|only| only != header.thread.as_str()) {
        findings.problem(format!("line {number} is of another thread than was exported"));
    }
    let head = threads.0.get(&header.thread).and_then(|t| t.as_ref().map(|t| t.head));
    let follows = head.unwrap_or_default();
    let checked = match prev.unwrap_or_default() == follows {
        true => Ok(record),
        false if matches!(threads.0.get(&header.thread), Some(None)) => Ok(record),
        false => Err("`prev` is not the hash of the record before".to_owned()),
    };
    threads.take(log_id, &header.thread, header.n, checked, findings);
}
