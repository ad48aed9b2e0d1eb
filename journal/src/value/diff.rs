//! What differs between two values, field by field.

use std::{collections::BTreeMap, fmt};

use super::{
    canonical::{self, Numbers},
    error::{ValueError, push_segment, split},
    text, view,
    walk::{Reader, Token},
};

/// Most differences that are reported one by one; the rest is counted.
pub const DIFFERENCES_MAX: usize = 32;

/// Longest reading of one value in a difference, in characters.
pub const SHOWN_CHARS_MAX: usize = 120;

/// What stands in place of a value behind a redacted path.
const REDACTED: &str = "[redacted]";

/// One place where a recorded value and the present one differ.
///
/// Shown as `/amount recorded 4200, now 4300`, and for the whole value as `recorded 1, now 2`;
/// safe to print, and of bounded length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The place as a JSON pointer; empty for the whole value and for [`Change::More`].
    pub path: String,
    /// What differs there.
    pub change: Change,
}

/// The two sides of a [`Difference`], as their clipped readings (see [`view`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Both hold a value here.
    Changed {
        /// The recorded one.
        recorded: String,
        /// The present one.
        now: String,
    },
    /// Only the recorded value has this field or element.
    Missing {
        /// The recorded one.
        recorded: String,
    },
    /// Only the present value has this field or element.
    Added {
        /// The present one.
        now: String,
    },
    /// There are further differences, which are not listed.
    More {
        /// How many.
        count: usize,
    },
}

impl Difference {
    /// Whether the values differ as a whole, and not in a field or an element.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.path.is_empty() && !matches!(self.change, Change::More { .. })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Change::More { count } = &self.change {
            return write!(f, "and {count} more differences");
        }
        if !self.is_whole() {
            text::write_safe(f, &self.path)?;
            f.write_str(" ")?;
        }
        match &self.change {
            Change::Changed { recorded, now } => write!(f, "recorded {recorded}, now {now}"),
            Change::Missing { recorded } => write!(f, "recorded {recorded}, now missing"),
            Change::Added { now } => write!(f, "not recorded, now {now}"),
            Change::More { .. } => Ok(()),
        }
    }
}

/// The places where two MessagePack values differ, in the order of the recorded one.
///
/// Values are compared as canonical form compares them: map order does not matter and `1` equals
/// `1.0`; NaN equals NaN of the same bits. At most [`DIFFERENCES_MAX`] are listed; a last entry
/// counts the rest. Empty when the two are the same.
///
/// `redact` holds JSON pointers: what lies at one or below it is shown as `[redacted]`, and so is
/// a container that holds one. The part `*` stands for any name or index; a missing leading `/` is
/// added; the empty pointer redacts everything.
///
/// Bytes that are not MessagePack differ as a whole.
///
/// ```
/// use deedbook_journal::{limits::ValueLimits, value};
/// # #[derive(serde::Serialize)]
/// struct Refund { amount: u32, card: &'static str }
/// let limits = ValueLimits::new();
/// let recorded = value::encode(&Refund { amount: 4200, card: "1234" }, &limits)?;
/// let now = value::encode(&Refund { amount: 4300, card: "9876" }, &limits)?;
/// let shown: Vec<_> = value::diff(&recorded, &now, &["/card".to_owned()])
///     .iter().map(ToString::to_string).collect();
/// assert_eq!(shown, [
///     "/amount recorded 4200, now 4300",
///     "/card recorded [redacted], now [redacted]",
/// ]);
/// # Ok::<(), value::ValueError>(())
/// ```
#[must_use]
pub fn diff(recorded: &[u8], now: &[u8], redact: &[String]) -> Vec<Difference> {
    let mut comparison = Comparison {
        found: Vec::new(),
        more: 0,
        redact: redact.iter().map(|path| split(path)).collect(),
        path: Vec::new(),
    };
    comparison.compare(recorded, now, DEPTH_MAX);
    let mut found = comparison.found;
    if comparison.more > 0 {
        found.push(Difference {
            path: String::new(),
            change: Change::More { count: comparison.more },
        });
    }
    found
}

/// Below this depth values differ as a whole; no deeper one is ever written.
const DEPTH_MAX: usize = 128;

struct Comparison {
    found: Vec<Difference>,
    more: usize,
    redact: Vec<Vec<String>>,
    path: Vec<String>,
}

impl Comparison {
    fn compare(&mut self, recorded: &[u8], now: &[u8], levels: usize) {
        if recorded == now {
            return;
        }
        let inside = levels > 0
            && match (Reader::new(recorded).next(), Reader::new(now).next()) {
                (Ok(Token::Array(_)), Ok(Token::Array(_))) => {
                    self.arrays(recorded, now, levels - 1).is_ok()
                }
                (Ok(Token::Map(_)), Ok(Token::Map(_))) => {
                    self.maps(recorded, now, levels - 1).is_ok()
                }
                _ => false,
            };
        if !inside && !same(recorded, now) {
            let (recorded, now) = (self.shown(recorded), self.shown(now));
            self.push(Change::Changed { recorded, now });
        }
    }

    /// Compares element by element; nothing is reported if either is malformed.
    fn arrays(&mut self, recorded: &[u8], now: &[u8], levels: usize) -> Result<(), ValueError> {
        let (before, after) = (elements(recorded)?, elements(now)?);
        for i in 0..before.len().max(after.len()) {
            self.path.push(i.to_string());
            self.pair(before.get(i).copied(), after.get(i).copied(), levels);
            self.path.pop();
        }
        Ok(())
    }

    /// Compares entry by entry, by canonical key; nothing is reported if either is malformed.
    fn maps(&mut self, recorded: &[u8], now: &[u8], levels: usize) -> Result<(), ValueError> {
        let (before, after) = (entries(recorded)?, entries(now)?);
        let mut left: BTreeMap<&[u8], &[u8]> =
            after.iter().map(|e| (e.canonical.as_slice(), e.value)).collect();
        for entry in &before {
            let other = left.remove(entry.canonical.as_slice());
            self.path.push(view::shown_key(entry.key));
            self.pair(Some(entry.value), other, levels);
            self.path.pop();
        }
        for entry in &after {
            if left.remove(entry.canonical.as_slice()).is_some() {
                self.path.push(view::shown_key(entry.key));
                self.pair(None, Some(entry.value), levels);
                self.path.pop();
            }
        }
        Ok(())
    }

    fn pair(&mut self, recorded: Option<&[u8]>, now: Option<&[u8]>, levels: usize) {
        match (recorded, now) {
            (Some(recorded), Some(now)) => self.compare(recorded, now, levels),
            (Some(recorded), None) => {
                let recorded = self.shown(recorded);
                self.push(Change::Missing { recorded });
            }
            (None, Some(now)) => {
                let now = self.shown(now);
                self.push(Change::Added { now });
            }
            (None, None) => {}
        }
    }

    fn push(&mut self, change: Change) {
        if self.found.len() >= DIFFERENCES_MAX {
            self.more += 1;
            return;
        }
        let mut path = String::new();
        for part in &self.path {
            push_segment(&mut path, part);
        }
        self.found.push(Difference { path, change });
    }

    fn shown(&self, value: &[u8]) -> String {
        if self.found.len() >= DIFFERENCES_MAX {
            return String::new();
        }
        let container = matches!(Reader::new(value).next(), Ok(Token::Array(_) | Token::Map(_)));
        if self.redact.iter().any(|hidden| self.touches(hidden, container)) {
            return REDACTED.to_owned();
        }
        clipped(value)
    }

    /// Whether `hidden` covers the present place, or lies inside a container that stands there.
    fn touches(&self, hidden: &[String], container: bool) -> bool {
        let along =
            hidden.iter().zip(&self.path).all(|(hidden, part)| hidden == "*" || hidden == part);
        along && (container || hidden.len() <= self.path.len())
    }
}

/// Whether the two have the same canonical form; malformed ones are the same as nothing.
fn same(recorded: &[u8], now: &[u8]) -> bool {
    match (
        canonical::comparable(recorded, Numbers::ValueOrBits),
        canonical::comparable(now, Numbers::ValueOrBits),
    ) {
        (Ok(recorded), Ok(now)) => recorded == now,
        _ => false,
    }
}

fn elements(bytes: &[u8]) -> Result<Vec<&[u8]>, ValueError> {
    let mut reader = Reader::new(bytes);
    let count = match reader.next()? {
        Token::Array(count) => count,
        _ => 0,
    };
    let elements = (0..count).map(|_| reader.value()).collect::<Result<_, _>>()?;
    reader.finish()?;
    Ok(elements)
}

struct Entry<'a> {
    canonical: Vec<u8>,
    key: &'a [u8],
    value: &'a [u8],
}

fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>, ValueError> {
    let mut reader = Reader::new(bytes);
    let count = match reader.next()? {
        Token::Map(count) => count,
        _ => 0,
    };
    let mut entries = Vec::new();
    for _ in 0..count {
        let key = reader.value()?;
        let value = reader.value()?;
        let canonical = canonical::comparable(key, Numbers::ValueOrBits)?;
        entries.push(Entry { canonical, key, value });
    }
    reader.finish()?;
    Ok(entries)
}

/// The reading of `value`, cut with a mark when it is long.
fn clipped(value: &[u8]) -> String {
    let mut out = Clip { text: String::new(), room: SHOWN_CHARS_MAX };
    match view::write_to(value, &mut out) {
        Ok(()) => out.text,
        Err(_) if out.room == 0 => out.text + "…",
        Err(_) => "(not MessagePack)".to_owned(),
    }
}

/// Takes so many characters and then refuses, so that a long value is not read to its end.
struct Clip {
    text: String,
    room: usize,
}

impl fmt::Write for Clip {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.room = self.room.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(c);
        }
        Ok(())
    }
}
