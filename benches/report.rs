//! Figures, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::plot::Plot;

/// What a measurement gives.
#[derive(Debug, Default)]
pub struct Findings {
    /// The figures.
    pub figures: Vec<Figure>,
    /// The plots.
    pub plots: Vec<Plot>,
}

impl Findings {
    /// Takes in those of another measurement.
    pub fn add(&mut self, other: impl Into<Self>) {
        let Self { figures, plots } = other.into();
        self.figures.extend(figures);
        self.plots.extend(plots);
    }
}

impl From<Vec<Figure>> for Findings {
    fn from(figures: Vec<Figure>) -> Self {
        Self { figures, plots: Vec::new() }
    }
}

/// One figure.
#[derive(Debug, Clone, Default)]
pub struct Figure {
    /// The measurement it belongs to.
    pub of: &'static str,
    /// What was measured.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The floor in the same unit, measured in the same run.
    pub floor: Option<f64>,
    /// How many times the floor's time it took: the median over the rounds.
    pub ratio: Option<f64>,
    /// What it should be.
    pub aim: Option<Aim>,
}

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Figure {
    /// A figure.
    #[must_use]
    pub fn new(of: &'static str, what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { of, what: what.into(), value, unit, ..Self::default() }
    }

    /// Sets the floor, in the same unit, and the ratio of times.
    #[must_use]
    pub fn beside(mut self, floor: f64, ratio: f64) -> Self {
        self.floor = Some(floor);
        self.ratio = Some(ratio);
        self
    }

    /// Sets what it should be.
    #[must_use]
    pub fn aim(mut self, aim: Aim) -> Self {
        self.aim = Some(aim);
        self
    }

    /// Whether it is what it should be; true if nothing is said about that.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.aim {
            Some(Aim::AtLeast(least)) => self.value >= least,
            Some(Aim::AtMost(most)) => self.value <= most,
            None => true,
        }
    }

    fn aim_text(&self) -> String {
        let met = if self.is_met() { "met" } else { "MISSED" };
        match self.aim {
            Some(Aim::AtLeast(least)) => format!("≥ {}: {met}", number(least)),
            Some(Aim::AtMost(most)) => format!("≤ {}: {met}", number(most)),
            None => String::new(),
        }
    }
}

/// A number with as many digits as mean something.
#[must_use]
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 || v == 0.0 => 2,
        _ => 4,
    };
    let plain = format!("{value:.digits$}");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut grouped = String::new();
    let count = whole.chars().filter(char::is_ascii_digit).count();
    for (at, digit) in whole.chars().rev().enumerate() {
        if at > 0 && at % 3 == 0 && at < count {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let mut text: String = grouped.chars().rev().collect();
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// A Markdown table that also reads well in a terminal.
#[must_use]
pub fn table(figures: &[Figure]) -> String {
    let head = ["of", "what", "figure", "unit", "floor", "× floor", "aim"];
    let mut rows = vec![head.map(str::to_owned)];
    for figure in figures {
        let optional = |value: Option<f64>| value.map(number).unwrap_or_default();
        rows.push([
            figure.of.to_owned(),
            figure.what.clone(),
            number(figure.value),
            figure.unit.to_owned(),
            optional(figure.floor),
            optional(figure.ratio),
            figure.aim_text(),
        ]);
    }
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            let right = matches!(column, 2 | 4 | 5);
            let cell = if right { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
            // Writing to a string cannot fail.
            let _ = write!(text, "| {cell} ");
        }
        text.push_str("|\n");
        if at == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let colon = if matches!(column, 2 | 4 | 5) { ":" } else { "-" };
                let _ = write!(text, "|{}{colon}", "-".repeat(width + 1));
            }
            text.push_str("|\n");
        }
    }
    text
}

/// The figures for programs, with what they were measured on.
#[must_use]
pub fn json(machine: &[(&'static str, String)], figures: &[Figure]) -> Value {
    let machine: serde_json::Map<_, _> =
        machine.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let figures: Vec<_> = figures
        .iter()
        .map(|figure| {
            let aim = figure.aim.map(|aim| match aim {
                Aim::AtLeast(least) => json!({ "at_least": least }),
                Aim::AtMost(most) => json!({ "at_most": most }),
            });
            json!({
                "of": figure.of,
                "what": figure.what,
                "value": figure.value,
                "unit": figure.unit,
                "floor": figure.floor,
                "ratio": figure.ratio,
                "aim": aim,
                "met": figure.aim.map(|_| figure.is_met()),
            })
        })
        .collect();
    json!({ "machine": machine, "figures": figures })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let shown = [0.0, 0.0123, 1.5, 12.34, 123.4, 1234.0, 1_234_567.0].map(number);
        assert_eq!(shown, ["0", "0.0123", "1.5", "12.3", "123", "1,234", "1,234,567"]);
    }

    #[test]
    fn a_missed_aim_says_so() {
        let figure = Figure::new("steps", "64 workflows", 14_000.0, "steps/s");
        let missed = figure.clone().aim(Aim::AtLeast(15_000.0)).beside(50_000.0, 3.5);
        let table = table(&[figure, missed]);
        assert_eq!(table.matches("MISSED").count(), 1, "{table}");
        let widths: Vec<_> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [widths[0]; 4], "{table}");
    }
}
