//! Who answers: a thread of its own, beside whatever else the process does.

mod answer;
mod connection;
mod error;
mod guard;

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use deedbook_journal::{embedded::Embedded, holding::Holding};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, timeout},
};

pub use error::ServeError;

use crate::{
    First, first,
    limits::{CONNECTIONS_MAX, LARGE_LINES_MAX, LINE_TIME_MAX},
    line::Bounds,
    place::{self, Named, There},
    wire::{self, Fault, Kind},
};

/// How long to wait when the system gives no further connections for now.
const BREATH: Duration = Duration::from_millis(50);

/// How long a client waits for somebody to leave when there is no room.
const MOMENT: Duration = Duration::from_millis(200);

/// One socket is made at a time: what stands at its name is looked at, and then replaced.
static MAKING: Mutex<()> = Mutex::new(());

/// Lets others reach the journal of `holding`, through a socket beside its file, until the guard
/// is dropped: one line of a program.
///
/// ```
/// # use std::sync::Arc;
/// # use deedbook_journal::embedded::{CreateOptions, Embedded};
/// # let folder = std::env::temp_dir().join(format!("deedbook-serve-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let home = Arc::new(Embedded::create(folder.join("book.redb"), CreateOptions::new())?);
/// let control = deedbook_control::serve(home)?;
/// assert!(control.path().ends_with("book.redb.control"));
/// # drop(control);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With a book it is `deedbook_control::serve(&book)?`: threads that others say something to are
/// then taken up at once. Needs no async runtime, and takes a thread of its own.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(holding: impl Into<Holding>) -> Result<Serving, ServeError> {
    let holding = holding.into();
    let journal = holding.file().map(|file| file.path().to_owned()).ok_or(ServeError::NoFile)?;
    start(holding, Where::Beside(journal))
}

/// Lets others reach a home of any kind through a socket at this path, which nothing of the user's
/// may stand at but a socket that nobody listens on.
///
/// # Errors
/// See [`ServeError`].
pub fn serve_at(
    holding: impl Into<Holding>,
    socket: impl AsRef<Path>,
) -> Result<Serving, ServeError> {
    start(holding.into(), Where::At(socket.as_ref().into()))
}

enum Where {
    Beside(PathBuf),
    At(PathBuf),
}

/// How a server is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    No,
    /// Once what was asked is answered.
    Gently,
    AtOnce,
}

/// A socket through which others reach a journal. Dropping it cuts them off, and removes the
/// socket; an append that is under way then may or may not have happened, and they are told so.
#[derive(Debug)]
#[must_use = "dropped, it lets nobody in any more: keep it for as long as the book is open"]
pub struct Serving {
    path: PathBuf,
    stop: watch::Sender<Stop>,
    leave: mpsc::Sender<oneshot::Sender<bool>>,
    stopped: Option<oneshot::Receiver<()>>,
    quiet: Arc<Mutex<Quiet>>,
    leaving: Arc<Leaving>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For how long nobody has been connected.
    #[must_use]
    pub fn quiet_for(&self) -> Duration {
        let quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        match quiet.connections {
            0 => quiet.since.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Lets a client who needs the journal for itself ask this process to leave, while nobody else
    /// is connected: [`was_asked_to_leave`](Self::was_asked_to_leave) says so then. Unless this was
    /// called, whoever asks is refused.
    pub fn may_be_asked_to_leave(&self) {
        self.leaving.may.store(true, Ordering::Release);
    }

    /// Whether somebody has asked this process to leave since this was called last. Others may have
    /// come meanwhile: [`leave_if_quiet`](Self::leave_if_quiet) turns nobody away.
    #[must_use]
    pub fn was_asked_to_leave(&self) -> bool {
        self.leaving.asked.swap(false, Ordering::AcqRel)
    }

    /// Takes no further connections and removes the socket if nobody is connected; else it goes
    /// on. Says whether it has left. Nobody who has come is turned away.
    pub async fn leave_if_quiet(&mut self) -> bool {
        let (answer, left) = oneshot::channel();
        // A server that has ended by itself has left.
        self.leave.send(answer).await.is_err() || left.await.unwrap_or(true)
    }

    /// Takes no further connections, answers what was asked (for two seconds at most), and removes
    /// the socket.
    pub async fn stop(mut self) {
        let _ = self.stop.send(Stop::Gently);
        if let Some(stopped) = self.stopped.take() {
            // Its end is what is waited for, whatever it was.
            let _ = stopped.await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Nobody receives it if it has ended by itself.
        let _ = self.stop.send(Stop::AtOnce);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Who is connected, and since when nobody is.
#[derive(Debug)]
struct Quiet {
    connections: usize,
    since: Instant,
}

/// Whether this process leaves when somebody asks, and whether somebody has.
#[derive(Debug, Default)]
struct Leaving {
    may: AtomicBool,
    asked: AtomicBool,
}

/// What all connections share.
struct Server {
    holding: Holding,
    user: u32,
    program: String,
    file: Option<wire::File>,
    bounds: Bounds,
    quiet: Arc<Mutex<Quiet>>,
    leaving: Arc<Leaving>,
    /// Who waits for a guarded step.
    waiting: guard::Waiting,
    /// What is known of the guards' switch.
    switch: tokio::sync::Mutex<deedbook_journal::guard::Switch>,
}

impl Server {
    /// Somebody wants this process to leave. It does if it may and nobody else is connected.
    fn leaves(&self) -> Result<bool, Fault> {
        if !self.leaving.may.load(Ordering::Acquire) {
            let why = "this process holds the journal for itself, and does not leave when asked";
            return Err(Fault::refused(why));
        }
        let quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = quiet.connections <= 1;
        self.leaving.asked.fetch_or(alone, Ordering::AcqRel);
        Ok(alone)
    }

    /// Room for an answer that may become long, unless the request came with some.
    async fn room(&self, room: &mut Option<OwnedSemaphorePermit>) {
        if room.is_none() {
            // It is never closed.
            *room = Arc::clone(&self.bounds.large).acquire_owned().await.ok();
        }
    }
}

/// A connection that counts.
struct Counted(Arc<Mutex<Quiet>>);

impl Counted {
    fn new(quiet: &Arc<Mutex<Quiet>>) -> Option<Self> {
        let mut state = quiet.lock().unwrap_or_else(PoisonError::into_inner);
        if state.connections >= CONNECTIONS_MAX {
            return None;
        }
        state.connections += 1;
        Some(Self(Arc::clone(quiet)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.connections -= 1;
        state.since = Instant::now();
    }
}

fn start(holding: Holding, place: Where) -> Result<Serving, ServeError> {
    let quiet = Arc::new(Mutex::new(Quiet { connections: 0, since: Instant::now() }));
    let (stop, stopping) = watch::channel(Stop::No);
    let (leave, leaves) = mpsc::channel(1);
    let (ended, stopped) = oneshot::channel();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let leaving = Arc::new(Leaving::default());
    let shared = (Arc::clone(&quiet), Arc::clone(&leaving));
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(ServeError::Start(error)))),
        };
        runtime.block_on(async {
            match make(&place) {
                Ok((listener, named, user)) => {
                    let _ = ready.send(Ok(named.path().to_owned()));
                    let server = server(holding, user, shared);
                    let door = Door { listener, named };
                    accept(door, Arc::new(server), stopping, leaves).await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        // Nobody waits unless somebody asked for a gentle stop.
        let _ = ended.send(());
    };
    let thread = thread::Builder::new().name("deedbook-control".into()).spawn(run);
    let thread = thread.map_err(ServeError::Start)?;
    let path = is_ready.recv().unwrap_or_else(|_| {
        Err(ServeError::Start(io::Error::other("its thread has ended before it began")))
    })?;
    let (stopped, thread) = (Some(stopped), Some(thread));
    Ok(Serving { path, stop, leave, stopped, quiet, leaving, thread })
}

fn server(
    holding: Holding,
    user: u32,
    (quiet, leaving): (Arc<Mutex<Quiet>>, Arc<Leaving>),
) -> Server {
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_name());
    let file = holding.file().and_then(|file| identity_of(file.path()).ok());
    Server {
        program: program.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        holding,
        user,
        file,
        bounds: Bounds { large: Arc::new(Semaphore::new(LARGE_LINES_MAX)), time: LINE_TIME_MAX },
        quiet,
        leaving,
        waiting: guard::Waiting::default(),
        switch: tokio::sync::Mutex::default(),
    }
}

/// Which file this is.
pub(crate) fn identity_of(path: &Path) -> io::Result<wire::File> {
    let seen = fs::metadata(path)?;
    Ok(wire::File { device: seen.dev(), inode: seen.ino() })
}

/// Makes the socket at the first place where that can be.
fn make(place: &Where) -> Result<(UnixListener, Named, u32), ServeError> {
    let user = place::user().map_err(ServeError::Start)?;
    let places = match place {
        Where::At(socket) => vec![socket.clone()],
        Where::Beside(journal) => {
            holds(journal)?;
            place::places(journal, user)
                .map_err(|source| ServeError::Io { path: journal.clone(), source })?
        }
    };
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut first = None;
    for (n, path) in places.into_iter().enumerate() {
        match make_at(&path, n == 0, user) {
            Ok((listener, named)) => return Ok((listener, named, user)),
            // There may be another place for it, but not for a second one.
            Err(error @ ServeError::Io { .. }) => _ = first.get_or_insert(error),
            Err(error) => return Err(error),
        }
    }
    Err(first.unwrap_or_else(|| {
        let why = "there is no place for its socket: every path would be too long";
        ServeError::Start(io::Error::other(why))
    }))
}

/// Whether the system knows that another process has the journal.
fn holds(journal: &Path) -> Result<(), ServeError> {
    match Embedded::holder(journal) {
        Ok(Some(holder)) if holder.pid != Some(std::process::id()) => {
            Err(ServeError::NotHolder { path: journal.into(), holder })
        }
        _ => Ok(()),
    }
}

fn make_at(path: &Path, beside: bool, user: u32) -> Result<(UnixListener, Named), ServeError> {
    let io = |source| ServeError::Io { path: path.into(), source };
    place::secure(path, beside, user).map_err(io)?;
    match place::look(path, user).map_err(io)? {
        There::Nothing => {}
        There::Other => return Err(ServeError::InTheWay { path: path.into() }),
        There::Socket => {
            // A process that was killed leaves its socket behind. Whoever has the journal, and so
            // knows that it is over, may remove it; a live one is somebody's.
            match std::os::unix::net::UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(io)?;
                }
                _ => return Err(ServeError::AlreadyServed { path: path.into() }),
            }
        }
    }
    place::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => ServeError::AlreadyServed { path: path.into() },
        _ => io(error),
    })
}

/// A socket, and its name.
struct Door {
    listener: UnixListener,
    named: Named,
}

impl Door {
    /// Takes the name away, and gives it back if somebody came before that. The connections are
    /// theirs.
    async fn close_if_quiet(self, quiet: &Mutex<Quiet>) -> Result<(), (Self, Vec<UnixStream>)> {
        let is_quiet = || quiet.lock().unwrap_or_else(PoisonError::into_inner).connections == 0;
        if !is_quiet() {
            return Err((self, Vec::new()));
        }
        let path = self.named.path().to_owned();
        drop(self.named);
        // From here on nobody finds it; whoever did before stands in line.
        let mut came = Vec::new();
        while let Ok(Ok((stream, _))) = timeout(BREATH / 2, self.listener.accept()).await {
            came.push(stream);
        }
        if came.is_empty() {
            return Ok(());
        }
        match place::bind(&path) {
            Ok((listener, named)) => Err((Self { listener, named }, came)),
            // Nobody new finds it; those who are there are served.
            Err(_) => Err((Self { listener: self.listener, named: Named::nothing(path) }, came)),
        }
    }
}

async fn accept(
    mut door: Door,
    server: Arc<Server>,
    mut stop: watch::Receiver<Stop>,
    mut leave: mpsc::Receiver<oneshot::Sender<bool>>,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let told = first(stopped(&mut stop), leave.recv());
        match first(told, door.listener.accept()).await {
            First::This(First::That(Some(answer))) => {
                match door.close_if_quiet(&server.quiet).await {
                    Ok(()) => {
                        let _ = answer.send(true);
                        return;
                    }
                    Err((again, came)) => {
                        door = again;
                        for stream in came {
                            welcome(stream, &server, &stop, &mut connections);
                        }
                        let _ = answer.send(false);
                    }
                }
            }
            First::This(_) => break,
            First::That(Ok((stream, _))) => {
                if connections.len() >= CONNECTIONS_MAX {
                    // Most of a crowd has gone again a moment later.
                    let _ = timeout(MOMENT, connections.join_next()).await;
                }
                welcome(stream, &server, &stop, &mut connections);
            }
            First::That(Err(_)) => {
                let _ = timeout(BREATH, stopped(&mut stop)).await;
            }
        }
    }
    // Whoever comes now finds nobody, and may take over.
    drop(door);
    let mut now = stop.clone();
    let at_once = now.wait_for(|stop| *stop == Stop::AtOnce);
    let rest = async { while connections.join_next().await.is_some() {} };
    let _ = first(rest, at_once).await;
}

/// Resolves when the server is to stop.
async fn stopped(stop: &mut watch::Receiver<Stop>) -> Stop {
    let asked = stop.wait_for(|stop| *stop != Stop::No).await;
    // A guard that is gone asks for it too.
    asked.map_or(Stop::AtOnce, |stop| *stop)
}

/// Takes a connection of the same user, if there is room for it.
fn welcome(
    stream: UnixStream,
    server: &Arc<Server>,
    stop: &watch::Receiver<Stop>,
    connections: &mut JoinSet<()>,
) {
    let peer = stream.peer_cred().map(|peer| peer.uid());
    let fault = match (peer, Counted::new(&server.quiet)) {
        (Ok(peer), Some(counted)) if peer == server.user => {
            let (server, stop) = (Arc::clone(server), stop.clone());
            connections.spawn(async move {
                connection::run(stream, server, stop).await;
                drop(counted);
            });
            return;
        }
        (Ok(peer), _) if peer == server.user => Fault::new(
            Kind::Busy,
            format!("{CONNECTIONS_MAX} clients are connected, and no more are taken; try later"),
        ),
        _ => Fault::new(Kind::Forbidden, "this journal is another user's"),
    };
    let line = wire::failure(None, &fault);
    // As far as it goes at once: nobody waits for somebody who is sent away.
    let _ = stream.try_write(&line);
}
