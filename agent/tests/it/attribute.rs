//! `#[tool]`: what it makes of a function.

use std::time::Duration;

use deedbook::{Probe, Retry, StepError};
use deedbook_agent::{
    Agent, Call, DynTool, Effect, Hook, Secrets, Terms, Tool, Toolbox, schemars, tool,
};
use serde_json::json;

use crate::support::{World, calls, once, script, wants};

/// Where an order is.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Debug)]
struct Place {
    street: String,
    number: Option<u16>,
}

/// Moves an order.
///
/// Not further than it was asked.
#[tool(at_most_once, identity(order), timeout = Duration::from_secs(9), approval = "far away")]
async fn move_order(
    call: Call,
    #[hand] world: World,
    /// The order.
    order: String,
    to: Place,
    #[default = 3_u8] tries: u8,
    #[default = "home"] note: String,
    #[secret] token: String,
    maybe: Option<bool>,
) -> Result<String, std::num::ParseIntError> {
    let n = world.happen(&call, &json!([order, to.street, tries, note, maybe]));
    let parsed: usize = n.to_string().parse()?;
    Ok(format!("{parsed} by {token}"))
}

#[test]
fn the_attribute_says_all_of_a_tool() {
    let tool = move_order(World::default());
    assert_eq!(tool.name(), "move_order");
    assert_eq!(tool.description(), "Moves an order.\n\nNot further than it was asked.");
    assert_eq!(tool.effect(), Effect::at_most_once());
    let declaration = DynTool::of(tool.clone()).declaration().clone();
    assert_eq!(declaration.schema.members(), ["maybe", "note", "order", "to", "tries"]);
    let schema = declaration.schema.as_json();
    assert_eq!(schema["properties"]["order"]["description"], "The order.");
    assert_eq!(schema["properties"]["tries"]["default"], 3);
    assert_eq!(schema["required"], json!(["order", "to"]));
    let terms = format!("{:?}", tool.terms());
    let said =
        Terms::new().identity(["order"]).timeout(Duration::from_secs(9)).approval("far away");
    assert_eq!(terms, format!("{said:?}"));
    assert!(format!("{tool:?}").starts_with("MoveOrder"));
}

/// Writes to somebody.
#[tool(mint, name = "write-to", description = "Writes.", retry = Retry::never())]
async fn write(call: Call, #[hand] world: World, who: String) -> Result<usize, StepError> {
    Ok(world.happen(&call, &json!(who)))
}

async fn written(call: Call, world: World) -> Result<Probe<usize>, StepError> {
    let found = world.all().iter().position(|happened| happened.key == call.key());
    Ok(found.map_or(Probe::DidNotHappen, |n| Probe::Happened(n + 1)))
}

/// Writes to somebody who can be asked.
#[tool(reconcile = written, minting)]
async fn write_once(call: Call, #[hand] world: World, who: String) -> Result<usize, StepError> {
    Ok(world.happen(&call, &json!(who)))
}

struct Token;

impl Hook for Token {
    async fn secrets(&self, _: &Call) -> Result<Secrets, StepError> {
        Ok(Secrets::new().with("token", "tok-1"))
    }
}

#[tokio::test]
async fn tools_of_the_attribute_are_run_like_all_others() {
    /// Moves it.
    #[tool(idempotent)]
    async fn go(
        call: Call,
        #[hand] world: World,
        #[secret] token: String,
        to: Place,
    ) -> Result<String, StepError> {
        world.happen(&call, &json!(to.number));
        Ok(format!("{} by {token}", to.street))
    }
    let world = World::default();
    let there =
        |id, n: serde_json::Value| wants(id, "go", json!({"to": {"street": "s", "number": n}}));
    let model = script(vec![
        vec![there("a", json!("7")), there("b", json!(7.0)), there("c", json!(null))],
        vec![
            wants("d", "write-to", json!({"who": "x"})),
            wants("e", "write-to", json!({"who": "x"})),
        ],
        vec![wants("f", "write_once", json!({"who": "x"}))],
    ]);
    let tools = Toolbox::new()
        .with(go(world.clone()))
        .with(write(world.clone()))
        .with(write_once(world.clone()));
    let ended = once(Agent::builder(model).tools(tools).hook(Token)).await;
    assert_eq!(world.count(), 5);
    assert_eq!(calls(&ended)[0].outcome.result(), Some(&json!("s by [secret]")));
    assert!(calls(&ended)[1].replayed.is_some() && calls(&ended)[2].replayed.is_none());
    assert!(calls(&ended).iter().all(|call| call.outcome.result().is_some()));
    assert_eq!(written_effect(), Effect::reconcile().minting());
}

fn written_effect() -> Effect {
    write_once(World::default()).effect()
}
