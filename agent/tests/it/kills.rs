//! Crashes at every write of the journal and at every request, of the simulator and of real
//! processes.

use deedbook::{Error, ErrorKind, Probe, StepError};
use deedbook_agent::{Agent, Call, Effect, Opening, Terms, Tool, Toolbox, schemars};
use deedbook_testkit::{CrashMatrix, World};
use serde_json::{Value, json};

use crate::support::{script, wants};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Order {
    order: String,
}

/// A tool of one of the services of the world.
struct Service {
    world: World,
    name: &'static str,
    effect: Effect,
    asks: bool,
}

impl Tool for Service {
    type Args = Order;
    type Output = String;

    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        "Does something."
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn terms(&self) -> Terms {
        match self.asks {
            true => Terms::new().approval("money moves"),
            false => Terms::new(),
        }
    }

    async fn call(&self, call: Call, args: Order) -> Result<String, StepError> {
        let service = self.world.downstream(self.name);
        Ok(service.perform(call.key(), format!("done for {}", args.order)).await?)
    }

    async fn probe(&self, call: Call, _: Order) -> Result<Probe<String>, StepError> {
        Ok(self.world.downstream(self.name).find(call.key()).await?)
    }
}

fn agent(world: &World) -> Agent {
    let tool = |name, effect| Service { world: world.clone(), name, effect, asks: name == "pay" };
    let wanted = |id: String, name: &str| wants(&id, name, json!({"order": "ORD-1"}));
    // Everything twice: side by side, and once more later.
    let all = |n: &str| {
        let names = ["pay", "page", "mail"];
        names.map(|name| wanted(format!("{name}{n}"), name)).to_vec()
    };
    let model = script(vec![[all("a"), all("b")].concat(), all("c")]);
    let tools = Toolbox::new()
        .with(tool("pay", Effect::idempotent()))
        .with(tool("page", Effect::reconcile()))
        .with(tool("mail", Effect::at_most_once()));
    Agent::builder(model).tools(tools).build().unwrap()
}

/// The conversation, and the person who approves.
async fn converse(world: World) -> Result<Value, Error> {
    let agent = agent(&world);
    let book = world.book().host(agent).start().await?;
    book.spawn::<Agent>("t", Opening::once("go")).await?;
    let request = "t1/tools-0/call/0/pay#0";
    let says = || book.decide("t", request, true, "user:kim", "a good customer");
    let decides = async {
        world.settled().await;
        while says().await.is_err_and(|error| error.kind() != ErrorKind::Refused) {
            world.settled().await;
        }
    };
    let waits = async { book.wait::<Agent>("t").await };
    let (ended, _) = tokio::join!(waits, world.once("approves", decides));
    let ended = ended?;
    let results = ended.last.iter().flat_map(|reply| &reply.calls);
    Ok(results.map(|call| call.outcome.result().cloned()).collect())
}

/// B11: the same agent is crashed at every point, and asked what came of it.
#[test]
fn b11_no_crash_makes_an_agent_do_anything_twice() {
    let matrix = CrashMatrix::new().may_doubt("mail").explore(converse);
    assert!(matrix.is_fine(), "{matrix}");
    // A doubt is left where a tool runs at most once, and nowhere else.
    assert!(matrix.doubts() > 0, "{matrix}");
}

#[test]
fn b05_b06_b11_no_kill_of_a_real_process_makes_an_agent_do_anything_twice() {
    CrashMatrix::new().may_doubt("mail").kill(converse);
}
