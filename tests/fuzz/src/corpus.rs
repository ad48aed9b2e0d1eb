//! Inputs that are kept: one file for each target, one input a line, as base64.
//!
//! They are what the engine found to reach something that the others do not, and every input that
//! once was a finding. Lines of a `#` are comments.

use std::{fs, io, path::PathBuf};

use deedbook_journal::value::text::{read_base64, write_base64};

use crate::Target;

/// The file of a target's inputs.
#[must_use]
pub fn file(target: &Target) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    folder.join(target.name).with_extension("txt")
}

/// The inputs that are kept for a target, behind the ones that it begins with.
///
/// # Errors
/// There is no file, or a line of it is no base64.
pub fn inputs(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let path = file(target);
    let about = |why: String| io::Error::other(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(&path).map_err(|error| about(error.to_string()))?;
    let mut inputs = (target.seeds)();
    for (n, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#')) {
        let input = read_base64(line).ok_or_else(|| about(format!("line {n} is no base64")))?;
        inputs.push(input);
    }
    Ok(inputs)
}

/// An input as a line.
#[must_use]
pub fn line(input: &[u8]) -> String {
    let mut line = String::new();
    // Writing into a text does not fail.
    let _ = write_base64(&mut line, input);
    line
}

/// The input of a line.
#[must_use]
pub fn of_line(line: &str) -> Option<Vec<u8>> {
    read_base64(line)
}
