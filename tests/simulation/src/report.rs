//! What was tried, for people and for programs.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use crate::{
    crew::Tally,
    planted::{Rig, Row},
    size::Size,
};

/// How many failures are printed.
const FAILURES_MAX: usize = 20;

/// What rigs have tried.
#[derive(Debug, Default)]
pub struct Report {
    /// The rigs, in the order in which they were run.
    pub rigs: Vec<(Rig, Tally, Duration)>,
    /// Which rig notices which broken rule.
    pub matrix: Vec<Row>,
    /// Whether the size is the standard one, so that [`Size::floors`] hold.
    pub counts: bool,
}

impl Report {
    fn tally(&self, rig: &str) -> Option<&Tally> {
        self.rigs.iter().find(|(of, ..)| of.name() == rig).map(|(_, tally, _)| tally)
    }

    /// Whether nothing was tried.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let tried = |tally: &Tally| tally.counts.values().any(|times| *times > 0);
        self.matrix.is_empty() && !self.rigs.iter().any(|(_, tally, _)| tried(tally))
    }

    /// Everything that is wrong, a line each.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for failure in self.rigs.iter().flat_map(|(_, tally, _)| &tally.failures) {
            problems.push(format!("{}\n    {}", failure.again, failure.why));
        }
        for row in self.matrix.iter().filter(|row| !row.holds()) {
            let (fault, by) = (row.fault, row.by.name());
            problems
                .push(format!("deedbook-simulation planted\n    {by} does not notice {fault:?}"));
        }
        for (rig, what, least) in Size::floors() {
            let tried = self.tally(rig).map(|tally| tally.of(what));
            if let Some(tried) = tried.filter(|tried| self.counts && *tried < least) {
                problems.push(format!("{rig}: {tried} {what}, and must be {least}"));
            }
        }
        problems
    }

    /// As a page's table.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        if !self.rigs.is_empty() {
            out.push_str("| rig | what | times |\n| --- | --- | ---: |\n");
        }
        for (rig, tally, time) in &self.rigs {
            for (what, times) in &tally.counts {
                let _ = writeln!(out, "| {} | {what} | {} |", rig.name(), grouped(*times));
            }
            let wrong = grouped(tally.failures.len() as u64);
            let _ = writeln!(out, "| {} | **wrong** | **{wrong}** |", rig.name());
            let _ = writeln!(out, "| {} | seconds | {} |", rig.name(), time.as_secs());
        }
        if !self.matrix.is_empty() {
            let names = Rig::ALL.map(Rig::name).join(" | ");
            let _ = writeln!(out, "\n| rule that is broken | {names} |");
            let _ = writeln!(out, "| --- | {} |", [":-:"; Rig::ALL.len()].join(" | "));
        }
        for row in &self.matrix {
            let cell = |(rig, noticed): (Rig, Option<bool>)| match (noticed, rig == row.by) {
                (Some(true), true) => "**noticed**",
                (Some(true), false) => "noticed",
                (Some(false), _) => "",
                (None, _) => "not asked",
            };
            let cells = Rig::ALL.into_iter().zip(row.noticed).map(cell);
            let cells: Vec<_> = cells.collect();
            let _ = writeln!(out, "| `{:?}` | {} |", row.fault, cells.join(" | "));
        }
        let problems = self.problems();
        for problem in problems.iter().take(FAILURES_MAX) {
            let _ = writeln!(out, "\n{problem}");
        }
        if problems.len() > FAILURES_MAX {
            let _ = writeln!(out, "\nand {} more", problems.len() - FAILURES_MAX);
        }
        out
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let rig = |(rig, tally, time): &(Rig, Tally, Duration)| {
            json!({
                "rig": rig.name(),
                "counts": tally.counts,
                "failures": tally.failures.len(),
                "seconds": time.as_secs_f64(),
            })
        };
        let row = |row: &Row| {
            let noticed =
                Rig::ALL.into_iter().zip(row.noticed).filter(|(_, noticed)| *noticed == Some(true));
            json!({
                "broken": format!("{:?}", row.fault),
                "noticed_by": noticed.map(|(rig, _)| rig.name()).collect::<Vec<_>>(),
                "must_be_noticed_by": row.by.name(),
            })
        };
        json!({
            "rigs": self.rigs.iter().map(rig).collect::<Vec<_>>(),
            "planted": self.matrix.iter().map(row).collect::<Vec<_>>(),
            "problems": self.problems(),
        })
    }
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
