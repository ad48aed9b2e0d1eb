//! A bank to test against, in this process or its own, and a client that can misbehave.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use refund_agent::bank::{Bank, Mode, Options, Server};
use refund_agent::requests::Refund;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A bank in this process.
pub(crate) struct InProcess {
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    end: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl InProcess {
    pub(crate) async fn start(mode: Mode, change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new(folder.path().join("bank.jsonl"), mode);
        change(&mut options);
        let server = Server::open(options).await.unwrap();
        let url = server.base_url();
        let (end, ended) = oneshot::channel();
        let served = tokio::spawn(async move {
            server.run(async { ended.await.unwrap_or_default() }).await;
        });
        Self { folder, url, end, served }
    }

    pub(crate) fn client(&self) -> Bank {
        Bank::new(&self.url).unwrap()
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.path().join("bank.jsonl")
    }

    /// Ends it gracefully; the ledger can be opened again afterwards.
    pub(crate) async fn stop(self) -> TempDir {
        self.end.send(()).unwrap();
        self.served.await.unwrap();
        self.folder
    }
}

/// A bank in a process of its own, killed at the latest when the test ends.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Process {
    pub(crate) fn start(ledger: &Path, mode: &str, more: &[&str]) -> Self {
        let ready = ledger.with_extension("ready");
        let _absent = std::fs::remove_file(&ready);
        let mut child = Command::new(env!("CARGO_BIN_EXE_refund-agent"))
            .args(["bank", "--mode", mode, "--ledger"])
            .arg(ledger)
            .arg("--ready-file")
            .arg(&ready)
            .args(more)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let url = wait_for("the bank to be ready", || {
            assert_eq!(child.try_wait().unwrap(), None, "the bank ended early");
            std::fs::read_to_string(&ready).ok()
        });
        Self { child, url: url.trim().to_owned() }
    }

    pub(crate) fn client(&self) -> Bank {
        Bank::new(&self.url).unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn refund(id: &str) -> Refund {
    serde_json::from_value(serde_json::json!({
        "id": id, "order": format!("order of {id}"), "customer": "李 Zoë 🦊",
        "amount_minor": 4990, "currency": "EUR", "reason": "broken",
    }))
    .unwrap()
}

pub(crate) fn body(reference: &str, amount_minor: u64) -> String {
    serde_json::json!({
        "order": "A-1", "customer": "Zoë", "amount_minor": amount_minor,
        "currency": "EUR", "reason": "broken", "reference": reference,
    })
    .to_string()
}

/// An answer as it came over the wire.
pub(crate) struct Raw {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Raw {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["type"], format!("urn:refund-bank:{code}"), "{problem}");
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["detail"].is_string());
    }
}

/// A connection without any library in between. Opened, and the request written, at once.
fn open_raw(url: &str, method: &str, path: &str, headers: &[&str], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: bank\r\nConnection: close\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

/// Reads to the end; `None` when the connection was closed without an answer.
fn read_raw(mut stream: TcpStream) -> Option<Raw> {
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Raw { status, head: head.to_owned(), body: body.to_owned() })
}

pub(crate) async fn ask(url: &str, method: &str, path: &str, headers: &[&str], body: &str) -> Raw {
    let (url, method, path) = (url.to_owned(), method.to_owned(), path.to_owned());
    let (headers, body): (Vec<_>, _) =
        (headers.iter().map(|header| (*header).to_owned()).collect(), body.to_owned());
    tokio::task::spawn_blocking(move || {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        read_raw(open_raw(&url, &method, &path, &headers, &body)).expect("an answer")
    })
    .await
    .unwrap()
}

/// `POST /refunds` with these headers besides the media type.
pub(crate) async fn post(url: &str, headers: &[&str], body: &str) -> Raw {
    let headers = [&["Content-Type: application/json"], headers].concat();
    ask(url, "POST", "/refunds", &headers, body).await
}
