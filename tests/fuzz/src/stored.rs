//! What stands in the tables, in frames of the log and in the anchor, behind its checksum.

use deedbook_journal::embedded::bare::{self, Stored};

use crate::{Broken, Target, fixture, same};

pub(crate) const TARGET: Target = Target {
    name: "stored",
    promise: "what is read behind a checksum is read as the same again when it was written again",
    run,
    seeds: fixture::stored,
    words: &["deedanc\u{1}", "thread", "\u{1}", "\u{2}", "\u{3}", "\u{0}\u{0}\u{0}\u{0}"],
    bytes_max: 4096,
};

/// A byte for what it is, then the bytes.
fn run(input: &[u8]) -> Result<(), Broken> {
    let Some((which, bytes)) = input.split_first() else {
        return Ok(());
    };
    let stored = Stored::ALL[usize::from(*which) % Stored::ALL.len()];
    let Ok(written) = bare::again(stored, bytes) else {
        return Ok(());
    };
    if written.len() > bytes.len() {
        return Err(format!("{stored:?}: {} bytes became {}", bytes.len(), written.len()));
    }
    same("written twice", &bare::again(stored, &written), &Ok(written.clone()))
}
