//! The agent being put together.

use std::{fmt, sync::Arc, time::Duration};

use deedbook::{Context, Result, Retry, ThreadId, Workflow};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::{
    Ended, Hook, Limit, Model, Pieces, Spent, Toolbox,
    answer::{Question, Reply},
    hook::AnyHook,
    model::AnyModel,
    turn,
};

/// How many pieces of news are kept for a chat that is slow to take them.
const NEWS_MAX: usize = 256;

/// A model with tools, whose conversations are threads of a [`Deedbook`](deedbook::Deedbook).
///
/// An agent is a [`Workflow`] of the name `agent`. A program with several kinds of agents gives
/// each a workflow, and so a name, of its own, which calls [`converse`](Self::converse):
///
/// ```
/// use deedbook::{Context, Result, Workflow};
/// use deedbook_agent::{Agent, Ended, Opening};
///
/// struct Support(Agent);
///
/// impl Workflow for Support {
///     const NAME: &'static str = "support";
///     type Input = Opening;
///     type Output = Ended;
///
///     async fn run(&self, ctx: Context, opening: &Opening) -> Result<Ended> {
///         self.0.converse(ctx, opening).await
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Agent(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) model: Arc<dyn AnyModel>,
    pub(crate) instructions: String,
    pub(crate) toolbox: Toolbox,
    pub(crate) hooks: Vec<Arc<dyn AnyHook>>,
    pub(crate) budget: Budget,
    pub(crate) shown_chars_max: usize,
    pub(crate) tell_replays: bool,
    pub(crate) approve_within: Option<Duration>,
    pub(crate) answer_within: Option<Duration>,
    pub(crate) model_timeout: Duration,
    pub(crate) model_retry: Retry,
    pub(crate) pieces: Pieces,
    pub(crate) news: broadcast::Sender<News>,
}

/// Something that a chat may wait for is durable.
#[derive(Debug, Clone)]
pub(crate) struct News {
    pub(crate) thread: ThreadId,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Reply(Box<Reply>),
    Question(Question),
}

/// What one turn may cost. Each bound is a typed end: [`TurnEnd::Budget`](crate::TurnEnd::Budget).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub(crate) model_calls: u32,
    pub(crate) tool_calls: u32,
    pub(crate) tokens: Option<u64>,
    pub(crate) time: Option<Duration>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { model_calls: 50, tool_calls: 200, tokens: None, time: None }
    }
}

impl Budget {
    /// 50 calls of the model, 200 of tools, any number of tokens, any time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many calls of the model.
    #[must_use]
    pub fn model_calls(mut self, most: u32) -> Self {
        self.model_calls = most;
        self
    }

    /// At most so many calls of tools.
    #[must_use]
    pub fn tool_calls(mut self, most: u32) -> Self {
        self.tool_calls = most;
        self
    }

    /// The model is not asked again after so many tokens.
    #[must_use]
    pub fn tokens(mut self, most: u64) -> Self {
        self.tokens = Some(most);
        self
    }

    /// The model is not asked again after so much time, by the store's clock. What is under way
    /// is not cut off.
    #[must_use]
    pub fn time(mut self, most: Duration) -> Self {
        self.time = Some(most);
        self
    }

    pub(crate) fn reached(&self, spent: &Spent) -> Option<Limit> {
        let tokens = spent.tokens.input.saturating_add(spent.tokens.output);
        if spent.model_calls >= self.model_calls {
            Some(Limit::ModelCalls)
        } else if self.tokens.is_some_and(|most| tokens >= most) {
            Some(Limit::Tokens)
        } else {
            None
        }
    }
}

/// What a conversation begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// What the user says first; without it the thread waits for a message.
    #[serde(default)]
    pub prompt: Option<String>,
    /// After how many turns the thread ends by itself.
    #[serde(default)]
    pub turns: Option<u32>,
}

impl Opening {
    /// A conversation that goes on until somebody ends it.
    #[must_use]
    pub fn chat() -> Self {
        Self::default()
    }

    /// One turn: the thread ends with its reply.
    #[must_use]
    pub fn once(prompt: impl Into<String>) -> Self {
        Self { prompt: Some(prompt.into()), turns: Some(1) }
    }
}

impl Agent {
    /// An agent of this model.
    pub fn builder(model: impl Model) -> AgentBuilder {
        AgentBuilder(Inner {
            model: Arc::new(model),
            instructions: String::new(),
            toolbox: Toolbox::new(),
            hooks: Vec::new(),
            budget: Budget::default(),
            shown_chars_max: 32_000,
            tell_replays: true,
            approve_within: None,
            answer_within: None,
            model_timeout: Duration::from_secs(300),
            model_retry: Retry::attempts(5),
            pieces: Pieces::default(),
            news: broadcast::Sender::new(NEWS_MAX),
        })
    }

    /// The conversation of this thread: the one loop behind every beginning, every message and
    /// every resumption.
    ///
    /// # Errors
    /// Those of the runtime. What a model or a tool does wrong is no error of the thread.
    pub async fn converse(&self, ctx: Context, opening: &Opening) -> Result<Ended> {
        Box::pin(turn::converse(self.0.clone(), ctx, opening)).await
    }
}

impl Workflow for Agent {
    const NAME: &'static str = "agent";
    type Input = Opening;
    type Output = Ended;

    async fn run(&self, ctx: Context, opening: &Opening) -> Result<Ended> {
        self.converse(ctx, opening).await
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("model", &self.0.model.name())
            .field("toolbox", &self.0.toolbox)
            .finish_non_exhaustive()
    }
}

/// An agent being put together; see [`Agent::builder`].
#[must_use = "an agent is there once it is built"]
pub struct AgentBuilder(Inner);

/// Why an agent cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent's tools do not fit: {0}")]
pub struct BuildError(String);

impl AgentBuilder {
    /// What the model is told first.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.0.instructions = text.into();
        self
    }

    /// What it may do.
    pub fn tools(mut self, toolbox: Toolbox) -> Self {
        self.0.toolbox = toolbox;
        self
    }

    /// A rule around its calls; more than one may be added.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.0.hooks.push(Arc::new(hook));
        self
    }

    /// What a turn may cost.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.0.budget = budget;
        self
    }

    /// How much of an answer the model is shown. The record holds the whole. Default 32,000
    /// characters.
    pub fn shown_chars_max(mut self, chars: usize) -> Self {
        self.0.shown_chars_max = chars;
        self
    }

    /// Whether the model is told that an answer is a recorded one. Default: yes.
    pub fn tell_replays(mut self, tell: bool) -> Self {
        self.0.tell_replays = tell;
        self
    }

    /// How long a call waits for a person's approval. Default: for ever.
    pub fn approve_within(mut self, time: Duration) -> Self {
        self.0.approve_within = Some(time);
        self
    }

    /// How long a question waits for its answer. Default: for ever.
    pub fn answer_within(mut self, time: Duration) -> Self {
        self.0.answer_within = Some(time);
        self
    }

    /// How long one answer of the model may take. Default 5 minutes.
    pub fn model_timeout(mut self, timeout: Duration) -> Self {
        self.0.model_timeout = timeout;
        self
    }

    /// How often the model is asked for one answer. Default: five times.
    pub fn model_retry(mut self, retry: Retry) -> Self {
        self.0.model_retry = retry;
        self
    }

    /// Where pieces of answers go while the model speaks.
    pub fn pieces(mut self, pieces: Pieces) -> Self {
        self.0.pieces = pieces;
        self
    }

    /// Puts it together.
    ///
    /// # Errors
    /// Two tools have one name, or a tool has a name or an argument that cannot be.
    pub fn build(self) -> Result<Agent, BuildError> {
        match self.0.toolbox.wrong() {
            [] => Ok(Agent(Arc::new(self.0))),
            wrong => Err(BuildError(wrong.join("; "))),
        }
    }
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentBuilder").field("toolbox", &self.0.toolbox).finish_non_exhaustive()
    }
}
