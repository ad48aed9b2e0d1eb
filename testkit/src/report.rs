//! What a crash matrix found, and how it is shown.

use std::fmt::{self, Display};

/// What was found.
#[derive(Debug, Default)]
pub struct Matrix {
    pub(crate) orders: Vec<Order>,
    /// Whether the order of answers decides the result.
    pub(crate) races: bool,
}

/// What was found in one order of answers.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) seed: u64,
    /// What the program ends with when nothing crashes.
    pub(crate) result: String,
    pub(crate) rows: Vec<Row>,
}

/// A write or a request, and what came of each point of it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) cells: Vec<(&'static str, Cell)>,
}

/// What came of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Fine,
    Doubt,
    /// Another result than without the crash.
    Differs(String),
    Wrong(Vec<String>),
}

impl Matrix {
    /// Whether everything went as promised.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.wrongs().next().is_none()
    }

    /// How many runs with a crash or a lost answer were made.
    #[must_use]
    pub fn points(&self) -> usize {
        self.cells().filter(|(_, _, name, _)| !name.is_empty()).count()
    }

    /// How many of them ended in doubt, for a person to settle.
    #[must_use]
    pub fn doubts(&self) -> usize {
        self.cells().filter(|(_, _, name, cell)| !name.is_empty() && **cell == Cell::Doubt).count()
    }

    /// What went wrong, a sentence each.
    #[must_use]
    pub fn wrongs_as_text(&self) -> Vec<String> {
        self.wrongs().collect()
    }

    fn cells(&self) -> impl Iterator<Item = (&Order, &Row, &'static str, &Cell)> {
        self.orders.iter().flat_map(|order| {
            let rows = order.rows.iter();
            rows.flat_map(move |row| row.cells.iter().map(move |(n, c)| (order, row, *n, c)))
        })
    }

    /// What went wrong, each once, with where it did first and how often.
    fn wrongs(&self) -> impl Iterator<Item = String> {
        let mut found: Vec<(String, String, usize)> = Vec::new();
        for (order, row, name, cell) in self.cells() {
            let whys = match cell {
                Cell::Wrong(whys) => whys.clone(),
                Cell::Differs(result) if !self.races => {
                    vec![format!("the result is {result}, and {} without it", order.result)]
                }
                _ => Vec::new(),
            };
            let gap = if name.is_empty() { "" } else { ", " };
            for why in whys {
                match found.iter_mut().find(|(known, _, _)| *known == why) {
                    Some((_, _, times)) => *times += 1,
                    None => {
                        let at = format!("order {}, {}{gap}{name}", order.seed, row.what);
                        found.push((why, at, 1));
                    }
                }
            }
        }
        found.into_iter().map(|(why, at, times)| match times {
            1 => format!("{at}: {why}"),
            times => format!("{at}, and {} more: {why}", times - 1),
        })
    }
}

impl Order {
    /// Whether the run without a crash went as it should.
    pub(crate) fn is_calm(&self) -> bool {
        let calm = self.rows.first().and_then(|row| row.cells.first());
        calm.is_some_and(|(_, cell)| *cell == Cell::Fine)
    }
}

impl Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |cell: &Cell| match cell {
            Cell::Fine => "ok",
            Cell::Doubt => "in doubt",
            Cell::Differs(_) if self.races => "ok",
            Cell::Differs(_) | Cell::Wrong(_) => "WRONG",
        };
        writeln!(f, "{} crashes and lost answers", self.points())?;
        if let Some(order) = self.orders.first() {
            for row in &order.rows {
                let cells: Vec<_> = row
                    .cells
                    .iter()
                    .map(|(name, cell)| format!("{name}{}{}", gap(name), mark(cell)))
                    .collect();
                writeln!(f, "  {:<44} {}", row.what, cells.join(" · "))?;
            }
        }
        for order in self.orders.iter().skip(1) {
            let wrong = order.rows.iter().flat_map(|row| &row.cells);
            let wrong = wrong.filter(|(_, cell)| mark(cell) == "WRONG").count();
            writeln!(f, "  order {}: {wrong} wrong", order.seed)?;
        }
        if self.races {
            writeln!(f, "  the order in which answers come decides the result")?;
        }
        for wrong in self.wrongs() {
            writeln!(f, "- {wrong}")?;
        }
        Ok(())
    }
}

fn gap(name: &str) -> &'static str {
    if name.is_empty() { "" } else { ": " }
}
