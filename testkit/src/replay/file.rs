//! An export as `deedbook export` writes it, read into threads.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    sync::Arc,
};

use deedbook::{ThreadId, checkpointer::StoreIdentity};
use deedbook_journal::{
    hex,
    id::{LogIndex, Position},
    record::{Header, Kind, Payload, Record, RecordHash, Role},
    value::text,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

/// The version of the export's format that is read here.
const VERSION: u32 = 1;

#[derive(Deserialize)]
struct Opening {
    export: Scope,
}

#[derive(Deserialize)]
struct Scope {
    v: u32,
    log_id: String,
    /// One thread, or all of them.
    thread: Option<String>,
}

#[derive(Deserialize)]
struct Closing {
    end: Totals,
}

#[derive(Deserialize)]
struct Totals {
    records: u64,
    erased: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    rec: Value,
    hash: String,
    prev: Option<String>,
    leaf: Option<LogIndex>,
    pay: BTreeMap<String, Option<Pay>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pay {
    salt: String,
    bin: String,
    #[serde(rename = "view")]
    _view: IgnoredAny,
}

/// What a file has.
#[derive(Debug, Default)]
pub(super) struct Export {
    log_id: [u8; 16],
    pub(super) threads: BTreeMap<ThreadId, Thread>,
    /// What is wrong with the file, beside what is wrong with a thread.
    pub(super) wrongs: Vec<String>,
    records: u64,
    erased: u64,
}

/// A thread of it.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) workflow: Option<Arc<str>>,
    pub(super) records: Vec<Record>,
    /// Payloads that were erased, by the position of their record.
    pub(super) erased: Vec<(Position, Role)>,
    /// Why it is followed no further.
    pub(super) damaged: Option<String>,
}

impl Export {
    /// An identity under which the records fit. An export has no secret, and needs none: it is
    /// what fingerprints are keyed with, and they are made anew from the arguments.
    pub(super) fn identity(&self, namespace: [u8; 16]) -> StoreIdentity {
        StoreIdentity { log_id: self.log_id, namespace, secret: [0; 32] }
    }

    /// Takes the line of a record in, and gives its place in the log.
    fn line(&mut self, number: usize, line: &[u8]) -> Result<Option<LogIndex>, String> {
        let line: Line = serde_json::from_slice(line)
            .map_err(|error| format!("line {number} is not a record: {error}"))?;
        let thread = line.rec.get("th").and_then(Value::as_str).map(ThreadId::any);
        let Some(Ok(id)) = thread else {
            return Err(format!("line {number} does not say which thread it is of"));
        };
        self.records += 1;
        let thread = self.threads.entry(id).or_default();
        if thread.damaged.is_none()
            && let Err(why) = thread.take(&self.log_id, &line, &mut self.erased)
        {
            thread.damaged = Some(format!("line {number}: {why}"));
        }
        Ok(line.leaf)
    }
}

impl Thread {
    fn take(&mut self, log_id: &[u8; 16], line: &Line, erased: &mut u64) -> Result<(), String> {
        let record = line.record()?;
        let prev = self.records.last().map_or(RecordHash::ZERO, |last| last.hash);
        let n = self.records.len() as Position;
        if line.rec.get("n").and_then(Value::as_u64) != Some(n) {
            return Err(format!("record {n} of the thread is missing, another one stands there"));
        }
        let said = line.prev.as_deref().map_or(Some(RecordHash::ZERO), hash);
        if said != Some(prev) {
            return Err("`prev` is not the hash of the record before".to_owned());
        }
        let header = record.verify(log_id, &prev)?;
        for commitment in &header.payloads {
            if record.payload(commitment.role).is_none() {
                self.erased.push((n, commitment.role));
                *erased += 1;
            }
        }
        if header.kind == Kind::ThreadStart {
            self.workflow.clone_from(&header.workflow);
        }
        self.records.push(record);
        Ok(())
    }

    /// The header of its last record.
    pub(super) fn last(&self) -> Option<Header> {
        self.records.last().and_then(|record| Header::parse(&record.header).ok())
    }
}

impl Line {
    fn record(&self) -> Result<Record, String> {
        // The members are in their order: a header is written that way.
        let header = serde_json::to_vec(&self.rec).map_err(|error| error.to_string())?;
        let mut payloads = Vec::new();
        for (role, payload) in &self.pay {
            let Some(payload) = payload else { continue };
            let known = Role::from_word(role);
            let role = known.ok_or_else(|| format!("role {role:?} is not known"))?;
            let word = role.as_str();
            let salt = hex::decode(&payload.salt);
            let salt = salt.ok_or_else(|| format!("`salt` of {word} is not hex"))?;
            let bytes = text::read_base64(&payload.bin);
            let bytes = bytes.ok_or_else(|| format!("`bin` of {word} is not base64"))?;
            payloads.push(Payload { role, salt, bytes: bytes.into() });
        }
        let hash = hash(&self.hash).ok_or("`hash` is not a hash")?;
        Ok(Record { header: header.into(), hash, payloads })
    }
}

fn hash(text: &str) -> Option<RecordHash> {
    hex::decode(text).map(RecordHash)
}

/// Reads a file. What is wrong with it stands in what is read.
pub(super) fn read(path: &Path) -> Export {
    let mut export = Export::default();
    let read = match File::open(path) {
        Ok(file) => lines(&mut export, BufReader::new(file)),
        Err(error) => Err(format!("the file cannot be opened: {error}")),
    };
    if let Err(why) = read {
        export.wrongs.push(why);
    }
    export
}

fn lines(export: &mut Export, from: impl BufRead) -> Result<(), String> {
    let mut lines = (1..).zip(from.split(b'\n'));
    let mut next = || match lines.next() {
        Some((number, Ok(line))) => Ok(Some((number, line))),
        Some((number, Err(error))) => Err(format!("line {number} cannot be read: {error}")),
        None => Ok(None),
    };
    let (_, first) = next()?.unwrap_or_default();
    let mut place = opening(export, &first)?.then_some(0);
    while let Some((number, line)) = next()? {
        if let Ok(Closing { end }) = serde_json::from_slice(&line) {
            if (end.records, end.erased) != (export.records, export.erased) && is_whole(export) {
                let (records, erased) = (end.records, end.erased);
                return Err(format!(
                    "the closing line counts {records} records with {erased} erased payloads, and \
                     the file has {} with {}",
                    export.records, export.erased
                ));
            }
            return match next()? {
                Some((number, _)) => Err(format!("line {number} follows the closing line")),
                None => Ok(()),
            };
        }
        match (export.line(number, &line), &mut place) {
            (Ok(Some(leaf)), Some(place)) => {
                if leaf != *place {
                    let why = format!("line {number} has place {leaf} of the log, not {place}");
                    export.wrongs.push(why);
                }
                *place = leaf.saturating_add(1);
            }
            (Ok(None), None) => {}
            (Ok(_), _) => {
                let why = "has a place in the log where it needs none, or has none";
                export.wrongs.push(format!("line {number} {why}"));
            }
            (Err(why), place) => {
                export.wrongs.push(why);
                // Told once: what follows is not out of its place because of that.
                *place = place.map(|place| place.saturating_add(1));
            }
        }
    }
    Err("the closing line is missing: the export is not complete".to_owned())
}

/// Whether everything so far was read: else less is counted than there is.
fn is_whole(export: &Export) -> bool {
    export.wrongs.is_empty() && export.threads.values().all(|thread| thread.damaged.is_none())
}

/// Reads the first line. Says whether the export is of all threads.
fn opening(export: &mut Export, line: &[u8]) -> Result<bool, String> {
    let opening: Opening = serde_json::from_slice(line).map_err(|error| {
        format!("line 1 does not begin an export, as `deedbook export` writes it: {error}")
    })?;
    let Scope { v, log_id, thread } = opening.export;
    if v != VERSION {
        return Err(format!("it has export version {v}, and this build reads {VERSION}"));
    }
    export.log_id = hex::decode(&log_id).ok_or("line 1: its log id is none")?;
    Ok(thread.is_none())
}
