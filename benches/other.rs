//! Other processes: what must be killed, or must have memory of its own, is a process of its own.
//! It is this program again, under hidden names.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use clap::Args;
use deedbook::Status;
use deedbook_journal::embedded::OpenOptions;

use crate::{
    Failed, Result,
    disk::CountingDisk,
    machine::resident,
    stage::Stage,
    steps::count,
    watch::rest,
    work::{Payload, Plan, Then, Work},
};

/// The thread of a filled journal that waits for a signal.
pub const WAITING: &str = "waiting";

/// A journal for another process to fill.
#[derive(Debug, Clone, Args)]
pub struct Fill {
    /// The journal, which it makes.
    pub path: PathBuf,
    /// Bytes of records.
    #[arg(long)]
    pub bytes: u64,
    /// Bytes of a step's arguments and result.
    #[arg(long)]
    pub payload: usize,
    /// Page cache of the tables, in bytes.
    #[arg(long)]
    pub cache: usize,
    /// Goes on with small steps when it is full, until it is killed; else closes the journal.
    #[arg(long)]
    pub until_killed: bool,
}

/// A moment of filling.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Bytes of records so far.
    pub records: u64,
    /// By how many bytes the resident memory has grown.
    pub resident: u64,
}

const FULL: &str = "full";

impl Fill {
    fn begin(&self) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("fill").arg(&self.path);
        command.args(["--bytes", &self.bytes.to_string()]);
        command.args(["--payload", &self.payload.to_string()]);
        command.args(["--cache", &self.cache.to_string()]);
        if self.until_killed {
            command.arg("--until-killed");
        }
        Ok(command.stdout(Stdio::piped()).spawn()?)
    }

    /// Has another process fill it, and says how its memory grew. It is closed, or killed in the
    /// middle of its work.
    ///
    /// # Errors
    /// The other process could not be started, or failed; it has said why.
    pub fn elsewhere(&self) -> Result<Vec<Moment>> {
        let mut child = self.begin()?;
        let mut moments = Vec::new();
        let mut full = false;
        for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
            let line = line?;
            full = line == FULL;
            if full {
                break;
            }
            let number = |at: usize| line.split(' ').nth(at).and_then(|n| n.parse().ok());
            if let (Some(records), Some(resident)) = (number(0), number(1)) {
                moments.push(Moment { records, resident });
            }
        }
        if full && self.until_killed {
            // So that the log has something.
            rest(Duration::from_millis(400));
            child.kill()?;
            child.wait()?;
            return Ok(moments);
        }
        if full && child.wait()?.success() {
            return Ok(moments);
        }
        child.kill()?;
        child.wait()?;
        Err(Failed::from("the process that fills a journal has failed"))
    }

    /// Fills it: 64 threads at a time, each of a hundred steps, or of ten for a small journal.
    /// Syncs are not carried out: a kill takes nothing from the system's memory.
    ///
    /// # Errors
    /// The journal cannot be made, or a thread failed.
    pub fn here(&self, out: &mut impl Write) -> Result<()> {
        let before = resident()?;
        let options = OpenOptions::new().cache_bytes(self.cache);
        let disk = CountingDisk::hasty();
        let stage = Stage::create_with(&self.path, &disk, Work::silent(), options)?;
        let waiting = Plan::effects(1).then(Then::Wait);
        let waiting = [(WAITING.to_owned(), waiting)];
        stage.begin_all(waiting, |info| info.row.status == Status::Waiting)?;
        let steps = if self.bytes < 16 << 20 { 10 } else { 100 };
        let plan = Plan::effects(steps).carrying(Payload::of(self.payload));
        let mut round = 0;
        let mut due = 0;
        while stage.store.asked().bytes < self.bytes {
            round += 1;
            count(&stage, round, 64, &plan)?;
            let records = stage.store.asked().bytes;
            if records >= due {
                writeln!(out, "{records} {}", resident()?.saturating_sub(before))?;
                due = records + self.bytes / 24;
            }
        }
        writeln!(out, "{FULL}")?;
        out.flush()?;
        if !self.until_killed {
            return stage.close();
        }
        loop {
            round += 1;
            count(&stage, round, 64, &Plan::effects(steps))?;
        }
    }
}

/// What another process says that opened and started a journal.
///
/// # Errors
/// The process could not be started, or failed.
pub fn started(path: &Path) -> Result<Started> {
    let output = Command::new(std::env::current_exe()?).arg("started").arg(path).output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let why = String::from_utf8_lossy(&output.stderr);
        Failed::from(format!("the process that starts a journal has failed: {why}"))
    })
}

/// What a start took.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Started {
    /// Opening the journal and starting the book, in milliseconds.
    pub millis: f64,
    /// By how many bytes resident memory grew.
    pub resident: u64,
    /// How often records of a thread were read.
    pub histories: u64,
    /// Bytes that were read from the files.
    pub read_bytes: u64,
}
