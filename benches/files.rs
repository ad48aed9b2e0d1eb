//! The files of one journal: the tables, and the log if it was not closed.

use std::{fs, io, path::Path};

use deedbook_journal::embedded::files_of;

/// Copies a journal that nobody has open.
///
/// # Errors
/// As the system says.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for (from, to) in files_of(from).iter().zip(files_of(to)).filter(|(from, _)| from.exists()) {
        fs::copy(from, to)?;
    }
    Ok(())
}

/// Removes a journal that nobody has open.
///
/// # Errors
/// As the system says.
pub fn remove(journal: &Path) -> io::Result<()> {
    files_of(journal).iter().filter(|file| file.exists()).try_for_each(fs::remove_file)
}
