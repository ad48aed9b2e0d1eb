//! An error as recorded: what replay gives back, word for word.

use std::{error::Error, fmt};

use serde::{Deserialize, Serialize};

use crate::limits::{ERROR_CAUSES_MAX, ERROR_TEXT_BYTES_MAX};

/// An error in the form in which it is recorded: no stack, no type, only what replay can give
/// back exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A short word that programs may branch on; empty if there is none.
    #[serde(default)]
    pub code: String,
    /// What went wrong.
    pub message: String,
    /// The causes, nearest first.
    #[serde(default)]
    pub causes: Vec<String>,
}

impl Failure {
    /// A failure without causes.
    #[must_use]
    pub fn new(message: impl AsRef<str>) -> Self {
        Self { code: String::new(), message: cut(message.as_ref()), causes: Vec::new() }
    }

    /// The same with a code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = code.into();
        self
    }

    /// An error and its causes. A chain longer than 32, or one that runs in a circle, is cut with
    /// a mark, and so are texts longer than 64 KiB.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut failure = Self::new(error.to_string());
        let mut cause = error.source();
        while let Some(error) = cause {
            if failure.causes.len() == ERROR_CAUSES_MAX {
                failure.causes.push("[further causes cut]".into());
                break;
            }
            failure.causes.push(cut(&error.to_string()));
            cause = error.source();
        }
        failure
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let mut before = &self.message;
        for cause in &self.causes {
            // Many errors end with their cause in their own text.
            if !before.ends_with(cause.as_str()) {
                write!(f, ": {cause}")?;
            }
            before = cause;
        }
        Ok(())
    }
}

fn cut(text: &str) -> String {
    if text.len() <= ERROR_TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = ERROR_TEXT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} [cut: {} bytes in all]", text.get(..end).unwrap_or_default(), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Circle;
    impl fmt::Display for Circle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round")
        }
    }
    impl Error for Circle {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&Circle)
        }
    }

    /// An error that says its cause itself was told as `no route: no route`.
    #[test]
    fn a_cause_that_was_said_is_not_said_again() {
        let failure = |message: &str, causes: &[&str]| Failure {
            causes: causes.iter().map(ToString::to_string).collect(),
            ..Failure::new(message)
        };
        let said = |message, causes| failure(message, causes).to_string();
        assert_eq!(said("cannot pay: no route", &["no route"]), "cannot pay: no route");
        assert_eq!(said("a: b: c", &["b: c", "c"]), "a: b: c");
        assert_eq!(said("cannot pay", &["no route: x", "x", "y"]), "cannot pay: no route: x: y");
        assert_eq!(said("no route", &["cannot route"]), "no route: cannot route");
    }

    #[test]
    fn s35_chains_are_cut_with_a_mark() {
        let failure = Failure::of(&Circle);
        assert_eq!(failure.causes.len(), ERROR_CAUSES_MAX + 1);
        assert_eq!(failure.causes.last().unwrap(), "[further causes cut]");
        let long = Failure::new("é".repeat(5 << 20));
        assert!(long.message.len() < ERROR_TEXT_BYTES_MAX + 64);
        assert!(long.message.ends_with("bytes in all]"));
    }
}
