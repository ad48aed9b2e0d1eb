//! Puts the embedded home into hostile surroundings, and prints what was tried.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::{Args, Parser, Subcommand};
use deedbook_journal::embedded::planted::Broken;
use deedbook_simulation::{
    book,
    crew::{Crew, Tally},
    damage::{self, Stride, Which, apart},
    fault::{self, Case},
    gate, planted,
    planted::Rig,
    power,
    report::Report,
    size::Size,
};
use harness::Fault;

const EXAMPLES: &str = "\
Examples:
  deedbook-simulation                          everything, in the full size
  deedbook-simulation --size reduced --json    a little of everything, for a program
  deedbook-simulation power --seed 3           every operation of one work
  deedbook-simulation power --seed 3 --at 117  one crash point, as a failure names it
  deedbook-simulation planted                  which rig notices which broken rule

Ends with 0 if nothing is wrong, with 1 if something is, with 3 if a case did not end.";

/// The embedded home under power loss, failing operations and damage.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    /// What to try; everything if nothing is said.
    #[command(subcommand)]
    what: Option<What>,
    /// How much: reduced, full or nightly.
    #[arg(long, global = true, default_value = "full", value_parser = size, value_name = "SIZE")]
    size: Size,
    /// Workers; as many as there are processors if nothing is said.
    #[arg(long, global = true, value_name = "N")]
    workers: Option<usize>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Also write what is printed to a file.
    #[arg(long, global = true, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Do not say how far it is.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Everything.
    Report,
    /// Power is lost at every operation, and again while the journal recovers.
    Power {
        /// Only this work.
        #[arg(long)]
        seed: Option<u64>,
        /// Only behind so many operations.
        #[arg(long, requires = "seed")]
        at: Option<usize>,
    },
    /// Every operation fails, the process ends, another one goes on, and power is lost.
    Fault(FaultArguments),
    /// Syncs fail in one process after the other, and then power is lost.
    Gate {
        /// Only this life.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Bytes change under a journal that nobody has open.
    Damage(DamageArguments),
    /// Rules are broken on purpose: which rig notices?
    Planted,
}

#[derive(Debug, Args)]
struct FaultArguments {
    /// Only this work.
    #[arg(long)]
    seed: Option<u64>,
    /// Only this operation.
    #[arg(long, requires = "seed")]
    at: Option<usize>,
    /// How it fails: device, short or full.
    #[arg(long, requires = "at", value_parser = way)]
    way: Option<Fault>,
    /// Everything behind it fails too.
    #[arg(long, requires = "way")]
    and_later: bool,
}

#[derive(Debug, Args)]
struct DamageArguments {
    /// Only this journal: closed, marked or unmarked.
    #[arg(long, value_parser = which)]
    journal: Option<Which>,
    /// Flip a bit in every so many bytes.
    #[arg(long, value_name = "BYTES")]
    stride: Option<usize>,
    /// Only this case.
    #[arg(long, requires = "journal")]
    at: Option<usize>,
    /// And those behind it, up to this one.
    #[arg(long, requires = "at", hide = true)]
    until: Option<usize>,
    /// Say every case, for who started this process.
    #[arg(long, requires = "at", hide = true)]
    lines: bool,
    /// Verify every page first.
    #[arg(long, requires = "at")]
    verified: bool,
    /// Break a rule.
    #[arg(long, requires = "at", hide = true, value_parser = broken)]
    plant: Option<Broken>,
}

fn size(name: &str) -> Result<Size, String> {
    let found = Size::all().into_iter().find(|size| size.name == name);
    found.ok_or_else(|| "it is reduced, full or nightly".into())
}

fn way(name: &str) -> Result<Fault, String> {
    match name {
        "device" => Ok(Fault::Device),
        "short" => Ok(Fault::Short),
        "full" => Ok(Fault::Full),
        _ => Err("it is device, short or full".into()),
    }
}

fn which(name: &str) -> Result<Which, String> {
    let found = Which::ALL.into_iter().find(|which| which.name() == name);
    found.ok_or_else(|| "it is closed, marked or unmarked".into())
}

fn broken(name: &str) -> Result<Broken, String> {
    let found = Broken::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
    found.ok_or_else(|| "there is no such rule".into())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody is left to tell if this fails too.
            let _ = writeln!(io::stderr(), "deedbook-simulation: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing is wrong.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let mut crew = Crew::new(!arguments.quiet);
    crew.workers = arguments.workers.unwrap_or(crew.workers).max(1);
    let mut report = Report::default();
    match arguments.what.as_ref().unwrap_or(&What::Report) {
        What::Damage(damage) if damage.lines => {
            let (which, cases) = one_damage(damage, &arguments.size)?;
            let stride = stride(damage, &arguments.size);
            apart::serve(which, stride, cases, damage.plant, opening(damage))?;
            return Ok(true);
        }
        What::Report => {
            report.full = arguments.size.name == "full";
            let whole = [
                What::Power { seed: None, at: None },
                What::Fault(FaultArguments { seed: None, at: None, way: None, and_later: false }),
                What::Gate { seed: None },
                What::Damage(DamageArguments {
                    journal: None,
                    stride: None,
                    at: None,
                    until: None,
                    lines: false,
                    verified: false,
                    plant: None,
                }),
                What::Planted,
            ];
            whole.iter().try_for_each(|what| one(what, &crew, &arguments.size, &mut report))?;
        }
        what => one(what, &crew, &arguments.size, &mut report)?,
    }
    let text = if arguments.json { format!("{:#}\n", report.json()) } else { report.text() };
    let failed = |error: io::Error| error.to_string();
    io::stdout().write_all(text.as_bytes()).map_err(failed)?;
    if let Some(path) = &arguments.write {
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(report.problems().is_empty())
}

fn one(what: &What, crew: &Crew, size: &Size, report: &mut Report) -> Result<(), String> {
    let since = now();
    let mut add = |rig, tally| report.rigs.push((rig, tally, since.elapsed()));
    match what {
        What::Report => {}
        What::Power { seed, at } => {
            let seeds = seeds(*seed, size.power_seeds);
            add(Rig::Power, power::run(crew, &seeds, size.power, *at));
        }
        What::Fault(fault) => add(Rig::Fault, fault::run(crew, &cases(fault, size))),
        What::Gate { seed } => add(Rig::Gate, gate::run(crew, &seeds(*seed, size.gate_seeds))),
        What::Damage(damage) => add(Rig::Damage, damaged(damage, crew, size)?),
        What::Planted => {
            report.matrix = planted::matrix(crew, &program()?)?;
        }
    }
    Ok(())
}

fn seeds(one: Option<u64>, all: u64) -> Vec<u64> {
    one.map_or_else(|| (0..all).collect(), |seed| vec![seed])
}

fn cases(fault: &FaultArguments, size: &Size) -> Vec<Case> {
    let all = seeds(fault.seed, size.fault_seeds).into_iter().flat_map(fault::cases);
    let every = if fault.seed.is_some() { 1 } else { size.fault_every };
    let chosen = all.step_by(every).filter(|case| {
        let Case { at, fault: way, and_later, .. } = *case;
        fault.at.is_none_or(|wanted| wanted == at)
            && fault.way.is_none_or(|wanted| (wanted, fault.and_later) == (way, and_later))
    });
    chosen.collect()
}

fn stride(damage: &DamageArguments, size: &Size) -> Stride {
    damage.stride.map_or(size.damage, |stride| Stride(stride.max(1)))
}

fn one_damage(damage: &DamageArguments, size: &Size) -> Result<(Which, damage::Cases), String> {
    let (Some(which), Some(at)) = (damage.journal, damage.at) else {
        return Err(format!("a case of {} needs --journal and --at", size.name));
    };
    Ok((which, at..damage.until.unwrap_or(at + 1)))
}

fn opening(damage: &DamageArguments) -> damage::Open {
    if damage.verified { book::open_verified } else { book::open }
}

fn damaged(damage: &DamageArguments, crew: &Crew, size: &Size) -> Result<Tally, String> {
    let stride = stride(damage, size);
    if damage.at.is_some() {
        let (which, cases) = one_damage(damage, size)?;
        let fixture = damage::Fixture::new(which)?;
        return Ok(damage::run(&fixture, stride, cases, opening(damage), |_, _| {}));
    }
    let all = damage.journal.map_or_else(|| Which::ALL.to_vec(), |which| vec![which]);
    apart::run(crew, &program()?, &all, stride, None)
}

fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "a report tells how long it took")]
fn now() -> Instant {
    Instant::now()
}
