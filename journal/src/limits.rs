//! Every limit of the journal, by name.
//!
//! A limit that can be set by a user is a field of [`ValueLimits`]; a limit that is part of the
//! format is a constant.

/// Longest thread id, in bytes of UTF-8.
pub const THREAD_ID_BYTES_MAX: usize = 512;

/// Longest step, branch, signal or workflow name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 512;

/// Longest business key given with `.key(..)`, in bytes of UTF-8.
pub const BUSINESS_KEY_BYTES_MAX: usize = 1024;

/// Deepest branch path.
pub const BRANCH_DEPTH_MAX: usize = 64;

/// Longest record header, in bytes. Headers hold names and numbers only, so that real ones stay
/// below 2 KiB; this is more than the deepest branch path of the longest names takes, each
/// character of them escaped.
pub const HEADER_BYTES_MAX: usize = 256 * 1024;

/// Longest text in a header that comes from a message (who says it, why it is refused), in bytes
/// of UTF-8; longer ones are cut with a mark.
pub const HEADER_TEXT_BYTES_MAX: usize = 512;

/// Longest error text kept in a record, in bytes; longer ones are cut with a mark.
pub const ERROR_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Most causes of an error kept in a record; further ones are cut with a mark.
pub const ERROR_CAUSES_MAX: usize = 32;

/// After how many attempts that died with their process a step is parked as poison.
pub const POISON_CRASHES_MAX: usize = 3;

/// How many times a probe is asked before an inconclusive answer is left to a person.
pub const PROBES_MAX: u32 = 8;

/// The longest wait before another attempt that a body may ask for, in seconds; a longer one is
/// taken as this. A week.
pub const RETRY_AFTER_SECS_MAX: u64 = 7 * 24 * 3600;

/// How many deadlines of sleeping threads a book knows in advance; it learns the next ones when
/// these are over.
pub const DEADLINES_KNOWN_MAX: usize = 4096;

/// How many notices a book keeps for a watch that does not take them; older ones are missed, and
/// the watch is told how many.
pub const NOTICES_KEPT_MAX: usize = 1024;

/// Limits on one stored value, checked before it is written and again before it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueLimits {
    /// Deepest nesting of arrays and maps. Default 64; at most 128.
    pub depth_max: usize,
    /// Largest encoded value, in bytes. Default 16 MiB.
    pub bytes_max: usize,
}

impl ValueLimits {
    /// The defaults: depth 64, 16 MiB.
    #[must_use]
    pub const fn new() -> Self {
        Self { depth_max: 64, bytes_max: 16 * 1024 * 1024 }
    }

    /// Sets the deepest nesting. Values above 128 are taken as 128, the deepest that a debug
    /// build decodes on a 2 MiB stack with a wide margin.
    #[must_use]
    pub const fn depth_max(mut self, depth: usize) -> Self {
        self.depth_max = if depth > 128 { 128 } else { depth };
        self
    }

    /// Sets the largest encoded value, in bytes.
    #[must_use]
    pub const fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }
}

impl Default for ValueLimits {
    fn default() -> Self {
        Self::new()
    }
}

/// Most records in one element of an append.
pub const APPEND_RECORDS_MAX: usize = 65_536;

/// Most bytes in one element of an append, payloads included: four of the largest values.
pub const APPEND_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Records after which a run of a thread makes durable what it has, though its code has not come to
/// rest: code that goes on and on must not outrun the disk.
pub const BATCH_RECORDS_MAX: usize = 1024;

/// Bytes after which it does so; a single record may be larger.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Polls of a workflow after which others get their turn on its OS thread.
pub const TURN_POLLS_MAX: u32 = 1024;

/// Largest message to a thread, in bytes: the largest value and some room for names.
pub const MESSAGE_BYTES_MAX: usize = 17 * 1024 * 1024;

/// Page cache of the embedded home unless set, in bytes.
pub const EMBEDDED_CACHE_BYTES_DEFAULT: usize = 64 * 1024 * 1024;

/// Most elements that the embedded home commits together.
pub const EMBEDDED_GROUP_ELEMENTS_MAX: usize = 4096;

/// Bytes beyond which the embedded home takes no further element into a commit.
pub const EMBEDDED_GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most calls that wait for the embedded home's writer; further ones wait for their turn to wait.
pub const EMBEDDED_QUEUE_MAX: usize = 4096;

/// Length of a file of the embedded home's log unless set, in bytes.
pub const EMBEDDED_LOG_BYTES_DEFAULT: u64 = 16 << 20;

/// At most how much of a file of the log is filled with zeros ahead of use, in bytes.
pub const EMBEDDED_LOG_FILL_BYTES: u64 = 1 << 20;

/// How much of a new file of the log is filled before it is used: enough for a few commits of a
/// short-lived process.
pub const EMBEDDED_LOG_FIRST_BYTES: u64 = 64 << 10;

/// Bytes in the log after which they are drained into the tables, unless they are of many threads.
/// A drain has the disk and a core for as long as it takes, and steps wait meanwhile.
pub const EMBEDDED_DRAIN_BYTES: usize = 1 << 20;

/// Bytes of a thread that are worth a chunk of their own in the tables: a drain waits for so many
/// of each of its threads.
pub const EMBEDDED_DRAIN_THREAD_BYTES: usize = 16 << 10;

/// Bytes in the log after which they are drained into the tables, of however many threads.
pub const EMBEDDED_DRAIN_BYTES_MAX: usize = 4 << 20;

/// Entries in the log after which they are drained into the tables.
pub const EMBEDDED_DRAIN_ENTRIES: usize = 16_384;

/// Length of a page of the embedded home's tables, in bytes.
pub const EMBEDDED_PAGE_BYTES: usize = 4096;

/// Most pages that one part of a chunk fills.
pub const EMBEDDED_PART_PAGES_MAX: usize = 16;

/// Longest chunk of a thread's records that has more than one, in bytes: what is hashed and read at
/// once. It fills sixteen pages, but for what redb writes there beside it.
pub const EMBEDDED_CHUNK_BYTES: usize =
    EMBEDDED_PART_PAGES_MAX * EMBEDDED_PAGE_BYTES - EMBEDDED_PART_HEAD_BYTES;

/// What redb writes into the pages of a part beside it: four bytes about the page, four with the
/// part's end, and a key of twelve.
pub const EMBEDDED_PART_HEAD_BYTES: usize = 4 + 4 + 12;

/// Which share of its pages a part of a chunk may leave empty: this is the divisor.
pub const EMBEDDED_PART_SPARE: usize = 8;

/// Longest short part of a chunk, in bytes: four fill a page of redb, with their keys.
pub const EMBEDDED_PART_BYTES: usize = 1000;

/// Most extents in one stored list.
pub const EMBEDDED_LIST_EXTENTS_MAX: usize = 64;

/// How often in a row a caller of the embedded home that seems to be alone commits without letting
/// others go first.
pub const EMBEDDED_ALONE_MAX: u32 = 16;

/// How many requests in line are a crowd, for whom a thread of the embedded home commits: with
/// fewer the hand-over between threads is more than what their callers lose in a sync.
pub const EMBEDDED_CROWD: usize = 16;

/// Threads that read for the embedded home.
pub const EMBEDDED_READERS: usize = 2;

/// Most bytes that one call reads or lists from the embedded home, whatever it asks for; a single
/// record is read all the same.
pub const EMBEDDED_READ_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most entries of the log in one answer of the embedded home.
pub const EMBEDDED_LOG_ENTRIES_MAX: usize = 65_536;

/// Most threads in one answer of the embedded home.
pub const EMBEDDED_LIST_THREADS_MAX: usize = 10_000;

/// Most threads in memory that a list looks at before it lets others have their turn.
pub const EMBEDDED_LIST_LOOK_MAX: usize = 1024;

/// Bytes up to which an append is checked on its caller's thread and not on the embedded home's
/// writer.
pub const EMBEDDED_CHECK_BYTES_MAX: usize = 256 * 1024;

/// About how many bytes the embedded home reads in one transaction while it copies itself.
pub const EMBEDDED_COPY_BYTES: usize = 4 << 20;

/// Bytes after which a copy of the embedded home commits what it has written.
pub const EMBEDDED_COPY_COMMIT_BYTES: usize = 32 << 20;

/// Page cache of a copy that is being made, in bytes.
pub const EMBEDDED_COPY_CACHE_BYTES: usize = 32 << 20;

/// Most threads whose changes are remembered while the embedded home copies itself; if more
/// change, it looks at all of them again.
pub const EMBEDDED_COPY_CHANGED_MAX: usize = 200_000;

/// Changed threads that are few enough to be copied in one transaction.
pub const EMBEDDED_COPY_FEW: usize = 1000;

/// How often what has changed meanwhile is copied again before that is done in one transaction,
/// however long it takes.
pub const EMBEDDED_COPY_ROUNDS_MAX: u32 = 16;

/// About how many bytes of a thread are read at once while everything is checked.
pub const EMBEDDED_CHECK_READ_BYTES: usize = 4 << 20;

/// Most damage that an examination of the embedded home tells, each by its place.
pub const EMBEDDED_DAMAGE_TOLD_MAX: usize = 20;

/// Length of the file of the embedded home up to which an examination beside writers says how much
/// of it is free: what they free meanwhile is not used again before that is known.
pub const EMBEDDED_SPACE_LOOK_BYTES_MAX: u64 = 256 << 20;

/// Examinations of one open embedded home at a time; others wait.
pub const EMBEDDED_EXAMINATIONS_MAX: usize = 1;

/// Free space in the file of the embedded home from which on an examination advises to compact it,
/// if it is also half of the file.
pub const EMBEDDED_FREE_BYTES_MANY: u64 = 16 << 20;
