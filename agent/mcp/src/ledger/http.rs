//! The server over HTTP, with what goes wrong there. Sessions are known to the process only.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write, stdout},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::Value;

use crate::{Outcome, answer};

/// Tools that do what they are asked, and then say it in a bad way, or not at all.
const TOOLS: &[&str] = &[
    // The connection ends without an answer.
    "hang_up",
    // The answer begins, and its connection ends.
    "break_off",
    // The answer is a stream that breaks off; who asks for the rest is given it, or is not.
    "resume",
    "lose",
    // The session is not known any more, which is a lie.
    "deny",
    // The request is to be sent to where it was sent.
    "redirect",
    // Something between here and there says that it has no answer.
    "unavailable",
    // The answer is no JSON.
    "mumble",
];

/// A connection ends after an answer that says so.
const CLOSE: &str = "connection: close\r\n";

struct Ledger<'a> {
    path: &'a str,
    sessions: Mutex<Vec<String>>,
    begun: AtomicUsize,
    /// The answer of a stream that broke off.
    rest: Mutex<String>,
}

struct Request {
    method: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

pub(crate) fn serve(path: &str, address: &str) -> Outcome<()> {
    let listener = TcpListener::bind(address)?;
    writeln!(stdout(), "http://{}/mcp", listener.local_addr()?)?;
    stdout().flush()?;
    let ledger = Ledger {
        path,
        sessions: Mutex::default(),
        begun: AtomicUsize::new(0),
        rest: Mutex::default(),
    };
    thread::scope(|scope| {
        for stream in listener.incoming().map_while(Result::ok) {
            let ledger = &ledger;
            // A connection that breaks is one of the things that happen.
            scope.spawn(move || ledger.connection(&stream));
        }
    });
    Ok(())
}

/// The next request of a connection, which stays open in between.
fn request(reader: &mut BufReader<&TcpStream>) -> Outcome<Option<Request>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some((method, _)) = line.split_once(' ') else { return Ok(None) };
    let method = method.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(Ok(0), |length| length.parse())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, headers, body }))
}

impl Request {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

impl Ledger<'_> {
    fn connection(&self, stream: &TcpStream) -> Outcome<()> {
        let mut reader = BufReader::new(stream);
        while let Some(request) = request(&mut reader)? {
            let Some(said) = self.answer(&request)? else { break };
            let mut stream = stream;
            stream.write_all(said.as_bytes())?;
            if said.contains(CLOSE) {
                break;
            }
        }
        Ok(stream.shutdown(Shutdown::Both)?)
    }

    /// The bytes of an answer; without one, the connection ends.
    fn answer(&self, request: &Request) -> Outcome<Option<String>> {
        let said: Value = match request.method.as_str() {
            "POST" => serde_json::from_slice(&request.body)?,
            _ => Value::Null,
        };
        let begins = said.get("method").is_some_and(|method| method == "initialize");
        if let Some(why) = self.refused(request, begins) {
            return Ok(Some(status(why)));
        }
        match request.method.as_str() {
            "GET" => return Ok(Some(std::mem::take(&mut *locked(&self.rest)))),
            "DELETE" => {
                locked(&self.sessions).retain(|known| known != request.header("mcp-session-id"));
                return Ok(Some(status("204 No Content")));
            }
            _ => {}
        }
        let Some(answer) = answer(self.path, &said, TOOLS)? else {
            return Ok(Some(status("202 Accepted")));
        };
        let answer = answer.to_string();
        if begins {
            // Never one that was there before, in this process or another.
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            let session = format!("{}-{number}", std::process::id());
            let begun = json(&format!("mcp-session-id: {session}\r\n"), &answer);
            locked(&self.sessions).push(session);
            return Ok(Some(begun));
        }
        let tool = said.pointer("/params/name").and_then(Value::as_str).unwrap_or_default();
        Ok(self.played(tool, &answer))
    }

    /// What the protocol asks of a client.
    fn refused(&self, request: &Request, begins: bool) -> Option<&'static str> {
        let accepts = |kind| request.header("accept").contains(kind);
        let session = request.header("mcp-session-id");
        let resumes = request.header("last-event-id") == "1" && !locked(&self.rest).is_empty();
        match request.method.as_str() {
            "GET" | "POST" if !accepts("text/event-stream") => Some("406 Not Acceptable"),
            "POST" if !accepts("application/json") => Some("406 Not Acceptable"),
            "POST" if begins => None,
            _ if !locked(&self.sessions).iter().any(|known| known == session) => {
                Some("404 Not Found")
            }
            _ if request.header("mcp-protocol-version").is_empty() => Some("400 Bad Request"),
            "GET" if !resumes => Some("405 Method Not Allowed"),
            "GET" | "POST" | "DELETE" => None,
            _ => Some("405 Method Not Allowed"),
        }
    }

    /// The answer as this tool gives it.
    fn played(&self, tool: &str, answer: &str) -> Option<String> {
        Some(match tool {
            "hang_up" => return None,
            "break_off" => json(CLOSE, answer).replace("\"jsonrpc\"", ""),
            "put" => stream(&event(answer)),
            "resume" | "lose" => {
                if tool == "resume" {
                    *locked(&self.rest) = stream(&event(answer));
                }
                stream("id: 1\nretry: 10\ndata:\n\n")
            }
            "deny" => status("404 Not Found"),
            "redirect" => status("307 Temporary Redirect\r\nlocation: /mcp"),
            "unavailable" => status("503 Service Unavailable"),
            "mumble" => json("", &format!("?{answer}")),
            _ => json("", answer),
        })
    }
}

fn locked<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn status(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
}

fn json(more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\n{more}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn event(message: &str) -> String {
    // A comment, and a message that is no answer, come before it.
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"at it"}}"#;
    format!(": a comment\n\nevent: message\ndata: {log}\n\nid: 2\ndata: {message}\n\n")
}

/// A stream that ends with its connection.
fn stream(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{CLOSE}\r\n{events}")
}
