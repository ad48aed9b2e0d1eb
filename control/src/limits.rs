//! Every limit of the control socket, by name. `docs/reference/control-protocol.md` states them.

use std::time::Duration;

/// The version of the protocol that this build speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// Longest line either side sends or takes, its end included, in bytes: the largest value (16 MiB)
/// in base64, with room.
pub const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Length up to which a line is just read; longer ones wait for one of
/// [`LARGE_LINES_MAX`] permits.
pub const LINE_BYTES_SMALL: usize = 64 * 1024;

/// How many long lines, and answers that may become long, a server has in memory at once, of all
/// connections together. Others wait.
pub const LARGE_LINES_MAX: usize = 8;

/// Connections to one server at once; one more is told that the server is busy.
pub const CONNECTIONS_MAX: usize = 256;

/// Requests of one connection that are carried out at once; the server reads no further ones
/// meanwhile.
pub const IN_FLIGHT_MAX: usize = 32;

/// How long a line may take from its first byte to its last one.
pub const LINE_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a client may take to say hello.
pub const HELLO_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a client may take to read an answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a server that stops waits for the requests that it has begun.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a client waits for a connection and for the answer to its hello.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Most bytes of records in one answer, unless a single record has more.
pub const READ_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most threads in one answer.
pub const LIST_THREADS_MAX: usize = 1000;

/// Most entries of the log in one answer.
pub const LOG_ENTRIES_MAX: usize = 4096;

/// Most bytes of messages in one answer, unless a single message has more.
pub const INBOX_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Tickets of the guard that one connection holds at once.
pub const TICKETS_MAX: usize = 1024;

/// For how long a guarded step is held, unless its caller says otherwise or renews it.
pub const GUARD_LEASE_DEFAULT: Duration = Duration::from_secs(60);

/// How often a waiting claim looks again at a step that somebody is at who does not use the socket.
pub const GUARD_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest path of a socket, the zero behind it included, in bytes.
pub const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 108 } else { 104 };
