//! Tools: what a model may do.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Duration,
};

use deedbook::{Operation, Probe, Secret, StepError, StoreTime, ThreadId};
use deedbook_journal::checkpointer::BoxFuture;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, ser::Error as _,
};
use serde_json::Value;

use crate::{Declaration, Effect, Normalise, Schema, Terms};

/// A tool that a model may call.
///
/// The body is run as a step of the thread, under the policy that [`effect`](Self::effect) says:
/// its intent is durable before it runs, and its outcome is recorded before the model is told.
///
/// ```
/// use deedbook::StepError;
/// use deedbook_agent::{Call, Effect, Tool, schemars};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Refund { order: String, amount: f64 }
///
/// struct IssueRefund;
///
/// impl Tool for IssueRefund {
///     type Args = Refund;
///     type Output = String;
///
///     fn name(&self) -> &str { "issue_refund" }
///     fn description(&self) -> &str { "Refunds an order." }
///     fn effect(&self) -> Effect { Effect::idempotent() }
///
///     async fn call(&self, call: Call, refund: Refund) -> Result<String, StepError> {
///         // The same key on every attempt, after every restart.
///         Ok(format!("{} back for {} under {}", refund.amount, refund.order, call.key()))
///     }
/// }
/// ```
pub trait Tool: Send + Sync + 'static {
    /// What it takes: an object.
    type Args: DeserializeOwned + schemars::JsonSchema + Send;

    /// What it gives.
    type Output: Serialize + Send;

    /// Its name: 1 to 64 letters, digits, `_` or `-`. Never change it: it is recorded, and part of
    /// the operation keys.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> &str;

    /// What it does to the world.
    fn effect(&self) -> Effect;

    /// What else is said of it.
    fn terms(&self) -> Terms {
        Terms::default()
    }

    /// Does it.
    ///
    /// An error says what is known of the effect: [`StepError::terminal`],
    /// [`StepError::not_applied`], or nothing, and then nobody knows.
    fn call(
        &self,
        call: Call,
        args: Self::Args,
    ) -> impl Future<Output = Result<Self::Output, StepError>> + Send;

    /// Asks the other side whether it happened: for [`Effect::reconcile`].
    fn probe(
        &self,
        call: Call,
        args: Self::Args,
    ) -> impl Future<Output = Result<Probe<Self::Output>, StepError>> + Send {
        let _ = (call, args);
        async { Ok(Probe::Inconclusive) }
    }
}

/// What the body of a tool receives besides its arguments.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) name: Arc<str>,
    pub(crate) id: Arc<str>,
    pub(crate) thread: ThreadId,
    pub(crate) attempt: u32,
    pub(crate) operation: Option<Operation>,
    pub(crate) secrets: Secrets,
}

impl Call {
    /// The tool's name.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.name
    }

    /// Where in the thread the call was made: `t2.0.1` is the second call of the first answer in
    /// turn 2.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The operation key to send downstream: equal on every attempt, after every restart, and on
    /// every machine. Empty for a tool that only reads.
    #[must_use]
    pub fn key(&self) -> &str {
        self.operation.as_ref().map_or("", Operation::key)
    }

    /// The operation, with the other forms of its key. `None` for a tool that only reads.
    #[must_use]
    pub fn operation(&self) -> Option<&Operation> {
        self.operation.as_ref()
    }

    /// When the first attempt that may have had its effect began.
    #[must_use]
    pub fn first_started_at(&self) -> Option<StoreTime> {
        self.operation.as_ref().map(Operation::first_started_at)
    }

    /// A secret that a [`Hook`](crate::Hook) gave.
    ///
    /// # Errors
    /// No hook gives one of this name: nothing was sent.
    pub fn secret(&self, name: &str) -> Result<&str, StepError> {
        let found = self.secrets.0.get(name).map(|secret| secret.expose().as_str());
        found.ok_or_else(|| {
            StepError::new(format!("no hook gives the secret {name:?}; nothing was done"))
                .not_applied()
        })
    }
}

/// Values that reach the body of a tool only: they are in no record, no key and no log. Where a
/// result or an error repeats one of them, `[secret]` is recorded in its place.
#[derive(Debug, Clone, Default)]
pub struct Secrets(pub(crate) BTreeMap<String, Secret<String>>);

impl Secrets {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// And this one.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(name.into(), Secret::new(value.into()));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text without them.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let mut secrets: Vec<&String> = self.0.values().map(Secret::expose).collect();
        // A secret that holds another one goes first.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "[secret]");
            }
        }
        text
    }

    /// The value without them.
    pub(crate) fn hide_in(&self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.hide(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.hide_in(item)).collect(),
            Value::Object(members) => {
                let members = members.into_iter();
                Value::Object(members.map(|(k, v)| (self.hide(&k), self.hide_in(v))).collect())
            }
            other => other,
        }
    }
}

/// The result of a tool as it is recorded. One that is no JSON cannot be, and then it is recorded
/// that the call happened and that its result is lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored(pub(crate) Result<Value, String>);

impl Stored {
    /// A result.
    #[must_use]
    pub fn of<T: Serialize>(result: &T) -> Self {
        Self(serde_json::to_value(result).map_err(|error| error.to_string()))
    }
}

impl Serialize for Stored {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(value) => value.serialize(serializer),
            Err(why) => Err(S::Error::custom(why)),
        }
    }
}

impl<'de> Deserialize<'de> for Stored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(Ok(value)))
    }
}

/// A tool with its types erased: arguments and result are JSON. For tools that are known at run
/// time only; others implement [`Tool`].
#[derive(Clone)]
pub struct DynTool {
    pub(crate) declaration: Declaration,
    pub(crate) effect: Effect,
    pub(crate) terms: Terms,
    pub(crate) body: Arc<dyn Body>,
}

pub(crate) trait Body: Send + Sync + 'static {
    fn call(&self, call: Call, args: Value) -> BoxFuture<'_, Result<Stored, StepError>>;
    fn probe(&self, call: Call, args: Value) -> BoxFuture<'_, Result<Probe<Stored>, StepError>>;
}

impl DynTool {
    /// A tool whose body is this function.
    pub fn new<F, Fut>(declaration: Declaration, effect: Effect, terms: Terms, body: F) -> Self
    where
        F: Fn(Call, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, StepError>> + Send + 'static,
    {
        Self { declaration, effect, terms, body: Arc::new(Function(body)) }
    }

    /// A typed tool.
    pub fn of<T: Tool>(tool: T) -> Self {
        Self {
            declaration: Declaration {
                name: tool.name().to_owned(),
                description: tool.description().to_owned(),
                schema: Schema::of::<T::Args>(),
            },
            effect: tool.effect(),
            terms: tool.terms(),
            body: Arc::new(Typed(tool)),
        }
    }

    /// The same, with other terms than the tool says.
    #[must_use]
    pub fn with_terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Brings an argument into one form before hooks and keys: see [`Terms::normalise`].
    #[must_use]
    pub fn normalise(mut self, argument: impl Into<String>, how: Normalise) -> Self {
        self.terms = self.terms.normalise(argument, how);
        self
    }

    /// For a tool whose other side can be asked: how long after the last send: see
    /// [`Effect::quiet`].
    #[must_use]
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.effect = self.effect.quiet(quiet);
        self
    }

    /// As the model sees it.
    #[must_use]
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// What it does to the world.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }
}

impl fmt::Debug for DynTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynTool")
            .field("name", &self.declaration.name)
            .field("effect", &self.effect)
            .finish_non_exhaustive()
    }
}

struct Typed<T>(T);

/// Arguments were validated before; what still does not fit was never sent.
fn arguments<A: DeserializeOwned>(args: Value) -> Result<A, StepError> {
    serde_json::from_value(args)
        .map_err(|error| StepError::from(error).terminal().code("arguments"))
}

impl<T: Tool> Body for Typed<T> {
    fn call(&self, call: Call, args: Value) -> BoxFuture<'_, Result<Stored, StepError>> {
        Box::pin(async move {
            let result = self.0.call(call, arguments(args)?).await?;
            Ok(Stored::of(&result))
        })
    }

    fn probe(&self, call: Call, args: Value) -> BoxFuture<'_, Result<Probe<Stored>, StepError>> {
        Box::pin(async move {
            Ok(match self.0.probe(call, arguments(args)?).await? {
                Probe::Happened(result) => Probe::Happened(Stored::of(&result)),
                Probe::DidNotHappen => Probe::DidNotHappen,
                Probe::Inconclusive => Probe::Inconclusive,
            })
        })
    }
}

struct Function<F>(F);

impl<F, Fut> Body for Function<F>
where
    F: Fn(Call, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, StepError>> + Send + 'static,
{
    fn call(&self, call: Call, args: Value) -> BoxFuture<'_, Result<Stored, StepError>> {
        let body = (self.0)(call, args);
        Box::pin(async move { Ok(Stored(Ok(body.await?))) })
    }

    fn probe(&self, _: Call, _: Value) -> BoxFuture<'_, Result<Probe<Stored>, StepError>> {
        Box::pin(async { Ok(Probe::Inconclusive) })
    }
}

/// Runs a body that was given secrets. A panic in it goes on without them in its message.
pub(crate) async fn without_secrets<T>(
    secrets: &Secrets,
    body: impl Future<Output = T> + Send,
) -> T {
    let mut body = Box::pin(body);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(cx))) {
        Ok(polled) => polled,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "(no message)".to_owned());
            resume_unwind(Box::new(secrets.hide(&text)))
        }
    })
    .await
}
