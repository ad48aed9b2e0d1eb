//! One conversation in several lives: every beginning, message and resumption is one loop.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use deedbook::{Deedbook, ErrorKind, Probe, StepError};
use deedbook_agent::{
    Agent, Call, Chat, Decision, DynTool, Effect, Hook, Message, Model, ModelError, Opening,
    Outcome, Request, Response, Scripted, Terms, Tool, Toolbox, Wanted, schemars,
};
use serde_json::json;

use crate::support::{File, World, agent, calls, memory, refund, script, tool, until, wants};

/// Waits for ever after its effect, while this is the life that is to be cut off.
fn dies_after_effect(world: &World, effect: Effect, dies: &Arc<AtomicBool>) -> DynTool {
    let (world, dies) = (world.clone(), dies.clone());
    tool("refund", effect, Terms::new(), move |call, arguments| {
        let n = world.happen(&call, &arguments);
        let dies = dies.swap(false, Ordering::SeqCst);
        async move {
            if dies {
                std::future::pending::<()>().await;
            }
            Ok(json!({"receipt": n}))
        }
    })
}

/// Begins a turn, lets it come to its first effect, and ends the process as a crash does.
async fn crash_in_body(file: &File, agent: &Agent, world: &World) {
    let book = file.open(agent).await;
    book.spawn::<Agent>("t", Opening::once("go")).await.unwrap();
    until(|| world.count() == 1).await;
    drop(book);
}

#[tokio::test]
async fn t21_after_a_crash_in_the_body_the_same_key_is_sent_again() {
    let (file, world) = (File::new(), World::default());
    let dies = Arc::new(AtomicBool::new(true));
    let tools = [dies_after_effect(&world, Effect::idempotent(), &dies)];
    let model = script(vec![vec![refund("a")], vec![refund("b")]]);
    let agent = agent(model, tools).build().unwrap();
    crash_in_body(&file, &agent, &world).await;
    let book = file.open(&agent).await;
    let ended = book.wait::<Agent>("t").await.unwrap();
    // Twice on the wire, once for a bank that honours keys.
    assert_eq!((world.count(), world.operations()), (2, 1));
    assert!(calls(&ended)[1].replayed.is_some());
}

#[tokio::test]
async fn t28_without_keys_a_crash_leaves_a_doubt_and_no_second_effect() {
    let (file, world) = (File::new(), World::default());
    let dies = Arc::new(AtomicBool::new(true));
    let tools = [dies_after_effect(&world, Effect::at_most_once(), &dies)];
    let agent = agent(script(vec![vec![refund("a")]]), tools).build().unwrap();
    crash_in_body(&file, &agent, &world).await;
    let book = file.open(&agent).await;
    let error = book.wait::<Agent>("t").await.unwrap_err();
    assert_eq!((error.kind(), world.count()), (ErrorKind::InDoubt, 1));
    let doubt = &book.doubts().await.unwrap()[0];
    let found = deedbook::Resolution::happened(&json!({"receipt": 1})).unwrap();
    book.resolve("t", &doubt.step, found, "user:ada", "seen").await.unwrap();
    assert!(calls(&book.wait::<Agent>("t").await.unwrap())[0].outcome.result().is_some());
    assert_eq!(world.count(), 1);
}

/// A tool whose other side can be asked.
struct Asks(World, Arc<AtomicBool>);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Order {
    order: String,
}

impl Tool for Asks {
    type Args = Order;
    type Output = String;

    fn name(&self) -> &str {
        "refund"
    }

    fn description(&self) -> &str {
        "Refunds."
    }

    fn effect(&self) -> Effect {
        Effect::reconcile().quiet(std::time::Duration::from_millis(1))
    }

    async fn call(&self, call: Call, args: Order) -> Result<String, StepError> {
        self.0.happen(&call, &json!(args.order));
        if self.1.swap(false, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(args.order)
    }

    async fn probe(&self, call: Call, _: Order) -> Result<Probe<String>, StepError> {
        let found = self.0.all().into_iter().find(|happened| happened.key == call.key());
        Ok(found.map_or(Probe::DidNotHappen, |h| {
            Probe::Happened(h.arguments.as_str().unwrap_or_default().to_owned())
        }))
    }
}

#[tokio::test]
async fn b11_after_a_crash_the_other_side_is_asked() {
    let (file, world) = (File::new(), World::default());
    let tools = Toolbox::new().with(Asks(world.clone(), Arc::new(AtomicBool::new(true))));
    let model = script(vec![vec![wants("a", "refund", json!({"order": "o"}))]]);
    let agent = Agent::builder(model).tools(tools).build().unwrap();
    crash_in_body(&file, &agent, &world).await;
    let book = file.open(&agent).await;
    let ended = book.wait::<Agent>("t").await.unwrap();
    assert_eq!(calls(&ended)[0].outcome.result(), Some(&json!("o")));
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn t15_a_thread_that_is_reloaded_knows_what_it_did() {
    let (file, world) = (File::new(), World::default());
    let lines = [
        Response::calls([refund("a")]),
        Response::text("one"),
        Response::calls([refund("b")]),
        Response::text("two"),
    ];
    let agent = agent(Scripted::new(lines), [world.refund()]).build().unwrap();
    let book = file.open(&agent).await;
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    let first = chat.say("m1", "refund it").await.unwrap();
    book.shutdown().await.unwrap();

    let book = file.open(&agent).await;
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    assert_eq!(chat.replies().await.unwrap(), std::slice::from_ref(&first));
    let second = chat.say("m2", "did you refund it?").await.unwrap();
    assert_eq!((second.turn, second.text.as_str(), world.count()), (2, "two", 1));
    assert_eq!(second.calls[0].replayed.as_ref().unwrap().first, "t1.0.0");
    assert_eq!(second.calls[0].outcome, first.calls[0].outcome);
    let ended = chat.end().await.unwrap();
    assert_eq!((ended.turns, ended.spent.model_calls), (2, 4));
    assert_eq!(chat.end().await.unwrap(), ended);
}

#[tokio::test]
async fn t14_the_scope_is_the_thread_and_b10_another_thread_is_another_scope() {
    let world = World::default();
    let agent = agent(script(vec![vec![refund("a")]]), [world.refund()]).build().unwrap();
    let book = memory(&agent).await;
    for thread in ["one", "two", "one"] {
        book.run::<Agent>(thread, Opening::once("go")).await.unwrap();
    }
    assert_eq!((world.count(), world.operations()), (2, 2));
}

/// Keys are those of the thread, the tool, the arguments, what a hook adds and the occurrence.
#[tokio::test]
async fn t03_b12_keys_change_with_what_identifies_a_call_and_with_nothing_else() {
    struct Tenant(&'static str);
    impl Hook for Tenant {
        async fn before(&self, wanted: &mut Wanted) -> Result<Decision, StepError> {
            if !self.0.is_empty() {
                wanted.context.insert("tenant".into(), json!(self.0));
            }
            Ok(Decision::Proceed)
        }
    }
    let mut keys = Vec::new();
    for (thread, tool, order, tenant) in [
        ("t", "refund", "o", ""),
        ("u", "refund", "o", ""),
        ("t", "refund2", "o", ""),
        ("t", "refund", "p", ""),
        ("t", "refund", "o", "acme"),
    ] {
        let file = File::new();
        let world = World::default();
        let effect = Effect::idempotent();
        let tools = [world.tool(tool, effect, Terms::new())];
        let model = script(vec![vec![wants("x", tool, json!({"order": order}))]]);
        let agent = agent(model, tools).hook(Tenant(tenant)).build().unwrap();
        let book = file.open(&agent).await;
        book.run::<Agent>(thread, Opening::once("go")).await.unwrap();
        let key = world.all()[0].key.clone();
        assert!(key.len() <= 64 && key.chars().all(|c| c.is_ascii_graphic()), "{key}");
        keys.push(key);
    }
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
}

#[tokio::test]
async fn t22_the_key_is_the_same_on_every_attempt_and_after_a_restart() {
    let (file, world) = (File::new(), World::default());
    let dies = Arc::new(AtomicBool::new(true));
    let tools = [dies_after_effect(&world, Effect::idempotent(), &dies)];
    let agent = agent(script(vec![vec![refund("a")]]), tools).build().unwrap();
    crash_in_body(&file, &agent, &world).await;
    let book = file.open(&agent).await;
    book.wait::<Agent>("t").await.unwrap();
    let all = world.all();
    assert_eq!(all.iter().map(|h| h.attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(all[0].key, all[1].key);
}

/// A model that keeps what it was asked, and dies once at a line.
#[derive(Clone)]
struct Dies(Scripted, Arc<Mutex<Vec<Vec<Message>>>>, Arc<AtomicBool>, usize);

impl Model for Dies {
    fn name(&self) -> &str {
        "dies"
    }

    async fn respond(&self, request: Request) -> Result<Response, ModelError> {
        let spoken = |m: &&Message| matches!(m, Message::Assistant { .. });
        let line = request.messages.iter().filter(spoken).count();
        self.1.lock().unwrap().push(request.messages.clone());
        if line == self.3 && self.2.swap(false, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.0.respond(request).await
    }
}

#[tokio::test]
async fn t27_d10_a_continued_turn_asks_the_same_and_does_nothing_twice() {
    let (file, world) = (File::new(), World::default());
    let model = script(vec![vec![refund("a")], vec![refund("b")]]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let model = Dies(model, asked.clone(), Arc::new(AtomicBool::new(true)), 2);
    let toolbox = Toolbox::new().with_dyn(world.refund());
    let agent = Agent::builder(model).instructions("Be kind.").tools(toolbox).build().unwrap();
    let book = file.open(&agent).await;
    book.spawn::<Agent>("t", Opening::once("go")).await.unwrap();
    until(|| asked.lock().unwrap().len() == 3).await;
    // A read waits for nothing: what was before it becomes durable beside it.
    while book.status("t").await.unwrap().unwrap().next < 14 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    drop(book);

    let book = file.open(&agent).await;
    let ended = book.wait::<Agent>("t").await.unwrap();
    assert_eq!((world.count(), calls(&ended).len()), (1, 2));
    let asked = asked.lock().unwrap();
    // Two answers were recorded; the third call is made again, with the same words.
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[2], asked[3]);
    assert_eq!(asked[3][0], Message::System { text: "Be kind.".into() });
}

/// Tulip ran one thread twice side by side.
#[tokio::test]
async fn d04_a_message_that_is_said_twice_at_once_is_one_turn() {
    let world = World::default();
    let agent = agent(script(vec![vec![refund("a")]]), [world.refund()]).build().unwrap();
    let book = memory(&agent).await;
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    let (one, two) = tokio::join!(chat.say("m", "go"), chat.say("m", "go"));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!((world.count(), chat.replies().await.unwrap().len()), (1, 1));
}

#[tokio::test]
async fn d07_thread_ids_never_collide() {
    let (file, world) = (File::new(), World::default());
    let agent = agent(script(vec![vec![refund("a")]]), [world.refund()]).build().unwrap();
    let book = file.open(&agent).await;
    let ids = ["a/b", "a.b", "a:latest", "a", "\u{e9}", "e\u{301}"];
    for id in ids {
        book.run::<Agent>(id, Opening::once("go")).await.unwrap();
    }
    assert_eq!((world.count(), world.operations()), (ids.len(), ids.len()));
}

#[tokio::test]
async fn d09_a_tool_known_at_run_time_takes_the_same_path() {
    let world = World::default();
    let agent = agent(script(vec![vec![refund("a"), refund("b")]]), [world.refund()]);
    let agent = agent.build().unwrap();
    let book = memory(&agent).await;
    book.run::<Agent>("t", Opening::once("go")).await.unwrap();
    assert_eq!(world.count(), 1);
    assert!(world.all()[0].key.starts_with("dk1_"));
}

/// Puts orders into capitals, or does not.
struct Upper(bool);

impl Hook for Upper {
    async fn before(&self, wanted: &mut Wanted) -> Result<Decision, StepError> {
        if self.0 {
            let upper = wanted.arguments["order"].as_str().unwrap_or_default().to_uppercase();
            wanted.arguments["order"] = json!(upper);
        }
        Ok(Decision::Proceed)
    }
}

#[tokio::test]
async fn t09_calls_are_compared_after_hooks() {
    let world = World::default();
    let wanted = |id, order| wants(id, "refund", json!({"order": order}));
    let model = script(vec![vec![wanted("a", "ord-1")], vec![wanted("b", "ORD-1")]]);
    let ended = crate::support::once(agent(model, [world.refund()]).hook(Upper(true))).await;
    assert_eq!(world.count(), 1);
    assert_eq!(calls(&ended)[0].emitted["order"], "ord-1");
    assert_eq!(calls(&ended)[0].arguments["order"], "ORD-1");
}

#[tokio::test]
async fn t10_a_changed_hook_resumes_what_was_begun_and_is_not_retroactive() {
    let (file, world) = (File::new(), World::default());
    let wanted = |id, order| wants(id, "refund", json!({"order": order}));
    let lines = || {
        Scripted::new([
            Response::calls([wanted("a", "ord-1")]),
            Response::text("one"),
            Response::calls([wanted("b", "ord-1")]),
            Response::text("two"),
        ])
    };
    let old = agent(lines(), [world.refund()]).hook(Upper(false)).build().unwrap();
    let book = file.open(&old).await;
    Chat::<Agent>::new(&book, &old, "t").unwrap().say("m1", "go").await.unwrap();
    book.shutdown().await.unwrap();

    let new = agent(lines(), [world.refund()]).hook(Upper(true)).build().unwrap();
    let book = file.open(&new).await;
    let chat = Chat::<Agent>::new(&book, &new, "t").unwrap();
    let reply = chat.say("m2", "again").await.unwrap();
    // The old call is what it was; the new one is written in another way, and is another.
    assert_eq!(reply.calls[0].arguments["order"], "ORD-1");
    assert_eq!((world.count(), world.operations()), (2, 2));
}

/// B19: the recorded call is not made any more.
#[tokio::test]
async fn b19_a_tool_that_is_gone_is_a_divergence_and_nothing_is_executed() {
    let (file, world) = (File::new(), World::default());
    let lines = || {
        Scripted::new([
            Response::calls([refund("a")]),
            Response::text("one"),
            Response::text("two"),
        ])
    };
    let old = agent(lines(), [world.refund()]).build().unwrap();
    let book = file.open(&old).await;
    Chat::<Agent>::new(&book, &old, "t").unwrap().say("m1", "go").await.unwrap();
    book.shutdown().await.unwrap();

    let new = agent(lines(), [world.pay()]).build().unwrap();
    let book = file.open(&new).await;
    let chat = Chat::<Agent>::new(&book, &new, "t").unwrap();
    let error = chat.say("m2", "again").await.unwrap_err();
    let deedbook_agent::ChatError::Book(error) = error else { panic!("{error}") };
    assert_eq!((error.kind(), world.count()), (ErrorKind::Diverged, 1));
    assert!(error.to_string().contains("refund"), "{error}");
}

#[tokio::test]
async fn a_cancelled_conversation_begins_nothing_new_and_says_what_it_left() {
    let world = World::default();
    let dies = Arc::new(AtomicBool::new(true));
    let tools = [dies_after_effect(&world, Effect::at_most_once(), &dies)];
    let agent = agent(script(vec![vec![refund("a")], vec![refund("b")]]), tools);
    let agent = agent.build().unwrap();
    let book = Deedbook::memory().host(agent.clone()).cancel_grace(std::time::Duration::ZERO);
    let book = book.start().await.unwrap();
    book.spawn::<Agent>("t", Opening::once("go")).await.unwrap();
    until(|| world.count() == 1).await;
    book.cancel("t", "user:ada", "changed my mind").await.unwrap();
    let error = book.wait::<Agent>("t").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InDoubt);
    let doubt = &book.doubts().await.unwrap()[0];
    let settled = deedbook::Resolution::failed("it was stopped");
    book.resolve("t", &doubt.step, settled, "user:ada", "asked the bank").await.unwrap();
    let error = book.wait::<Agent>("t").await.unwrap_err();
    assert_eq!((error.kind(), world.count()), (ErrorKind::Cancelled, 1));
}

#[tokio::test]
async fn an_agent_whose_tools_do_not_fit_is_not_built() {
    let world = World::default();
    let named = |name: &str| world.tool(name, Effect::read(), Terms::new());
    let build = |tools: Vec<DynTool>| {
        let toolbox = Toolbox::new().with_all(tools);
        Agent::builder(Scripted::new([])).tools(toolbox).build().unwrap_err().to_string()
    };
    assert!(build(vec![named("a"), named("a")]).contains("two tools are named \"a\""));
    assert!(build(vec![named("a b")]).contains("letters, digits"));
    let odd = world.tool("odd", Effect::read(), Terms::new().identity(["nothing"]));
    assert!(build(vec![odd]).contains("takes no \"nothing\""));
    let unknown = Outcome::Unknown { known: vec![] };
    assert_eq!(unknown.result(), None);
}
