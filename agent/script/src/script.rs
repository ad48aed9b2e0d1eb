//! What is played.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A script: one or more conversations.
///
/// ```
/// use deedbook_model_script::Script;
///
/// let script: Script = serde_json::from_str(r#"{"conversations": [{"lines": [
///     {"calls": [{"id": "c1", "name": "refund", "arguments": {"order": "ORD-1"}}],
///      "faults": [{"status": 429, "retry_after": 0.05}, {"cut_after": 2}]},
///     {"text": "It is on its way."}
/// ]}]}"#)?;
/// assert_eq!(script.conversations[0].lines.len(), 2);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The first one that fits is played.
    pub conversations: Vec<Conversation>,
}

/// What is said in one conversation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// It is played if the user's first message holds this.
    #[serde(default)]
    pub when: String,
    /// One for each time that the model speaks.
    pub lines: Vec<Line>,
}

/// One answer of the model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What it says.
    #[serde(default)]
    pub text: String,
    /// Why it refuses.
    #[serde(default)]
    pub refusal: Option<String>,
    /// The tools that it calls.
    #[serde(default)]
    pub calls: Vec<WantedCall>,
    /// Why it stopped, where it is not what follows from the rest.
    #[serde(default)]
    pub finish: Option<String>,
    /// Tokens read and written.
    #[serde(default)]
    pub usage: Option<(u64, u64)>,
    /// What goes wrong before it is said, one for each request.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// How long it thinks.
    #[serde(default)]
    pub delay_ms: u64,
}

/// A call of a tool.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedCall {
    /// Its id: may be empty, and may stand there twice.
    #[serde(default)]
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments: a text is sent as it is, so that it may be no JSON.
    pub arguments: Value,
}

/// What goes wrong.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// It answers with this status.
    #[serde(default)]
    pub status: Option<u16>,
    /// And with this `Retry-After`, in seconds.
    #[serde(default)]
    pub retry_after: Option<f64>,
    /// The connection is cut after so many pieces of the answer.
    #[serde(default)]
    pub cut_after: Option<usize>,
    /// Something that is no JSON stands in the answer.
    #[serde(default)]
    pub malformed: bool,
    /// It says nothing for so long, and then answers.
    #[serde(default)]
    pub silent_ms: u64,
}
