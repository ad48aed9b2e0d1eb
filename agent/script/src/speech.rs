//! A line as the protocol has it.

use serde_json::{Value, json};

use crate::script::{Line, WantedCall};

/// How many characters a streamed piece has.
const PIECE_CHARS: usize = 12;

fn arguments(call: &WantedCall) -> String {
    call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned)
}

fn finish(line: &Line) -> &str {
    let usual = if line.calls.is_empty() { "stop" } else { "tool_calls" };
    line.finish.as_deref().unwrap_or(usual)
}

fn usage(line: &Line) -> Value {
    let (input, output) = line.usage.unwrap_or((10, 5));
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

/// The whole answer.
pub(crate) fn whole(line: &Line, model: &str) -> Value {
    let calls: Vec<Value> = line
        .calls
        .iter()
        .map(|call| {
            let function = json!({"name": call.name, "arguments": arguments(call)});
            json!({"id": call.id, "type": "function", "function": function})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": line.text});
    if let Some(message) = message.as_object_mut() {
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        if let Some(refusal) = &line.refusal {
            message.insert("refusal".to_owned(), refusal.clone().into());
        }
    }
    json!({
        "id": "script",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish(line)}],
        "usage": usage(line),
    })
}

/// The answer in pieces.
pub(crate) fn pieces(line: &Line, model: &str) -> Vec<Value> {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        json!({
            "id": "script", "object": "chat.completion.chunk", "model": model, "choices": [choice],
        })
    };
    let mut all = vec![chunk(json!({"role": "assistant"}), Value::Null)];
    for piece in cut(&line.text) {
        all.push(chunk(json!({"content": piece}), Value::Null));
    }
    if let Some(refusal) = &line.refusal {
        all.push(chunk(json!({"refusal": refusal}), Value::Null));
    }
    for (index, call) in line.calls.iter().enumerate() {
        let head = json!({"name": call.name, "arguments": ""});
        let head = json!({"index": index, "id": call.id, "type": "function", "function": head});
        all.push(chunk(json!({"tool_calls": [head]}), Value::Null));
        for piece in cut(&arguments(call)) {
            let more = json!({"index": index, "function": {"arguments": piece}});
            all.push(chunk(json!({"tool_calls": [more]}), Value::Null));
        }
    }
    all.push(chunk(json!({}), finish(line).into()));
    all.push(json!({
        "id": "script", "object": "chat.completion.chunk", "model": model, "choices": [],
        "usage": usage(line),
    }));
    all
}

fn cut(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(PIECE_CHARS).map(|piece| piece.iter().collect()).collect()
}
