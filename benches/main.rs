//! Measures, and prints what was measured.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
use deedbook_benches::{
    Result, calls, counted,
    effort::Effort,
    floor, growth, instructions, machine, memory, open,
    other::Fill,
    parked, reads, replay,
    report::{self, Findings},
    steps::{self, Only},
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
    /// Measure a little of everything: whether it works, not what it costs.
    #[arg(long, global = true)]
    quick: bool,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Also write plots to this folder, as SVG.
    #[arg(long, global = true, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// Where to put journals while measuring: the file system that is measured. A folder for
    /// temporary files by default.
    #[arg(long, global = true, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// To how many records a journal grows in `growth`.
    #[arg(long, global = true, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(2_000..=10_000_000))]
    records: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Everything but `instructions`.
    All,
    /// One write and one fdatasync.
    Floor,
    /// Syncs, batches and bytes written per step; steps per second; latencies.
    Steps {
        /// Only these numbers of workflows at once: of 1, 8, 64 and 512.
        #[arg(long, value_delimiter = ',', value_name = "N")]
        workflows: Vec<usize>,
        /// Only these payloads: of 256, 4096 and 65536 bytes.
        #[arg(long, value_delimiter = ',', value_name = "N")]
        bytes: Vec<usize>,
    },
    /// Durable reads per second.
    Reads,
    /// Guarded calls per second, first ones and repeats.
    Calls,
    /// From a crashed thread to its first new call.
    Replay {
        /// Numbers of recorded steps.
        #[arg(long, value_delimiter = ',', value_name = "N")]
        sizes: Vec<u32>,
    },
    /// The part of `replay` whose records are in memory: reading and hashing left out.
    Turns {
        /// Numbers of recorded steps.
        #[arg(long, value_delimiter = ',', value_name = "N")]
        sizes: Vec<u32>,
        /// How often each.
        #[arg(long, default_value_t = 11, value_name = "N")]
        rounds: usize,
    },
    /// Opening a journal that was closed, and one whose process was killed; resuming.
    Open,
    /// The file, and the cost of a step, while the journal grows.
    Growth,
    /// Memory of a process that fills a journal, and of parked threads.
    Memory,
    /// Instructions of the hot path, by callgrind, beside what is recorded.
    Instructions {
        /// Record them.
        #[arg(long)]
        update: bool,
        /// Leave what callgrind wrote in this folder; `counts.1` is the first run.
        #[arg(long, value_name = "FOLDER")]
        keep: Option<PathBuf>,
    },
    /// Runs the hot path, for callgrind to count.
    #[command(hide = true)]
    Counted,
    /// Fills a journal, and says how memory grows.
    #[command(hide = true)]
    Fill(Fill),
    /// Opens a journal, starts it, and says what that took.
    #[command(hide = true)]
    Started {
        /// The journal.
        path: PathBuf,
    },
}

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
    let mut out = io::stdout();
    match &arguments.what {
        Some(What::Fill(fill)) => return fill.here(&mut out),
        Some(What::Started { path }) => {
            return Ok(serde_json::to_writer(out, &parked::start(path)?)?);
        }
        _ => {}
    }
    let folder = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    match &arguments.what {
        Some(What::Counted) => {
            let ran = counted::all(folder.path(), arguments.quick)?;
            Ok(serde_json::to_writer(out, &ran)?)
        }
        Some(What::Instructions { update, keep }) => {
            let folder = keep.as_deref().unwrap_or(folder.path());
            std::fs::create_dir_all(folder)?;
            let compared = instructions::instructions(folder, &instructions::recorded(), *update)?;
            writeln!(out, "{}", report::table(&compared.figures))?;
            for remark in &compared.remarks {
                writeln!(out, "{remark}")?;
            }
            compared.check()
        }
        _ => figures(arguments, folder.path(), &mut out),
    }
}

fn figures(arguments: &Arguments, folder: &Path, out: &mut impl Write) -> Result<()> {
    let mut facts = machine::facts(folder);
    let findings = measure(arguments, folder)?;
    facts.push(("load after", machine::load()));
    if arguments.json {
        let all = report::json(&facts, &findings.figures);
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        for (name, value) in &facts {
            writeln!(out, "{name}: {value}")?;
        }
        writeln!(out, "\n{}", report::table(&findings.figures))?;
    }
    if let Some(folder) = &arguments.plots {
        std::fs::create_dir_all(folder)?;
        for plot in &findings.plots {
            plot.write(folder)?;
        }
    }
    Ok(())
}

fn measure(arguments: &Arguments, folder: &Path) -> Result<Findings> {
    let effort = match arguments.quick {
        true => Effort::quick(),
        false => Effort::whole(Duration::from_secs(arguments.seconds)),
    };
    let records = arguments.records.unwrap_or(effort.pick(2_000_000, 2_000));
    let usual: &[u32] = effort.pick(&[1_000, 10_000, 100_000], &[100]);
    let or_usual =
        |sizes: &'_ [u32]| if sizes.is_empty() { usual.to_vec() } else { sizes.to_vec() };
    match arguments.what.as_ref().unwrap_or(&What::All) {
        What::Floor => floor::floor(folder, effort),
        What::Steps { workflows, bytes } => {
            let only = Only { workflows: workflows.clone(), bytes: bytes.clone() };
            steps::steps(folder, effort, &only)
        }
        What::Reads => reads::reads(folder, effort),
        What::Calls => calls::calls(folder, effort),
        What::Replay { sizes } => replay::replay(folder, &or_usual(sizes), effort),
        What::Turns { sizes, rounds } => replay::turns(folder, &or_usual(sizes), *rounds),
        What::Open => open::open(folder, effort),
        What::Growth => growth::growth(folder, records, effort),
        What::Memory => memory::memory(folder, effort),
        _ => {
            let mut all = floor::floor(folder, effort)?;
            all.add(steps::steps(folder, effort, &Only::default())?);
            all.add(reads::reads(folder, effort)?);
            all.add(calls::calls(folder, effort)?);
            all.add(replay::replay(folder, usual, effort)?);
            all.add(open::open(folder, effort)?);
            all.add(growth::growth(folder, records, effort)?);
            all.add(memory::memory(folder, effort)?);
            Ok(all)
        }
    }
}
