//! One client: its lines are read, carried out side by side, and answered.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use deedbook_journal::id::{Epoch, ThreadId};
use serde::Deserialize;
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, Notify, Semaphore, watch},
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{Server, Stop, answer, guard::Tickets, stopped};
use crate::{
    First, first,
    limits::{ANSWER_TIME_MAX, HELLO_TIME_MAX, IN_FLIGHT_MAX, LINE_TIME_MAX, STOP_TIME_MAX},
    line::{Line, Lines, NoLine},
    wire::{self, Fault, Kind, Request},
};

/// How long a client that did wrong may go on sending before the connection is closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Whom answers go to, and what it holds.
pub(super) struct Client {
    pub(super) tickets: Tickets,
    name: OnceLock<String>,
    /// What it has taken hold of by itself.
    pub(super) leases: std::sync::Mutex<HashMap<ThreadId, Epoch>>,
    write: Mutex<OwnedWriteHalf>,
    dead: AtomicBool,
    cut: Notify,
}

impl Client {
    fn new(write: OwnedWriteHalf) -> Arc<Self> {
        Arc::new(Self {
            tickets: Tickets::default(),
            name: OnceLock::new(),
            leases: std::sync::Mutex::default(),
            write: Mutex::new(write),
            dead: AtomicBool::new(false),
            cut: Notify::new(),
        })
    }

    /// What it calls itself.
    pub(super) fn name(&self) -> String {
        self.name.get().cloned().unwrap_or_else(|| "control".to_owned())
    }

    pub(super) fn leases(&self) -> std::sync::MutexGuard<'_, HashMap<ThreadId, Epoch>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has gone: what it held is free, as if its process had died.
    async fn let_go(&self, server: &Server) {
        self.tickets.let_go(server).await;
        let leases: Vec<_> = self.leases().drain().collect();
        if !leases.is_empty() {
            // Leases that cannot be released run out by themselves.
            let _ = server.holding.home().renew(&leases, Duration::ZERO).await;
            for (thread, _) in &leases {
                server.holding.noticed(thread);
            }
        }
    }

    /// Sends a line, whole. A client that does not read is cut off.
    pub(super) async fn send(&self, line: &[u8]) {
        let mut write = self.write.lock().await;
        if self.dead.load(Ordering::Acquire) {
            return;
        }
        let sent = timeout(ANSWER_TIME_MAX, write.write_all(line)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.dead.store(true, Ordering::Release);
            self.cut.notify_one();
        }
    }
}

/// Talks with a client until either side has enough.
pub(super) async fn run(stream: UnixStream, server: Arc<Server>, mut stop: watch::Receiver<Stop>) {
    let (read, write) = stream.into_split();
    let out = Client::new(write);
    let mut lines = Lines::new(read);
    let mut work = JoinSet::new();
    let talk = first(talk(&mut lines, &server, &out, &mut work), out.cut.notified());
    match first(talk, stopped(&mut stop)).await {
        First::This(First::This(Some(fault))) => {
            out.send(&wire::failure(None, &fault)).await;
            lines.drain(LAST_WORDS).await;
        }
        First::This(First::That(())) | First::That(Stop::AtOnce) => {}
        // It has said all that it wants to say, or we have heard all that we want to hear.
        First::This(First::This(None)) | First::That(_) => {
            let rest = async { while work.join_next().await.is_some() {} };
            let at_once = stop.wait_for(|stop| *stop == Stop::AtOnce);
            let _ = timeout(STOP_TIME_MAX, first(rest, at_once)).await;
        }
    }
    // What is still under way is given up first, so that nothing is taken behind it.
    work.shutdown().await;
    out.let_go(&server).await;
}

/// Reads requests and begins them. `None` when the client has no more, else what it did wrong.
async fn talk(
    lines: &mut Lines<OwnedReadHalf>,
    server: &Arc<Server>,
    out: &Arc<Client>,
    work: &mut JoinSet<()>,
) -> Option<Fault> {
    let hello_by = Instant::now() + HELLO_TIME_MAX;
    let line = match lines.next(&server.bounds, Some(hello_by)).await {
        Ok(line) => line,
        Err(NoLine::Slow) => return Some(no_hello()),
        Err(no_line) => return fault_of(no_line),
    };
    match answer::hello(server, &line.text) {
        Ok((line, name)) => {
            let _ = out.name.set(name.unwrap_or_else(|| "control".to_owned()));
            out.send(&line).await;
        }
        Err(fault) => return Some(fault),
    }
    let slots = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await;
        while work.try_join_next().is_some() {}
        match lines.next(&server.bounds, None).await {
            Ok(line) => {
                let (server, out) = (Arc::clone(server), Arc::clone(out));
                work.spawn(async move {
                    request(line, &server, &out).await;
                    drop(slot);
                });
            }
            Err(NoLine::NotText) => {
                let fault = Fault::new(Kind::BadJson, "a line is text in UTF-8");
                out.send(&wire::failure(None, &fault)).await;
            }
            Err(no_line) => return fault_of(no_line),
        }
    }
}

fn no_hello() -> Fault {
    let (begun, whole) = (HELLO_TIME_MAX.as_secs(), LINE_TIME_MAX.as_secs());
    let said = format!(
        "no hello came: it has to begin within {begun} seconds of connecting, and to be whole \
         within {whole} more"
    );
    Fault::new(Kind::Slow, said)
}

fn fault_of(no_line: NoLine) -> Option<Fault> {
    match no_line {
        NoLine::End | NoLine::Io(_) => None,
        NoLine::Half => Some(Fault::new(Kind::BadJson, "the last line has no end")),
        NoLine::TooLong => Some(Fault::too_long()),
        NoLine::Slow => {
            let seconds = LINE_TIME_MAX.as_secs();
            let said = format!("a line has to come within {seconds} seconds of its first byte");
            Some(Fault::new(Kind::Slow, said))
        }
        NoLine::NotText => Some(Fault::new(Kind::BadJson, "a line is text in UTF-8")),
    }
}

/// Carries out one request and answers it, whatever comes.
async fn request(line: Line, server: &Server, out: &Arc<Client>) {
    let Line { text, mut room } = line;
    let asked = match read(&text) {
        Ok(asked) => asked,
        Err((id, fault)) => return out.send(&wire::failure(id, &fault)).await,
    };
    let id = asked.id;
    let args = asked.args.map_or("{}", |args| args.get());
    let answered = caught(answer::answer(server, out, id, &asked.op, args, &mut room)).await;
    let answered = answered.unwrap_or_else(|| Err(Fault::internal("the request panicked")));
    let line = match answered {
        Ok(line) if line.len() > crate::limits::LINE_BYTES_MAX => {
            let why = format!("the answer has {} bytes, more than a line can hold", line.len());
            wire::failure(Some(id), &Fault::refused(why))
        }
        Ok(line) => line,
        Err(fault) => wire::failure(Some(id), &fault),
    };
    out.send(&line).await;
}

/// Reads a request line; what can be said of a bad one goes with its id, if it has one.
pub(super) fn read(text: &str) -> Result<Request<'_>, (Option<u64>, Fault)> {
    #[derive(Deserialize)]
    struct Any {
        id: Option<u64>,
    }
    serde_json::from_str(text).map_err(|error| {
        if !error.is_data() {
            return (None, Fault::new(Kind::BadJson, format!("a line is JSON: {error}")));
        }
        let id = serde_json::from_str::<Any>(text).ok().and_then(|any| any.id);
        (id, Fault::bad_request(&error.to_string()))
    })
}

/// The outcome of a future, or `None` if it panicked.
async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}
