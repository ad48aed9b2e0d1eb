//! What became of a call, of a turn, and of a conversation.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Usage, json::canonical};

/// Results and arguments longer than this are not repeated in a reply.
const REPLIED_BYTES_MAX: usize = 64 << 10;

/// What became of one call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Done {
        /// The result, as recorded: the first caller and every replay get the same.
        result: Value,
    },
    /// It was done, and its result is too large to be told again in a reply: it stands in the
    /// record of the step.
    DoneLarge {
        /// How long its JSON is.
        bytes: usize,
        /// BLAKE3 of its JSON in canonical form.
        digest: String,
    },
    /// It failed.
    Failed {
        /// The short word of the error, empty if none.
        code: String,
        /// What went wrong.
        message: String,
        /// Whether it certainly had no effect, so that an identical call is a new attempt.
        /// Otherwise it has failed for good, and an identical call is answered with this failure.
        nothing_happened: bool,
    },
    /// It was done, and its result could not be recorded.
    Unstored {
        /// Why.
        why: String,
    },
    /// A hook or a person denied it: not executed. A later identical call is decided anew.
    Denied {
        /// Who.
        by: String,
        /// Why.
        reason: String,
    },
    /// Nobody answered in time: not executed.
    Unanswered {
        /// What was waited for.
        why: String,
    },
    /// An earlier call was the same operation with other content: not executed.
    Conflict {
        /// The earlier call.
        first: String,
        /// The arguments that differ.
        differing: Vec<String>,
    },
    /// The arguments do not fit the tool: not executed.
    Malformed {
        /// What does not fit.
        why: String,
    },
    /// There is no such tool: not executed.
    Unknown {
        /// The tools that there are.
        known: Vec<String>,
    },
    /// A limit was reached before its turn came: not executed.
    NotRun {
        /// Which.
        why: String,
    },
}

impl Outcome {
    /// The result, if it was done.
    #[must_use]
    pub fn result(&self) -> Option<&Value> {
        match self {
            Self::Done { result } => Some(result),
            _ => None,
        }
    }

    /// What of it goes into a reply.
    fn in_reply(self) -> Self {
        let Self::Done { result } = &self else {
            return self;
        };
        let text = canonical(result);
        if text.len() <= REPLIED_BYTES_MAX {
            return self;
        }
        let digest = blake3::hash(text.as_bytes()).to_string();
        Self::DoneLarge { bytes: text.len(), digest }
    }

    /// Whether an identical later call is answered with this.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Unstored { .. } => true,
            Self::Failed { nothing_happened, .. } => !nothing_happened,
            _ => false,
        }
    }

    /// In words, for the model.
    fn told(&self) -> String {
        match self {
            Self::Done { result: Value::String(text) } => text.clone(),
            Self::Done { result } => canonical(result),
            Self::DoneLarge { bytes, .. } => format!("It was done; its result has {bytes} bytes."),
            Self::Failed { message, nothing_happened: true, .. } => {
                format!("error: {message} (It had no effect; calling it again is a new attempt.)")
            }
            Self::Failed { message, .. } => {
                format!("error: {message} (It failed for good; do not call it again like this.)")
            }
            Self::Unstored { why } => {
                format!("It was done, but its result was lost: {why}. Do not call it again.")
            }
            Self::Denied { by, reason } => format!("not executed: {by} denied it: {reason}"),
            Self::Unanswered { why } => format!("not executed: {why}"),
            Self::Conflict { first, differing } => format!(
                "not executed: call {first} was the same operation with another {}; say which is \
                 meant, as an operation of its own",
                differing.join(", ")
            ),
            Self::Malformed { why } => format!("not executed: {why}"),
            Self::Unknown { known } => {
                format!("not executed: there is no such tool; there are {}", known.join(", "))
            }
            Self::NotRun { why } => format!("not executed: {why}"),
        }
    }
}

/// Where an answer was taken from that was not made for this call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The call that it was made for.
    pub first: String,
    /// The scope in which the two are one operation.
    pub scope: String,
}

/// One call of a tool, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// Where in the thread the call was made: `t2.0.1` is the second call of the first answer in
    /// turn 2.
    pub call: String,
    /// The model's id for it.
    pub model_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments as the model wrote them; null in a reply if they are longer than 64 KiB.
    pub emitted: Value,
    /// The arguments in their one form, after hooks; null in a reply if longer than 64 KiB.
    pub arguments: Value,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Set if nothing was done for this call, because its answer was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
}

impl Answered {
    /// What of it goes into a reply: a result that is large stands in its own record only.
    pub(crate) fn in_reply(mut self) -> Self {
        self.outcome = self.outcome.in_reply();
        if canonical(&self.emitted).len() > REPLIED_BYTES_MAX {
            self.emitted = Value::Null;
        }
        if canonical(&self.arguments).len() > REPLIED_BYTES_MAX {
            self.arguments = Value::Null;
        }
        self
    }

    /// In words, for the model, with at most so many characters of the result.
    pub(crate) fn told(&self, chars_max: usize, tell_replays: bool) -> String {
        let mut text = self.outcome.told();
        if let Some((cut, _)) = text.char_indices().nth(chars_max) {
            let all = text.chars().count();
            text.truncate(cut);
            let _ = write!(text, "\n(cut: {chars_max} of {all} characters)");
        }
        if let Some(replayed) = self.replayed.as_ref().filter(|_| tell_replays) {
            let Replayed { first, scope } = replayed;
            let _ = write!(
                text,
                "\n(replayed: the recorded answer of call {first} in this {scope}; nothing was \
                 done again)"
            );
        }
        text
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEnd {
    /// The model answered.
    Answered,
    /// The model refused.
    Refused {
        /// Its words.
        why: String,
    },
    /// The model said nothing, several times.
    Empty,
    /// The answer was cut off at its longest.
    Cut,
    /// A budget was used up.
    Budget {
        /// Which.
        limit: Limit,
    },
    /// The model could not be asked.
    ModelFailed {
        /// The short word of the error.
        code: String,
        /// What went wrong.
        message: String,
    },
}

/// The budgets of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Calls of the model.
    ModelCalls,
    /// Calls of tools.
    ToolCalls,
    /// Tokens, read and written.
    Tokens,
    /// Time.
    Time,
}

/// What a turn or a conversation has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Calls of the model.
    pub model_calls: u32,
    /// Calls of tools that were wanted.
    pub tool_calls: u32,
    /// Tokens.
    pub tokens: Usage,
}

impl Spent {
    pub(crate) fn add(&mut self, other: Self) {
        self.model_calls += other.model_calls;
        self.tool_calls += other.tool_calls;
        self.tokens.input += other.tokens.input;
        self.tokens.output += other.tokens.output;
    }
}

/// What came of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Which turn, from 1.
    pub turn: u32,
    /// The id of the message that it answers.
    pub id: String,
    /// How it ended.
    #[serde(flatten)]
    pub end: TurnEnd,
    /// What the model said at its end.
    pub text: String,
    /// The calls of the turn, in order.
    pub calls: Vec<Answered>,
    /// What it cost.
    pub spent: Spent,
}

/// A question of the agent to its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The call that asks: [`Chat::answer`](crate::Chat::answer) takes it.
    pub call: String,
    /// The question.
    pub question: String,
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// How many turns it had.
    pub turns: u32,
    /// The last reply.
    pub last: Option<Reply>,
    /// What it cost.
    pub spent: Spent,
}
