//! Between the model and the tools: what is wanted is read, brought into one form, and judged by
//! the hooks; all inside one recorded step, so that a replay asks nobody again.

use std::{collections::BTreeSet, sync::Arc};

use deedbook::{StepError, ThreadId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    agent::Inner,
    hook::{Decision, Wanted},
    json,
    model::ToolCall,
    tool::DynTool,
};

/// The member under which a hook's context stands beside the arguments.
pub(crate) const CONTEXT: &str = "@context";

/// A call, read and judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// Where in the thread it was made.
    pub(crate) call: String,
    /// The model's id, made unique within its answer.
    pub(crate) model_id: String,
    pub(crate) tool: String,
    pub(crate) emitted: Value,
    pub(crate) arguments: Value,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) context: Map<String, Value>,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(crate) enum Verdict {
    Run,
    Ask { why: String },
    Denied { why: String },
    Malformed { why: String },
    Unknown { known: Vec<String> },
}

impl Prepared {
    /// The arguments as they are recorded: with what hooks say besides.
    pub(crate) fn recorded(&self) -> Value {
        let mut recorded = self.arguments.clone();
        if let (Value::Object(members), false) = (&mut recorded, self.context.is_empty()) {
            members.insert(CONTEXT.to_owned(), Value::Object(self.context.clone()));
        }
        recorded
    }
}

/// The ids of the calls of one answer: a model that gives none, or one twice, gets others.
pub(crate) fn unique_ids(calls: &[ToolCall]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut ids = Vec::new();
    for (n, call) in calls.iter().enumerate() {
        let base = if call.id.is_empty() { format!("call-{n}") } else { call.id.clone() };
        let mut id = base.clone();
        let mut more = 1;
        while !taken.insert(id.clone()) {
            more += 1;
            id = format!("{base}-{more}");
        }
        ids.push(id);
    }
    ids
}

/// Reads and judges the calls of one answer.
pub(crate) async fn prepare(
    agent: Arc<Inner>,
    thread: ThreadId,
    place: String,
    calls: Vec<ToolCall>,
) -> Result<Vec<Prepared>, StepError> {
    let ids = unique_ids(&calls);
    let mut all = Vec::new();
    for (n, (call, model_id)) in calls.iter().zip(ids).enumerate() {
        let emitted = json::read(&call.arguments);
        let mut prepared = Prepared {
            call: format!("{place}.{n}"),
            model_id,
            tool: call.name.clone(),
            emitted: emitted.clone().unwrap_or_else(|_| Value::String(call.arguments.clone())),
            arguments: Value::Null,
            context: Map::new(),
            verdict: Verdict::Run,
        };
        let read = emitted.map_err(|why| format!("the arguments are no JSON: {why}"));
        prepared.verdict = match (agent.toolbox.find(&call.name), read) {
            (None, _) => Verdict::Unknown { known: agent.toolbox.names() },
            (_, Err(why)) => Verdict::Malformed { why },
            (Some(tool), Ok(emitted)) => match in_one_form(&tool, emitted) {
                Err(why) => Verdict::Malformed { why },
                Ok(arguments) => judge(&agent, &thread, &tool, arguments, &mut prepared).await?,
            },
        };
        all.push(prepared);
    }
    Ok(all)
}

/// The arguments as the schema takes them, and with the tool's own rules for texts.
fn in_one_form(tool: &DynTool, emitted: Value) -> Result<Value, String> {
    let schema = &tool.declaration.schema;
    let mut arguments = schema.take(emitted)?;
    if tool.terms.normalise.is_empty() {
        return Ok(arguments);
    }
    for (name, how) in &tool.terms.normalise {
        if let Some(Value::String(text)) = arguments.get_mut(name) {
            *text = how.apply(text);
        }
    }
    schema.take(arguments)
}

async fn judge(
    agent: &Inner,
    thread: &ThreadId,
    tool: &DynTool,
    arguments: Value,
    prepared: &mut Prepared,
) -> Result<Verdict, StepError> {
    let mut wanted = Wanted {
        thread: thread.clone(),
        id: prepared.call.clone(),
        tool: prepared.tool.clone(),
        effect: tool.effect,
        emitted: prepared.emitted.clone(),
        arguments,
        context: Map::new(),
    };
    let mut verdict = match &tool.terms.approval {
        Some(why) => Verdict::Ask { why: why.clone() },
        None => Verdict::Run,
    };
    for hook in &agent.hooks {
        match hook.before(&mut wanted).await? {
            Decision::Proceed => {}
            Decision::Ask(why) => {
                verdict = Verdict::Ask { why };
                break;
            }
            Decision::Deny(why) => {
                verdict = Verdict::Denied { why };
                break;
            }
        }
    }
    // What a hook has changed is held to the same rules.
    let changed = json::with_plain_numbers(wanted.arguments);
    let taken = in_one_form(tool, changed.clone());
    let context = json::with_plain_numbers(Value::Object(wanted.context));
    if let Value::Object(context) = context {
        prepared.context = context;
    }
    Ok(match taken {
        Ok(arguments) => {
            prepared.arguments = arguments;
            verdict
        }
        Err(why) => {
            prepared.arguments = changed;
            Verdict::Malformed { why: format!("a hook changed the arguments: {why}") }
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_told_apart() {
        let call = |id: &str| ToolCall::new(id, "t", &json!({}));
        let ids = unique_ids(&[call("a"), call("a"), call(""), call("a-2"), call("a")]);
        assert_eq!(ids, ["a", "a-2", "call-2", "a-2-2", "a-3"]);
    }
}
