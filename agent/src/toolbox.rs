//! The tools of an agent.

use std::{collections::BTreeMap, sync::Arc};

use deedbook::Scope;
use serde_json::json;

use crate::{Declaration, DynTool, Effect, Schema, Terms, Tool, prepare::CONTEXT};

/// The built-in tool that asks the user.
pub(crate) const ASK: &str = "ask_user";

/// The tools of an agent.
#[derive(Debug, Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, DynTool>,
    wrong: Vec<String>,
}

impl Toolbox {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// And this one.
    #[must_use]
    pub fn with(self, tool: impl Tool) -> Self {
        self.with_dyn(DynTool::of(tool))
    }

    /// And these, known at run time.
    #[must_use]
    pub fn with_all(self, tools: impl IntoIterator<Item = DynTool>) -> Self {
        tools.into_iter().fold(self, Self::with_dyn)
    }

    /// And this one, known at run time.
    #[must_use]
    pub fn with_dyn(mut self, tool: DynTool) -> Self {
        let name = tool.declaration.name.clone();
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
            self.wrong.push(format!(
                "the tool {name:?} needs a name of 1 to 64 letters, digits, `_` or `-`"
            ));
        }
        let members = tool.declaration.schema.members();
        for argument in tool.terms.identity.iter().flatten() {
            if !members.contains(&argument.as_str()) {
                self.wrong.push(format!("the tool {name:?} takes no {argument:?} to identify it"));
            }
        }
        for (argument, _) in &tool.terms.normalise {
            if !members.contains(&argument.as_str()) {
                self.wrong.push(format!("the tool {name:?} takes no {argument:?} to normalise"));
            }
        }
        if tool.terms.scope == Scope::Journal && !tool.effect.is_once() {
            self.wrong.push(format!(
                "the tool {name:?} does not happen once, so it cannot be shared by the journal"
            ));
        }
        if members.contains(&CONTEXT) {
            self.wrong.push(format!("the tool {name:?} cannot take {CONTEXT:?}"));
        }
        if self.tools.insert(name.clone(), tool).is_some() {
            self.wrong.push(format!("two tools are named {name:?}"));
        }
        self
    }

    /// And `ask_user`, by which the model asks its user a question and waits for the answer: see
    /// [`Chat::questions`](crate::Chat::questions).
    #[must_use]
    pub fn with_ask(self) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {"question": {"type": "string", "minLength": 1}},
            "required": ["question"],
        });
        let declaration = Declaration {
            name: ASK.to_owned(),
            description: "Asks the user a question and waits for the answer.".to_owned(),
            schema: Schema::new(schema),
        };
        let nothing = async |_, args| Ok(args);
        self.with_dyn(DynTool::new(declaration, Effect::read(), Terms::new(), move |call, args| {
            nothing(call, args)
        }))
    }

    /// The declarations, in the order of their names.
    #[must_use]
    pub fn declarations(&self) -> Arc<[Declaration]> {
        self.tools.values().map(|tool| tool.declaration.clone()).collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<DynTool> {
        self.tools.get(name).cloned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    /// What is wrong with them.
    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }
}
