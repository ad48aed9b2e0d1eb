//! Where the socket of a journal is, and how it gets there.
//!
//! Beside the journal, with `.control` behind its name; where that path is too long for a socket,
//! or no socket can be made there, in a folder of the user's under a name derived from the
//! journal's path. Whoever looks for it tries these places in the same order.

use std::{
    env, fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use deedbook_journal::hex;
use tokio::net::{UnixListener, UnixStream};

use crate::limits::SOCKET_PATH_BYTES_MAX;

/// What the name of a journal's socket ends with.
const SUFFIX: &str = ".control";
/// What the name of a socket begins with that has no name yet.
const ASIDE: &str = ".c";
/// How many random bytes stand in that name.
const ASIDE_BYTES: usize = 4;
/// The folder of the user's own sockets, in the folder of the session.
const FOLDER: &str = "deedbook";
/// Context of the name that is derived from a journal's path.
const CONTEXT: &str = "deedbook 2026-12-01 v1 name of a control socket";

/// The places where the socket of this journal may be, the first one first. The journal must
/// exist.
pub(crate) fn places(journal: &Path, user: u32) -> io::Result<Vec<PathBuf>> {
    let journal = fs::canonicalize(journal)?;
    let mut beside = journal.as_os_str().to_owned().into_vec();
    beside.extend_from_slice(SUFFIX.as_bytes());
    let mut places = vec![PathBuf::from(std::ffi::OsString::from_vec(beside))];
    let hash = blake3::derive_key(CONTEXT, journal.as_os_str().as_bytes());
    let name: String = hex::encode(&hash).chars().take(32).collect();
    let name = format!("{name}{SUFFIX}");
    let session = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Programs that a service starts, or a timer, are not told.
    let usual = cfg!(target_os = "linux").then(|| PathBuf::from(format!("/run/user/{user}")));
    let sessions = session.into_iter().chain(usual).filter(|path| path.is_absolute());
    places.extend(sessions.map(|folder| folder.join(FOLDER).join(&name)));
    places.push(env::temp_dir().join(format!("{FOLDER}-{user}")).join(&name));
    places.dedup();
    places.retain(|place| fits(place));
    Ok(places)
}

/// Whether a socket can have this path, and the one under which it is made.
fn fits(place: &Path) -> bool {
    let folder = place.parent().map_or(0, |folder| folder.as_os_str().len());
    let aside = folder + "/".len() + ASIDE.len() + ASIDE_BYTES * 2 + "/s".len();
    place.as_os_str().len().max(aside) < SOCKET_PATH_BYTES_MAX
}

/// Who this process acts as: what the system says of a socket of its own.
pub(crate) fn user() -> io::Result<u32> {
    let (ours, _) = UnixStream::pair()?;
    Ok(ours.peer_cred()?.uid())
}

/// What stands at the name of a socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    Socket,
    /// Something that is no socket, or somebody else's.
    Other,
}

/// Looks, and follows no symbolic link.
pub(crate) fn look(place: &Path, user: u32) -> io::Result<There> {
    match fs::symlink_metadata(place) {
        Ok(seen) if seen.file_type().is_socket() && seen.uid() == user => Ok(There::Socket),
        Ok(_) => Ok(There::Other),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(There::Nothing),
            _ => Err(error),
        },
    }
}

/// Makes sure that a folder of the user's own is one: of the user, and closed to others. The
/// folder of the journal is as it is.
pub(crate) fn secure(place: &Path, beside: bool, user: u32) -> io::Result<()> {
    let Some(folder) = place.parent().filter(|_| !beside) else {
        return Ok(());
    };
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match is_own(folder, user)? {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not a folder that is yours alone", folder.display()),
        )),
    }
}

/// Whether this is a folder of this user that nobody else can change.
pub(crate) fn is_own(folder: &Path, user: u32) -> io::Result<bool> {
    let seen = fs::symlink_metadata(folder)?;
    Ok(seen.is_dir() && seen.uid() == user && seen.mode() & 0o077 == 0)
}

/// A socket that others can find: removed when it is dropped, if it is still there.
#[derive(Debug)]
pub(crate) struct Named {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Named {
    /// A name that nothing has.
    pub(crate) fn nothing(path: PathBuf) -> Self {
        Self { path, device: 0, inode: 0 }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let seen = fs::symlink_metadata(&self.path);
        if seen.is_ok_and(|s| (s.dev(), s.ino()) == (self.device, self.inode)) {
            // One that stays is stale, and whoever comes next removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a socket at this place, where nothing may be: from its first instant nobody but the user
/// can connect to it, whatever the umask is.
pub(crate) fn bind(place: &Path) -> io::Result<(UnixListener, Named)> {
    let folder = place.parent().unwrap_or(Path::new("/"));
    let aside = folder.join(format!("{ASIDE}{}", hex::encode(&random::<ASIDE_BYTES>()?)));
    fs::DirBuilder::new().mode(0o700).create(&aside)?;
    let made = bind_in(&aside, place);
    // Empty by now, unless making it failed half-way.
    let _ = fs::remove_file(aside.join("s"));
    let _ = fs::remove_dir(&aside);
    made
}

fn bind_in(aside: &Path, place: &Path) -> io::Result<(UnixListener, Named)> {
    // A umask may have taken more than it should.
    fs::set_permissions(aside, fs::Permissions::from_mode(0o700))?;
    let made = aside.join("s");
    let listener = UnixListener::bind(&made)?;
    fs::set_permissions(&made, fs::Permissions::from_mode(0o600))?;
    let seen = fs::symlink_metadata(&made)?;
    // A link, unlike a renaming, replaces nothing.
    fs::hard_link(&made, place)?;
    let named = Named { path: place.into(), device: seen.dev(), inode: seen.ino() };
    Ok((listener, named))
}

#[expect(clippy::disallowed_methods, reason = "this is the module that owns it in this crate")]
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_stands_beside_its_journal_unless_the_path_is_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let journal = root.join("refunds.redb");
        fs::write(&journal, "").unwrap();
        let first = places(&journal, 7).unwrap().into_iter().next().unwrap();
        assert_eq!(first, root.join("refunds.redb.control"));

        let deep = root.join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let journal = deep.join("refunds.redb");
        fs::write(&journal, "").unwrap();
        let all = places(&journal, 7).unwrap();
        assert!(!all.is_empty() && all.iter().all(|p| !p.starts_with(&deep)), "{all:?}");
        assert!(all.iter().all(|p| fits(p)));
        assert_eq!(all, places(&deep.join("./refunds.redb"), 7).unwrap());
    }

    #[tokio::test]
    async fn a_socket_is_closed_to_others_and_takes_nothings_place() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x.control");
        let (_listener, named) = bind(&place).unwrap();
        let mode = fs::symlink_metadata(&place).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        assert_eq!(bind(&place).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        // Somebody else's has taken its place: that one stays.
        fs::rename(&place, folder.path().join("moved")).unwrap();
        let (_other, _kept) = bind(&place).unwrap();
        drop(named);
        assert_eq!(look(&place, user().unwrap()).unwrap(), There::Socket);
    }

    #[tokio::test]
    async fn a_link_is_not_followed_and_an_open_folder_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x.control");
        let (_listener, _named) = bind(&place).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&place, &link).unwrap();
        let us = user().unwrap();
        assert_eq!(look(&link, us).unwrap(), There::Other);
        assert_eq!(look(&place, us + 1).unwrap(), There::Other);
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(secure(&open.join("s"), false, us).is_err());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(secure(&open.join("s"), false, us).is_ok());
        assert!(secure(&open.join("s"), false, us + 1).is_err());
        let linked = folder.path().join("linked");
        std::os::unix::fs::symlink(&open, &linked).unwrap();
        assert!(secure(&linked.join("s"), false, us).is_err());
    }
}
