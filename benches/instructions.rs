//! The hot path counted in instructions, beside what is recorded in `instructions.json`: what a
//! change costs is seen on a busy machine too.
//!
//! Callgrind simulates one processor whatever the machine has, so that counts differ little
//! between machines of one kind. Other compilers make other code: beside a baseline of another
//! compiler more is allowed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};

use crate::{
    Failed, Result,
    counted::{MEASURED, OVER, Run},
    machine,
    report::{Aim, Figure, number},
};

/// How many times the recorded count fails.
const HEAVIER: f64 = 1.05;
/// The same where the compiler is another one.
const HEAVIER_COMPILER: f64 = 1.15;
/// Below how many times the recorded count a new one should be recorded.
const LIGHTER: f64 = 0.9;

/// Counts that were recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The kind of machine: only the same kind is compared.
    machine: String,
    /// The compiler.
    rustc: String,
    /// Instructions of one unit of each case.
    instructions: BTreeMap<String, u64>,
}

/// What came of a comparison.
#[derive(Debug, Default)]
pub struct Compared {
    /// The counts, with the aim not to be heavier.
    pub figures: Vec<Figure>,
    /// What to tell whoever changed something.
    pub remarks: Vec<String>,
}

impl Compared {
    /// Fails if something has become heavier.
    ///
    /// # Errors
    /// It has.
    pub fn check(&self) -> Result<()> {
        let missed = self.figures.iter().filter(|figure| !figure.is_met());
        let heavier: Vec<_> = missed.map(|figure| figure.what.as_str()).collect();
        if heavier.is_empty() {
            return Ok(());
        }
        let why = format!(
            "heavier than recorded: {}; make it lighter, or record it with \
             `instructions --update` and say in the commit what the instructions buy",
            heavier.join(", ")
        );
        Err(Failed::from(why))
    }
}

/// Where counts are recorded.
#[must_use]
pub fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
}

/// Counts the hot path, and compares it with what is recorded there, or records it. Leaves what
/// callgrind wrote in `folder`: `counts.1` is the first run.
///
/// # Errors
/// There is no valgrind; a case failed; nothing is recorded.
pub fn instructions(folder: &Path, baseline: &Path, update: bool) -> Result<Compared> {
    let now = Baseline {
        machine: kind(),
        rustc: machine::rustc(),
        instructions: per_unit(&runs(folder)?),
    };
    if update {
        let text = serde_json::to_string_pretty(&now)?;
        fs::write(baseline, text + "\n")?;
    }
    let recorded = fs::read(baseline)
        .map_err(|error| format!("no counts are recorded in {}: {error}", baseline.display()))?;
    Ok(compare(&now, &serde_json::from_slice(&recorded)?))
}

/// What changes the code that runs, beside the compiler.
fn kind() -> String {
    #[cfg(target_arch = "x86_64")]
    let wide = if std::arch::is_x86_feature_detected!("avx2") { " avx2" } else { "" };
    #[cfg(not(target_arch = "x86_64"))]
    let wide = "";
    let profile = if cfg!(debug_assertions) { " debug" } else { "" };
    format!("{}{wide}{profile}", std::env::consts::ARCH)
}

fn compare(now: &Baseline, recorded: &Baseline) -> Compared {
    let mut compared = Compared::default();
    let comparable = now.machine == recorded.machine;
    if !comparable {
        compared.remarks.push(format!(
            "counts of `{}` are not compared with those of `{}`",
            now.machine, recorded.machine
        ));
    }
    let same_compiler = now.rustc == recorded.rustc;
    if !same_compiler {
        compared.remarks.push(format!("recorded with another compiler: {}", recorded.rustc));
    }
    let most = if same_compiler { HEAVIER } else { HEAVIER_COMPILER };
    for (case, &count) in &now.instructions {
        let figure = Figure::new("instructions", case.as_str(), count as f64, "instructions");
        let before = recorded.instructions.get(case).filter(|_| comparable);
        let Some(&before) = before else {
            compared.figures.push(figure);
            continue;
        };
        let ratio = count as f64 / before as f64;
        if ratio < LIGHTER {
            compared.remarks.push(format!(
                "{case}: {} instead of {} instructions: record it with `instructions --update`, \
                 so that it is kept",
                number(count as f64),
                number(before as f64),
            ));
        }
        compared.figures.push(figure.aim(Aim::AtMost((before as f64 * most).floor())));
    }
    let lost = recorded.instructions.keys().filter(|case| !now.instructions.contains_key(*case));
    compared.remarks.extend(lost.map(|case| format!("{case}: recorded, and not counted any more")));
    compared
}

/// Instructions of one unit of each case: the runs of a case differ in what is done, and what they
/// have in common falls out.
fn per_unit(runs: &[(Run, u64)]) -> BTreeMap<String, u64> {
    let mut cases = BTreeMap::new();
    for pair in runs.chunks(2) {
        if let [(few, less), (many, more)] = pair {
            let units = many.units.saturating_sub(few.units).max(1);
            cases.insert(many.case.clone(), more.saturating_sub(*less) / units);
        }
    }
    cases
}

/// Every run with its instructions.
fn runs(folder: &Path) -> Result<Vec<(Run, u64)>> {
    let counts = folder.join("counts");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(format!("--dump-before={OVER}"))
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(std::env::current_exe()?)
        .arg("--folder")
        .arg(folder)
        .arg("counted")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("valgrind cannot be started, which counts: {error}"))?;
    if !output.status.success() {
        return Err("the program whose instructions are counted has failed".into());
    }
    let runs: Vec<Run> = serde_json::from_slice(&output.stdout)?;
    let mut counted = Vec::new();
    for (at, run) in (1..).zip(runs) {
        let dump = counts.with_extension(at.to_string());
        let text = fs::read_to_string(&dump)
            .map_err(|error| format!("callgrind has not counted {}: {error}", run.case))?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let total = total.ok_or("a dump of callgrind has no totals")?.trim().parse()?;
        counted.push((run, total));
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rustc: &str, step: u64) -> Baseline {
        let instructions = BTreeMap::from([("a step".to_owned(), step)]);
        Baseline { machine: "x86_64".to_owned(), rustc: rustc.to_owned(), instructions }
    }

    #[test]
    fn what_becomes_heavier_fails_and_what_becomes_lighter_is_to_be_recorded() {
        let recorded = counts("1.95.0", 1_000);
        let verdict = |now: &Baseline| {
            let compared = compare(now, &recorded);
            (compared.check().is_ok(), compared.remarks.len())
        };
        assert_eq!(verdict(&counts("1.95.0", 1_000)), (true, 0));
        assert_eq!(verdict(&counts("1.95.0", 1_050)), (true, 0));
        assert_eq!(verdict(&counts("1.95.0", 1_051)), (false, 0));
        assert_eq!(verdict(&counts("1.95.0", 899)), (true, 1));
        assert_eq!(verdict(&counts("1.96.0", 1_150)), (true, 1));
        assert_eq!(verdict(&counts("1.96.0", 1_151)), (false, 1));
        let other = Baseline { machine: "aarch64".to_owned(), ..counts("1.95.0", 5_000) };
        assert_eq!(verdict(&other), (true, 1));
    }

    #[test]
    fn what_runs_have_in_common_falls_out() {
        let run = |units| Run { case: "a step".to_owned(), units };
        let counted = per_unit(&[(run(10), 700 + 10 * 33), (run(30), 700 + 30 * 33)]);
        assert_eq!(counted, BTreeMap::from([("a step".to_owned(), 33)]));
    }
}
