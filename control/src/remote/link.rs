//! The connection: a thread that writes requests and hands out answers.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use deedbook_journal::checkpointer::StoreError;
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, mpsc, oneshot},
    time::{Instant, timeout},
};

use super::ConnectError;
use crate::{
    First, first,
    limits::{CONNECT_TIME_MAX, IN_FLIGHT_MAX, LARGE_LINES_MAX, PROTOCOL_VERSION},
    line::{Bounds, Lines, NoLine},
    place::{self, There},
    server::identity_of,
    wire::{self, Fault, Hello, HelloAnswer, Kind},
};

/// What is to be reached.
pub(super) enum Target {
    Journal(PathBuf),
    Socket(PathBuf),
}

/// An open connection. It ends when this is dropped.
pub(super) struct Link {
    requests: mpsc::Sender<Asked>,
    shared: Arc<Shared>,
    ids: AtomicU64,
}

struct Asked {
    id: u64,
    line: Vec<u8>,
    answers: mpsc::UnboundedSender<String>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<HashMap<u64, mpsc::UnboundedSender<String>>>,
    over: OnceLock<String>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, mpsc::UnboundedSender<String>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request. What is received then are the lines that answer it; nothing more comes
    /// once the connection is lost.
    pub(super) async fn ask(
        &self,
        id: u64,
        line: Vec<u8>,
    ) -> Result<mpsc::UnboundedReceiver<String>, StoreError> {
        let (answers, receiver) = mpsc::unbounded_channel();
        let sent = self.requests.send(Asked { id, line, answers }).await;
        // What was not even taken was not written.
        sent.map_err(|_| self.lost(false))?;
        Ok(receiver)
    }

    /// What it means that there is no answer.
    pub(super) fn lost(&self, writes: bool) -> StoreError {
        let why = self.shared.over.get().map_or("it went away", String::as_str);
        let why = format!("the connection to the process that holds the journal is lost: {why}");
        match writes {
            true => StoreError::Unknown { why: why.into() },
            false => StoreError::Failed { why: why.into() },
        }
    }
}

/// Connects, on a thread that then carries the connection.
pub(super) async fn open(target: Target) -> Result<(Link, HelloAnswer, PathBuf), ConnectError> {
    let (requests, asked) = mpsc::channel(IN_FLIGHT_MAX);
    let shared = Arc::new(Shared::default());
    let (ready, is_ready) = oneshot::channel();
    let theirs = Arc::clone(&shared);
    let start = |source| ConnectError::Io { path: PathBuf::new(), source };
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(start(error)))),
        };
        runtime.block_on(async {
            match connect(&target).await {
                Ok((lines, write, hello, path)) => {
                    // If nobody waits any more, nobody asks either.
                    let _ = ready.send(Ok((hello, path)));
                    carry(lines, write, asked, &theirs).await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
    };
    thread::Builder::new().name("deedbook-remote".into()).spawn(run).map_err(start)?;
    let answer = is_ready.await;
    let (hello, path) = answer.unwrap_or_else(|_| {
        Err(start(io::Error::other("the thread of the connection has ended")))
    })?;
    Ok((Link { requests, shared, ids: AtomicU64::new(1) }, hello, path))
}

type Open = (Lines<OwnedReadHalf>, OwnedWriteHalf, HelloAnswer, PathBuf);

/// Tries the places where the socket may be.
async fn connect(target: &Target) -> Result<Open, ConnectError> {
    let start = |source| ConnectError::Io { path: PathBuf::new(), source };
    let user = place::user().map_err(start)?;
    let (places, journal) = match target {
        Target::Socket(socket) => (vec![socket.clone()], None),
        Target::Journal(journal) => {
            let no = |source| ConnectError::NoJournal { path: journal.clone(), source };
            (place::places(journal, user).map_err(no)?, Some(journal.as_path()))
        }
    };
    let mut why = ConnectError::NotServed;
    for path in places {
        match place::look(&path, user) {
            Ok(There::Socket) => {}
            Ok(There::Nothing) => continue,
            Ok(There::Other) => {
                why = ConnectError::NotSafe { path };
                continue;
            }
            Err(source) => {
                why = ConnectError::Io { path, source };
                continue;
            }
        }
        let silent = || ConnectError::Silent { path: path.clone(), waited: CONNECT_TIME_MAX };
        let stream = match timeout(CONNECT_TIME_MAX, UnixStream::connect(&path)).await {
            Ok(Ok(stream)) => stream,
            // Nobody listens any more.
            Ok(Err(e)) if is_stale(&e) => continue,
            Ok(Err(source)) => return Err(ConnectError::Io { path, source }),
            Err(_) => return Err(silent()),
        };
        let peer = stream.peer_cred().map_err(start)?;
        if peer.uid() != user {
            return Err(ConnectError::NotSafe { path });
        }
        let greeted = timeout(CONNECT_TIME_MAX, greet(stream, &path)).await;
        let (lines, write, hello) = greeted.map_err(|_| silent())??;
        let ours = journal.and_then(|journal| identity_of(journal).ok());
        if let (Some(theirs), Some(ours)) = (hello.file, ours)
            && theirs != ours
        {
            return Err(ConnectError::OtherFile { path, pid: hello.pid });
        }
        return Ok((lines, write, hello, path));
    }
    Err(why)
}

fn is_stale(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

fn bounds() -> Bounds {
    // The owner is trusted with time: what takes long there takes long.
    let time = Duration::from_secs(3600);
    Bounds { large: Arc::new(Semaphore::new(LARGE_LINES_MAX)), time }
}

async fn greet(
    stream: UnixStream,
    path: &Path,
) -> Result<(Lines<OwnedReadHalf>, OwnedWriteHalf, HelloAnswer), ConnectError> {
    let gone = || ConnectError::Gone { path: path.into() };
    let (read, mut write) = stream.into_split();
    let client = format!("deedbook {}", env!("CARGO_PKG_VERSION"));
    let hello = Hello { v: PROTOCOL_VERSION, log_id: None, client: Some(client) };
    let asking = wire::Asking { id: 0, op: "hello", args: &hello };
    let mut line = serde_json::to_vec(&asking)
        .map_err(|e| ConnectError::Io { path: path.into(), source: e.into() })?;
    line.push(b'\n');
    // One that sends us away does not wait for this; what it said is there all the same.
    let _ = write.write_all(&line).await;
    let mut lines = Lines::new(read);
    let answer = lines.next(&bounds(), None).await.map_err(|_| gone())?;
    let answer = serde_json::from_str::<wire::Answer<HelloAnswer>>(&answer.text);
    let refused = |said: String| ConnectError::Refused { said };
    match answer {
        Ok(wire::Answer { ok: Some(hello), .. }) if hello.v == PROTOCOL_VERSION => {
            Ok((lines, write, hello))
        }
        Ok(wire::Answer { error: Some(Fault { kind: Kind::Busy, message, .. }), .. }) => {
            Err(ConnectError::Busy { said: message })
        }
        Ok(wire::Answer { error: Some(fault), .. }) => Err(refused(fault.message)),
        _ => Err(refused(format!(
            "{}: whoever listens there does not speak this protocol",
            path.display()
        ))),
    }
}

/// Carries the connection until either side has enough.
async fn carry(
    mut lines: Lines<OwnedReadHalf>,
    mut write: OwnedWriteHalf,
    mut asked: mpsc::Receiver<Asked>,
    shared: &Shared,
) {
    let read = async {
        let bounds = bounds();
        loop {
            match lines.next(&bounds, None).await {
                Ok(line) => hand_out(shared, line.text)?,
                Err(NoLine::End | NoLine::Half) => return Err("it has gone".to_owned()),
                Err(NoLine::Io(error)) => return Err(error.to_string()),
                Err(_) => return Err("it says what cannot be read".to_owned()),
            }
        }
    };
    let send = async {
        while let Some(Asked { id, line, answers }) = asked.recv().await {
            shared.waiting().insert(id, answers);
            if let Err(error) = write.write_all(&line).await {
                return Some(error.to_string());
            }
        }
        None
    };
    let why: String = match first(read, send).await {
        First::This(Ok::<std::convert::Infallible, String>(never)) => match never {},
        First::This(Err(why)) => why,
        First::That(None) => "it was closed".to_owned(),
        First::That(Some(why)) => {
            // Why the other side does not listen is what it said last.
            let bounds = bounds();
            let last = lines.next(&bounds, Some(Instant::now() + Duration::from_secs(1)));
            match last.await {
                Ok(line) => hand_out(shared, line.text).err().unwrap_or(why),
                Err(_) => why,
            }
        }
    };
    // First why, then that: whoever waits looks at both.
    let _ = shared.over.set(why);
    asked.close();
    while asked.try_recv().is_ok() {}
    shared.waiting().clear();
}

/// Gives a line to whoever waits for it; an error that is for nobody ends the connection.
fn hand_out(shared: &Shared, line: String) -> Result<(), String> {
    let seen = serde_json::from_str::<wire::Seen<'_>>(&line);
    let (id, more) = match seen {
        Ok(wire::Seen { id: Some(id), progress }) => (id, progress.is_some()),
        Ok(wire::Seen { id: None, .. }) => {
            let answer = serde_json::from_str::<wire::Answer<()>>(&line);
            let said = answer.ok().and_then(|answer| answer.error).map(|fault| fault.message);
            return Err(said.unwrap_or_else(|| "it says nothing that is understood".into()));
        }
        Err(error) => return Err(format!("it says what is not understood: {error}")),
    };
    let mut waiting = shared.waiting();
    let to = if more { waiting.get(&id).cloned() } else { waiting.remove(&id) };
    if let Some(to) = to {
        // Whoever asked may not want to know any more.
        let _ = to.send(line);
    }
    Ok(())
}
