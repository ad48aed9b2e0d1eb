//! Calls that wait for a person, and what goes on beside them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deedbook::{Deedbook, ErrorKind, StepError};
use deedbook_agent::{Agent, Chat, Decision, Effect, Ended, Hook, Opening, Outcome, Terms, Wanted};
use serde_json::json;

use crate::support::{
    File, World, agent, calls, memory, once, pay, refund, script, tool, until, wants,
};

fn gated(world: &World, name: &str) -> deedbook_agent::DynTool {
    world.tool(name, Effect::at_most_once(), Terms::new().approval("money moves"))
}

/// The requests that are open in a thread, once there are so many.
async fn requests(book: &Deedbook, thread: &str, many: usize) -> Vec<String> {
    for _ in 0..1000 {
        let agent_sees = open_requests(book, thread).await;
        if agent_sees.len() == many {
            return agent_sees;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("there are not {many} open requests: {:?}", open_requests(book, thread).await);
}

/// A decision about a request that is not there names those that are.
async fn open_requests(book: &Deedbook, thread: &str) -> Vec<String> {
    let error = book.decide(thread, "none#0", true, "user:ada", "").await.unwrap_err();
    let text = error.to_string();
    let open = text.split("open are ").nth(1).unwrap_or_default();
    open.split(", ").filter(|request| !request.is_empty()).map(str::to_owned).collect()
}

async fn begin(agent: &Agent) -> Deedbook {
    let book = memory(agent).await;
    book.spawn::<Agent>("t", Opening::once("go")).await.unwrap();
    book
}

async fn end(book: &Deedbook) -> Ended {
    book.wait::<Agent>("t").await.unwrap()
}

#[tokio::test]
async fn t18_held_calls_are_settled_in_any_order_and_none_is_dropped() {
    let world = World::default();
    let line = ["1", "2", "3"].map(|order| wants(order, "pay", json!({"order": order})));
    let agent = agent(script(vec![line.to_vec()]), [gated(&world, "pay")]).build().unwrap();
    let book = begin(&agent).await;
    let mut open = requests(&book, "t", 3).await;
    open.sort();
    book.decide("t", &open[2], true, "user:ada", "fine").await.unwrap();
    until(|| world.count() == 1).await;
    book.decide("t", &open[0], false, "user:ben", "no").await.unwrap();
    book.decide("t", &open[1], true, "user:ada", "fine").await.unwrap();
    let ended = end(&book).await;
    let orders: Vec<_> = world.all().iter().map(|h| h.arguments["order"].clone()).collect();
    assert_eq!(orders, ["3", "2"]);
    let denied = Outcome::Denied { by: "user:ben".into(), reason: "no".into() };
    assert_eq!(calls(&ended)[0].outcome, denied);
    assert!(calls(&ended).iter().skip(1).all(|call| call.outcome.result().is_some()));
}

#[tokio::test]
async fn t17_t19_an_approval_is_a_decision_and_what_follows_is_recorded() {
    let world = World::default();
    let model = script(vec![vec![pay("a")], vec![pay("b")]]);
    let agent = agent(model, [gated(&world, "pay")]).build().unwrap();
    let book = begin(&agent).await;
    let open = requests(&book, "t", 1).await;
    assert_eq!(world.count(), 0);
    book.decide("t", &open[0], true, "user:ada", "approve").await.unwrap();
    let ended = end(&book).await;
    // The model is told the receipt and not the word of approval, and the second call needs none.
    assert_eq!(calls(&ended)[0].outcome.result().unwrap()["receipt"], 1);
    assert_eq!(calls(&ended)[1].replayed.as_ref().unwrap().first, "t1.0.0");
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn d03_an_approval_counts_once() {
    let world = World::default();
    let agent = agent(script(vec![vec![pay("a")]]), [gated(&world, "pay")]).build().unwrap();
    let book = begin(&agent).await;
    let open = requests(&book, "t", 1).await;
    let (one, two) = tokio::join!(
        book.decide("t", &open[0], true, "user:ada", "yes"),
        book.decide("t", &open[0], true, "user:ben", "yes"),
    );
    assert!(one.is_ok() || two.is_ok());
    end(&book).await;
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn b06_an_approved_call_that_is_cut_off_is_not_executed_twice() {
    let (file, world) = (File::new(), World::default());
    let (dies, counted) = (Arc::new(AtomicBool::new(true)), world.clone());
    let cut = dies.clone();
    let terms = Terms::new().approval("money moves");
    let pays = tool("pay", Effect::idempotent(), terms, move |call, arguments| {
        let n = counted.happen(&call, &arguments);
        let dies = cut.swap(false, Ordering::SeqCst);
        async move {
            if dies {
                std::future::pending::<()>().await;
            }
            Ok(json!({"receipt": n}))
        }
    });
    let model = script(vec![vec![pay("a")], vec![pay("b")]]);
    let agent = agent(model, [pays]).build().unwrap();
    let book = file.open(&agent).await;
    book.spawn::<Agent>("t", Opening::once("go")).await.unwrap();
    let open = requests(&book, "t", 1).await;
    book.decide("t", &open[0], true, "user:ada", "yes").await.unwrap();
    until(|| world.count() == 1).await;
    drop(book);

    let book = file.open(&agent).await;
    let ended = end(&book).await;
    assert_eq!((world.count(), world.operations()), (2, 1));
    assert!(calls(&ended)[1].replayed.is_some());
    // The answer was bound to that request.
    let late = book.decide("t", &open[0], false, "user:ben", "no").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn b06_approving_one_call_never_runs_another() {
    let world = World::default();
    let wanted = |id, amount| wants(id, "pay", json!({"order": "o", "amount": amount}));
    let model = script(vec![vec![wanted("a", 1)], vec![wanted("b", 2)]]);
    let agent = agent(model, [gated(&world, "pay")]).build().unwrap();
    let book = begin(&agent).await;
    let first = requests(&book, "t", 1).await;
    book.decide("t", &first[0], true, "user:ada", "yes").await.unwrap();
    until(|| world.count() == 1).await;
    let second = loop {
        let open = requests(&book, "t", 1).await;
        if open != first {
            break open;
        }
    };
    assert_eq!(world.count(), 1);
    book.decide("t", &second[0], false, "user:ada", "too much").await.unwrap();
    let ended = end(&book).await;
    assert_eq!(world.count(), 1);
    assert!(matches!(calls(&ended)[1].outcome, Outcome::Denied { .. }));
}

#[tokio::test]
async fn an_approval_that_nobody_gives_in_time_is_told() {
    let world = World::default();
    let agent = agent(script(vec![vec![pay("a")]]), [gated(&world, "pay")]);
    let ended = once(agent.approve_within(Duration::from_millis(10))).await;
    assert_eq!(world.count(), 0);
    assert!(matches!(calls(&ended)[0].outcome, Outcome::Unanswered { .. }));
}

/// Denies the first call, and allows the next.
struct Once(AtomicBool);

impl Hook for Once {
    async fn before(&self, _: &mut Wanted) -> Result<Decision, StepError> {
        Ok(match self.0.swap(false, Ordering::SeqCst) {
            true => Decision::Deny("not before noon".into()),
            false => Decision::Proceed,
        })
    }
}

#[tokio::test]
async fn t11_b08_a_denial_is_recorded_and_never_replayed_as_a_result() {
    let world = World::default();
    let model = script(vec![vec![pay("a")], vec![pay("b")], vec![pay("c")]]);
    let ended = once(agent(model, [world.pay()]).hook(Once(AtomicBool::new(true)))).await;
    let denied = Outcome::Denied { by: "a rule".into(), reason: "not before noon".into() };
    assert_eq!(calls(&ended)[0].outcome, denied);
    assert!(calls(&ended)[1].outcome.result().is_some() && calls(&ended)[1].replayed.is_none());
    assert_eq!(calls(&ended)[2].replayed.as_ref().unwrap().first, "t1.1.0");
    assert_eq!(world.count(), 1);
}

fn asks(id: &str, question: &str) -> deedbook_agent::ToolCall {
    wants(id, "ask_user", json!({"question": question}))
}

#[tokio::test]
async fn d01_b07_an_interrupt_keeps_finished_siblings() {
    let (file, world) = (File::new(), World::default());
    let model = script(vec![vec![asks("q", "Sure?"), pay("p")], vec![pay("again")]]);
    let agent = agent(model, [world.pay()]).build().unwrap();
    let book = file.open(&agent).await;
    book.spawn::<Agent>("t", Opening::once("go")).await.unwrap();
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    let question = chat.question().await.unwrap().unwrap();
    assert_eq!((question.question.as_str(), question.call.as_str()), ("Sure?", "t1.0.0"));
    until(|| world.count() == 1).await;
    book.shutdown().await.unwrap();

    let book = file.open(&agent).await;
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    assert_eq!(chat.questions().await.unwrap(), std::slice::from_ref(&question));
    chat.answer(&question.call, "yes").await.unwrap();
    let ended = end(&book).await;
    assert_eq!(world.count(), 1);
    assert_eq!(calls(&ended)[0].outcome.result(), Some(&json!("yes")));
    assert_eq!(calls(&ended)[1].outcome.result().unwrap()["receipt"], 1);
    assert_eq!(calls(&ended)[2].replayed.as_ref().unwrap().first, "t1.0.1");
}

#[tokio::test]
async fn d02_a_slow_call_beside_a_question_is_recorded_as_it_ended() {
    let world = World::default();
    let counted = world.clone();
    let slow = tool("pay", Effect::at_most_once(), Terms::new(), move |call, arguments| {
        let counted = counted.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(60)).await;
            let n = counted.happen(&call, &arguments);
            Ok(json!({"receipt": n}))
        }
    });
    let model = script(vec![vec![pay("p"), asks("q", "Sure?")], vec![pay("again")]]);
    let agent = agent(model, [slow]).build().unwrap();
    let book = begin(&agent).await;
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    let question = chat.question().await.unwrap().unwrap();
    // The question was there before the slow call had ended.
    assert_eq!(world.count(), 0);
    chat.answer(&question.call, "yes").await.unwrap();
    let ended = end(&book).await;
    assert_eq!(world.count(), 1);
    assert!(calls(&ended)[0].outcome.result().is_some());
    assert!(calls(&ended)[2].replayed.is_some());
}

#[tokio::test]
async fn b07_several_questions_and_approvals_are_answered_in_any_order() {
    let world = World::default();
    let line = vec![asks("q1", "First?"), pay("p"), asks("q2", "Second?")];
    let agent = agent(script(vec![line]), [gated(&world, "pay")]).build().unwrap();
    let book = begin(&agent).await;
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    requests(&book, "t", 1).await;
    let mut questions = chat.questions().await.unwrap();
    while questions.len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        questions = chat.questions().await.unwrap();
    }
    questions.sort_by(|a, b| a.call.cmp(&b.call));
    chat.answer(&questions[1].call, "two").await.unwrap();
    let open = requests(&book, "t", 1).await;
    book.decide("t", &open[0], true, "user:ada", "yes").await.unwrap();
    chat.answer(&questions[0].call, "one").await.unwrap();
    let ended = end(&book).await;
    let result = |n: usize| calls(&ended)[n].outcome.result().cloned();
    assert_eq!((result(0), result(2)), (Some(json!("one")), Some(json!("two"))));
    assert_eq!(world.count(), 1);
}

/// T16 and B5: what follows an answer takes the same path as what came before it.
#[tokio::test]
async fn t16_b05_after_an_interrupt_identical_calls_are_replayed() {
    let world = World::default();
    let model = script(vec![
        vec![refund("a")],
        vec![asks("q", "Sure?")],
        vec![refund("b"), refund("c")],
        vec![refund("d")],
    ]);
    let agent = agent(model, [world.refund()]).build().unwrap();
    let book = begin(&agent).await;
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    let question = chat.question().await.unwrap().unwrap();
    chat.answer(&question.call, "yes").await.unwrap();
    let ended = end(&book).await;
    assert_eq!(world.count(), 1);
    assert_eq!(calls(&ended).iter().filter(|call| call.replayed.is_some()).count(), 3);
}
