//! The protocol's JSON.

use deedbook_agent::{Declaration, Message, ModelError, Response, ToolCall, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(crate) fn request(
    model: &str,
    messages: &[Message],
    tools: &[Declaration],
    streams: bool,
    more: &Map<String, Value>,
) -> Value {
    let mut body = more.clone();
    body.insert("model".to_owned(), model.into());
    body.insert("messages".to_owned(), messages.iter().map(message).collect());
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.iter().map(tool).collect());
    }
    if streams {
        body.insert("stream".to_owned(), true.into());
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    Value::Object(body)
}

fn message(message: &Message) -> Value {
    match message {
        Message::System { text } => json!({"role": "system", "content": text}),
        Message::User { text } => json!({"role": "user", "content": text}),
        Message::Assistant { text, calls } if calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        Message::Assistant { text, calls } => {
            let content = if text.is_empty() { Value::Null } else { text.as_str().into() };
            let calls: Vec<Value> = calls.iter().map(call).collect();
            json!({"role": "assistant", "content": content, "tool_calls": calls})
        }
        Message::Tool { id, text } => json!({"role": "tool", "tool_call_id": id, "content": text}),
    }
}

fn call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

fn tool(tool: &Declaration) -> Value {
    let function = json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema.as_json(),
    });
    json!({"type": "function", "function": function})
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Called>>,
}

#[derive(Deserialize)]
struct Called {
    #[serde(default)]
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Deserialize, Clone, Copy)]
pub(crate) struct Tokens {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        Self { input: tokens.prompt_tokens, output: tokens.completion_tokens }
    }
}

/// An answer that came in one piece.
pub(crate) fn whole(bytes: &[u8]) -> Result<Response, ModelError> {
    let completion: Completion =
        serde_json::from_slice(bytes).map_err(|error| ModelError::Malformed(error.to_string()))?;
    let choice = completion.choices.into_iter().next();
    let choice = choice.ok_or_else(|| ModelError::Malformed("it has no choice".to_owned()))?;
    let calls = choice.message.tool_calls.unwrap_or_default().into_iter().map(|call| ToolCall {
        id: call.id,
        name: call.function.name,
        arguments: call.function.arguments,
    });
    Ok(Response {
        text: choice.message.content.unwrap_or_default(),
        refusal: refusal(choice.message.refusal, choice.finish_reason.as_deref()),
        calls: calls.collect(),
        cut: choice.finish_reason.as_deref() == Some("length"),
        usage: completion.usage.map(Usage::from).unwrap_or_default(),
    })
}

/// Why the model refuses: its own words, or that a filter took them.
pub(crate) fn refusal(said: Option<String>, finish: Option<&str>) -> Option<String> {
    let said = said.filter(|text| !text.is_empty());
    let filtered = || "the answer was taken by a filter".to_owned();
    said.or_else(|| (finish == Some("content_filter")).then(filtered))
}

/// What an error says.
pub(crate) fn error(body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let said = parsed.as_ref().and_then(|body| body.pointer("/error/message")?.as_str());
    said.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned)
}
