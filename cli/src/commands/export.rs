//! `export`: every record, exactly, as JSON lines.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, BufWriter, IsTerminal, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use deedbook_journal::{
    checkpointer::{Checkpointer, StoreError},
    embedded::journal_of,
    hex,
    id::{LogIndex, Position, ThreadId},
    record::{Kind, Record, RecordHash, Role},
};

use crate::{
    args::Export,
    failure::{Failure, Outcome, code},
    line::{self, Closing, Opening, Scope, Totals},
    out::Out,
    read::{self, Log, Records},
    text::{count, safe},
};

/// After how many records progress is shown.
const PROGRESS_EVERY: u64 = 1000;
/// How often a file aside is made anew that others tidied away before it was locked.
const MAKES_MAX: usize = 64;

pub(crate) async fn run(
    args: &Export,
    home: &dyn Checkpointer,
    journal: Option<&Path>,
    out: &mut Out<'_>,
) -> Outcome {
    let Some(path) = &args.output else {
        let mut write = |text: &str| out.raw(text.as_bytes());
        export(args, home, &mut write).await?;
        return Ok(code::OK);
    };
    let mut aside = Aside::create(path, journal, args.force)?;
    let totals = export(args, home, &mut |text| aside.write(text)).await?;
    aside.publish()?;
    let shown = path.to_string_lossy();
    let records = count(totals.records, "record");
    let threads = count(totals.threads, "thread");
    let done = format!("exported {records} of {threads} to {}", safe(&shown));
    let told = match out.json {
        true => out.object(&serde_json::json!({
            "v": crate::out::JSON_VERSION,
            "file": shown,
            "records": totals.records,
            "threads": totals.threads,
        })),
        false => out.line(&done).map_err(Failure::from),
    };
    let told = told.and_then(|()| Ok(out.flush()?));
    told.map(|()| code::OK).map_err(|failure| failure.after(&done))
}

type Write1<'a> = dyn FnMut(&str) -> io::Result<()> + Send + 'a;

/// The lines of an export.
pub(crate) async fn text(home: &dyn Checkpointer, thread: Option<&str>) -> Result<String, Failure> {
    let args = Export { thread: thread.map(str::to_owned), output: None, force: false };
    let mut text = String::new();
    let mut write = |line: &str| {
        text.push_str(line);
        Ok(())
    };
    export(&args, home, &mut write).await?;
    Ok(text)
}

async fn export(
    args: &Export,
    home: &dyn Checkpointer,
    write: &mut Write1<'_>,
) -> Result<Totals, Failure> {
    let thread = args.thread.as_deref().map(read::thread_id).transpose()?;
    let opening = Opening {
        export: Scope {
            v: line::VERSION,
            log_id: hex::encode(&home.identity().log_id),
            thread: thread.as_ref().map(|t| t.as_str().to_owned()),
            time: home.now().await?.to_string(),
            tool: concat!("deedbook ", env!("CARGO_PKG_VERSION")).to_owned(),
        },
    };
    let mut lines = Lines {
        write,
        text: String::new(),
        totals: Totals::default(),
        progress: io::stderr().is_terminal(),
        gone: HashSet::new(),
        looked: None,
    };
    match thread {
        Some(thread) => one(home, thread, &opening, &mut lines).await?,
        None => all(home, &opening, &mut lines).await?,
    }
    let Lines { write, totals, progress, .. } = lines;
    if progress {
        eprint_progress("\r\u{1b}[K");
    }
    let closing = Closing { end: totals };
    write(&json_line(&closing)?)?;
    Ok(closing.end)
}

async fn one(
    home: &dyn Checkpointer,
    thread: ThreadId,
    opening: &Opening,
    lines: &mut Lines<'_>,
) -> Result<(), Failure> {
    let mut records = Records::new(home, thread.clone());
    let mut prev = RecordHash::ZERO;
    let mut opened = false;
    let mut at = 0;
    loop {
        // The first read says whether there is such a thread.
        let next = records.next().await.map_err(|e| read::about(&thread, e))?;
        if !std::mem::replace(&mut opened, true) {
            (lines.write)(&json_line(opening)?)?;
        }
        let Some((n, record)) = next else {
            if !lines.goes_on(at) {
                return Ok(());
            }
            records = Records::from(home, thread.clone(), at);
            continue;
        };
        lines.record(&thread, n, &record, prev, None)?;
        prev = record.hash;
        at = n.saturating_add(1);
    }
}

async fn all(
    home: &dyn Checkpointer,
    opening: &Opening,
    lines: &mut Lines<'_>,
) -> Result<(), Failure> {
    (lines.write)(&json_line(opening)?)?;
    let mut log = Log::new(home);
    let mut heads = std::collections::HashMap::new();
    let mut at = 0;
    loop {
        let Some((entry, record)) = log.next().await? else {
            if !lines.goes_on(at) {
                return Ok(());
            }
            log.go_on(at);
            continue;
        };
        at = entry.index.saturating_add(1);
        let record = record?;
        if record.hash != entry.hash {
            return Err(StoreError::Damaged {
                thread: entry.thread,
                n: entry.n,
                why: format!("place {} of the log has another hash", entry.index).into(),
            }
            .into());
        }
        let head = heads.entry(entry.thread.clone()).or_insert(RecordHash::ZERO);
        lines.record(&entry.thread, entry.n, &record, *head, Some(entry.index))?;
        *head = record.hash;
    }
}

struct Lines<'a> {
    write: &'a mut Write1<'a>,
    text: String,
    totals: Totals,
    progress: bool,
    /// Payloads that are missing, and of which no record has said yet that they were erased: while
    /// this is written, that record may come at the end.
    gone: HashSet<(ThreadId, Position, Role)>,
    /// Where the end was when it was looked for that record last.
    looked: Option<u64>,
}

impl Lines<'_> {
    /// Whether to read on behind what was the end.
    fn goes_on(&mut self, end: u64) -> bool {
        let before = self.looked.replace(end);
        !self.gone.is_empty() && before != Some(end)
    }

    fn record(
        &mut self,
        thread: &ThreadId,
        n: Position,
        record: &Record,
        prev: RecordHash,
        leaf: Option<LogIndex>,
    ) -> Result<(), Failure> {
        let which = || format!("record {n} of thread {}", safe(thread.as_str()));
        let header = read::header(record).map_err(|e| e.about(&which()))?;
        self.text.clear();
        line::write(&header, record, prev, leaf, &mut self.text)
            .map_err(|e| Failure::new(format!("{}: {}", which(), safe(&e))))?;
        (self.write)(&self.text).map_err(|e| Failure::from(e).about(&which()))?;
        self.totals.add(&header, record);
        for listed in header.payloads.iter().filter(|c| record.payload(c.role).is_none()) {
            self.gone.insert((thread.clone(), n, listed.role));
        }
        if let (Kind::Redact, Some(of), Some(role)) = (&header.kind, header.call, header.role) {
            self.gone.remove(&(thread.clone(), of, role));
        }
        if self.progress && self.totals.records.is_multiple_of(PROGRESS_EVERY) {
            eprint_progress(&format!("\r{} records", self.totals.records));
        }
        Ok(())
    }
}

fn eprint_progress(text: &str) {
    // Progress that cannot be shown is no reason to stop.
    let _ = io::stderr().write_all(text.as_bytes());
}

fn json_line<T: serde::Serialize>(value: &T) -> Result<String, Failure> {
    Ok(crate::out::safe_json(&serde_json::to_string(value)?) + "\n")
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the file aside and locks it for as long as it is open, so that others see that somebody
/// is at work on it.
fn make(aside: &Path) -> io::Result<File> {
    for _ in 0..MAKES_MAX {
        let file = File::options().write(true).create_new(true).mode(0o600).open(aside)?;
        // Until it is locked, it looks to others like one that was left behind.
        if file.try_lock().is_ok() && file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
        let _ = fs::remove_file(aside);
    }
    Err(io::Error::other("others remove it again and again"))
}

/// Removes what exports to this file have left that were killed; the next one may have the number
/// of the same process. Whatever cannot be looked at or removed stays.
fn tidy(path: &Path, name: &OsStr) {
    let Ok(entries) = fs::read_dir(folder(path)) else {
        return;
    };
    for entry in entries.flatten().filter(|entry| is_part(&entry.file_name(), name)) {
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        let left = path.with_file_name(entry.file_name());
        let open = File::open(&left).ok().filter(|_| regular);
        // The lock is held until the name is gone.
        if let Some(file) = open
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&left);
        }
    }
}

/// Whether an export to the file `name` may have this file aside.
fn is_part(found: &OsStr, name: &OsStr) -> bool {
    let digits = found
        .as_bytes()
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(name.as_bytes()))
        .and_then(|rest| rest.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(b".part"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// A file that gets its name when it is complete and durable.
struct Aside {
    file: Option<BufWriter<File>>,
    aside: PathBuf,
    path: PathBuf,
    replace: bool,
}

impl Aside {
    fn create(path: &Path, journal: Option<&Path>, replace: bool) -> Result<Self, Failure> {
        let shown = safe(&path.to_string_lossy());
        let name = path.file_name();
        let name = name.ok_or_else(|| Failure::usage(format!("{shown} names no file")))?;
        let same = || Some((fs::canonicalize(path).ok()?, fs::canonicalize(journal?).ok()?));
        if same().is_some_and(|(a, b)| a == b) {
            return Err(Failure::new(format!("{shown} is the journal itself; name another file")));
        }
        if let Some(journal) = journal_of(path).filter(|journal| journal.exists()) {
            let journal = safe(&journal.to_string_lossy());
            return Err(Failure::new(format!(
                "{shown} is a name that the journal {journal} needs; name another file"
            )));
        }
        let there = fs::symlink_metadata(path);
        // A rename would put a file in the place of a device or a link, `/dev/null` say.
        if there.as_ref().is_ok_and(|there| !there.is_file()) {
            return Err(Failure::new(format!(
                "{shown} is not a regular file, and is not replaced; name another file"
            )));
        }
        if there.is_ok() && !replace {
            return Err(Failure::new(format!(
                "{shown} is there already; name another file, or use --force"
            )));
        }
        tidy(path, name);
        let mut aside_name = OsString::from(".");
        aside_name.push(name);
        aside_name.push(format!(".{}.part", std::process::id()));
        let aside = path.with_file_name(aside_name);
        let file = make(&aside).map_err(|e| {
            Failure::new(format!("cannot make {}: {e}", safe(&aside.to_string_lossy())))
        })?;
        Ok(Self {
            file: Some(BufWriter::with_capacity(256 * 1024, file)),
            aside,
            path: path.to_owned(),
            replace,
        })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn publish(mut self) -> Result<(), Failure> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        let file = file.into_inner().map_err(|e| Failure::from(e.into_error()))?;
        file.sync_all()?;
        let named = match self.replace {
            true => fs::rename(&self.aside, &self.path),
            // Whoever took the name meanwhile keeps it.
            false => fs::hard_link(&self.aside, &self.path),
        };
        named.map_err(|e| {
            let path = safe(&self.path.to_string_lossy());
            Failure::new(format!("cannot give the export its name {path}: {e}"))
        })?;
        File::open(folder(&self.path))?.sync_all()?;
        Ok(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.file = None;
        // Renamed away, or not wanted any more.
        let _ = fs::remove_file(&self.aside);
    }
}
