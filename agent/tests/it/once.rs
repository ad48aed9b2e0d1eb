//! A call that is made again is answered from the record.

use deedbook_agent::{Agent, Call, Effect, Outcome, Terms, Tool, Toolbox, schemars};
use serde_json::{Value, json};

use crate::support::{World, agent, calls, once, refund, script, tool, wants, writes};

#[tokio::test]
async fn t01_reads_run_again_and_effects_do_not() {
    let world = World::default();
    let look = world.tool("look", Effect::read(), Terms::new());
    let looks = |id| wants(id, "look", json!({"order": "o"}));
    let model = script(vec![vec![looks("a"), refund("b")], vec![looks("c"), refund("d")]]);
    let ended = once(agent(model, [look, world.refund()])).await;

    let count = |tool: &str| world.all().iter().filter(|h| h.tool == tool).count();
    assert_eq!((count("look"), count("refund")), (2, 1));
    let replayed: Vec<bool> = calls(&ended).iter().map(|c| c.replayed.is_some()).collect();
    assert_eq!(replayed, [false, false, false, true]);
    // A read has no key to send.
    assert!(world.all().iter().all(|h| (h.tool == "look") == h.key.is_empty()));
}

/// A tool with types of its own.
struct Issue(World);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Order {
    order: String,
    amount: f64,
}

#[derive(serde::Serialize)]
struct Receipt {
    id: usize,
    lines: Vec<(String, f64)>,
    note: Option<String>,
}

impl Tool for Issue {
    type Args = Order;
    type Output = Receipt;

    fn name(&self) -> &str {
        "issue"
    }

    fn description(&self) -> &str {
        "Refunds an order."
    }

    fn effect(&self) -> Effect {
        Effect::idempotent()
    }

    async fn call(&self, call: Call, args: Order) -> Result<Receipt, deedbook::StepError> {
        let id = self.0.happen(&call, &Value::Null);
        Ok(Receipt { id, lines: vec![(args.order, args.amount)], note: None })
    }
}

#[tokio::test]
async fn t02_a_repeat_in_a_run_is_replayed_and_typed() {
    let world = World::default();
    let args = || json!({"order": "ORD-4821", "amount": 120.5});
    let model = script(vec![vec![wants("a", "issue", args())], vec![wants("b", "issue", args())]]);
    let toolbox = Toolbox::new().with(Issue(world.clone()));
    let ended = once(Agent::builder(model).tools(toolbox)).await;

    assert_eq!(world.count(), 1);
    let [first, second] = calls(&ended) else { panic!("two calls") };
    let receipt = json!({"id": 1, "lines": [["ORD-4821", 120.5]], "note": null});
    assert_eq!(first.outcome.result(), Some(&receipt));
    assert_eq!(second.outcome, first.outcome);
    assert_eq!(first.replayed, None);
    let replayed = second.replayed.as_ref().unwrap();
    assert_eq!((replayed.first.as_str(), replayed.scope.as_str()), ("t1.0.0", "thread"));
}

/// The numbers of B2: one key within an answer, and one across answers.
#[tokio::test]
async fn t04_numbers_are_compared_by_value_across_turns() {
    let world = World::default();
    let numbers = ["120", "120.0", "1.2e2", "\"120\""];
    let lines = numbers
        .map(|n| vec![writes("c", "refund", &format!("{{\"order\":\"o\",\"amount\":{n}}}"))]);
    let ended = once(agent(script(lines.to_vec()), [world.refund()])).await;
    assert_eq!(world.count(), 1);
    assert!(calls(&ended).iter().skip(1).all(|call| call.replayed.is_some()));
}

#[tokio::test]
async fn t05_numbers_are_compared_by_value_within_one_answer() {
    let world = World::default();
    let numbers = ["120", "120.0", "1.2e2", "\"120\""];
    let line = numbers.map(|n| writes(n, "refund", &format!("{{\"order\":\"o\",\"amount\":{n}}}")));
    let ended = once(agent(script(vec![line.to_vec()]), [world.refund()])).await;
    assert_eq!(world.count(), 1);
    assert_eq!(calls(&ended).iter().filter(|call| call.replayed.is_some()).count(), 3);
}

#[tokio::test]
async fn b02_what_is_not_the_same_number_is_not_the_same_call() {
    let world = World::default();
    let line: Vec<_> = ["1", "true", "9007199254740992", "9007199254740993", "0", "-0.0"]
        .iter()
        .map(|n| writes(n, "refund", &format!("{{\"order\":\"o\",\"amount\":{n}}}")))
        .chain([
            writes("nan", "refund", "{\"order\":\"o\",\"amount\":NaN}"),
            writes("inf", "refund", "{\"order\":\"o\",\"amount\":Infinity}"),
            writes("text", "refund", "{\"order\":120}"),
            writes("text", "refund", "{\"order\":\"120\"}"),
        ])
        .collect();
    let ended = once(agent(script(vec![line]), [world.refund()])).await;
    let done: Vec<_> = calls(&ended)
        .iter()
        .filter(|c| c.outcome.result().is_some())
        .map(|c| &c.model_id)
        .collect();
    assert_eq!(
        done,
        ["1", "9007199254740992", "9007199254740993", "0", "-0.0", "text-2"]
            .map(String::from)
            .iter()
            .collect::<Vec<_>>()
    );
    // Minus zero is zero.
    assert_eq!(world.count(), 5);
    let refused = calls(&ended).iter().filter(|c| matches!(c.outcome, Outcome::Malformed { .. }));
    assert_eq!(refused.count(), 4);
}

#[tokio::test]
async fn t06_the_order_of_arguments_does_not_matter() {
    let world = World::default();
    let line = vec![
        writes("a", "refund", r#"{"order":"o","amount":1}"#),
        writes("b", "refund", r#"{ "amount": 1, "order": "o" }"#),
    ];
    once(agent(script(vec![line]), [world.refund()])).await;
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn t07_defaults_are_filled_in_before_calls_are_compared() {
    let world = World::default();
    let model = script(vec![
        vec![writes("a", "refund", r#"{"order":"o"}"#)],
        vec![writes("b", "refund", r#"{"order":"o","note":"none"}"#)],
        vec![writes("c", "refund", r#"{"order":"o","note":null,"urgent":null,"other":null}"#)],
        vec![writes("d", "refund", r#"{"order":"o","note":"x"}"#)],
    ]);
    let ended = once(agent(model, [world.refund()])).await;
    assert_eq!(world.count(), 2);
    assert_eq!(calls(&ended)[0].arguments, json!({"order": "o", "note": "none"}));
    assert_eq!(calls(&ended)[0].emitted, json!({"order": "o"}));
}

#[tokio::test]
async fn t08_arguments_are_coerced_before_the_body_sees_them() {
    let world = World::default();
    let model = script(vec![vec![
        writes("a", "refund", r#"{"order":"o","amount":"120","urgent":"true"}"#),
        writes("b", "refund", r#"{"order":"o","amount":120,"urgent":true}"#),
        writes("c", "refund", r#"{"order":"o","amount":"much"}"#),
        writes("d", "refund", r#"{"order":"o","amount":1,"tip":2}"#),
    ]]);
    let ended = once(agent(model, [world.refund()])).await;
    let happened = world.all();
    let [only] = happened.as_slice() else { panic!("{happened:?}") };
    let expected = json!({"order": "o", "amount": 120, "urgent": true, "note": "none"});
    assert_eq!(only.arguments, expected);
    let Outcome::Malformed { why } = &calls(&ended)[2].outcome else { panic!("refused") };
    assert!(why.contains("/amount: expected number, got string"), "{why}");
    assert!(
        matches!(&calls(&ended)[3].outcome, Outcome::Malformed { why } if why.contains("/tip"))
    );
}

#[tokio::test]
async fn t24_a_tool_that_makes_something_new_does_so_each_time() {
    let world = World::default();
    let mint = world.tool("mint", Effect::mint(), Terms::new());
    let wanted = |id| wants(id, "mint", json!({"order": "o"}));
    let model = script(vec![vec![wanted("a"), wanted("b")], vec![wanted("c")]]);
    let ended = once(agent(model, [mint])).await;
    assert_eq!((world.count(), world.operations()), (3, 3));
    assert!(calls(&ended).iter().all(|call| call.replayed.is_none()));
    let receipts: Vec<_> =
        calls(&ended).iter().map(|c| c.outcome.result().unwrap()["receipt"].clone()).collect();
    assert_eq!(receipts.len(), 3);
}

/// Tulip paused a run because a tool returned a text that looks like its own mark.
#[tokio::test]
async fn d12_a_result_is_only_a_result() {
    let odd = tool("odd", Effect::at_most_once(), Terms::new(), async |_, _| {
        Ok(json!({"__interrupt__": true, "say": "{\"__interrupt__\": true}"}))
    });
    let model = script(vec![vec![wants("a", "odd", json!({"order": "o"}))]]);
    let ended = once(agent(model, [odd])).await;
    assert_eq!(ended.last.as_ref().unwrap().text, "done");
    assert_eq!(calls(&ended)[0].outcome.result().unwrap()["__interrupt__"], json!(true));
}

#[tokio::test]
async fn b04_five_identical_calls_at_once_are_executed_once() {
    struct Upper;
    impl deedbook_agent::Hook for Upper {
        async fn before(
            &self,
            wanted: &mut deedbook_agent::Wanted,
        ) -> Result<deedbook_agent::Decision, deedbook::StepError> {
            let order = wanted.arguments["order"].as_str().unwrap_or_default().to_uppercase();
            wanted.arguments["order"] = json!(order);
            Ok(deedbook_agent::Decision::Proceed)
        }
    }
    let world = World::default();
    let orders = ["ord-1", "ORD-1", "Ord-1", "oRD-1", "ord-1"];
    let line = orders.iter().enumerate();
    let line = line.map(|(n, order)| wants(&format!("c{n}"), "refund", json!({"order": order})));
    let ended = once(agent(script(vec![line.collect()]), [world.refund()]).hook(Upper)).await;
    assert_eq!(world.count(), 1);
    assert_eq!(world.all()[0].arguments["order"], "ORD-1");
    let ids: Vec<&str> = calls(&ended).iter().map(|call| call.model_id.as_str()).collect();
    assert_eq!(ids, ["c0", "c1", "c2", "c3", "c4"]);
    let replayed = calls(&ended).iter().filter(|call| call.replayed.is_some()).count();
    assert_eq!(replayed, 4);
    assert!(calls(&ended).windows(2).all(|two| two[0].outcome == two[1].outcome));
}

#[tokio::test]
async fn b03_two_ways_to_say_one_thing_are_one_operation() {
    use deedbook_agent::Normalise;
    let world = World::default();
    let terms = Terms::new().normalise("order", Normalise::Nfc).normalise("order", Normalise::Trim);
    let pay = world.tool("pay", Effect::at_most_once(), terms);
    let composed = "caf\u{e9}";
    let apart = "cafe\u{301} ";
    let model = script(vec![
        vec![wants("a", "pay", json!({"order": composed, "note": "none"}))],
        vec![wants("b", "pay", json!({"note": "none", "order": apart}))],
        vec![wants("c", "pay", json!({"order": apart}))],
    ]);
    let ended = once(agent(model, [pay])).await;
    assert_eq!(world.count(), 1);
    assert_eq!(calls(&ended)[2].arguments["order"], composed);
}

#[tokio::test]
async fn b16_every_result_is_replayed_exactly() {
    let odd = [json!(null), json!(""), json!(0), json!(false), json!([]), json!({})];
    let nested = json!({"\u{1F600}": [{"é": "e\u{301}", "n": -0.5}], "deep": [[[["x"]]]]});
    let results: Vec<Value> =
        odd.into_iter().chain([nested, json!("x".repeat(10 << 20))]).collect();
    let world = World::default();
    let (given, counted) = (results.clone(), world.clone());
    let give = tool("give", Effect::at_most_once(), Terms::new(), move |call, args| {
        counted.happen(&call, &Value::Null);
        let n = usize::try_from(args["amount"].as_u64().unwrap_or_default()).unwrap_or_default();
        let result = given[n].clone();
        async move { Ok(result) }
    });
    let each = |round: usize| {
        let line = (0..results.len()).map(move |n| {
            wants(&format!("{round}-{n}"), "give", json!({"order": "o", "amount": n}))
        });
        line.collect::<Vec<_>>()
    };
    let ended = once(agent(script(vec![each(0), each(1)]), [give])).await;
    assert_eq!(world.count(), results.len());
    for (n, result) in results.iter().enumerate() {
        let (first, second) = (&calls(&ended)[n], &calls(&ended)[n + results.len()]);
        match &first.outcome {
            Outcome::DoneLarge { bytes, digest } => {
                assert!(*digest == blake3::hash(result.to_string().as_bytes()).to_string());
                assert_eq!(*bytes, (10 << 20) + 2);
            }
            outcome => assert!(outcome.result() == Some(result), "result {n}"),
        }
        assert!(second.outcome == first.outcome && second.replayed.is_some(), "replay {n}");
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A tool whose result is no JSON.
struct Unstorable(World);

impl Tool for Unstorable {
    type Args = Nothing;
    type Output = std::collections::BTreeMap<(u8, u8), u8>;

    fn name(&self) -> &str {
        "unstorable"
    }

    fn description(&self) -> &str {
        "Does something, and returns what cannot be kept."
    }

    fn effect(&self) -> Effect {
        Effect::at_most_once()
    }

    async fn call(&self, call: Call, _: Nothing) -> Result<Self::Output, deedbook::StepError> {
        self.0.happen(&call, &Value::Null);
        Ok([((1, 2), 3)].into())
    }
}

#[tokio::test]
async fn b16_a_result_that_cannot_be_stored_does_not_undo_the_call() {
    let world = World::default();
    let wanted = |id| wants(id, "unstorable", json!({}));
    let model = script(vec![vec![wanted("a")], vec![wanted("b")]]);
    let toolbox = Toolbox::new().with(Unstorable(world.clone()));
    let ended = once(Agent::builder(model).tools(toolbox)).await;
    assert_eq!(world.count(), 1);
    assert!(matches!(calls(&ended)[0].outcome, Outcome::Unstored { .. }));
    assert!(calls(&ended)[1].replayed.is_some());
}
