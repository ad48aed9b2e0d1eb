//! The one seam through which the embedded home touches files.
//!
//! Production uses [`RealDisk`]; tests bring a [`Disk`] that counts, fails or loses power, so that
//! both exercise the same code above it.

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

/// What the home does with names in a directory.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Makes a new file, readable and writable by its owner only; never an existing one, and
    /// never through a symbolic link.
    ///
    /// # Errors
    /// As the system says; [`io::ErrorKind::AlreadyExists`] if the name is taken.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and, if `write`, for writing. With `follow` unset, a
    /// symbolic link is refused as [`io::ErrorKind::InvalidInput`]; so is whatever is no file.
    ///
    /// # Errors
    /// As the system says.
    fn open(&self, path: &Path, write: bool, follow: bool) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives the file at `from` the name `to` as well; never replaces one.
    ///
    /// # Errors
    /// As the system says; [`io::ErrorKind::AlreadyExists`] if the name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives the file at `from` the name `to` and takes the first one from it, both at once; a file
    /// that had the name `to` loses it.
    ///
    /// # Errors
    /// As the system says.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a name.
    ///
    /// # Errors
    /// As the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// As the system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// What the home does with an open file.
pub trait DiskFile: Send + Sync + fmt::Debug + 'static {
    /// Its length in bytes.
    ///
    /// # Errors
    /// As the system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    ///
    /// # Errors
    /// As the system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `out` from `offset`.
    ///
    /// # Errors
    /// As the system says; [`io::ErrorKind::UnexpectedEof`] beyond the end.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// As the system says.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Sets the length; new bytes are zero.
    ///
    /// # Errors
    /// As the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes everything written so far durable. After a failure nothing is known about what is.
    ///
    /// # Errors
    /// As the system says.
    fn sync(&self) -> io::Result<()>;

    /// Takes the lock that guards the journal, for others to meet until the file is closed;
    /// `false` if another process or handle has it.
    ///
    /// # Errors
    /// As the system says.
    fn try_lock(&self) -> io::Result<bool>;

    /// How many names it has; none once the last was removed.
    ///
    /// # Errors
    /// As the system says.
    fn names(&self) -> io::Result<u64>;

    /// Who may read and write it, as the system's mode bits; `None` where there are none.
    ///
    /// # Errors
    /// As the system says.
    fn mode(&self) -> io::Result<Option<u32>> {
        Ok(None)
    }

    /// Device and inode, by which the lock's holder is found.
    ///
    /// # Errors
    /// As the system says.
    fn device_and_inode(&self) -> io::Result<(u64, u64)>;
}

/// The files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

/// A file of the operating system.
#[derive(Debug)]
struct RealFile(File);

impl Disk for RealDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn open(&self, path: &Path, write: bool, follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        let named = if follow { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
        if !named.is_file() {
            let what = if named.is_symlink() {
                "it is a symbolic link"
            } else {
                "it is not a regular file"
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let file = OpenOptions::new().read(true).write(write).open(path)?;
        let opened = file.metadata()?;
        // Whoever exchanged the name in between has us open another file.
        if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
            let what = "it was exchanged while it was opened";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Arc::new(RealFile(file)))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn names(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.nlink())
    }

    fn mode(&self) -> io::Result<Option<u32>> {
        Ok(Some(self.0.metadata()?.mode() & 0o7777))
    }

    fn device_and_inode(&self) -> io::Result<(u64, u64)> {
        let metadata = self.0.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }
}
