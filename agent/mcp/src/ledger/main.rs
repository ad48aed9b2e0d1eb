//! An MCP server for tests: `mcp-ledger FILE` writes down what it is asked to do, with the
//! metadata that came along. It is written without an SDK, so that two readings of the protocol
//! meet. It speaks on its input and output, or with `--http [ADDRESS]` over HTTP, and then says
//! where on its first line of output.

mod http;

use std::{
    env,
    error::Error,
    fs::OpenOptions,
    io::{BufRead, Write, stdin, stdout},
};

use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let usage = "usage: mcp-ledger FILE [--http [ADDRESS]]";
    let path = env::args().nth(1).ok_or(usage)?;
    match env::args().nth(2).as_deref() {
        None => on_stdio(&path),
        Some("--http") => {
            http::serve(&path, env::args().nth(3).as_deref().unwrap_or("127.0.0.1:0"))
        }
        Some(_) => Err(usage.into()),
    }
}

fn on_stdio(path: &str) -> Outcome<()> {
    for line in stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        // A notification has no answer.
        if let Some(answer) = answer(path, &request, &[])? {
            writeln!(stdout(), "{answer}")?;
            stdout().flush()?;
        }
    }
    Ok(())
}

/// What is answered, if this is a request.
fn answer(path: &str, request: &Value, more_tools: &[&str]) -> Outcome<Option<Value>> {
    let Some(id) = request.get("id") else { return Ok(None) };
    let params = request.get("params").cloned().unwrap_or_default();
    let answer = match request.get("method").and_then(Value::as_str).unwrap_or_default() {
        "initialize" => Ok(json!({
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "ledger", "version": "1"},
        })),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({"tools": tools(more_tools)})),
        "tools/call" => call(path, &params)?,
        _ => Err(json!({"code": -32601, "message": "not known"})),
    };
    Ok(Some(match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    }))
}

fn tools(more: &[&str]) -> Value {
    let takes = json!({
        "type": "object",
        "properties": {"what": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["what"],
    });
    let tool = |name: &str, hints: Value| json!({"name": name, "description": name, "inputSchema": takes, "annotations": hints});
    let all = [
        tool("look", json!({"readOnlyHint": true})),
        tool("put", json!({"idempotentHint": true})),
        tool("send", json!({"destructiveHint": false})),
        tool("fail", json!({})),
        tool("die", json!({"idempotentHint": true})),
    ];
    let more = more.iter().map(|name| tool(name, json!({"idempotentHint": true})));
    all.into_iter().chain(more).collect()
}

/// Writes the call down, and answers.
fn call(path: &str, params: &Value) -> Outcome<Result<Value, Value>> {
    let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
    let what = params.pointer("/arguments/what").and_then(Value::as_str).unwrap_or_default();
    if what == "wrong" {
        return Ok(Err(json!({"code": -32602, "message": "what is wrong"})));
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    // In one piece: calls over HTTP come at the same time.
    file.write_all(format!("{params}\n").as_bytes())?;
    if name == "die" {
        std::process::exit(1);
    }
    let text = json!([{"type": "text", "text": format!("{name} {what}")}]);
    Ok(Ok(json!({"content": text, "isError": name == "fail"})))
}
