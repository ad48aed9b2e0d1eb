//! What a model does wrong is recorded and told, and costs nothing.

use std::sync::{Arc, Mutex};

use deedbook_agent::{
    Agent, Budget, Effect, Limit, Message, Model, ModelError, Outcome, Request, Response, Scripted,
    Terms, TurnEnd,
};
use serde_json::json;

use crate::support::{World, agent, calls, once, pay, refund, script, tool, wants, writes};

/// A model that keeps what it was asked.
#[derive(Clone)]
struct Listening(Scripted, Arc<Mutex<Vec<Vec<Message>>>>);

impl Listening {
    fn new(model: Scripted) -> Self {
        Self(model, Arc::default())
    }

    /// What it was asked last.
    fn last(&self) -> Vec<Message> {
        self.1.lock().unwrap().last().unwrap().clone()
    }
}

impl Model for Listening {
    fn name(&self) -> &str {
        "listening"
    }

    async fn respond(&self, request: Request) -> Result<Response, ModelError> {
        self.1.lock().unwrap().push(request.messages.clone());
        self.0.respond(request).await
    }
}

fn told(messages: &[Message], of: &str) -> String {
    let found = messages.iter().find_map(|message| match message {
        Message::Tool { id, text } if id == of => Some(text.clone()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{of} was not answered: {messages:?}"))
}

#[tokio::test]
async fn every_wrong_call_is_answered_and_none_is_executed() {
    let world = World::default();
    let model = Listening::new(script(vec![vec![
        wants("a", "refundd", json!({"order": "o"})),
        writes("b", "refund", "{\"order\": \"o\""),
        writes("c", "refund", "[1]"),
        writes("d", "refund", r#"{"order":"o","order":"p"}"#),
        writes("e", "refund", ""),
        writes("f", "refund", r#"{"order":7}"#),
    ]]));
    let toolbox = deedbook_agent::Toolbox::new().with_dyn(world.refund());
    let ended = once(Agent::builder(model.clone()).tools(toolbox)).await;
    assert_eq!(world.count(), 0);
    assert_eq!(calls(&ended).len(), 6);
    let messages = model.last();
    assert!(told(&messages, "a").contains("there is no such tool; there are refund"));
    assert!(told(&messages, "b").contains("no JSON"));
    assert!(told(&messages, "c").contains("expected object, got array"));
    assert!(told(&messages, "d").contains("stands there twice"));
    assert!(told(&messages, "e").contains("/order: missing"));
    assert!(told(&messages, "f").contains("/order: expected string, got number"));
    assert!(matches!(calls(&ended)[0].outcome, Outcome::Unknown { .. }));
}

#[tokio::test]
async fn two_calls_with_one_id_are_two_calls() {
    let world = World::default();
    let model = Listening::new(script(vec![vec![refund("x"), pay("x"), pay("")]]));
    let toolbox = deedbook_agent::Toolbox::new().with_all([world.refund(), world.pay()]);
    let ended = once(Agent::builder(model.clone()).tools(toolbox)).await;
    assert_eq!(world.count(), 2);
    let ids: Vec<&str> = calls(&ended).iter().map(|call| call.model_id.as_str()).collect();
    assert_eq!(ids, ["x", "x-2", "call-2"]);
    // The model's own words are told back with the ids that the answers have.
    let messages = model.last();
    let Some(Message::Assistant { calls, .. }) =
        messages.iter().find(|m| matches!(m, Message::Assistant { .. }))
    else {
        panic!("{messages:?}")
    };
    assert_eq!(calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn a_model_that_says_nothing_is_asked_again_and_then_left() {
    let nothing = || Response::text(" ");
    let ended = once(Agent::builder(Scripted::new([nothing(), Response::text("now")]))).await;
    assert_eq!(ended.last.as_ref().unwrap().text, "now");
    assert_eq!(ended.spent.model_calls, 2);
    let ended = once(Agent::builder(Scripted::new([nothing(), nothing(), nothing()]))).await;
    assert_eq!(ended.last.unwrap().end, TurnEnd::Empty);
}

#[tokio::test]
async fn a_refusal_is_an_end_with_its_words() {
    let refusal = Response { refusal: Some("I will not.".into()), ..Response::default() };
    let ended = once(Agent::builder(Scripted::new([refusal]))).await;
    assert_eq!(ended.last.unwrap().end, TurnEnd::Refused { why: "I will not.".into() });
}

#[tokio::test]
async fn an_answer_that_was_cut_off_says_so() {
    let cut = Response { text: "The first of".into(), cut: true, ..Response::default() };
    let ended = once(Agent::builder(Scripted::new([cut]))).await;
    let last = ended.last.unwrap();
    assert_eq!((last.end, last.text.as_str()), (TurnEnd::Cut, "The first of"));
}

#[tokio::test]
async fn a_model_that_cannot_be_asked_ends_the_turn_with_its_error() {
    let ended = once(Agent::builder(Scripted::new([]))).await;
    let TurnEnd::ModelFailed { code, message } = ended.last.unwrap().end else {
        panic!("it failed")
    };
    assert_eq!(code, "rejected");
    assert!(message.contains("no line 0"), "{message}");
}

#[tokio::test]
async fn budgets_are_typed_ends_and_leave_no_call_unanswered() {
    let world = World::default();
    let end = |ended: &deedbook_agent::Ended| ended.last.as_ref().unwrap().end.clone();
    let budget = |limit| TurnEnd::Budget { limit };

    let twice = || script(vec![vec![refund("a")], vec![pay("b")]]);
    let tools = || [world.refund(), world.pay()];
    let ended = once(agent(twice(), tools()).budget(Budget::new().model_calls(1))).await;
    assert_eq!(end(&ended), budget(Limit::ModelCalls));

    // Of three calls at once two may be executed: the third is answered, and the turn ends.
    let world = World::default();
    let three = ["1", "2", "3"].map(|order| wants(order, "refund", json!({"order": order})));
    let model = script(vec![three.to_vec()]);
    let ended = once(agent(model, [world.refund()]).budget(Budget::new().tool_calls(2))).await;
    assert_eq!((end(&ended), world.count()), (budget(Limit::ToolCalls), 2));
    assert!(matches!(calls(&ended)[2].outcome, Outcome::NotRun { .. }));

    let costs = Response::calls([refund("a")]).usage(90, 20);
    let model = Scripted::new([costs, Response::text("more")]);
    let ended = once(agent(model, [world.refund()]).budget(Budget::new().tokens(100))).await;
    assert_eq!(end(&ended), budget(Limit::Tokens));
    assert_eq!((ended.spent.tokens.input, ended.spent.tokens.output), (90, 20));

    let slow = tool("slow", Effect::read(), Terms::new(), async |_, args| {
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        Ok(args)
    });
    let model = script(vec![vec![wants("a", "slow", json!({"order": "o"}))]]);
    let most = std::time::Duration::from_millis(20);
    let ended = once(agent(model, [slow]).budget(Budget::new().time(most))).await;
    assert_eq!(end(&ended), budget(Limit::Time));
}

/// Tulip cut the record; here only what is shown is cut.
#[tokio::test]
async fn d06_a_long_result_is_recorded_whole_and_shown_in_part() {
    let long = tool("long", Effect::at_most_once(), Terms::new(), async |_, _| {
        Ok(json!("é".repeat(40_000)))
    });
    let wanted = |id| wants(id, "long", json!({"order": "o"}));
    let model = Listening::new(script(vec![vec![wanted("a")], vec![wanted("b")]]));
    let toolbox = deedbook_agent::Toolbox::new().with_dyn(long);
    let ended = once(Agent::builder(model.clone()).tools(toolbox)).await;
    let whole = blake3::hash(json!("é".repeat(40_000)).to_string().as_bytes()).to_string();
    for call in calls(&ended) {
        let Outcome::DoneLarge { digest, bytes: 80_002 } = &call.outcome else {
            panic!("{:?}", call.outcome)
        };
        assert_eq!(*digest, whole);
    }
    let shown = told(&model.last(), "a");
    assert!(shown.contains("(cut: 32000 of 40000 characters)"), "{}", shown.len());
}

#[tokio::test]
async fn t26_every_replay_names_its_scope() {
    let world = World::default();
    let model = Listening::new(script(vec![vec![refund("a"), refund("b")], vec![refund("c")]]));
    let toolbox = deedbook_agent::Toolbox::new().with_dyn(world.refund());
    let ended = once(Agent::builder(model.clone()).tools(toolbox)).await;
    for (n, id) in ["b", "c"].iter().enumerate() {
        let replayed = calls(&ended)[n + 1].replayed.clone().unwrap();
        assert_eq!((replayed.first.as_str(), replayed.scope.as_str()), ("t1.0.0", "thread"));
        let shown = told(&model.last(), id);
        let said = "(replayed: the recorded answer of call t1.0.0 in this thread;";
        assert!(shown.contains(said), "{shown}");
    }
}

#[tokio::test]
async fn t25_the_same_operation_with_other_content_is_told_and_not_executed() {
    let world = World::default();
    let terms = Terms::new().identity(["order"]);
    let pay = world.tool("pay", Effect::at_most_once(), terms);
    let wanted = |id, amount| wants(id, "pay", json!({"order": "o", "amount": amount}));
    let model = Listening::new(script(vec![
        vec![wanted("a", 120), wanted("b", 130), wanted("c", 120)],
        vec![wanted("d", 140)],
        vec![wanted("e", 120)],
    ]));
    let toolbox = deedbook_agent::Toolbox::new().with_dyn(pay);
    let ended = once(Agent::builder(model.clone()).tools(toolbox)).await;
    assert_eq!(world.count(), 1);
    let conflict = Outcome::Conflict { first: "t1.0.0".into(), differing: vec!["/amount".into()] };
    let outcomes: Vec<_> = calls(&ended).iter().map(|call| call.outcome.clone()).collect();
    assert_eq!((&outcomes[1], &outcomes[3]), (&conflict, &conflict));
    assert!(calls(&ended)[2].replayed.is_some() && calls(&ended)[4].replayed.is_some());
    assert!(told(&model.last(), "d").contains("with another /amount"));
}

#[tokio::test]
async fn b13_other_content_under_one_identity_leaks_nothing() {
    let world = World::default();
    let terms = || Terms::new().identity(["order"]);
    let pay = world.tool("pay", Effect::at_most_once(), terms());
    let give = world.tool("give", Effect::at_most_once(), terms());
    let wanted = |id, tool, amount| wants(id, tool, json!({"order": "o", "amount": amount}));
    let model = Listening::new(script(vec![
        vec![wanted("a", "pay", 1)],
        vec![wanted("b", "pay", 2), wanted("c", "give", 2)],
    ]));
    let toolbox = deedbook_agent::Toolbox::new().with_all([pay, give]);
    once(Agent::builder(model.clone()).tools(toolbox)).await;
    // Another tool is a namespace of its own.
    assert_eq!((world.count(), world.operations()), (2, 2));
    assert!(!told(&model.last(), "b").contains("receipt"));
}
