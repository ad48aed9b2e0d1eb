//! The floor: the plainest durable write of the same bytes.
//!
//! One `pwrite` into a file that is preallocated and filled with zeros, so that no write changes
//! the file's length or its extents, and one `fdatasync`. Nothing that promises durability of the
//! same bytes by itself can be cheaper by much.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    time::Duration,
};

use crate::{Result, watch::Watch};

/// The size of the file: offsets wrap around in it.
const FILE_BYTES: u64 = 64 << 20;

/// A file to measure the floor with.
#[derive(Debug)]
pub struct Floor {
    file: File,
    at: u64,
    buffer: Vec<u8>,
}

impl Floor {
    /// Makes the file in this folder, on the same file system as what is compared with it.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(folder: &Path) -> Result<Self> {
        let path = folder.join("floor");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for chunk in 0..FILE_BYTES >> 20 {
            file.write_all_at(&zeros, chunk << 20)?;
        }
        file.sync_all()?;
        Ok(Self { file, at: 0, buffer: Vec::new() })
    }

    /// Writes and syncs `groups` groups of `bytes` bytes, one after another.
    ///
    /// # Errors
    /// As the system says.
    pub fn run(&mut self, groups: u64, bytes: usize) -> Result<Duration> {
        self.buffer.resize(bytes.max(1), 0x5a);
        let watch = Watch::start();
        for _ in 0..groups {
            if self.at + self.buffer.len() as u64 > FILE_BYTES {
                self.at = 0;
            }
            self.file.write_all_at(&self.buffer, self.at)?;
            self.file.sync_data()?;
            self.at += self.buffer.len() as u64;
        }
        Ok(watch.elapsed())
    }
}
