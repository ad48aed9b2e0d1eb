//! An answer that comes piece by piece: server-sent events.

use std::collections::BTreeMap;

use deedbook_agent::{ModelError, Pieces, Response, ToolCall, Usage};
use serde::Deserialize;

use crate::protocol::{Tokens, refusal};

/// An answer being put together.
#[derive(Debug)]
pub(crate) struct Stream {
    most: usize,
    taken: usize,
    /// Bytes of a line that has not ended.
    line: Vec<u8>,
    response: Response,
    said_refusal: String,
    calls: BTreeMap<usize, ToolCall>,
    finish: Option<String>,
    done: bool,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Tokens>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Part>>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    index: usize,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Function,
}

#[derive(Deserialize, Default)]
struct Function {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

impl Stream {
    /// Takes at most so many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            taken: 0,
            line: Vec::new(),
            response: Response::default(),
            said_refusal: String::new(),
            calls: BTreeMap::new(),
            finish: None,
            done: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Takes bytes, wherever they were cut.
    pub(crate) fn take(&mut self, bytes: &[u8], pieces: &Pieces) -> Result<(), ModelError> {
        self.taken += bytes.len();
        if self.taken > self.most {
            let most = self.most;
            return Err(ModelError::Malformed(format!("it is longer than {most} bytes")));
        }
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.line_ended(&line, pieces)?;
            } else {
                self.line.push(*byte);
            }
        }
        Ok(())
    }

    fn line_ended(&mut self, line: &[u8], pieces: &Pieces) -> Result<(), ModelError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Comments, other fields and the empty lines between events.
        let Some(data) = line.strip_prefix(b"data:") else {
            return Ok(());
        };
        let data = data.strip_prefix(b" ").unwrap_or(data);
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_slice(data)
            .map_err(|error| ModelError::Malformed(format!("a piece is no JSON: {error}")))?;
        if let Some(error) = chunk.error {
            return Err(ModelError::Busy { why: error.to_string(), after: None });
        }
        if let Some(tokens) = chunk.usage {
            self.response.usage = Usage::from(tokens);
        }
        if let Some(choice) = chunk.choices.into_iter().next() {
            self.add(choice, pieces);
        }
        Ok(())
    }

    fn add(&mut self, choice: Choice, pieces: &Pieces) {
        if let Some(text) = choice.delta.content.filter(|text| !text.is_empty()) {
            pieces.say(&text);
            self.response.text.push_str(&text);
        }
        if let Some(text) = choice.delta.refusal {
            self.said_refusal.push_str(&text);
        }
        for part in choice.delta.tool_calls.unwrap_or_default() {
            let call = self.calls.entry(part.index).or_insert_with(|| ToolCall {
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
            });
            if let Some(id) = part.id {
                call.id = id;
            }
            call.name.push_str(&part.function.name.unwrap_or_default());
            call.arguments.push_str(&part.function.arguments.unwrap_or_default());
        }
        if choice.finish_reason.is_some() {
            self.finish = choice.finish_reason;
        }
    }

    /// The whole, if it came to its end: half of a call must not be executed.
    pub(crate) fn end(mut self) -> Result<Response, ModelError> {
        if !self.done && self.finish.is_none() {
            let why = "it ended in the middle of an answer".to_owned();
            return Err(ModelError::Connection(why));
        }
        self.response.calls = self.calls.into_values().collect();
        self.response.refusal = refusal(Some(self.said_refusal), self.finish.as_deref());
        self.response.cut = self.finish.as_deref() == Some("length");
        Ok(self.response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(text: &str, cut_at: usize) -> Result<Response, ModelError> {
        let mut stream = Stream::new(1 << 20);
        let (head, tail) = text.as_bytes().split_at(cut_at);
        stream.take(head, &Pieces::default())?;
        stream.take(tail, &Pieces::default())?;
        stream.end()
    }

    #[test]
    fn it_does_not_matter_where_bytes_are_cut() {
        let text = ": a comment\r\nevent: x\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"é\"}}]}\r\n\r\n\
            data:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\
            \"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\n\
            data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\
            \"function\":{\"arguments\":\"}\"}},{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"g\"}}]},\
            \"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
        let whole = play(text, 0).unwrap();
        assert_eq!(whole.text, "é");
        let calls: Vec<_> = whole.calls.iter().map(|c| (&*c.id, &*c.name, &*c.arguments)).collect();
        assert_eq!(calls, [("a", "g", ""), ("b", "f", "{}")]);
        for cut_at in 0..text.len() {
            assert_eq!(play(text, cut_at).as_ref(), Ok(&whole), "cut at {cut_at}");
        }
    }

    #[test]
    fn half_an_answer_is_none() {
        let half = "data: {\"choices\":[{\"delta\":{\"content\":\"I will\"}}]}\n\n";
        assert!(matches!(play(half, 3), Err(ModelError::Connection(_))));
        assert!(matches!(play("data: {]\n", 3), Err(ModelError::Malformed(_))));
        let error = "data: {\"error\":{\"message\":\"overloaded\"}}\n";
        assert!(matches!(play(error, 3), Err(ModelError::Busy { .. })));
    }
}
