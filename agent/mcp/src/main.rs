//! An MCP server for tests: `mcp-ledger FILE` writes down what it is asked to do, with the
//! metadata that came along. It is written without an SDK, so that two readings of the protocol
//! meet.

use std::{
    env,
    error::Error,
    fs::OpenOptions,
    io::{BufRead, Write, stdin, stdout},
};

use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: mcp-ledger FILE")?;
    for line in stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let Some(id) = request.get("id") else {
            // A notification.
            continue;
        };
        let params = request.get("params").cloned().unwrap_or_default();
        let answer = match request.get("method").and_then(Value::as_str).unwrap_or_default() {
            "initialize" => Ok(json!({
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "ledger", "version": "1"},
            })),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": tools()})),
            "tools/call" => call(&path, &params)?,
            _ => Err(json!({"code": -32601, "message": "not known"})),
        };
        let answer = match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        };
        writeln!(stdout(), "{answer}")?;
        stdout().flush()?;
    }
    Ok(())
}

fn tools() -> Value {
    let takes = json!({
        "type": "object",
        "properties": {"what": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["what"],
    });
    let tool = |name: &str, hints: Value| json!({"name": name, "description": name, "inputSchema": takes, "annotations": hints});
    json!([
        tool("look", json!({"readOnlyHint": true})),
        tool("put", json!({"idempotentHint": true})),
        tool("send", json!({"destructiveHint": false})),
        tool("fail", json!({})),
        tool("die", json!({"idempotentHint": true})),
    ])
}

/// Writes the call down, and answers.
fn call(path: &str, params: &Value) -> Result<Result<Value, Value>, Box<dyn Error>> {
    let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
    let what = params.pointer("/arguments/what").and_then(Value::as_str).unwrap_or_default();
    if what == "wrong" {
        return Ok(Err(json!({"code": -32602, "message": "what is wrong"})));
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{params}")?;
    if name == "die" {
        std::process::exit(1);
    }
    let text = json!([{"type": "text", "text": format!("{name} {what}")}]);
    Ok(Ok(json!({"content": text, "isError": name == "fail"})))
}
