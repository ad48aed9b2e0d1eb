//! Hooks: rules around the calls of tools.

use std::future::Future;

use deedbook::{StepError, ThreadId};
use deedbook_journal::checkpointer::BoxFuture;
use serde_json::{Map, Value};

use crate::{Answered, Call, Effect, Secrets};

/// Rules around the calls of tools.
///
/// A hook may look at the clock, a database or the network: what it decides before a call is
/// decided *inside a step*, recorded, and not asked again in a replay; what it does around a body
/// is part of that body's attempt. So a hook need not be deterministic, and an agent whose hooks
/// have changed still resumes what it had begun.
pub trait Hook: Send + Sync + 'static {
    /// Before a call: may change its arguments, which are then validated again; may deny it, or
    /// hold it for a person. Several hooks apply in the order in which they were added, and the
    /// first that does not let the call proceed decides.
    fn before(
        &self,
        wanted: &mut Wanted,
    ) -> impl Future<Output = Result<Decision, StepError>> + Send {
        let _ = wanted;
        async { Ok(Decision::Proceed) }
    }

    /// Values that only the body may see: asked for at every attempt, so that they may change
    /// between two.
    fn secrets(&self, call: &Call) -> impl Future<Output = Result<Secrets, StepError>> + Send {
        let _ = call;
        async { Ok(Secrets::new()) }
    }

    /// After a body has returned, before its result is recorded: may ask for another attempt,
    /// which goes through the same step, under the same key. What the class of the tool says of a
    /// failed attempt holds: a tool that runs at most once is not run again unless
    /// [`Check::NothingHappened`].
    fn check(
        &self,
        call: &Call,
        result: &Value,
    ) -> impl Future<Output = Result<Check, StepError>> + Send {
        let _ = (call, result);
        async { Ok(Check::Accept) }
    }

    /// What the model is shown instead of the answer. The record keeps the answer.
    fn show(&self, answered: &Answered) -> Option<String> {
        let _ = answered;
        None
    }
}

/// A call that a model wants, before it is decided.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub(crate) thread: ThreadId,
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) effect: Effect,
    pub(crate) emitted: Value,
    /// The arguments: validated, in their one form.
    pub arguments: Value,
    /// What else makes it *this* operation, such as an account or a tenant: recorded, part of the
    /// key, and not given to the body.
    pub context: Map<String, Value>,
}

impl Wanted {
    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// Where in the thread the call was made: `t2.0.1`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The tool's name.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// What the tool does to the world.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// The arguments as the model wrote them.
    #[must_use]
    pub fn emitted(&self) -> &Value {
        &self.emitted
    }
}

/// What a hook decides of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may go on.
    Proceed,
    /// A person decides, who is shown the exact arguments and this reason.
    Ask(String),
    /// It is not executed; the model is told why. A later identical call is decided anew.
    Deny(String),
}

/// What a hook thinks of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It is the result.
    Accept,
    /// Try again, under the same key; nobody knows whether this attempt had its effect.
    Retry(String),
    /// Try again: this attempt certainly had no effect.
    NothingHappened(String),
}

/// A hook with its futures erased.
pub(crate) trait AnyHook: Send + Sync + 'static {
    fn before<'a>(&'a self, wanted: &'a mut Wanted) -> BoxFuture<'a, Result<Decision, StepError>>;
    fn secrets<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Secrets, StepError>>;
    fn check<'a>(
        &'a self,
        call: &'a Call,
        result: &'a Value,
    ) -> BoxFuture<'a, Result<Check, StepError>>;
    fn show(&self, answered: &Answered) -> Option<String>;
}

impl<H: Hook> AnyHook for H {
    fn before<'a>(&'a self, wanted: &'a mut Wanted) -> BoxFuture<'a, Result<Decision, StepError>> {
        Box::pin(Hook::before(self, wanted))
    }

    fn secrets<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Secrets, StepError>> {
        Box::pin(Hook::secrets(self, call))
    }

    fn check<'a>(
        &'a self,
        call: &'a Call,
        result: &'a Value,
    ) -> BoxFuture<'a, Result<Check, StepError>> {
        Box::pin(Hook::check(self, call, result))
    }

    fn show(&self, answered: &Answered) -> Option<String> {
        Hook::show(self, answered)
    }
}
