//! Why a line was refused, and what its sender can do about it.

use std::fmt;

use super::line::{AMOUNT_MINOR_MAX, TEXT_BYTES_MAX};
use super::reader::{LINE_BYTES_MAX, REQUESTS_MAX};

/// A line that is not a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The line's number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub cause: Cause,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.cause, self.cause.cure())
    }
}

/// What is wrong with a line. Its text holds no control characters, whatever the line held.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// Nothing but white space.
    Empty,
    /// More than [`LINE_BYTES_MAX`] bytes.
    TooLong,
    /// Not UTF-8, from this byte (counted from 1) on.
    NotUtf8 {
        /// The first wrong byte.
        byte: usize,
    },
    /// Not one JSON value.
    NotJson {
        /// What the JSON reader says, with the column.
        what: String,
    },
    /// JSON, but not an object.
    NotAnObject,
    /// A member is missing.
    Missing {
        /// Its name.
        member: &'static str,
    },
    /// A member that no request has.
    Unknown {
        /// Its name.
        member: String,
    },
    /// A member stands there twice.
    Duplicate {
        /// Its name.
        member: String,
    },
    /// A member that must be text is something else.
    NotText {
        /// Its name.
        member: &'static str,
        /// What it is instead.
        found: &'static str,
    },
    /// A text is empty, too long, or holds characters that have no business in it.
    BadText {
        /// The member's name.
        member: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The amount is not a whole number of minor units.
    BadAmount {
        /// What is wrong with it.
        what: &'static str,
    },
    /// No such currency.
    UnknownCurrency {
        /// As written.
        code: String,
    },
    /// The id was used by an earlier line with other content.
    IdReused {
        /// The id.
        id: String,
        /// The line that used it first.
        first_line: u64,
    },
    /// There are more than [`REQUESTS_MAX`] requests.
    TooMany,
}

impl Cause {
    /// What the sender can do.
    #[must_use]
    pub fn cure(&self) -> String {
        match self {
            Self::Empty => "remove the line".into(),
            Self::TooLong => "shorten the reason".into(),
            Self::NotUtf8 { .. } => "save the file as UTF-8".into(),
            Self::NotJson { .. } | Self::NotAnObject => "write one JSON object on one line".into(),
            Self::Missing { member } => format!("add {member:?}"),
            Self::Unknown { .. } => "remove it, or correct its name".into(),
            Self::Duplicate { .. } => "keep the one that is meant".into(),
            Self::NotText { .. } => "write it in double quotes".into(),
            Self::BadText { .. } => {
                format!("write 1 to {TEXT_BYTES_MAX} bytes of plain text")
            }
            Self::BadAmount { .. } => format!(
                "write minor units as a whole number from 1 to {AMOUNT_MINOR_MAX}: 4990 for 49.90 EUR"
            ),
            Self::UnknownCurrency { .. } => "write an ISO 4217 code in capitals, as EUR".into(),
            Self::IdReused { .. } => "give the new request an id of its own".into(),
            Self::TooMany => "split the file".into(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the line is empty"),
            Self::TooLong => write!(f, "the line has more than {LINE_BYTES_MAX} bytes"),
            Self::NotUtf8 { byte } => write!(f, "byte {byte} is not UTF-8"),
            Self::NotJson { what } => write!(f, "not JSON ({what})"),
            Self::NotAnObject => write!(f, "JSON, but not an object"),
            Self::Missing { member } => write!(f, "{member:?} is missing"),
            Self::Unknown { member } => write!(f, "no request has a member {}", Shown(member)),
            Self::Duplicate { member } => write!(f, "{} stands there twice", Shown(member)),
            Self::NotText { member, found } => write!(f, "{member:?} is {found}, not text"),
            Self::BadText { member, what } => write!(f, "{member:?} {what}"),
            Self::BadAmount { what } => write!(f, "\"amount_minor\" {what}"),
            Self::UnknownCurrency { code } => write!(f, "unknown currency {}", Shown(code)),
            Self::IdReused { id, first_line } => {
                write!(f, "line {first_line} used the id {} for something else", Shown(id))
            }
            Self::TooMany => write!(f, "the file has more than {REQUESTS_MAX} requests"),
        }
    }
}

/// Quotes what a stranger wrote: escaped, and cut when long.
struct Shown<'a>(&'a str);

/// How many characters of a stranger's text a refusal repeats.
const SHOWN_CHARS_MAX: usize = 40;

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN_CHARS_MAX) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}…", self.0.get(..end).unwrap_or_default()),
        }
    }
}
