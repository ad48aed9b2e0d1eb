//! How to make and open a journal.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    clock::TimeSource,
    disk::{Disk, RealDisk},
};
use crate::limits::{EMBEDDED_CACHE_BYTES_DEFAULT, EMBEDDED_LOG_BYTES_DEFAULT};

/// Who writes to the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommitBy {
    /// Callers while few are in line, and a thread of the journal while many are: whichever is
    /// faster then.
    #[default]
    Either,
    /// Whoever has something to write, for everybody who waits, on its own thread: it blocks for
    /// the time of one write and sync. An append of a lone caller is handed to nobody.
    Caller,
    /// A thread of the journal: no caller's thread blocks, and an append of a lone caller costs
    /// two hand-overs between threads. For programs in which one thread runs everything and must
    /// not stop.
    Thread,
}

/// How to open a journal.
#[derive(Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) time: Option<TimeSource>,
    pub(super) cache_bytes: usize,
    pub(super) wait: Duration,
    pub(super) follow: bool,
    pub(super) verify: bool,
    pub(super) log_bytes: u64,
    pub(super) by: CommitBy,
    pub(super) read_only: bool,
    pub(super) accept_rollback: bool,
    /// Whether the log is not looked at: what the tables have by themselves.
    pub(super) tables_only: bool,
}

impl OpenOptions {
    /// The system's files and clocks, 64 MiB of cache, no waiting for the lock, no symbolic link.
    #[must_use]
    pub fn new() -> Self {
        Self {
            disk: Arc::new(RealDisk),
            time: None,
            cache_bytes: EMBEDDED_CACHE_BYTES_DEFAULT,
            wait: Duration::ZERO,
            follow: false,
            verify: false,
            log_bytes: EMBEDDED_LOG_BYTES_DEFAULT,
            by: CommitBy::default(),
            read_only: false,
            accept_rollback: false,
            tables_only: false,
        }
    }

    /// Sets through what files are touched: the seam for tests.
    #[must_use]
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Sets the source of wall time. The journal's clock follows it, but never back.
    #[must_use]
    pub fn time(mut self, source: TimeSource) -> Self {
        self.time = Some(source);
        self
    }

    /// Sets the size of the page cache, in bytes.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets how long to wait for another process to let go of the journal. Opening blocks the
    /// calling thread meanwhile.
    #[must_use]
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// Whether the path may be a symbolic link.
    #[must_use]
    pub fn follow_symlinks(mut self, follow: bool) -> Self {
        self.follow = follow;
        self
    }

    /// Sets how long a file of the write-ahead log gets, in bytes. There are two of them most of
    /// the time; writers wait while twice as much is not in the tables, which bounds memory and
    /// the time that opening takes after a crash. At least 64 KiB.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes.max(64 << 10);
        self
    }

    /// Sets who writes to the log.
    #[must_use]
    pub fn commit_by(mut self, by: CommitBy) -> Self {
        self.by = by;
        self
    }

    /// Whether the journal is only looked at: no byte of its files changes, also where it was not
    /// closed and opening would recover it, and appends, messages, claims and erasures are refused.
    /// It is locked all the same, and may lie where nothing can be written.
    ///
    /// The last group of a journal that was not closed is then served as it is read: it may never
    /// have been acknowledged, and a loss of power may still take it.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether a journal is opened that is behind its anchor: an older copy that was put back on
    /// purpose. What came after it is given up, and the anchor says so from now on.
    ///
    /// What was done after that copy was made is not known any more. Steps run again: those that
    /// had an effect under the same operation keys, so that a downstream that still honours them
    /// does nothing twice, and others may. Ask for this once, after somebody has decided it.
    #[must_use]
    pub fn accept_rollback(mut self, accept: bool) -> Self {
        self.accept_rollback = accept;
        self
    }

    /// Whether every page of the file is verified before anything is served: about a second for
    /// each 600 MiB. Without it, records are verified when they are read.
    #[must_use]
    pub fn verify_pages(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("disk", &self.disk)
            .field("own_time", &self.time.is_some())
            .field("cache_bytes", &self.cache_bytes)
            .field("wait", &self.wait)
            .field("follow_symlinks", &self.follow)
            .field("verify_pages", &self.verify)
            .field("log_bytes", &self.log_bytes)
            .field("commit_by", &self.by)
            .field("read_only", &self.read_only)
            .field("accept_rollback", &self.accept_rollback)
            .finish()
    }
}

/// How to make a journal.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CreateOptions {
    pub(super) namespace: Option<[u8; 16]>,
    pub(super) secret: Option<[u8; 32]>,
    pub(super) log_id: Option<[u8; 16]>,
    pub(super) open: OpenOptions,
}

impl CreateOptions {
    /// Everything random, and the defaults of [`OpenOptions`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the namespace of operation keys, so that several journals share their keys on
    /// purpose.
    #[must_use]
    pub fn namespace(mut self, namespace: [u8; 16]) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Sets the secret of fingerprints, which goes with an import.
    #[must_use]
    pub fn secret(mut self, secret: [u8; 32]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Sets the log id. Two journals with one log id are two copies of one: for tests.
    #[must_use]
    pub fn log_id(mut self, log_id: [u8; 16]) -> Self {
        self.log_id = Some(log_id);
        self
    }

    /// Sets how the new journal is opened.
    #[must_use]
    pub fn open(mut self, open: OpenOptions) -> Self {
        self.open = open;
        self
    }
}
