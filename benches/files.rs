//! The files of one journal: the tables, and the log if it was not closed.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use deedbook_journal::embedded::files_of;

fn there(journal: &Path) -> impl Iterator<Item = PathBuf> {
    files_of(journal).into_iter().filter(|file| file.exists())
}

/// Bytes that its files take on disk. A file is made longer in large steps, and what was never
/// written is a hole that takes nothing.
///
/// # Errors
/// As the system says.
pub fn allocated(journal: &Path) -> io::Result<u64> {
    there(journal).map(|file| Ok(fs::metadata(file)?.blocks() * 512)).sum()
}

/// Has everything that was written to a journal on the disk, so that nobody waits for it later.
///
/// # Errors
/// As the system says.
pub fn settle(journal: &Path) -> io::Result<()> {
    there(journal).try_for_each(|file| File::open(file)?.sync_all())
}

/// Takes a journal that nobody has open, and that is [settled](settle), out of the system's
/// memory, so that it must be read from the disk. Whether it was,
/// [`read_from_disk`](crate::machine::read_from_disk) knows.
///
/// # Errors
/// As the system says.
pub fn evict(journal: &Path) -> io::Result<()> {
    for file in there(journal) {
        let mut input = std::ffi::OsString::from("if=");
        input.push(&file);
        let advise = ["iflag=nocache", "count=0"];
        let done = Command::new("dd").arg(input).args(advise).stderr(Stdio::null()).status()?;
        if !done.success() {
            return Err(io::Error::other("dd cannot tell the system to forget a file"));
        }
    }
    Ok(())
}

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
    there(journal).try_for_each(fs::remove_file)
}
