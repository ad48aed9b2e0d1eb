//! Puts the embedded home into hostile surroundings, and prints what was tried.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::{Args, Parser, Subcommand};
use deedbook::{PolicyKind, planted::Broken as BrokenInRuntime};
use deedbook_journal::embedded::planted::Broken;
use deedbook_simulation::{
    book, close,
    crew::{Crew, Tally},
    damage::{self, Stride, Which, apart},
    executor,
    fault::{self, Case},
    figures::Figures,
    gate, kill, planted,
    planted::{Rig, Rule},
    power,
    report::Report,
    size::Size,
};
use harness::{Fault, corpus::Recorded};

const EXAMPLES: &str = "\
Examples:
  deedbook-simulation                          everything, in the standard size
  deedbook-simulation --full                   everything, for a night
  deedbook-simulation --size reduced --json    a little of everything, for a program
  deedbook-simulation power --seed 3           every operation of one work
  deedbook-simulation power --seed 3 --at 117  one crash point, as a failure names it
  deedbook-simulation kill --seed 3 --policy read  one workflow, killed at its points
  deedbook-simulation planted --every-rig      which rig notices which broken rule

Ends with 0 if nothing is wrong, with 1 if something is, with 3 if a case did not end.";

/// The embedded home under power loss, failing operations and damage.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    /// What to try; everything if nothing is said.
    #[command(subcommand)]
    what: Option<What>,
    /// How much: reduced, standard or full.
    #[arg(
        long,
        global = true,
        default_value = "standard",
        default_value_if("full", "true", "full"),
        value_parser = size,
        value_name = "SIZE"
    )]
    size: Size,
    /// A night's work, as `--size full`.
    #[arg(long, global = true)]
    full: bool,
    /// Workers; as many as there are processors if nothing is said.
    #[arg(long, global = true, value_name = "N", value_parser = workers)]
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
    /// Every operation of a close fails, and power is lost while another process begins.
    Close {
        /// Only this operation.
        #[arg(long, requires = "way")]
        at: Option<usize>,
        /// What a failing sync leaves.
        #[arg(long, requires = "at")]
        way: Option<u64>,
    },
    /// Syncs fail in one process after the other, and then power is lost.
    Gate {
        /// Only this life.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Bytes change under a journal that nobody has open.
    Damage(DamageArguments),
    /// Real processes are killed at marked points, and others recover what they leave.
    Kill(KillArguments),
    /// Records a corpus of histories into a new file; see tests/it/histories.rs.
    Histories {
        /// A file that is not there.
        #[arg(long)]
        to: PathBuf,
    },
    /// One life, for `kill`.
    #[command(hide = true)]
    Life(LifeArguments),
    /// Threads in several processes, on a clock that a seed turns.
    Executor {
        /// Only this life; or the first one.
        #[arg(long)]
        seed: Option<u64>,
        /// So many lives from there on.
        #[arg(long, requires = "seed")]
        count: Option<u64>,
        /// Break a rule of the runtime.
        #[arg(long, requires = "seed", hide = true, value_parser = broken_in_runtime)]
        plant: Option<BrokenInRuntime>,
    },
    /// Print what pages tell of a run, from the report that it wrote.
    Figures {
        /// What `report --json --write FILE` has written.
        #[arg(default_value = "docs/reference/crashes.json")]
        from: PathBuf,
    },
    /// Rules are broken on purpose: does the rig notice that must?
    Planted {
        /// Only this rule.
        #[arg(long, value_parser = rule)]
        rule: Option<Rule>,
        /// Ask every rig.
        #[arg(long)]
        every_rig: bool,
    },
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

#[derive(Debug, Args)]
struct KillArguments {
    /// Only this work.
    #[arg(long)]
    seed: Option<u64>,
    /// Only under this policy: read, idempotent, reconcile or at_most_once.
    #[arg(long, value_parser = policy)]
    policy: Option<PolicyKind>,
    /// Only at these points, in one life after the other; or nowhere.
    #[arg(long, requires = "seed", value_delimiter = ',', value_name = "POINT, …")]
    point: Option<Vec<String>>,
    /// Where files are put; in memory, where the system has a place for that.
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct LifeArguments {
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long, value_parser = policy)]
    policy: PolicyKind,
    #[arg(long)]
    point: Option<String>,
    #[arg(long)]
    settle: bool,
    #[arg(long, value_parser = rule)]
    plant: Option<Rule>,
}

fn policy(word: &str) -> Result<PolicyKind, String> {
    let found = PolicyKind::from_word(word);
    found.ok_or_else(|| "it is read, idempotent, reconcile or at_most_once".into())
}

/// Each is a thread, and more of them than that are a slip of the pen.
const WORKERS_MAX: usize = 1024;

fn workers(number: &str) -> Result<usize, String> {
    let found = number.parse().ok().filter(|found| (1..=WORKERS_MAX).contains(found));
    found.ok_or_else(|| format!("it is a number from 1 to {WORKERS_MAX}"))
}

fn size(name: &str) -> Result<Size, String> {
    let found = Size::all().into_iter().find(|size| size.name == name);
    found.ok_or_else(|| "it is reduced, standard or full".into())
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

fn broken_in_runtime(name: &str) -> Result<BrokenInRuntime, String> {
    let found = BrokenInRuntime::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
    found.ok_or_else(|| "there is no such rule".into())
}

fn rule(name: &str) -> Result<Rule, String> {
    let found = Rule::all().into_iter().find(|rule| format!("{rule:?}") == name);
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
    // Told before the work, which may be long.
    if let Some(path) = &arguments.write {
        let writable = fs::OpenOptions::new().append(true).create(true).open(path);
        writable.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    match arguments.what.as_ref().unwrap_or(&What::Report) {
        What::Damage(damage) if damage.lines => {
            let (which, cases) = one_damage(damage, &arguments.size)?;
            let stride = stride(damage, &arguments.size);
            apart::serve(which, stride, cases, damage.plant, opening(damage))?;
            return Ok(true);
        }
        What::Histories { to } => return record(to).map(|()| true),
        What::Figures { from } => {
            let text = Figures::read(from)?.text();
            io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())?;
            return Ok(true);
        }
        What::Life(life) => {
            let LifeArguments { folder, seed, policy, point, settle, plant } = life;
            let told = kill::Told {
                folder: folder.clone(),
                seed: *seed,
                policy: *policy,
                point: point.clone(),
                settle: *settle,
                plant: *plant,
            };
            return kill::live(&told).map(|_| true);
        }
        What::Report => {
            report.counts = arguments.size.name == "standard";
            let whole = [
                What::Power { seed: None, at: None },
                What::Fault(FaultArguments { seed: None, at: None, way: None, and_later: false }),
                What::Close { at: None, way: None },
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
                What::Kill(KillArguments { seed: None, policy: None, point: None, folder: None }),
                What::Executor { seed: None, count: None, plant: None },
                What::Planted { rule: None, every_rig: false },
            ];
            whole.iter().try_for_each(|what| one(what, &crew, &arguments.size, &mut report))?;
        }
        what => {
            one(what, &crew, &arguments.size, &mut report)?;
            // A set that is empty has nothing wrong in it either.
            if report.is_empty() {
                return Err("nothing was tried: there is no such case".into());
            }
        }
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
        What::Report | What::Life(_) | What::Histories { .. } | What::Figures { .. } => {}
        What::Power { seed, at } => {
            let seeds = seeds(*seed, size.power_seeds);
            add(Rig::Power, power::run(crew, &seeds, size.power, *at));
        }
        What::Fault(fault) => add(Rig::Fault, fault::run(crew, &cases(fault, size))),
        What::Close { at, way } => {
            let one = at.zip(*way).map(|(at, way)| vec![close::Case { at, way }]);
            add(Rig::Close, close::run(crew, &one.unwrap_or_else(close::cases)));
        }
        What::Gate { seed } => add(Rig::Gate, gate::run(crew, &seeds(*seed, size.gate_seeds))),
        What::Damage(damage) => add(Rig::Damage, damaged(damage, crew, size)?),
        What::Kill(kill) => {
            let tally = kill::run(crew, &program()?, &plan(kill, size));
            let killed = tally.of("kills") > 0 || !tally.failures.is_empty();
            if let Some(points) = kill.point.as_ref().filter(|_| !killed) {
                return Err(format!("no life comes to {}", points.join(", ")));
            }
            add(Rig::Kill, tally);
        }
        What::Executor { seed, count, plant } => {
            let all = seed.map_or(size.executor_seeds, |_| count.unwrap_or(1));
            add(Rig::Executor, executor::with(crew, seed.unwrap_or(0), all, *plant));
        }
        What::Planted { rule, every_rig } => {
            let rules = rule.map_or_else(Rule::all, |rule| vec![rule]);
            report.matrix = planted::matrix(crew, &program()?, &rules, *every_rig)?;
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

fn plan(kill: &KillArguments, size: &Size) -> kill::Plan {
    let whole = kill::Plan::of(size.kill);
    let points = kill.point.clone();
    kill::Plan {
        seeds: seeds(kill.seed, size.kill.seeds),
        policies: kill.policy.map_or_else(|| whole.policies.clone(), |policy| vec![policy]),
        points: points.map(|all| all.iter().map(|point| point.trim().to_owned()).collect()),
        folder: kill.folder.clone().unwrap_or_else(|| whole.folder.clone()),
        ..whole
    }
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

/// A corpus is frozen: no file is ever written over.
fn record(to: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", to.display());
    let mut file = fs::File::create_new(to).map_err(failed)?;
    file.write_all(&Recorded::to_file(&Recorded::corpus())).map_err(failed)
}

fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "a report tells how long it took")]
fn now() -> Instant {
    Instant::now()
}
