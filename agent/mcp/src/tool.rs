//! One tool of a server.

use deedbook::StepError;
use deedbook_agent::{Call, Declaration, DynTool, Effect, Schema, Terms};
use rmcp::{
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ErrorCode, JsonObject, Tool,
        ToolAnnotations,
    },
    service::ServiceError,
};
use serde_json::{Value, json};

use crate::link::Link;

/// The member of a request's metadata that holds the operation key.
pub const OPERATION_KEY: &str = "dev.deedbook/operation-key";
/// The member of a request's metadata that holds the number of the attempt.
pub const ATTEMPT: &str = "dev.deedbook/attempt";

/// What a server's hints are worth: hints come from a server that nobody may trust, so they
/// decide nothing but what may happen *again*.
///
/// `readOnlyHint` makes it a read; `idempotentHint` lets a call whose outcome is unknown be made
/// again; without either, and whatever else is hinted, a call is made once, and a doubt is left to
/// a person. [`Server::effect`](crate::Server::effect) says otherwise.
#[must_use]
pub fn effect_of_hints(hints: Option<&ToolAnnotations>) -> Effect {
    let hinted = |hint: fn(&ToolAnnotations) -> Option<bool>| hints.and_then(hint) == Some(true);
    if hinted(|hints| hints.read_only_hint) {
        Effect::read()
    } else if hinted(|hints| hints.idempotent_hint) {
        Effect::idempotent()
    } else {
        Effect::at_most_once()
    }
}

pub(crate) fn made(
    link: &Link,
    prefix: &str,
    listed: &Tool,
    effect: Effect,
    terms: Terms,
) -> DynTool {
    let declaration = Declaration {
        name: format!("{prefix}{}", listed.name),
        description: listed.description.clone().unwrap_or_default().into_owned(),
        // As the protocol has it: what a schema does not mention is the server's business.
        schema: Schema::new(open(&listed.input_schema)),
    };
    let (link, name) = (link.clone(), listed.name.clone());
    DynTool::new(declaration, effect, terms, move |call: Call, arguments| {
        let (link, name) = (link.clone(), name.clone());
        async move {
            // Nothing of the call is sent yet.
            let service = link.ready().await.map_err(|e| StepError::from(e).not_applied())?;
            let mut params = CallToolRequestParams::new(name);
            params.arguments = match arguments {
                Value::Object(members) => Some(members),
                _ => None,
            };
            params.meta = Some(metadata(&call).into());
            // Once: what the server asks for in between is nothing that a record could answer.
            match service.call_tool_once(params).await {
                Ok(CallToolResponse::Complete(result)) => Ok(told(result)),
                Ok(_) => Err(StepError::new("the server asks for more instead of answering")),
                Err(error) => Err(failed(error)),
            }
        }
    })
}

/// A schema that says nothing of other members takes them.
fn open(schema: &JsonObject) -> Value {
    let mut schema = schema.clone();
    schema.entry("additionalProperties").or_insert(Value::Bool(true));
    Value::Object(schema)
}

fn metadata(call: &Call) -> JsonObject {
    let mut metadata = JsonObject::new();
    if !call.key().is_empty() {
        metadata.insert(OPERATION_KEY.to_owned(), call.key().into());
    }
    metadata.insert(ATTEMPT.to_owned(), call.attempt().into());
    metadata
}

/// A result, errors included: `isError` is what the tool says, and not that it did nothing.
fn told(result: CallToolResult) -> Value {
    let texts: Option<Vec<&str>> =
        result.content.iter().map(|block| Some(block.as_text()?.text.as_str())).collect();
    let said = match (&result.structured_content, texts) {
        (Some(structured), _) => structured.clone(),
        (None, Some(texts)) => texts.join("\n").into(),
        (None, None) => serde_json::to_value(&result.content).unwrap_or_default(),
    };
    match result.is_error {
        Some(true) => json!({"is_error": true, "said": said}),
        _ => said,
    }
}

/// What is known of a call without a result: nothing, unless the server refused to begin.
fn failed(error: ServiceError) -> StepError {
    let refused = match &error {
        ServiceError::McpError(error) => {
            matches!(error.code, ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND)
        }
        _ => false,
    };
    let error = told_of(error);
    if refused { error.terminal().code("refused") } else { error }
}

#[cfg(feature = "http")]
fn told_of(error: ServiceError) -> StepError {
    StepError::new(crate::http::words(&error))
}

#[cfg(not(feature = "http"))]
fn told_of(error: ServiceError) -> StepError {
    StepError::from(error)
}
