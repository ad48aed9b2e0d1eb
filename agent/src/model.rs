//! The model: what it is asked, and what it answers.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use deedbook::StepError;
use deedbook_journal::checkpointer::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A language model.
///
/// A call of a model is a `read` step: it runs again as long as its answer is not durable, and
/// afterwards never.
pub trait Model: Send + Sync + 'static {
    /// Its name, recorded with every turn.
    fn name(&self) -> &str;

    /// Answers.
    ///
    /// **Cancel safety.** The future is dropped when its time is over and when the thread stops.
    fn respond(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Response, ModelError>> + Send;
}

/// A model with its type erased.
pub(crate) trait AnyModel: Send + Sync + 'static {
    fn name(&self) -> &str;
    fn respond(&self, request: Request) -> BoxFuture<'_, Result<Response, ModelError>>;
}

impl<M: Model> AnyModel for M {
    fn name(&self) -> &str {
        Model::name(self)
    }

    fn respond(&self, request: Request) -> BoxFuture<'_, Result<Response, ModelError>> {
        Box::pin(Model::respond(self, request))
    }
}

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// What was said so far.
    pub messages: Vec<Message>,
    /// The tools it may call.
    pub tools: Arc<[Declaration]>,
    /// Where pieces of its answer go while it speaks.
    pub pieces: Pieces,
}

/// A listener for pieces of an answer, while the model speaks. They are provisional: an attempt
/// that fails has said them too, and a replay says nothing.
#[derive(Clone, Default)]
pub struct Pieces(Option<Listener>);

type Listener = Arc<dyn Fn(&str) + Send + Sync>;

impl Pieces {
    /// Pieces go to this listener, which must not wait.
    pub fn to(listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// A piece of text was said.
    pub fn say(&self, piece: &str) {
        if let Some(listener) = &self.0 {
            listener(piece);
        }
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pieces").field(&self.0.is_some()).finish()
    }
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// Its name: 1 to 64 letters, digits, `_` or `-`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// What it takes.
    pub schema: crate::Schema,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// Instructions.
    System {
        /// The text.
        text: String,
    },
    /// The user speaks.
    User {
        /// The text.
        text: String,
    },
    /// The model speaks, and may call tools.
    Assistant {
        /// The text.
        text: String,
        /// The calls.
        calls: Vec<ToolCall>,
    },
    /// The answer to one call.
    Tool {
        /// The id of the call.
        id: String,
        /// The text.
        text: String,
    },
}

/// A call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's id for it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments, as they were written: JSON, if the model was good.
    pub arguments: String,
}

impl ToolCall {
    /// A call with these arguments.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: &Value) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.to_string() }
    }
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// What it says.
    #[serde(default)]
    pub text: String,
    /// Why it will not, if it refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The tools it calls.
    #[serde(default)]
    pub calls: Vec<ToolCall>,
    /// Whether it was cut off at its longest answer.
    #[serde(default)]
    pub cut: bool,
    /// What it cost.
    #[serde(default)]
    pub usage: Usage,
}

impl Response {
    /// An answer in words.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A wish to call these tools.
    #[must_use]
    pub fn calls(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        Self { calls: calls.into_iter().collect(), ..Self::default() }
    }

    /// The same at this price.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Usage { input, output };
        self
    }
}

/// Tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Read by the model.
    pub input: u64,
    /// Written by it.
    pub output: u64,
}

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// It is busy: ask again, after this time if it said so.
    #[error("the model is busy: {why}")]
    Busy {
        /// Its words.
        why: String,
        /// When to ask again.
        after: Option<Duration>,
    },
    /// The connection failed, or was cut in the middle of an answer.
    #[error("the connection to the model failed: {0}")]
    Connection(String),
    /// It answered something that is no answer.
    #[error("the model's answer cannot be understood: {0}")]
    Malformed(String),
    /// It refuses the request, and would again.
    #[error("the model refuses the request: {0}")]
    Rejected(String),
}

impl ModelError {
    /// The error of the step that asks: what is known of it decides whether it is asked again.
    pub(crate) fn of_step(self) -> StepError {
        let (code, after, terminal) = match &self {
            Self::Busy { after, .. } => ("busy", *after, false),
            Self::Connection(_) => ("connection", None, false),
            Self::Malformed(_) => ("malformed", None, false),
            Self::Rejected(_) => ("rejected", None, true),
        };
        let step = StepError::from(self).code(code);
        let step = if terminal { step.terminal() } else { step };
        match after {
            Some(after) => step.retry_after(after),
            None => step,
        }
    }
}
