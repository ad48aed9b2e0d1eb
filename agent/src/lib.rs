//! Agents whose tool calls are recorded: a model uses tools, and each effect happens once.
//!
//! An agent's conversation is a thread of a [`Deedbook`](deedbook::Deedbook). Every answer of the
//! model and every call of a tool is a step: a crashed conversation resumes where it was, a call
//! that the model repeats is answered from the record, and what nobody can know is in doubt.
//!
//! In reading order: a [`Tool`] says what it takes and what it does to the world ([`Effect`]);
//! [`Hook`]s are rules around its calls; an [`Agent`] is a [`Model`] with a [`Toolbox`]; a [`Chat`]
//! talks to it.

mod agent;
mod answer;
mod chat;
mod effect;
mod hook;
mod json;
mod known;
mod model;
mod perform;
mod prepare;
mod schema;
mod scripted;
mod tool;
mod toolbox;
mod turn;

pub use agent::{Agent, AgentBuilder, Budget, BuildError, Opening};
pub use answer::{Answered, Ended, Limit, Outcome, Question, Replayed, Reply, Spent, TurnEnd};
pub use chat::{Chat, ChatError};
pub use effect::{Effect, Normalise, Terms};
pub use hook::{Check, Decision, Hook, Wanted};
pub use model::{
    Declaration, Message, Model, ModelError, Pieces, Request, Response, ToolCall, Usage,
};
pub use schema::Schema;
pub use scripted::Scripted;
pub use tool::{Call, DynTool, Secrets, Stored, Tool};
pub use toolbox::Toolbox;

pub(crate) use prepare::CONTEXT;

/// Makes a tool of an async function. The function's name becomes that of what makes the tool, its
/// documentation what the model is told, and its parameters what the model sends.
///
/// In the brackets stands the effect class, which is mandatory (`read`, `idempotent`,
/// `reconcile = probe`, `at_most_once`, `mint`), and what else is said of it: `minting`, `journal`,
/// `identity(order, ..)`, `approval = "why"`, `honoured_for`, `timeout`, `retry`, `name`,
/// `description`. A parameter of type [`Call`] is given the call; `#[hand]` ones are given by
/// whoever makes the tool; `#[secret]` ones come from a [`Hook`] and are in no record;
/// `#[default = ..]` fills in what the model leaves out.
///
/// ```
/// use std::time::Duration;
/// use deedbook::{Probe, StepError};
/// use deedbook_agent::{Agent, Call, Response, Scripted, Toolbox, tool};
///
/// #[derive(Clone)]
/// struct Bank;
///
/// /// Refunds an order.
/// #[tool(idempotent, honoured_for = Duration::from_secs(86_400), identity(order))]
/// async fn issue_refund(
///     call: Call,
///     #[hand] bank: Bank,
///     /// The order, such as ORD-4821.
///     order: String,
///     amount: f64,
///     #[default = "EUR"] currency: String,
/// ) -> Result<String, StepError> {
///     let Bank = bank;
///     Ok(format!("{amount} {currency} back for {order} under {}", call.key()))
/// }
///
/// let tools = Toolbox::new().with(issue_refund(Bank));
/// let declared = tools.declarations();
/// assert_eq!(declared[0].description, "Refunds an order.");
/// assert_eq!(declared[0].schema.members(), ["amount", "currency", "order"]);
/// let agent = Agent::builder(Scripted::new([Response::text("hello")])).tools(tools).build()?;
/// # Ok::<(), deedbook_agent::BuildError>(())
/// ```
///
/// A tool that does not say what it does to the world does not compile:
///
/// ```compile_fail
/// # use deedbook::StepError;
/// #[deedbook_agent::tool]
/// async fn page_oncall(summary: String) -> Result<String, StepError> {
///     Ok(summary)
/// }
/// ```
pub use deedbook_agent_macros::tool;
pub use schemars;

/// For what the attribute writes.
#[doc(hidden)]
pub mod __private {
    pub use deedbook::{Probe, Scope, StepError};
    pub use serde;
}
