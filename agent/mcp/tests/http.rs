//! Agents with the tools of an MCP server behind HTTP. The server is `mcp-ledger`, which shares no
//! code with the client.
#![cfg(feature = "http")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends at the first surprise"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use deedbook::{Deedbook, Error, ErrorKind, Retry};
use deedbook_agent::{
    Agent, Answered, Effect, Opening, Outcome, Response, Scripted, Terms, ToolCall, Toolbox,
};
use deedbook_mcp::{ATTEMPT, McpError, OPERATION_KEY, Server};
use serde_json::{Value, json};

/// A server at work, and what it was asked to do.
struct Ledger {
    folder: tempfile::TempDir,
    running: Child,
    url: String,
}

impl Ledger {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (running, url) = started(&folder.path().join("ledger.jsonl"), "127.0.0.1:0");
        Self { folder, running, url }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ledger.jsonl")
    }

    async fn server(&self) -> Server {
        Server::http(&self.url).await.unwrap()
    }

    fn stop(&mut self) {
        self.running.kill().unwrap();
        self.running.wait().unwrap();
    }

    /// Another process at the same address, which knows nothing of any session.
    fn start_anew(&mut self) {
        self.stop();
        let address = self.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
        self.running = started(&self.path(), address).0;
    }

    /// What was done, by this tool.
    fn done(&self, tool: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|call| call["name"] == tool).collect()
    }

    /// Under which keys, and in which attempts.
    fn attempts(&self, tool: &str) -> Vec<(String, u64)> {
        let told = |call: &Value| {
            let meta = &call["_meta"];
            (meta[OPERATION_KEY].as_str().unwrap().to_owned(), meta[ATTEMPT].as_u64().unwrap())
        };
        self.done(tool).iter().map(told).collect()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.stop();
    }
}

fn started(path: &std::path::Path, address: &str) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-ledger"));
    command.arg(path).args(["--http", address]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut url = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut url).unwrap();
    (running, url.trim().to_owned())
}

fn wants(tool: &str, what: &str) -> ToolCall {
    ToolCall::new("c", tool, &json!({"what": what}))
}

async fn agent(server: &Server, lines: Vec<Vec<ToolCall>>) -> Agent {
    let lines = lines.into_iter().map(Response::calls).chain([Response::text("done")]);
    let tools = Toolbox::new().with_all(server.tools().await.unwrap());
    Agent::builder(Scripted::new(lines)).tools(tools).build().unwrap()
}

async fn play(agent: Agent) -> Result<Vec<Answered>, Error> {
    let book = Deedbook::memory().host(agent).start().await?;
    let ended = book.run::<Agent>("t", Opening::once("go")).await?;
    book.shutdown().await?;
    Ok(ended.last.unwrap().calls)
}

async fn run(server: &Server, lines: Vec<Vec<ToolCall>>) -> Result<Vec<Answered>, Error> {
    play(agent(server, lines).await).await
}

#[tokio::test]
async fn tools_behind_http_are_guarded() {
    let ledger = Ledger::new();
    let server = ledger.server().await;
    let all =
        || vec![wants("look", "a"), wants("put", "a"), wants("send", "a"), wants("send", "a")];
    let calls = run(&server, vec![all(), all()]).await.unwrap();
    // A read is made again in a later answer; what has an effect is made once.
    let count = |tool: &str| ledger.done(tool).len();
    assert_eq!((count("look"), count("put"), count("send")), (2, 1, 1));
    // As JSON, as a stream, and from the record.
    for (at, said) in [(0, "look a"), (1, "put a"), (2, "send a"), (5, "put a"), (6, "send a")] {
        assert_eq!(calls[at].outcome.result(), Some(&json!(said)));
    }
    assert_eq!(calls[2].arguments, json!({"what": "a", "times": 1}));
    assert!(calls[3].replayed.is_some() && calls[5].replayed.is_some());
    // The key and the attempt go along, and a read has no key.
    let sent = ledger.attempts("send");
    assert!(sent[0].0.starts_with("dk1_") && sent[0].1 == 1, "{sent:?}");
    let look = &ledger.done("look")[0]["_meta"];
    assert!(look.get(OPERATION_KEY).is_none() && look[ATTEMPT] == 1, "{look}");
}

#[tokio::test]
async fn an_error_of_a_tool_behind_http_is_a_result_and_a_refusal_is_none() {
    let ledger = Ledger::new();
    let server = ledger.server().await;
    let fails = || vec![wants("fail", "a"), wants("send", "wrong")];
    let calls = run(&server, vec![fails(), fails()]).await.unwrap();
    assert_eq!(calls[0].outcome.result(), Some(&json!({"is_error": true, "said": "fail a"})));
    assert!(calls[2].replayed.is_some());
    assert_eq!((ledger.done("fail").len(), ledger.done("send").len()), (1, 0));
    let Outcome::Failed { code, .. } = &calls[1].outcome else { panic!("{:?}", calls[1]) };
    assert_eq!(code, "refused");
}

/// Whatever stands where the answer should: the call was received, and nobody says what came of
/// it. The HTTP below would send some of these a second time by itself: one whose session is not
/// known (404), and one that is redirected.
#[tokio::test]
async fn a_call_without_an_answer_was_sent_once_and_is_in_doubt() {
    let ledger = Ledger::new();
    let all = ["hang_up", "break_off", "lose", "deny", "redirect", "unavailable", "mumble", "die"];
    for tool in all {
        let server = ledger.server().await.effect(tool, Effect::at_most_once());
        let retry = Retry::attempts(3).first(Duration::from_millis(1));
        let server = server.terms(Terms::new().retry(retry));
        let error = run(&server, vec![vec![wants(tool, "a")]]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt, "{tool}: {error}");
        let sent = ledger.attempts(tool);
        assert!(sent.len() == 1 && sent[0].1 == 1, "{tool}: {sent:?}");
    }
}

#[tokio::test]
async fn what_may_be_sent_again_is_under_the_same_key_and_counted() {
    let ledger = Ledger::new();
    let retry = Retry::attempts(3).first(Duration::from_millis(1));
    let server = ledger.server().await.terms(Terms::new().retry(retry));
    for tool in ["hang_up", "deny", "redirect"] {
        let error = run(&server, vec![vec![wants(tool, "a")]]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InDoubt, "{tool}: {error}");
        let sent = ledger.attempts(tool);
        let numbers: Vec<u64> = sent.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, [1, 2, 3], "{tool}");
        assert!(sent.iter().all(|(key, _)| *key == sent[0].0), "{sent:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_asked_for_the_rest_and_the_call_not_made_again() {
    let ledger = Ledger::new();
    let server = ledger.server().await.effect("resume", Effect::at_most_once());
    let calls = run(&server, vec![vec![wants("resume", "a")]]).await.unwrap();
    assert_eq!(calls[0].outcome.result(), Some(&json!("resume a")));
    assert_eq!(ledger.done("resume").len(), 1);
}

#[tokio::test]
async fn a_server_that_has_started_anew_is_called_in_a_session_of_its_own() {
    let mut ledger = Ledger::new();
    let server = ledger.server().await;
    let agent = agent(&server, vec![vec![wants("send", "a")], vec![wants("look", "a")]]).await;
    ledger.start_anew();
    let calls = play(agent).await.unwrap();
    assert_eq!(calls[0].outcome.result(), Some(&json!("send a")));
    assert_eq!(calls[1].outcome.result(), Some(&json!("look a")));
    assert_eq!(ledger.attempts("send").len(), 1);
}

/// It was never received, so it is a failure and no doubt.
#[tokio::test]
async fn a_call_of_a_server_that_is_down_is_not_in_doubt() {
    let mut ledger = Ledger::new();
    let server = ledger.server().await;
    let agent = agent(&server, vec![vec![wants("send", "a")]]).await;
    ledger.stop();
    let calls = play(agent).await.unwrap();
    let Outcome::Failed { message, .. } = &calls[0].outcome else { panic!("{:?}", calls[0]) };
    assert!(message.contains(&ledger.url) && message.contains("refused"), "{message}");
    assert!(ledger.done("send").is_empty());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_the_cause_and_without_secrets() {
    let mut ledger = Ledger::new();
    let server = ledger.server().await;
    let url = format!("{}?token=hidden", ledger.url.replace("//", "//me:hidden@"));
    assert!(Server::http(&url).await.is_ok());
    ledger.stop();
    let gone = format!("no MCP server answers at {}: ", ledger.url);
    for error in [Server::http(&url).await.unwrap_err(), server.tools().await.unwrap_err()] {
        assert!(matches!(error, McpError::Reach { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with(&gone) && text.contains("refused"), "{text}");
        assert!(!text.contains("hidden") && !format!("{error:?}").contains("hidden"), "{error:?}");
    }
    let wrong = [
        ("https://localhost:1/mcp", "Server::over"),
        ("localhost:1/mcp", "http URL"),
        ("ftp://localhost/mcp", "http URL"),
        ("", "relative URL"),
    ];
    let text = Server::http("me:hidden@host?token=hidden").await.unwrap_err().to_string();
    assert!(text.contains("host") && !text.contains("hidden"), "{text}");
    for (url, why) in wrong {
        let text = Server::http(url).await.unwrap_err().to_string();
        assert!(text.contains(url) && text.contains(why), "{text}");
    }
}
