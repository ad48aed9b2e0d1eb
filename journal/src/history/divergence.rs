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
    /// The call is recorded, and the code has not made it.
    NotMade {
        /// What it does there.
        instead: Instead,
    },
    /// The code ended, and the call is recorded and was not made.
    EndedEarly,
    /// The recorded outcome cannot be read as the type that the code expects.
    Unreadable(String),
    /// The recorded payload was erased.
    Erased,
}

/// What the code does at a place where its records have a call that it has not made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instead {
    /// It makes this call, which is not recorded.
    New(String),
    /// It has made this call, which is recorded behind the missing one.
    Behind(String),
    /// It has made no other call: it may wait for something that is not in the journal.
    Nothing,
}

/// What to do about a wait that is not in the journal.
const FOREIGN: &str = "waits for something that is not in the journal (a channel, a real sleep, \
                       a task); put that into a step, or use `ctx.signal` and `ctx.sleep`";

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, at, kind } = self;
        match kind {
            DivergenceKind::Arguments(differences) => {
                match differences.as_slice() {
                    [whole] if whole.is_whole() => write!(f, "{call}: arguments: ")?,
                    _ => write!(f, "{call}: its arguments differ from record {at}: ")?,
                }
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
            DivergenceKind::NotMade { instead } => {
                write!(f, "{call}: record {at} has this call, and the code ")?;
                match instead {
                    Instead::New(new) => write!(
                        f,
                        "makes {new} instead; restore {call}, or guard the change with \
                         `ctx.patched(..)`, or say with `ctx.retired(..)` that {call} is not made \
                         any more",
                    ),
                    Instead::Behind(made) => write!(
                        f,
                        "has made {made} without it; restore it, or guard its removal with \
                         `ctx.patched(..)` or `ctx.retired(..)`; if the code does make it, the \
                         workflow {FOREIGN}",
                    ),
                    Instead::Nothing => write!(
                        f,
                        "has not made it: if it does make it, the workflow {FOREIGN}; if not, \
                         restore it, or guard its removal with `ctx.patched(..)` or \
                         `ctx.retired(..)`",
                    ),
                }
            }
            DivergenceKind::EndedEarly => write!(
                f,
                "{call}: the code ended before it made this call of record {at}; \
                 restore it, or guard its removal with `ctx.patched(..)` or `ctx.retired(..)`",
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
