//! Replay disagrees with the journal: what, where, and the cures.

use std::fmt;

use crate::{
    id::{IdentityKind, Position},
    value::Difference,
};

/// A disagreement between the code and the records. Nothing is executed because of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The call, as shown.
    pub call: String,
    /// The record that it disagrees with.
    pub at: Position,
    /// In what way.
    pub kind: DivergenceKind,
}

/// The ways to disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DivergenceKind {
    /// The same call has other arguments now.
    Arguments(Vec<Difference>),
    /// The same step name has another kind of identity now.
    Identity {
        /// As recorded.
        recorded: IdentityKind,
        /// As declared now.
        now: IdentityKind,
    },
    /// The call is recorded, and the code does not make it any more.
    NotMade,
    /// The code ended, and the call is recorded and was not made.
    EndedEarly,
    /// The recorded outcome cannot be read as the type that the code expects.
    Unreadable(String),
    /// The recorded payload was erased.
    Erased,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, at, kind } = self;
        match kind {
            DivergenceKind::Arguments(differences) => {
                write!(f, "{call}: its arguments differ from record {at}: ")?;
                for (n, difference) in differences.iter().enumerate() {
                    write!(f, "{}{difference}", if n > 0 { ", " } else { "" })?;
                }
                f.write_str("; give the old arguments, or guard the change with `ctx.patched(..)`")
            }
            DivergenceKind::Identity { recorded, now } => write!(
                f,
                "{call}: record {at} identifies this step by {}, the code now by {}; \
                 use another step name for the new kind of identity",
                recorded.as_str(),
                now.as_str(),
            ),
            DivergenceKind::NotMade => write!(
                f,
                "{call}: record {at} has this call, and the code does not make it any more; \
                 restore it, or guard its removal with `ctx.patched(..)`",
            ),
            DivergenceKind::EndedEarly => write!(
                f,
                "{call}: the code ended before it made this call of record {at}; \
                 restore it, or guard its removal with `ctx.patched(..)`",
            ),
            DivergenceKind::Unreadable(why) => write!(
                f,
                "{call}: the outcome in record {at} cannot be read as the type that the code \
                 expects: {why}; keep the old type readable (defaults, aliases), or, if a person \
                 settled the step with a wrong value, cancel the thread",
            ),
            DivergenceKind::Erased => write!(
                f,
                "{call}: the payload of record {at} was erased, so the thread cannot be replayed",
            ),
        }
    }
}
