//! The listening process: start, connections, a graceful end.

use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::desk::Desk;
use super::ledger::{Ledger, LedgerError};
use super::routes;

/// Connections that are served at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;
/// How long a connection may be idle, or take to send its headers. Longer than clients keep
/// theirs, so that a request seldom meets a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long open requests may take once the end has come.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How the bank helps a client that does not know what happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Honours `Idempotency-Key`.
    Keys,
    /// Ignores keys, but can be asked what became of a reference.
    Lookup,
    /// Neither.
    None,
}

/// How to run a bank.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The ledger's file; made if there is none
    #[arg(long, value_name = "FILE")]
    pub ledger: PathBuf,
    /// What the bank promises: keys, a look-up, or nothing
    #[arg(long, value_enum, default_value = "keys")]
    pub mode: Mode,
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Write the bank's address to this file when it is ready, instead of to standard output
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Wait so long before a refund takes effect
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub delay_before_ms: u64,
    /// Wait so long between the effect and the answer
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub delay_after_ms: u64,
    /// Answer 503 to every Nth refund, before it takes effect
    #[arg(long, value_name = "N")]
    pub fail_every: Option<NonZeroU64>,
    /// Execute every Nth refund and close the connection without an answer
    #[arg(long, value_name = "N")]
    pub lose_reply_every: Option<NonZeroU64>,
}

impl Options {
    /// A bank on a free port, without delays or faults.
    #[must_use]
    pub fn new(ledger: impl Into<PathBuf>, mode: Mode) -> Self {
        Self {
            ledger: ledger.into(),
            mode,
            port: 0,
            ready_file: None,
            delay_before_ms: 0,
            delay_after_ms: 0,
            fail_every: None,
            lose_reply_every: None,
        }
    }
}

/// The bank cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The port cannot be had.
    #[error("port {port} of 127.0.0.1: {source}: choose another, or 0 for a free one")]
    Port {
        /// The port that was asked for.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody can be told that the bank is ready.
    #[error("the bank's address cannot be announced: {0}")]
    Announce(#[source] io::Error),
    /// Signals cannot be waited for.
    #[error("signals cannot be waited for: {0}")]
    Signals(#[source] io::Error),
}

/// Runs a bank until SIGTERM or Ctrl-C, and then until its open requests are answered.
///
/// Says where it listens in the ready file or on standard output. Dropping the future closes the
/// port and all connections; executions that have begun go on as long as the runtime does.
///
/// # Errors
///
/// [`ServeError`] when it cannot start.
pub async fn serve(options: Options) -> Result<(), ServeError> {
    // Before the announcement: whoever reads it may send a signal at once.
    let end = end_signal().map_err(ServeError::Signals)?;
    let ready_file = options.ready_file.clone();
    let server = Server::open(options).await?;
    let address = server.base_url();
    let announced = match ready_file {
        Some(path) => write_whole(&path, &address),
        None => writeln!(io::stdout().lock(), "bank listening on {address}"),
    };
    announced.map_err(ServeError::Announce)?;
    server.run(end).await;
    Ok(())
}

/// A bank that listens, and answers as soon as it [runs](Server::run).
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    mode: Mode,
    desk: Arc<Desk>,
}

impl Server {
    /// Opens the ledger and the port. Needs a tokio runtime with I/O and time.
    ///
    /// # Errors
    ///
    /// [`ServeError::Ledger`] and [`ServeError::Port`].
    pub async fn open(options: Options) -> Result<Self, ServeError> {
        let port = options.port;
        let path = options.ledger.clone();
        let ledger = tokio::task::spawn_blocking(move || Ledger::open(&path)).await;
        let ledger = ledger.unwrap_or_else(|error| {
            let source = io::Error::other(error);
            Err(LedgerError::Io { path: options.ledger.clone(), source })
        })?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let (listener, address) = listener
            .and_then(|listener| listener.local_addr().map(|address| (listener, address)))
            .map_err(|source| ServeError::Port { port, source })?;
        let desk = Arc::new(Desk::new(ledger, &options));
        Ok(Self { listener, address, mode: options.mode, desk })
    }

    /// Where it listens, as `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Serves until `end` is ready, then lets open requests finish (ten seconds at most) and
    /// waits for every execution that has begun.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let (tell_end, told_end) = watch::channel(());
        let (running, mut all_done) = mpsc::channel::<()>(1);
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        let mut end = pin!(end);
        loop {
            let accepted = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, self.listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                () = &mut end => break,
                accepted = accepted => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (desk, running) = (Arc::clone(&self.desk), running.clone());
                    let (mode, end) = (self.mode, told_end.clone());
                    connections.spawn(async move {
                        connection(stream, desk, mode, running, end).await;
                        drop(slot);
                    });
                }
                // Out of file handles, most likely: some will be given back.
                Err(_) => pause().await,
            }
            while connections.try_join_next().is_some() {}
        }
        drop(self.listener);
        drop((tell_end, running));
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            connections.shutdown().await;
        }
        // Every execution holds a sender; none is ever used.
        let _none = all_done.recv().await;
    }
}

async fn connection(
    stream: TcpStream,
    desk: Arc<Desk>,
    mode: Mode,
    running: mpsc::Sender<()>,
    mut end: watch::Receiver<()>,
) {
    // Answers are small: waiting to fill a packet would only make them late.
    let _slower_without = stream.set_nodelay(true);
    let service = service_fn(|request| routes::answer(&desk, mode, running.clone(), request));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
    );
    // Either way the connection is over; what a client did to it is not the bank's trouble.
    let _over = tokio::select! {
        over = connection.as_mut() => over,
        _ = end.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
}

#[expect(clippy::disallowed_methods, reason = "the bank's own pause, outside any journal")]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Ready at the first SIGTERM or Ctrl-C after this call.
#[cfg(unix)]
fn end_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Ready at the first Ctrl-C.
#[cfg(not(unix))]
fn end_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// Written aside and renamed: whoever sees the file sees all of it.
fn write_whole(path: &Path, address: &str) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".partial");
    let mut file = File::create(&aside)?;
    writeln!(file, "{address}")?;
    drop(file);
    std::fs::rename(&aside, path)
}
