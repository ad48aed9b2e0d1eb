//! Files aside of a journal: where a new one is made before it has its name, and what is left of
//! one whose maker was killed.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    create::random,
    disk::{Disk, DiskFile},
};
use crate::hex;

/// How often a maker begins again whose file others tidied away before it was locked.
const TRIES_MAX: usize = 64;
/// Random digits in the name of a file aside.
const DIGITS: usize = 16;

/// A file that gets its name when it is complete. Dropped before that, it is removed.
#[derive(Debug)]
pub(super) struct Aside {
    disk: Arc<dyn Disk>,
    /// The name that it will get.
    name: PathBuf,
    aside: PathBuf,
    file: Arc<dyn DiskFile>,
    /// Whether the name aside is still there.
    there: bool,
}

/// What could not be done to a file aside, and what the system said.
pub(super) type Failed = (&'static str, io::Error);

impl Aside {
    /// A new file beside the name that it will get.
    pub(super) fn make(disk: &Arc<dyn Disk>, name: &Path) -> Result<Self, Failed> {
        let made = make(&**disk, name).map_err(|error| ("make a file aside of it", error));
        let (aside, file) = made?;
        Ok(Self { disk: Arc::clone(disk), name: name.into(), aside, file, there: true })
    }

    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// Gives the file its name, durably. It must be durable itself; what has the name already is
    /// left alone.
    pub(super) fn publish(mut self) -> Result<(), Failed> {
        let linked = self.disk.link(&self.aside, &self.name);
        linked.map_err(|error| ("give the new file its name", error))?;
        self.remove();
        self.sync()
    }

    /// The same in the place of the file that has the name.
    pub(super) fn replace(mut self) -> Result<(), Failed> {
        let replaced = self.disk.replace(&self.aside, &self.name);
        replaced.map_err(|error| ("put the new file in its place", error))?;
        self.there = false;
        self.sync()
    }

    fn sync(&self) -> Result<(), Failed> {
        let synced = self.disk.sync_dir(folder(&self.name));
        synced.map_err(|error| ("make its name durable", error))
    }

    fn remove(&mut self) {
        if std::mem::replace(&mut self.there, false)
            && let Err(error) = self.disk.remove(&self.aside)
        {
            // It is no harm to what has the name, and goes when that is made or opened next.
            tracing::warn!(left = %self.aside.display(), %error, "a name aside was not removed");
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A new file under a fresh name in the same folder, locked for as long as it is open: whoever
/// finds it there sees that somebody is at work on it.
fn make(disk: &dyn Disk, path: &Path) -> io::Result<(PathBuf, Arc<dyn DiskFile>)> {
    for _ in 0..TRIES_MAX {
        let aside = name(path)?;
        let file = disk.create_new(&aside)?;
        // Until it is locked, it looks to others like one that was left behind.
        match file.try_lock().and_then(|locked| Ok(locked && file.names()? > 0)) {
            Ok(true) => return Ok((aside, file)),
            Ok(false) => _ = disk.remove(&aside),
            Err(error) => {
                let _ = disk.remove(&aside);
                return Err(error);
            }
        }
    }
    Err(io::Error::other("others remove it again and again"))
}

/// Removes what makers of this journal have left that were killed: files aside of it that nobody
/// has locked, and further names of the journal itself, where `journal` is its file.
///
/// Whatever cannot be looked at or removed stays: it is no harm to the journal.
pub(super) fn tidy(disk: &dyn Disk, path: &Path, journal: Option<&dyn DiskFile>) {
    let Some(name) = path.file_name() else {
        return;
    };
    let Ok(names) = disk.list(folder(path)) else {
        return;
    };
    let own = journal.and_then(|file| file.device_and_inode().ok());
    for left in names.iter().filter(|found| is_aside(found, name)) {
        let left = path.with_file_name(left);
        let Ok(file) = disk.open(&left, true, false) else {
            continue;
        };
        let same = own.is_some() && file.device_and_inode().ok() == own;
        if !same && !file.try_lock().unwrap_or(false) {
            continue;
        }
        match disk.remove(&left) {
            Ok(()) => tracing::info!(left = %left.display(), "removed what a killed maker left"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(left = %left.display(), %error, "a name aside could not be removed");
            }
        }
    }
}

/// The names aside of a journal that lie in its folder, and that nobody is at work on; `journal`
/// is its file.
pub(super) fn lying(
    disk: &dyn Disk,
    path: &Path,
    journal: &dyn DiskFile,
) -> io::Result<Vec<PathBuf>> {
    let Some(name) = path.file_name() else {
        return Ok(Vec::new());
    };
    let own = journal.device_and_inode().ok();
    let at_work = |left: &Path| {
        let Ok(file) = disk.open(left, false, false) else {
            return false;
        };
        let same = own.is_some() && file.device_and_inode().ok() == own;
        !same && matches!(file.try_lock(), Ok(false))
    };
    let names = disk.list(folder(path))?;
    let asides = names.iter().filter(|found| is_aside(found, name));
    let asides = asides.map(|aside| path.with_file_name(aside));
    Ok(asides.filter(|aside| !at_work(aside)).collect())
}

/// The folder in which a journal has its name.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A fresh name in the same folder.
fn name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name();
    let name = name.ok_or_else(|| io::Error::other("the path names no file"))?;
    let mut aside = OsString::from(".");
    aside.push(name);
    aside.push(format!(".{}.new", hex::encode(&random::<{ DIGITS / 2 }>()?)));
    Ok(path.with_file_name(aside))
}

/// Whether [`name`] may have given this name for a journal of that one.
fn is_aside(found: &OsStr, journal: &OsStr) -> bool {
    let digits = found
        .as_bytes()
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(journal.as_bytes()))
        .and_then(|rest| rest.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(b".new"));
    digits.is_some_and(|digits| {
        let hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        digits.len() == DIGITS && digits.iter().all(hex)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_maker_gives_are_taken_for_leftovers() {
        let book = OsStr::new("book.redb");
        let made = name(Path::new("here/book.redb")).unwrap();
        assert!(is_aside(made.file_name().unwrap(), book));
        for other in [
            "book.redb",
            ".book.redb.0123456789abcdef",
            ".book.redb.0123456789ABCDEF.new",
            ".book.redb.0123456789abcde.new",
            ".book.redb.0123456789abcdef0.new",
            ".book.redb.x.0123456789abcdef.new",
            ".x.book.redb.0123456789abcdef.new",
            "book.redb.0123456789abcdef.new",
            ".other.redb.0123456789abcdef.new",
        ] {
            assert!(!is_aside(OsStr::new(other), book), "{other}");
        }
    }
}
