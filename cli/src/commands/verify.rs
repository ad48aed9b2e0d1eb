//! `verify`: whether the records keep the rules, in a journal or in an exported file.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{BufRead, BufReader},
};

mod live;

use deedbook_journal::{
    checkpointer::Checkpointer,
    hex,
    id::{LogIndex, Position, ThreadId},
    record::{Header, Kind, Record},
};

use crate::{
    args::Verify,
    failure::{Failure, Outcome, code},
    line::{Closing, Line, Opening, Scope, Totals, VERSION, Versioned},
    out::{JSON_VERSION, Out, Style},
    read,
    rules::{Thread, What},
    text::{count, safe},
};

/// How many problems are told one by one.
const PROBLEMS_MAX: usize = 100;

/// What was found.
struct Findings {
    what: What,
    totals: Totals,
    /// Payloads in an export that the journal has erased since.
    kept: u64,
    problems: Vec<String>,
    count: usize,
}

impl Findings {
    fn new(what: What) -> Self {
        Self { what, totals: Totals::default(), kept: 0, problems: Vec::new(), count: 0 }
    }

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

    /// Tells what is missing from a thread that was read to its end.
    fn vanished(&mut self, id: &ThreadId, thread: &Thread) {
        for (n, why) in thread.vanished() {
            self.record(id, n, &why);
        }
    }

    fn report(self, out: &mut Out<'_>) -> Outcome {
        let ok = self.count == 0;
        let verdict = if ok { code::OK } else { code::NOT_VERIFIED };
        let not_checked = self.what.not_checked(self.totals.erased, self.kept);
        if out.json {
            out.object(&serde_json::json!({
                "v": JSON_VERSION,
                "what": self.what.as_str(),
                "ok": ok,
                "records": self.totals.records,
                "threads": self.totals.threads,
                "payloads": self.totals.payloads,
                "erased": self.totals.erased,
                "problems": self.problems,
                "problems_in_all": self.count,
                "not_checked": not_checked,
            }))?;
            return Ok(verdict);
        }
        for problem in &self.problems {
            out.styled(Style::Alert, problem)?;
            out.end()?;
        }
        let Totals { records, threads, payloads, erased, .. } = self.totals;
        let erased = if erased > 0 { format!(", {erased} erased") } else { String::new() };
        out.line(&format!(
            "{}: {} of {}, {}{erased}",
            self.what.as_str(),
            count(records, "record"),
            count(threads, "thread"),
            count(payloads, "payload"),
        ))?;
        match self.count {
            0 => out.styled(Style::Good, "consistent")?,
            problems => out.styled(Style::Alert, &count(problems, "problem"))?,
        }
        out.end()?;
        for not in not_checked {
            out.line(&format!("not checked: {not}"))?;
        }
        Ok(verdict)
    }
}

pub(crate) async fn run(args: &Verify, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    let findings = match &args.thread {
        Some(thread) => live::one(home, read::thread_id(thread)?).await?,
        None => live::all(home).await?,
    };
    findings.report(out)
}

/// Every thread on the way; one with a problem is not followed any further.
struct Threads {
    all: HashMap<ThreadId, Option<Thread>>,
    /// The processes that have begun so far, if every thread is there; their number is the
    /// position of their `run.start`.
    begun: Option<HashSet<Position>>,
}

impl Threads {
    fn new(whole: bool) -> Self {
        Self { all: HashMap::new(), begun: whole.then(HashSet::new) }
    }

    fn take(
        &mut self,
        log_id: &[u8; 16],
        id: &ThreadId,
        n: Position,
        record: Result<Record, String>,
        findings: &mut Findings,
    ) {
        let entry = self.all.entry(id.clone());
        let Some(thread) = entry.or_insert_with(|| Some(Thread::new(id.clone()))) else {
            return;
        };
        let checked = record.and_then(|r| thread.take(log_id, &r).map(|header| (header, r)));
        match checked {
            Ok((header, record)) => {
                findings.totals.add(&header, &record);
                self.process(&header, findings);
            }
            Err(why) => self.give_up(id, n, &why, findings),
        }
    }

    /// A record that names its process stands behind the start of that process: in the order over
    /// all threads this is what the records themselves say.
    fn process(&mut self, header: &Header, findings: &mut Findings) {
        let Some(begun) = &mut self.begun else {
            return;
        };
        if header.kind == Kind::RunStart {
            begun.insert(header.n);
        }
        if let Some(start) = header.process.filter(|start| !begun.contains(start)) {
            let why = format!("it is of process {start}, which had not begun before");
            findings.record(&header.thread, header.n, &why);
        }
    }

    /// Tells what is wrong with a thread, once, and follows it no further.
    fn give_up(&mut self, id: &ThreadId, n: Position, why: &str, findings: &mut Findings) {
        if *id == ThreadId::system() {
            // Which processes begin after this is not known.
            self.begun = None;
        }
        if !matches!(self.all.insert(id.clone(), None), Some(None)) {
            findings.record(id, n, why);
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

/// Verifies the lines of an export.
pub(crate) fn read(from: impl BufRead, out: &mut Out<'_>) -> Outcome {
    lines(from)?.report(out)
}

fn lines(from: impl BufRead) -> Result<Findings, Failure> {
    let mut lines = from.split(b'\n');
    let mut next = |number: usize| -> Result<Option<Vec<u8>>, Failure> {
        let line = lines.next().transpose();
        line.map_err(|e| Failure::new(format!("line {number} cannot be read: {e}")))
    };
    let (scope, log_id) = match opening(&next(1)?.unwrap_or_default())? {
        Ok(opening) => opening,
        Err(why) => {
            let mut findings = Findings::new(What::Export { whole: false });
            findings.problem(format!("line 1 does not begin an export: {}", safe(&why)));
            return Ok(findings);
        }
    };
    let whole = scope.thread.is_none();
    let findings = Findings::new(What::Export { whole });
    let place = whole.then_some(0);
    let mut read = Read { scope, log_id, threads: Threads::new(whole), place, findings };
    let mut number = 1;
    loop {
        number += 1;
        let Some(line) = next(number)? else {
            let missing = "the closing line is missing: the export is not complete";
            read.findings.problem(missing.into());
            return Ok(read.findings);
        };
        if line.starts_with(b"{\"end\"")
            && let Ok(Closing { end }) = serde_json::from_slice(&line)
        {
            let mut findings = read.close(&end);
            if next(number + 1)?.is_some() {
                findings.problem(format!("line {} follows the closing line", number + 1));
            }
            return Ok(findings);
        }
        if let Err(why) = read.line(&line, number) {
            read.findings.problem(format!("line {number} {}", safe(&why)));
        }
    }
}

/// What the first line says, and the log id in it; inside, why it is no such line.
///
/// # Errors
/// A version that this build does not know: then nothing is said about the file.
fn opening(line: &[u8]) -> Result<Result<(Scope, [u8; 16]), String>, Failure> {
    if let Ok(Versioned { export }) = serde_json::from_slice(line)
        && export.v != VERSION
    {
        let v = export.v;
        return Err(Failure::new(format!(
            "has export version {v} and this build reads {VERSION}; use a newer build"
        )));
    }
    let opening: Opening = match serde_json::from_slice(line) {
        Ok(opening) => opening,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let log_id = hex::decode(&opening.export.log_id).ok_or_else(|| "its log id is none".into());
    Ok(log_id.map(|log_id| (opening.export, log_id)))
}

/// An export as far as it was read.
struct Read {
    scope: Scope,
    log_id: [u8; 16],
    threads: Threads,
    /// The place in the log that comes next, in an export of all threads.
    place: Option<LogIndex>,
    findings: Findings,
}

impl Read {
    /// Checks the line of a record.
    fn line(&mut self, line: &[u8], number: usize) -> Result<(), String> {
        let read: Line =
            serde_json::from_slice(line).map_err(|error| format!("is not a record: {error}"))?;
        self.leaf(read.leaf, number)?;
        let (record, prev) = read.record().map_err(|why| format!("is wrong: {why}"))?;
        let header = Header::parse(&record.header).map_err(|why| format!("is wrong: {why}"))?;
        if self.scope.thread.as_deref().is_some_and(|only| only != header.thread.as_str()) {
            let other = format!("line {number} is of another thread than was exported");
            self.findings.problem(other);
        }
        let known = self.threads.all.get(&header.thread);
        let head = known.and_then(|t| t.as_ref().map(|t| t.head));
        let follows = head.unwrap_or_default();
        let checked = match prev.unwrap_or_default() == follows {
            true => Ok(record),
            false if matches!(known, Some(None)) => Ok(record),
            false => Err("`prev` is not the hash of the record before".to_owned()),
        };
        self.threads.take(&self.log_id, &header.thread, header.n, checked, &mut self.findings);
        Ok(())
    }

    /// Checks the place in the log: no gap and no other order, across all threads.
    fn leaf(&mut self, leaf: Option<LogIndex>, number: usize) -> Result<(), String> {
        match (self.place, leaf) {
            (None, None) => {}
            (None, Some(_)) => {
                return Err("has a place in the log, and an export of one thread has none".into());
            }
            (Some(_), None) => return Err("has no place in the log".into()),
            (Some(place), Some(leaf)) => {
                if leaf != place {
                    self.findings.problem(format!(
                        "line {number} has place {leaf} of the log where {place} must stand"
                    ));
                }
                self.place = Some(leaf.saturating_add(1));
            }
        }
        Ok(())
    }

    /// What was found, once the closing line says that this is all.
    fn close(mut self, end: &Totals) -> Findings {
        // Threads that were not followed to their end are not counted.
        if self.findings.count == 0 && *end != self.findings.totals {
            let other = "the closing line counts other records than there are";
            self.findings.problem(other.into());
        }
        let mut threads: Vec<_> = self.threads.all.iter().collect();
        threads.sort_by_key(|(id, _)| *id);
        for (id, thread) in threads {
            if let Some(thread) = thread {
                self.findings.vanished(id, thread);
                self.findings.kept += thread.kept().len() as u64;
            }
        }
        self.findings
    }
}
