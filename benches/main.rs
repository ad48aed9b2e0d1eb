//! Measures, and prints what was measured.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
use deedbook_benches::{
    Result, bytes, machine, open, replay,
    report::{self, Figure},
    start,
    steps::{self, Budget},
};

/// Figures of Deedbook, each beside a plain append+fdatasync floor in the same run.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// What to measure; everything if nothing is said.
    #[command(subcommand)]
    what: Option<What>,
    /// About how long to measure each rate.
    #[arg(long, global = true, default_value_t = 5, value_name = "N")]
    seconds: u64,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Where to put journals while measuring: the file system that is measured. A folder for
    /// temporary files by default.
    #[arg(long, global = true, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Everything.
    All,
    /// Syncs, batches and bytes written per step; steps per second; latencies.
    Steps,
    /// From a crashed thread to its first new call.
    Replay {
        /// Numbers of recorded steps.
        #[arg(long, value_delimiter = ',', default_values_t = SIZES)]
        sizes: Vec<u32>,
    },
    /// A replay whose records are in memory: reading and hashing left out.
    Turns {
        /// Numbers of recorded steps.
        #[arg(long, value_delimiter = ',', default_values_t = SIZES)]
        sizes: Vec<u32>,
        /// How often each.
        #[arg(long, default_value_t = 11, value_name = "N")]
        rounds: usize,
    },
    /// Bytes on disk per step.
    Bytes,
    /// Opening a journal that was closed, and one whose process was killed.
    Open,
    /// Resuming all that was running; memory of parked threads.
    StartUp,
    /// Opens a journal, starts it, and says by how many bytes memory grew.
    #[command(hide = true)]
    Resident {
        /// The journal.
        path: PathBuf,
    },
}

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if this fails too.
            let _ = writeln!(io::stderr(), "deedbook-benches: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(What::Resident { path }) = &arguments.what {
        writeln!(io::stdout(), "{}", start::grown(path)?)?;
        return Ok(());
    }
    let folder = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let mut facts = machine::facts(folder.path());
    let figures = measure(arguments, folder.path())?;
    facts.push(("load after", machine::load()));
    let mut out = io::stdout().lock();
    if arguments.json {
        let all = report::json(&facts, &figures);
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        for (name, value) in &facts {
            writeln!(out, "{name}: {value}")?;
        }
        writeln!(out, "\n{}", report::table(&figures))?;
    }
    Ok(())
}

fn measure(arguments: &Arguments, folder: &Path) -> Result<Vec<Figure>> {
    let budget = Budget { time: Duration::from_secs(arguments.seconds), rounds: 5 };
    let all = matches!(arguments.what, None | Some(What::All));
    let mut figures = Vec::new();
    if all || matches!(arguments.what, Some(What::Steps)) {
        figures.extend(steps::costs(folder)?);
        figures.extend(steps::rates(folder, budget)?);
    }
    if all || matches!(arguments.what, Some(What::Bytes)) {
        figures.extend(bytes::bytes(folder)?);
    }
    if all {
        figures.extend(replay::replay(folder, &SIZES)?);
    } else if let Some(What::Replay { sizes }) = &arguments.what {
        figures.extend(replay::replay(folder, sizes)?);
    }
    if all {
        figures.extend(replay::turns(folder, &SIZES, 5)?);
    } else if let Some(What::Turns { sizes, rounds }) = &arguments.what {
        figures.extend(replay::turns(folder, sizes, *rounds)?);
    }
    if all || matches!(arguments.what, Some(What::Open)) {
        figures.extend(open::open(folder)?);
    }
    if all || matches!(arguments.what, Some(What::StartUp)) {
        figures.extend(start::start(folder)?);
    }
    Ok(figures)
}
