//! The files of one journal: the tables, and the log if it was not closed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The names beside a journal's own that its log may have.
const LOGS: [&str; 3] = ["-log0", "-log1", "-log2"];

fn beside(journal: &Path, name: &str) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push(name);
    path.into()
}

/// Copies a journal that nobody has open.
///
/// # Errors
/// As the system says.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    for name in LOGS {
        match fs::copy(beside(from, name), beside(to, name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied?),
        }
    }
    Ok(())
}

/// Removes a journal that nobody has open.
///
/// # Errors
/// As the system says.
pub fn remove(journal: &Path) -> io::Result<()> {
    fs::remove_file(journal)?;
    for name in LOGS {
        match fs::remove_file(beside(journal, name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}
