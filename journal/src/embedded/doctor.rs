//! Examining a journal: everything is read, and nothing is changed.

mod held;

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use super::{
    Embedded,
    anchor::{self, Found},
    aside,
    check::{self, Sum},
    core::{Core, Fault, guarded},
    disk::{Disk, DiskFile},
    error::OpenError,
    open,
    options::OpenOptions,
    progress::Progress,
    reader,
};
use crate::{
    limits::{EMBEDDED_DAMAGE_TOLD_MAX, EMBEDDED_FREE_BYTES_MANY},
    record::RecordHash,
};

/// How it stands with something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Verdict {
    /// It is as it should be.
    Good,
    /// It is worth knowing, and no more.
    Note,
    /// Somebody should do something about it; nothing is lost.
    Warning,
    /// Something is lost, or cannot be used.
    Fault,
}

impl Verdict {
    /// In one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }

    /// What this word says; `None` if it is none of them.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Good, Self::Note, Self::Warning, Self::Fault]
            .into_iter()
            .find(|v| v.as_str() == word)
    }
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, in one word.
    pub about: Cow<'static, str>,
    /// How it stands with it.
    pub verdict: Verdict,
    /// What was found.
    pub said: String,
    /// What to do about it; empty if nothing is to be done.
    pub next: String,
}

impl Finding {
    /// A finding, as it was told.
    #[must_use]
    pub fn new(about: String, verdict: Verdict, said: String, next: String) -> Self {
        Self { about: about.into(), verdict, said, next }
    }
}

/// What was found of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Examination {
    /// Everything that was looked at, in its order.
    pub findings: Vec<Finding>,
    /// Records that were read.
    pub records: u64,
    /// How many records the anchor remembers, if the journal is behind that.
    pub rolled_back_from: Option<u64>,
}

impl Examination {
    /// The worst of all verdicts.
    #[must_use]
    pub fn worst(&self) -> Verdict {
        self.findings.iter().map(|f| f.verdict).max().unwrap_or(Verdict::Good)
    }

    fn say(&mut self, about: &'static str, verdict: Verdict, said: impl Into<String>, next: &str) {
        let (about, said, next) = (about.into(), said.into(), next.into());
        self.findings.push(Finding { about, verdict, said, next });
    }
}

const RESTORE: &str = "restore it from a backup";

impl Embedded {
    /// Reads everything of a journal and says how it stands with each thing: its file, its log, its
    /// anchor, every record's hash and chain, every page, and free space. It changes nothing, also
    /// where the journal was not closed or is damaged, and needs no more than to read it.
    ///
    /// `watch` is told how far it has come, and says whether to go on; if not, the rest is not
    /// looked at. Blocks the calling thread. A journal that is open is examined by whoever has it
    /// open: [`Embedded::examine_open`].
    ///
    /// # Errors
    /// What keeps it from looking at all: there is no journal, it is no file, or somebody has it
    /// open. Everything else is a finding.
    pub fn examine(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        mut watch: impl FnMut(Progress) -> bool + Send,
    ) -> Result<Examination, OpenError> {
        let path = path.as_ref();
        let options = options.clone().read_only(true).accept_rollback(true);
        let file = open::take(path, &options)?;
        let mut seen = Examination::default();
        of_file(&mut seen, path, &*file, &*options.disk);
        let Some(core) = of_opening(&mut seen, path, &file, &options) else {
            return Ok(seen);
        };
        of_log(&mut seen, &core, !core.found.clean);
        of_anchor(&mut seen, &core);
        let Ok(sum) = check::check(&core, EMBEDDED_DAMAGE_TOLD_MAX, &mut watch) else {
            seen.say("records", Verdict::Note, "not all of them were read", "");
            return Ok(seen);
        };
        of_records(&mut seen, &sum);
        of_pages(&mut seen, &core);
        of_space(&mut seen, &core, &*file);
        // Over a damaged file the storage library can panic when it lets go.
        let _ = guarded(|| {
            drop(core);
            Ok(())
        });
        Ok(seen)
    }
}

/// The file and its folder.
fn of_file(seen: &mut Examination, path: &Path, file: &dyn DiskFile, disk: &dyn Disk) {
    match file.mode() {
        Ok(Some(mode)) if mode & 0o077 != 0 => seen.say(
            "file",
            Verdict::Warning,
            format!("others than its owner have access to it (mode {mode:03o})"),
            "take that from them: `chmod 600`, for its log and its anchor as well",
        ),
        Ok(_) => seen.say("file", Verdict::Good, "only its owner has access to it", ""),
        Err(error) => seen.say("file", Verdict::Warning, format!("its mode: {error}"), ""),
    }
    if let Ok(names @ 2..) = file.names() {
        let said = format!("it has {names} names");
        seen.say("file", Verdict::Note, said, "nothing, if nobody writes to it by another one");
    }
    match aside::lying(disk, path, file) {
        Ok(asides) if asides.is_empty() => {}
        Ok(asides) => {
            let said = format!("{} beside it {}", names(&asides), were_left(&asides));
            seen.say("leftovers", Verdict::Note, said, "they may be removed if nobody is at work");
        }
        Err(error) => seen.say("leftovers", Verdict::Warning, format!("its folder: {error}"), ""),
    }
}

fn were_left(asides: &[PathBuf]) -> &'static str {
    if asides.len() == 1 { "was left by one that was killed" } else { "were left by killed ones" }
}

fn names(paths: &[PathBuf]) -> String {
    let names = paths.iter().filter_map(|path| path.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>().join(", ")
}

/// Opening: with its log, or where that is impossible, the tables by themselves.
fn of_opening(
    seen: &mut Examination,
    path: &Path,
    file: &Arc<dyn DiskFile>,
    options: &OpenOptions,
) -> Option<Core> {
    let open = |options: &OpenOptions| open::open_file(path, Arc::clone(file), options);
    let error = match open(options) {
        Ok(core) => {
            of_closing(seen, &core);
            return Some(core);
        }
        Err(error) => error,
    };
    // What it is about is said above already.
    let said = error.to_string();
    let said = said.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&said);
    seen.say("opening", Verdict::Fault, said, "");
    let mut tables = options.clone();
    tables.tables_only = true;
    let core = open(&tables).ok()?;
    let said = "what follows is about the tables by themselves, without the log";
    seen.say("opening", Verdict::Note, said, "");
    Some(core)
}

fn of_closing(seen: &mut Examination, core: &Core) {
    let (entries, records) = {
        let state = core.state();
        (state.unsettled.0, state.next.leaf - state.settled.leaf)
    };
    if core.found.clean {
        seen.say("opening", Verdict::Good, "it was closed", "");
    } else {
        let said = format!(
            "it was not closed: its log has {entries} entries with {records} records behind the \
             tables, all of which can be read"
        );
        seen.say("opening", Verdict::Note, said, "the next program or act brings it in order");
    }
}

/// The files of the log. `follows` says whether the tables lack what it has, or may soon.
fn of_log(seen: &mut Examination, core: &Core, follows: bool) {
    let lying = match core.segments.lying() {
        Ok(lying) => lying,
        Err(error) => return seen.say("log", Verdict::Warning, error.to_string(), ""),
    };
    let (ours, foreign): (Vec<_>, Vec<_>) = lying.into_iter().partition(|(_, ours)| *ours);
    let paths = |lying: Vec<(PathBuf, bool)>| lying.into_iter().map(|(path, _)| path).collect();
    let (ours, foreign): (Vec<PathBuf>, Vec<PathBuf>) = (paths(ours), paths(foreign));
    if !foreign.is_empty() {
        let said = format!("{} is none of its log, and in the way of it", names(&foreign));
        seen.say("log", Verdict::Warning, said, "move it away");
    }
    if !follows && !ours.is_empty() {
        let said = format!("{} was left, and everything in it is in the tables", names(&ours));
        seen.say("log", Verdict::Note, said, "nothing: it is used again or removed");
    } else if follows && ours.is_empty() {
        let next = "end whoever has it open, in order: everything is in the tables then";
        seen.say("log", Verdict::Warning, "somebody has removed it while it is written to", next);
    } else if follows {
        seen.say("log", Verdict::Good, format!("{} follows the tables", names(&ours)), "");
    }
}

/// The anchor.
fn of_anchor(seen: &mut Examination, core: &Core) {
    let looked = {
        // Whoever writes it waits, so that no half of it is read.
        let _anchor = core.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        anchor::look(&**core.segments.disk(), &core.path, &core.identity.log_id)
    };
    let said = match looked {
        Ok(Found::Said(said)) => said,
        other => {
            let (verdict, said, next) = match other {
                Ok(Found::Nothing) => (
                    Verdict::Note,
                    "there is none: an older copy in its place would not be noticed".to_owned(),
                    "nothing: the next program that writes makes one",
                ),
                Ok(Found::Foreign) => (
                    Verdict::Note,
                    "it is of another journal that had this name".to_owned(),
                    "nothing: the next program that writes makes its own",
                ),
                Ok(_) => (
                    Verdict::Warning,
                    "what stands at its name cannot be read as one".to_owned(),
                    "compare with a backup or an export whether records are missing at the end, \
                     then remove it",
                ),
                Err(error) => (Verdict::Warning, error.to_string(), ""),
            };
            return seen.say("anchor", verdict, said, next);
        }
    };
    let (have, had) = (core.state().next, said.upto);
    if had > have {
        seen.rolled_back_from = Some(had.leaf);
        let said = format!(
            "it remembers {} records, and there are {}: an older copy was put back, or the log was \
             cut",
            had.leaf, have.leaf
        );
        let next = "put the newer files back; or accept this copy: `doctor --accept-rollback`";
        return seen.say("anchor", Verdict::Fault, said, next);
    }
    let last = had.leaf.checked_sub(1).filter(|_| said.head != RecordHash::ZERO);
    let there = last.and_then(|last| reader::log(core, last, 1).ok()?.items.into_iter().next());
    if let Some(entry) = there.filter(|entry| entry.hash != said.head) {
        let said = format!(
            "record {} of the log is another one than it remembers: this is a copy that went its \
             own way",
            entry.index
        );
        return seen.say("anchor", Verdict::Fault, said, "find out which of the two is in use");
    }
    seen.say("anchor", Verdict::Good, format!("all {} records of it are there", had.leaf), "");
}

/// Records, chains, rows and messages.
fn of_records(seen: &mut Examination, sum: &Sum) {
    seen.records = sum.records;
    for damage in &sum.damage {
        let next = "restore it from a backup; `deedbook export` gives out what can be read of it";
        seen.say("records", Verdict::Fault, damage.to_string(), next);
    }
    if sum.damage.len() >= EMBEDDED_DAMAGE_TOLD_MAX {
        seen.say("records", Verdict::Note, "there may be more; no more was looked at", "");
    }
    if sum.damage.is_empty() {
        let (records, threads) = (sum.records, sum.threads);
        let said = format!("{records} of {threads} threads: every hash and every chain holds");
        seen.say("records", Verdict::Good, said, "");
    }
}

/// The pages of the storage library.
fn of_pages(seen: &mut Examination, core: &Core) {
    let mut opened = core.opened.write().unwrap_or_else(PoisonError::into_inner);
    let Some(opened) = opened.as_mut() else {
        return;
    };
    match guarded(|| Ok(opened.db.check_integrity()?)) {
        Ok(true) => seen.say("pages", Verdict::Good, "every page has its checksum", ""),
        Ok(false) => seen.say(
            "pages",
            Verdict::Warning,
            "some do not match, and can be made whole again",
            "`deedbook compact` writes it anew; make a backup first",
        ),
        Err(Fault::Damage(why) | Fault::Io(why)) => {
            seen.say("pages", Verdict::Fault, format!("they are damaged: {why}"), RESTORE);
        }
    }
}

/// How much of the file is in use.
fn of_space(seen: &mut Examination, core: &Core, file: &dyn DiskFile) {
    let opened = core.opened();
    let used = opened.as_ref().map(|opened| {
        guarded(|| {
            let transaction = opened.db.begin_write()?;
            let stats = transaction.stats()?;
            transaction.abort()?;
            Ok(stats.allocated_pages() * stats.page_size() as u64)
        })
    });
    say_space(seen, file.len(), used.and_then(Result::ok));
}

/// Says how much of a file of this length is in use.
fn say_space(seen: &mut Examination, length: io::Result<u64>, used: Option<u64>) {
    let (Ok(length), Some(used)) = (length, used) else {
        return seen.say("space", Verdict::Note, "it cannot be told how much is in use", "");
    };
    let free = length.saturating_sub(used);
    let said = format!("{length} bytes, {free} of them free");
    if free >= EMBEDDED_FREE_BYTES_MANY && free >= length / 2 {
        seen.say("space", Verdict::Note, said, "`deedbook compact` gives the free ones back");
    } else {
        seen.say("space", Verdict::Good, said, "");
    }
}
