//! What pages tell of a run of the rigs, made from what that run has written, so that no page can
//! tell more than was tried.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use crate::{report::grouped, size::Size};

/// The report of a run, as JSON.
#[derive(Debug)]
pub struct Figures(Value);

impl Figures {
    /// Reads a report that `report --json --write FILE` has written.
    ///
    /// # Errors
    /// There is none, or it is no report.
    pub fn read(path: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        match value.get("rigs") {
            Some(Value::Array(_)) => Ok(Self(value)),
            _ => Err(failed(&"it is no report of the rigs")),
        }
    }

    fn rigs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let rigs = self.0.get("rigs").and_then(Value::as_array).into_iter().flatten();
        rigs.filter_map(|rig| Some((rig.get("rig")?.as_str()?, rig)))
    }

    /// How often a rig has tried something.
    #[must_use]
    pub fn of(&self, rig: &str, what: &str) -> u64 {
        let found = self.rigs().find(|(name, _)| *name == rig);
        let count = found.and_then(|(_, rig)| rig.get("counts")?.get(what)?.as_u64());
        count.unwrap_or(0)
    }

    /// How many rules were broken on purpose and noticed.
    #[must_use]
    pub fn noticed(&self) -> u64 {
        let rules = self.0.get("planted").and_then(Value::as_array);
        rules.map_or(0, |rules| rules.len() as u64)
    }

    /// Why this run is none to be told of: something was wrong, or less was tried than must be.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let told = self.0.get("problems").and_then(Value::as_array).into_iter().flatten();
        let mut problems: Vec<String> = told.map(ToString::to_string).collect();
        for (rig, what, least) in Size::floors() {
            let tried = self.of(rig, what);
            if tried < least {
                problems.push(format!("{rig}: {tried} {what}, and must be {least}"));
            }
        }
        problems
    }

    /// A sentence for README.
    #[must_use]
    pub fn sentence(&self) -> String {
        let n = |rig, what| grouped(self.of(rig, what));
        format!(
            "One run of [the rigs](docs/reference/crashes.md): {} crash points and {} images of \
             disks that lost power, {} of them crashed again while they recovered; {} failing \
             operations; {} failing syncs; {} damaged journals; {} real kills; {} simulated lives \
             of random workflows; nothing acknowledged was lost, no step settled twice. {} rules \
             broken on purpose, each noticed.",
            n("power", "crash points"),
            n("power", "images"),
            n("power", "crashed twice"),
            n("fault", "runs"),
            n("gate", "syncs that failed"),
            n("damage", "cases"),
            n("kill", "kills"),
            n("executor", "seeds"),
            grouped(self.noticed()),
        )
    }

    /// Rows of a table for the page of guarantees: promise, what was tried.
    #[must_use]
    pub fn rows(&self) -> Vec<String> {
        let n = |rig, what| grouped(self.of(rig, what));
        vec![
            format!(
                "| G1, G2 | {} crash points, {} images, {} crashed again, {} backups read | 0 |",
                n("power", "crash points"),
                n("power", "images"),
                n("power", "crashed twice"),
                n("power", "whole backups"),
            ),
            format!(
                "| G7, G8 | {} failing operations, {} closes that failed, {} failing syncs in {} \
                 lives | 0 |",
                n("fault", "runs"),
                n("close", "closes that failed"),
                n("gate", "syncs that failed"),
                n("gate", "seeds"),
            ),
            format!("| G9 | {} damaged journals | 0 |", n("damage", "cases")),
            format!(
                "| G3, G4 | {} real kills at {} points, {} of them while recovering | 0 |",
                n("kill", "kills"),
                n("kill", "points"),
                n("kill", "kills while recovering"),
            ),
            format!("| G3 to G6, G12 | {} simulated lives | 0 |", n("executor", "seeds")),
        ]
    }

    /// Everything that was counted, as the table of the page of crashes.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = "| rig | what | times |\n| --- | --- | ---: |\n".to_owned();
        for (name, rig) in self.rigs() {
            for (what, times) in rig.get("counts").and_then(Value::as_object).into_iter().flatten()
            {
                let times = grouped(times.as_u64().unwrap_or(0));
                let _ = writeln!(out, "| `{name}` | {what} | {times} |");
            }
            let wrong = grouped(rig.get("failures").and_then(Value::as_u64).unwrap_or(0));
            let _ = writeln!(out, "| `{name}` | **wrong** | **{wrong}** |");
        }
        out
    }

    /// All of it, for whoever brings pages up to date.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\n\n{}\n\n{}", self.sentence(), self.rows().join("\n"), self.table())
    }
}
