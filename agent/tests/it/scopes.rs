//! Tools that the whole journal shares.

use deedbook::{Context, Deedbook, Result, Scope, Workflow};
use deedbook_agent::{Agent, Effect, Ended, Opening, Outcome, Terms, Toolbox};
use serde_json::{Value, json};

use crate::support::{World, agent, calls, memory, refund, script, wants};

/// A second agent in the same book.
struct Other(Agent);

impl Workflow for Other {
    const NAME: &'static str = "other";
    type Input = Opening;
    type Output = Ended;

    async fn run(&self, ctx: Context, opening: &Opening) -> Result<Ended> {
        self.0.converse(ctx, opening).await
    }
}

#[tokio::test]
async fn t20_two_agents_share_a_tool_of_the_journal() {
    let world = World::default();
    let shared = || {
        let terms = Terms::new().scope(Scope::Journal).identity(["order"]);
        world.tool("refund", Effect::idempotent(), terms)
    };
    let one = agent(script(vec![vec![refund("a")], vec![refund("b")]]), [shared()]);
    let one = one.build().unwrap();
    let other_amount = wants("c", "refund", json!({"order": "ORD-4821", "amount": 1}));
    let two = agent(
        script(vec![vec![refund("a"), other_amount.clone()], vec![other_amount]]),
        [shared()],
    );
    let two = two.build().unwrap();
    let book = Deedbook::memory().host(one).host(Other(two)).start().await.unwrap();
    let first = book.run::<Agent>("one", Opening::once("go")).await.unwrap();
    let second = book.run::<Other>("two", Opening::once("go")).await.unwrap();
    assert_eq!(world.count(), 1);
    assert!(calls(&first)[0].replayed.is_none());
    assert_eq!(calls(&first)[1].replayed.as_ref().unwrap().scope, "thread");
    let replayed = calls(&second)[0].replayed.as_ref().unwrap();
    assert_eq!(
        (replayed.scope.as_str(), replayed.first.as_str()),
        ("journal", "of another thread")
    );
    assert_eq!(calls(&second)[0].outcome, calls(&first)[0].outcome);
    assert!(matches!(calls(&second)[1].outcome, Outcome::Conflict { .. }));
    assert!(matches!(calls(&second)[2].outcome, Outcome::Conflict { .. }));

    // And so does whoever has no workflow.
    let args = calls(&first)[0].arguments.clone();
    let told = book.guard("refund").idempotent().key("{\"order\":\"ORD-4821\"}");
    let result: Value = told.call(&args, async |_| Ok(json!("again"))).await.unwrap();
    assert_eq!(Some(&result), calls(&first)[0].outcome.result());
}

#[tokio::test]
async fn other_content_of_another_thread_is_a_conflict_that_leaks_nothing() {
    let world = World::default();
    let terms = Terms::new().scope(Scope::Journal).identity(["order"]);
    let tool = world.tool("refund", Effect::at_most_once(), terms);
    let amount = |n: u32| wants("c", "refund", json!({"order": "o", "amount": n}));
    let run = async |book: &Deedbook, thread: &str| {
        book.run::<Agent>(thread, Opening::once("go")).await.unwrap()
    };
    let one = agent(script(vec![vec![amount(1)]]), [tool.clone()]).build().unwrap();
    let two = agent(script(vec![vec![amount(2)], vec![amount(3)]]), [tool]).build().unwrap();
    let book = Deedbook::memory().host(one).host(Other(two)).start().await.unwrap();
    run(&book, "one").await;
    let second = book.run::<Other>("two", Opening::once("go")).await.unwrap();
    assert_eq!(world.count(), 1);
    let Outcome::Conflict { first, differing } = &calls(&second)[0].outcome else {
        panic!("{:?}", calls(&second)[0].outcome)
    };
    assert!(matches!(calls(&second)[1].outcome, Outcome::Conflict { .. }));
    assert_eq!((first.as_str(), differing.len()), ("of another thread", 1));
}

#[tokio::test]
async fn b10_the_declared_scope_is_followed_exactly() {
    for (scope, effects) in [(Scope::Thread, 3), (Scope::Journal, 1)] {
        let world = World::default();
        let tool = world.tool("refund", Effect::at_most_once(), Terms::new().scope(scope));
        let agent = agent(script(vec![vec![refund("a"), refund("b")]]), [tool]).build().unwrap();
        let book = memory(&agent).await;
        for thread in ["one", "two", "three"] {
            book.run::<Agent>(thread, Opening::once("go")).await.unwrap();
        }
        assert_eq!((world.count(), world.operations()), (effects, effects));
    }
}

#[test]
fn what_does_not_happen_once_is_not_shared() {
    let world = World::default();
    for effect in [Effect::read(), Effect::mint()] {
        let tool = world.tool("x", effect, Terms::new().scope(Scope::Journal));
        let toolbox = Toolbox::new().with_dyn(tool);
        let built = Agent::builder(script(vec![])).tools(toolbox).build();
        assert!(built.unwrap_err().to_string().contains("cannot be shared"));
    }
}
