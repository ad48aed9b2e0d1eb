//! The server.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http_body_util::{BodyExt, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Frame, Incoming},
    header::{CONTENT_TYPE, RETRY_AFTER},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    script::{Fault, Line, Script},
    speech,
};

/// The longest request.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// A server at work: it stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    running: JoinSet<()>,
}

impl Server {
    /// What a client takes as its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How many requests came.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Runs until the process ends.
    pub async fn forever(mut self) {
        while self.running.join_next().await.is_some() {}
    }
}

/// Plays this script on loopback, at this port or, for 0, at any.
///
/// # Errors
/// The port is taken.
pub async fn serve(script: Script, port: u16) -> io::Result<Server> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let player = Arc::new(Player { script, played: Mutex::default(), requests: Arc::default() });
    let requests = player.requests.clone();
    let mut running = JoinSet::new();
    running.spawn(accept(listener, player));
    Ok(Server { address, requests, running })
}

async fn accept(listener: TcpListener, player: Arc<Player>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let player = player.clone();
        connections.spawn(async move {
            let answer = service_fn(|request| player.clone().answer(request));
            // A connection that breaks is one of the things that are played.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

#[derive(Debug)]
struct Player {
    script: Script,
    /// How many faults of a line were played in a conversation.
    played: Mutex<HashMap<(String, usize), usize>>,
    requests: Arc<AtomicUsize>,
}

impl Player {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Parts>, Infallible> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if request.method() != Method::POST || !request.uri().path().ends_with("/chat/completions")
        {
            return Ok(problem(StatusCode::NOT_FOUND, "POST …/chat/completions is all there is"));
        }
        let body = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await;
        let asked = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
        let Some(asked): Option<Value> = asked else {
            return Ok(problem(StatusCode::BAD_REQUEST, "the body is no JSON"));
        };
        if let Err(why) = well_formed(&asked) {
            return Ok(problem(StatusCode::BAD_REQUEST, &why));
        }
        let Some((conversation, number, line)) = self.line(&asked) else {
            return Ok(problem(StatusCode::BAD_REQUEST, "the script has no line for this"));
        };
        let fault = self.fault(&conversation, number, &line);
        Ok(play(&asked, &line, fault).await)
    }

    /// The line that is next, with its conversation.
    fn line(&self, asked: &Value) -> Option<(String, usize, Line)> {
        let messages = asked.get("messages")?.as_array()?;
        let of = |role: &'static str| messages.iter().filter(move |m| m["role"] == role);
        let first = of("user").next().and_then(|message| message["content"].as_str());
        let first = first.unwrap_or_default();
        let fits = |c: &&crate::Conversation| first.contains(&c.when);
        let conversation = self.script.conversations.iter().find(fits)?;
        let number = of("assistant").count();
        Some((first.to_owned(), number, conversation.lines.get(number)?.clone()))
    }

    fn fault(&self, conversation: &str, number: usize, line: &Line) -> Fault {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let next = played.entry((conversation.to_owned(), number)).or_default();
        let fault = line.faults.get(*next).cloned();
        *next += usize::from(fault.is_some());
        fault.unwrap_or_default()
    }
}

/// What a real server insists on: every call has exactly one answer, right behind it.
fn well_formed(asked: &Value) -> Result<(), String> {
    let none = Vec::new();
    let messages = asked["messages"].as_array().unwrap_or(&none);
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let at = open.iter().position(|open| *open == id);
            open.remove(at.ok_or_else(|| format!("nobody waits for an answer to {id:?}"))?);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("calls without an answer: {}", open.join(", ")));
        }
        let calls = message["tool_calls"].as_array().unwrap_or(&none);
        open.extend(calls.iter().filter_map(|call| call["id"].as_str()));
        let ids: std::collections::BTreeSet<_> = open.iter().collect();
        if ids.len() != open.len() {
            return Err("two calls have one id".to_owned());
        }
    }
    match open.as_slice() {
        [] => Ok(()),
        open => Err(format!("calls without an answer: {}", open.join(", "))),
    }
}

async fn play(asked: &Value, line: &Line, fault: Fault) -> Response<Parts> {
    wait(line.delay_ms + fault.silent_ms).await;
    if let Some(status) = fault.status {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = problem(status, "as the script says");
        let after = fault.retry_after.and_then(|after| after.to_string().parse().ok());
        if let Some(after) = after {
            answer.headers_mut().insert(RETRY_AFTER, after);
        }
        return answer;
    }
    let model = asked["model"].as_str().unwrap_or_default();
    let stream = asked["stream"] == true;
    let mut parts: Vec<String> = if stream {
        let pieces = speech::pieces(line, model).into_iter();
        let pieces = pieces.map(|piece| format!("data: {piece}\n\n"));
        pieces.chain(["data: [DONE]\n\n".to_owned()]).collect()
    } else {
        let text: Vec<char> = speech::whole(line, model).to_string().chars().collect();
        text.chunks(40).map(|piece| piece.iter().collect()).collect()
    };
    if fault.malformed {
        parts.insert(1.min(parts.len()), "data: {\"choices\": [{]\n\n".to_owned());
    }
    let kind = if stream { "text/event-stream" } else { "application/json" };
    let answer = Response::builder().header(CONTENT_TYPE, kind).body(sent(parts, fault.cut_after));
    answer.unwrap_or_else(|_| problem(StatusCode::INTERNAL_SERVER_ERROR, "no answer"))
}

/// The parts one by one, and a broken connection in the middle if that is wanted.
#[derive(Debug)]
struct Parts {
    left: VecDeque<Bytes>,
    breaks: bool,
    /// A part goes out before the next is taken.
    rested: bool,
}

fn sent(parts: Vec<String>, cut_after: Option<usize>) -> Parts {
    let left = parts.into_iter().take(cut_after.unwrap_or(usize::MAX)).map(Bytes::from);
    Parts { left: left.collect(), breaks: cut_after.is_some(), rested: true }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.rested = !self.rested;
        if self.rested {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(match self.left.pop_front() {
            Some(part) => Some(Ok(Frame::data(part))),
            None if self.breaks => Some(Err(io::Error::other("cut as the script says"))),
            None => None,
        })
    }
}

fn problem(status: StatusCode, why: &str) -> Response<Parts> {
    let body = json!({"error": {"message": why, "type": "script"}}).to_string();
    let mut answer = Response::new(sent(vec![body], None));
    *answer.status_mut() = status;
    answer
}

#[expect(clippy::disallowed_methods, reason = "a script plays in real time")]
async fn wait(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}
