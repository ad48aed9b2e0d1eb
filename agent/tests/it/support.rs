//! A world that counts its effects, tools that have them, and models that ask for them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use deedbook::{Deedbook, StepError};
use deedbook_agent::{
    Agent, AgentBuilder, Answered, Call, Declaration, DynTool, Effect, Ended, Opening, Response,
    Schema, Scripted, Terms, ToolCall, Toolbox,
};
use serde_json::{Value, json};

/// What happened outside.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Happened {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    pub(crate) key: String,
    pub(crate) attempt: u32,
}

/// The other side of the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct World(Arc<Mutex<Vec<Happened>>>);

impl World {
    pub(crate) fn happen(&self, call: &Call, arguments: &Value) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(Happened {
            tool: call.tool().to_owned(),
            arguments: arguments.clone(),
            key: call.key().to_owned(),
            attempt: call.attempt(),
        });
        all.len()
    }

    pub(crate) fn all(&self) -> Vec<Happened> {
        self.0.lock().unwrap().clone()
    }

    /// How often something happened.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// How often something happened for a downstream that honours keys.
    pub(crate) fn operations(&self) -> usize {
        let keys: std::collections::BTreeSet<_> =
            self.all().into_iter().map(|happened| happened.key).collect();
        keys.len()
    }

    /// A tool that makes something happen, and returns its number.
    pub(crate) fn tool(&self, name: &str, effect: Effect, terms: Terms) -> DynTool {
        let world = self.clone();
        tool(name, effect, terms, move |call, arguments| {
            let n = world.happen(&call, &arguments);
            async move { Ok(json!({ "receipt": n, "of": arguments })) }
        })
    }

    pub(crate) fn refund(&self) -> DynTool {
        self.tool("refund", Effect::idempotent(), Terms::new())
    }

    pub(crate) fn pay(&self) -> DynTool {
        self.tool("pay", Effect::at_most_once(), Terms::new())
    }
}

/// A tool of `order`, `amount` and some that may be left out.
pub(crate) fn tool<F, Fut>(name: &str, effect: Effect, terms: Terms, body: F) -> DynTool
where
    F: Fn(Call, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, StepError>> + Send + 'static,
{
    let schema = Schema::new(json!({
        "type": "object",
        "properties": {
            "order": {"type": "string"},
            "amount": {"type": "number"},
            "note": {"type": "string", "default": "none"},
            "urgent": {"type": "boolean"},
        },
        "required": ["order"],
    }));
    let declaration = Declaration { name: name.into(), description: name.into(), schema };
    DynTool::new(declaration, effect, terms, body)
}

pub(crate) fn wants(id: &str, tool: &str, arguments: Value) -> ToolCall {
    ToolCall::new(id, tool, &arguments)
}

/// A call whose arguments are written like this.
pub(crate) fn writes(id: &str, tool: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: tool.into(), arguments: arguments.into() }
}

pub(crate) fn refund(id: &str) -> ToolCall {
    wants(id, "refund", json!({"order": "ORD-4821", "amount": 120}))
}

pub(crate) fn pay(id: &str) -> ToolCall {
    wants(id, "pay", json!({"order": "ORD-4821", "amount": 120}))
}

/// The answers of a model: each is what it wants at once.
pub(crate) fn script(lines: Vec<Vec<ToolCall>>) -> Scripted {
    let lines = lines.into_iter().map(Response::calls);
    Scripted::new(lines.chain([Response::text("done"), Response::text("done again")]))
}

pub(crate) fn agent(model: Scripted, tools: impl IntoIterator<Item = DynTool>) -> AgentBuilder {
    Agent::builder(model).tools(Toolbox::new().with_all(tools).with_ask())
}

pub(crate) async fn memory(agent: &Agent) -> Deedbook {
    Deedbook::memory().host(agent.clone()).start().await.unwrap()
}

/// Runs one turn in memory.
pub(crate) async fn once(agent: AgentBuilder) -> Ended {
    let agent = agent.build().unwrap();
    let book = memory(&agent).await;
    let ended = book.run::<Agent>("conversation", Opening::once("go")).await.unwrap();
    book.shutdown().await.unwrap();
    ended
}

/// The calls of the last turn.
pub(crate) fn calls(ended: &Ended) -> &[Answered] {
    &ended.last.as_ref().unwrap().calls
}

/// Waits until something is so.
pub(crate) async fn until(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not become so within 5 s");
}

/// A journal in a file, which outlives the books that are opened on it.
pub(crate) struct File(tempfile::TempDir);

impl File {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) async fn open(&self, agent: &Agent) -> Deedbook {
        let path = self.0.path().join("journal.redb");
        let mut tries = 0;
        loop {
            match Deedbook::open_or_create(&path).host(agent.clone()).start().await {
                Ok(book) => return book,
                // The last life is still letting go of the file.
                Err(_) if tries < 500 => tries += 1,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Every byte of the journal.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(self.0.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.extend(std::fs::read(path).unwrap());
            }
        }
        all
    }
}
