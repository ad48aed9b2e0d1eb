//! Agents with the tools of an MCP server that is a process of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends at the first surprise"
)]

use std::{fs, path::PathBuf, time::Duration};

use deedbook::{Deedbook, ErrorKind, Retry};
use deedbook_agent::{
    Agent, Answered, Effect, Opening, Outcome, Response, Scripted, Terms, ToolCall, Toolbox,
};
use deedbook_mcp::{OPERATION_KEY, Server};
use serde_json::{Value, json};
use tokio::process::Command;

struct Ledger(tempfile::TempDir);

impl Ledger {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("ledger.jsonl")
    }

    async fn server(&self) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-ledger"));
        command.arg(self.path()).kill_on_drop(true);
        Server::stdio(command).await.unwrap()
    }

    /// What was done, by this tool.
    fn done(&self, tool: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|call| call["name"] == tool).collect()
    }
}

fn wants(tool: &str, what: &str) -> ToolCall {
    ToolCall::new("c", tool, &json!({"what": what}))
}

async fn run(server: &Server, lines: Vec<Vec<ToolCall>>) -> Result<Vec<Answered>, deedbook::Error> {
    let lines = lines.into_iter().map(Response::calls).chain([Response::text("done")]);
    let tools = Toolbox::new().with_all(server.tools().await.unwrap());
    let agent = Agent::builder(Scripted::new(lines)).tools(tools).build().unwrap();
    let book = Deedbook::memory().host(agent).start().await?;
    let ended = book.run::<Agent>("t", Opening::once("go")).await?;
    book.shutdown().await?;
    Ok(ended.last.unwrap().calls)
}

#[tokio::test]
async fn d09_tools_of_an_mcp_server_are_guarded() {
    let ledger = Ledger::new();
    let server = ledger.server().await;
    let all =
        || vec![wants("look", "a"), wants("put", "a"), wants("send", "a"), wants("send", "a")];
    let calls = run(&server, vec![all(), all()]).await.unwrap();
    // A read is made again in a later answer; what has an effect is made once.
    let count = |tool: &str| ledger.done(tool).len();
    assert_eq!((count("look"), count("put"), count("send")), (2, 1, 1));
    assert_eq!(calls[0].outcome.result(), Some(&json!("look a")));
    assert_eq!(calls[2].arguments, json!({"what": "a", "times": 1}));
    assert!(calls[3].replayed.is_some() && calls[6].replayed.is_some());
    // The key goes along, and a read has none.
    let key = ledger.done("send")[0]["_meta"][OPERATION_KEY].clone();
    assert!(key.as_str().unwrap().starts_with("dk1_"), "{key}");
    assert!(ledger.done("look")[0]["_meta"].get(OPERATION_KEY).is_none());
}

#[tokio::test]
async fn an_error_of_a_tool_is_a_result_and_a_refusal_is_none() {
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

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_a_doubt_unless_the_call_may_be_made_again() {
    let ledger = Ledger::new();
    let server = ledger.server().await.effect("die", Effect::at_most_once());
    let error = run(&server, vec![vec![wants("die", "a")]]).await.unwrap_err();
    assert_eq!((error.kind(), ledger.done("die").len()), (ErrorKind::InDoubt, 1));

    // By its hint it may be made again: it is, and nobody is there.
    let ledger = Ledger::new();
    let retry = Retry::attempts(2).first(Duration::from_millis(1));
    let server = ledger.server().await.terms(Terms::new().retry(retry));
    let error = run(&server, vec![vec![wants("die", "a")]]).await.unwrap_err();
    assert_eq!((error.kind(), ledger.done("die").len()), (ErrorKind::InDoubt, 1));
    assert!(error.to_string().contains("attempts"), "{error}");
}

#[tokio::test]
async fn two_servers_have_names_of_their_own() {
    let ledger = Ledger::new();
    let server = ledger.server().await;
    let names: Vec<String> = server
        .prefix("one_")
        .tools()
        .await
        .unwrap()
        .iter()
        .map(|t| t.declaration().name.clone())
        .collect();
    assert_eq!(names, ["one_look", "one_put", "one_send", "one_fail", "one_die"]);
}
