//! Real processes, really killed: a life runs a workflow on a journal in a folder, with a
//! downstream in a file outside of it, and dies by SIGKILL at a marked point; others follow until
//! the workflow has ended, and one that recovers may be killed again. Then the ledger is judged.
//!
//! A point is a name and how often a life has passed it: `after write log 5`. Those of the
//! journal's files are in its disk, before, within and after every write, and before and after
//! every sync, length and name; those of the home are around everything that it is asked; those of
//! a downstream are around its effects and its probes. Which there are is what lives without a
//! kill have passed.

mod agent;
mod child;
mod disk;
mod judge;
mod ledger;
mod marks;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use deedbook::PolicyKind;
use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CreateOptions, Embedded},
};
use harness::Random;

pub use self::child::{IN_DOUBT, Told, live};
use self::{
    agent::Shape,
    judge::judge,
    marks::{HERE, of_the_last_life},
};
use crate::{
    book::wait,
    crew::{Crew, Tally},
    planted::Rule,
};

/// The policies, each for every effect of a chain of lives.
pub const POLICIES: [PolicyKind; 4] =
    [PolicyKind::Read, PolicyKind::Idempotent, PolicyKind::Reconcile, PolicyKind::AtMostOnce];
/// Of so many points in the disk as many are chosen as of one elsewhere.
const FILES_MORE: u64 = 10;
/// The name of the journal in the folder of a chain.
const JOURNAL: &str = "journal.redb";
/// No point: nobody is killed.
const NOWHERE: &str = "nowhere";
/// A chain that has not ended by then never does.
const LIVES_MAX: usize = 16;

/// How much is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// Works.
    pub seeds: u64,
    /// One of how many points.
    pub every: u64,
    /// How many points of a recovery are killed at too, behind each of these.
    pub again: usize,
}

/// What is killed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Works.
    pub seeds: Vec<u64>,
    /// Policies.
    pub policies: Vec<PolicyKind>,
    /// Only at these points, in one life after the other.
    pub points: Option<Vec<String>>,
    /// How densely, if not.
    pub sweep: Sweep,
    /// Where folders are made.
    pub folder: PathBuf,
    /// A rule that is broken.
    pub plant: Option<Rule>,
}

impl Plan {
    /// Everything of a size.
    #[must_use]
    pub fn of(sweep: Sweep) -> Self {
        let seeds = (0..sweep.seeds).collect();
        Self {
            seeds,
            policies: POLICIES.to_vec(),
            points: None,
            sweep,
            folder: memory(),
            plant: None,
        }
    }
}

/// A folder in memory, where there is one. A kill takes nothing from the system, so that the files
/// of a killed process are the same on a disk; but there every sync is waited for.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// What the names of folders begin with, before the process that made them.
const FOLDERS: &str = "deedbook-kill-";

/// Removes the folders of processes that are gone: who is killed leaves its own, in memory.
fn tidy(folder: &Path) {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in listed {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let rest = name.strip_prefix(FOLDERS);
        let Some((of, _)) = rest.and_then(|rest| rest.split_once('-')) else { continue };
        let is_there = of.parse::<u32>().is_err() || Path::new("/proc").join(of).exists();
        // It is no harm to anybody if it stays.
        if !is_there {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A chain of lives.
#[derive(Debug, Clone)]
struct Case {
    seed: u64,
    policy: PolicyKind,
    /// Where the first life dies, and the next ones.
    points: Vec<String>,
}

impl Case {
    fn again(&self) -> String {
        let Self { seed, points, .. } = self;
        let policy = self.policy.as_str();
        let points = if points.is_empty() { NOWHERE.to_owned() } else { points.join(", ") };
        format!("deedbook-simulation kill --seed {seed} --policy {policy} --point \"{points}\"")
    }
}

/// At which points lives were killed, under which policies.
type Points = Mutex<BTreeMap<String, BTreeSet<&'static str>>>;

/// Runs a plan, in processes of `program`.
pub fn run(crew: &Crew, program: &Path, plan: &Plan) -> Tally {
    tidy(&plan.folder);
    let killed = Points::default();
    let fresh = fresh();
    let rig = Rig { program, plan, killed: &killed, fresh: fresh.path() };
    let cases = |points: &[String]| {
        let case = |seed, policy| Case { seed, policy, points: points.to_vec() };
        let seeds = plan.seeds.iter();
        let all = seeds.flat_map(|seed| plan.policies.iter().map(move |policy| (*seed, *policy)));
        all.map(|(seed, policy)| case(seed, policy)).collect::<Vec<_>>()
    };
    let mut tally = if let Some(points) = &plan.points {
        crew.run("kill", &cases(points), |case, tally| drop(rig.chain(case, tally)))
    } else {
        let passed = Mutex::new(Vec::new());
        let mut calm = crew.run("kill", &cases(&[]), |case, tally| {
            let found = rig.chain(case, tally);
            passed.lock().unwrap_or_else(PoisonError::into_inner).push((case.clone(), found));
        });
        let passed = passed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let chosen = chosen(passed, plan.sweep.every);
        calm.merge(crew.run("kill", &chosen, |case, tally| {
            let again = rig.chain(case, tally);
            let mut random = Random::new(number_of(&case.again()));
            for _ in 0..plan.sweep.again.min(again.len()) {
                let second = again[random.index(again.len())].clone();
                let points = [case.points.clone(), vec![second]].concat();
                drop(rig.chain(&Case { points, ..case.clone() }, tally));
            }
        }));
        calm
    };
    let killed = killed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let everywhere = killed.values().filter(|policies| policies.len() == POLICIES.len());
    tally.add("points under every policy", everywhere.count() as u64);
    tally.add("points", killed.len() as u64);
    tally
}

/// Some of the points that lives without a kill have passed: the same under each policy, others
/// for each seed.
fn chosen(mut passed: Vec<(Case, Vec<String>)>, every: u64) -> Vec<Case> {
    passed.sort_by_key(|(case, _)| (case.seed, case.policy.as_str()));
    let some = passed.into_iter().flat_map(|(case, points)| {
        let one = move |point: &String| {
            let every = if is_of_files(point) { every } else { every.div_ceil(FILES_MORE) };
            number_of(point) % every == case.seed % every
        };
        let some: Vec<_> = points.into_iter().filter(one).collect();
        some.into_iter().map(move |point| Case { points: vec![point], ..case.clone() })
    });
    some.collect()
}

/// Whether a point is in the journal's disk, where most are.
fn is_of_files(point: &str) -> bool {
    let words = ["write", "sync", "length", "make", "link", "replace", "remove", "lock"];
    point.split(' ').nth(1).is_some_and(|word| words.contains(&word))
}

/// Equal for equal names.
fn number_of(point: &str) -> u64 {
    let next = |number: u64, byte| number.wrapping_mul(31).wrapping_add(u64::from(byte));
    Random::new(point.bytes().fold(0, next)).draw()
}

/// A folder with a journal that was made and closed.
fn fresh() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let home = Embedded::create(folder.path().join(JOURNAL), CreateOptions::new()).unwrap();
    wait(home.close()).unwrap();
    folder
}

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Doubt,
    Answer,
}

#[derive(Debug, Clone, Copy)]
struct Rig<'a> {
    program: &'a Path,
    plan: &'a Plan,
    killed: &'a Points,
    fresh: &'a Path,
}

impl Rig<'_> {
    /// Runs lives until the workflow has ended, judges, and gives the points that the first life
    /// which was not to be killed has passed.
    fn chain(&self, case: &Case, tally: &mut Tally) -> Vec<String> {
        let again = case.again();
        tally.at(&again);
        tally.count("chains");
        let mut folder = tempfile::Builder::new();
        let prefix = format!("{FOLDERS}{}-", std::process::id());
        let folder = folder.prefix(&prefix).tempdir_in(&self.plan.folder).unwrap();
        if !Shape::of(case.seed).makes {
            fs::copy(self.fresh.join(JOURNAL), folder.path().join(JOURNAL)).unwrap();
        }
        let mut passed = Vec::new();
        let judged = self.lives(case, folder.path(), &mut passed, tally);
        match judged.and_then(|()| judge(folder.path(), case.policy)) {
            Ok(seen) => {
                tally.add("steps in doubt", seen.in_doubt);
                tally.add("records acknowledged", seen.acknowledged);
                tally.add("records unknown and kept", seen.unknown_and_kept);
                tally.add("records unknown and lost", seen.unknown_and_lost);
                tally.add("bodies", seen.bodies);
            }
            Err(why) => tally.fail(&again, why),
        }
        passed
    }

    fn lives(
        &self,
        case: &Case,
        folder: &Path,
        passed: &mut Vec<String>,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let mut points = case.points.iter().peekable();
        let mut settle = false;
        let mut recovers = false;
        for _ in 0..LIVES_MAX {
            let told = Told {
                folder: folder.to_owned(),
                seed: case.seed,
                policy: case.policy,
                point: points.peek().map(|point| (*point).clone()),
                settle,
                plant: self.plan.plant,
            };
            let end = self.life(&told)?;
            tally.count("lives");
            if told.point.is_none() && passed.is_empty() {
                *passed = of_the_last_life(folder);
            }
            settle = end == End::Doubt;
            match (end, points.peek()) {
                (End::Killed, Some(point)) => {
                    tally.count("kills");
                    tally.add("kills while recovering", u64::from(recovers));
                    let mut killed = self.killed.lock().unwrap_or_else(PoisonError::into_inner);
                    killed.entry((*point).clone()).or_default().insert(case.policy.as_str());
                    drop(killed);
                    points.next();
                    recovers = true;
                }
                (End::Killed, None) => return Err("it was killed, and was not to be".to_owned()),
                (End::Answer, Some(point)) if *point != NOWHERE => {
                    tally.count("points not come to");
                    return Ok(());
                }
                (End::Answer, _) => return Ok(()),
                (End::Doubt, _) => {}
            }
        }
        Err(format!("no end after {LIVES_MAX} lives"))
    }

    /// One life, killed when it says that it is at its point.
    fn life(&self, told: &Told) -> Result<End, String> {
        let failed = |error: std::io::Error| format!("a life cannot be started: {error}");
        let mut child = Command::new(self.program)
            .args(["life", "--seed", &told.seed.to_string(), "--policy", told.policy.as_str()])
            .arg("--folder")
            .arg(&told.folder)
            .args(told.point.iter().map(|point| format!("--point={point}")))
            .args(told.settle.then_some("--settle"))
            .args(told.plant.map(|fault| format!("--plant={fault:?}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        let dies = line.trim_end() == HERE;
        if dies {
            child.kill().map_err(failed)?;
        }
        // Whoever is told to wait closes what it could hear first: it listens to end with us.
        let ears = child.stdin.take();
        let status = child.wait().map_err(failed)?;
        drop(ears);
        match status.code() {
            None if dies => Ok(End::Killed),
            Some(0) => Ok(End::Answer),
            Some(code) if code == i32::from(IN_DOUBT) => Ok(End::Doubt),
            _ => {
                let mut said = String::new();
                if let Some(mut err) = child.stderr.take() {
                    err.read_to_string(&mut said).map_err(failed)?;
                }
                Err(format!("a life ended with {status}: {}", said.trim().replace('\n', " / ")))
            }
        }
    }
}
