//! What is known of a failure decides what may follow.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deedbook::{ErrorKind, Resolution, Retry, StepError};
use deedbook_agent::{Agent, Call, Check, DynTool, Effect, Hook, Opening, Outcome, Secrets, Terms};
use serde_json::{Value, json};

use crate::support::{File, World, agent, calls, memory, once, pay, refund, script, tool};

fn soon(attempts: u32) -> Terms {
    Terms::new().retry(Retry::attempts(attempts).first(Duration::from_millis(1)))
}

/// A tool whose first calls end like this.
fn failing(
    world: &World,
    effect: Effect,
    times: u32,
    error: impl Fn() -> StepError + Send + Sync + 'static,
) -> DynTool {
    let (world, left) = (world.clone(), Arc::new(AtomicU32::new(times)));
    tool("refund", effect, soon(2), move |call, arguments| {
        let n = world.happen(&call, &arguments);
        let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        let result = if fails.is_ok() { Err(error()) } else { Ok(json!({"receipt": n})) };
        async move { result }
    })
}

#[tokio::test]
async fn t12_what_is_known_of_a_failure_decides_what_follows() {
    // Nothing happened, and the attempts are used up: the same call is a new attempt.
    let world = World::default();
    let busy = || StepError::new("busy").not_applied().code("busy");
    let tool = failing(&world, Effect::at_most_once(), 2, busy);
    let model = script(vec![vec![refund("a")], vec![refund("b")], vec![refund("c")]]);
    let ended = once(agent(model, [tool])).await;
    let failed =
        Outcome::Failed { code: "busy".into(), message: "busy".into(), nothing_happened: true };
    assert_eq!(calls(&ended)[0].outcome, failed);
    assert!(calls(&ended)[1].outcome.result().is_some() && calls(&ended)[1].replayed.is_none());
    assert_eq!(calls(&ended)[2].replayed.as_ref().unwrap().first, "t1.1.0");
    assert_eq!(world.count(), 3);

    // It failed for good: the same call is answered with the error.
    let world = World::default();
    let closed = || StepError::new("account closed").terminal();
    let tool = failing(&world, Effect::at_most_once(), 9, closed);
    let model = script(vec![vec![refund("a")], vec![refund("b")]]);
    let ended = once(agent(model, [tool])).await;
    assert_eq!(world.count(), 1);
    assert_eq!(calls(&ended)[0].outcome, calls(&ended)[1].outcome);
    assert!(calls(&ended)[1].replayed.is_some());
}

#[tokio::test]
async fn t13_another_attempt_has_the_same_key() {
    let world = World::default();
    let busy = || StepError::new("busy").not_applied();
    let tool = failing(&world, Effect::at_most_once(), 1, busy);
    let ended = once(agent(script(vec![vec![refund("a")]]), [tool])).await;
    let happened = world.all();
    let attempts: Vec<u32> = happened.iter().map(|h| h.attempt).collect();
    assert_eq!((attempts.as_slice(), world.operations()), (&[1, 2][..], 1));
    assert!(calls(&ended)[0].outcome.result().is_some());
}

/// B9: validation and refusals are retried under the same key; a timeout is not, unless the other
/// side honours keys.
#[tokio::test]
async fn b09_an_ambiguous_failure_is_in_doubt_and_nothing_is_sent_again() {
    let world = World::default();
    let tool = failing(&world, Effect::at_most_once(), 1, || StepError::new("connection reset"));
    let agent = agent(script(vec![vec![refund("a")], vec![refund("b")]]), [tool]).build().unwrap();
    let book = memory(&agent).await;
    let error = book.run::<Agent>("t", Opening::once("go")).await.unwrap_err();
    assert_eq!((error.kind(), world.count()), (ErrorKind::InDoubt, 1));
    let doubts = book.doubts().await.unwrap();
    assert_eq!(doubts[0].operation_key.as_deref(), Some(world.all()[0].key.as_str()));

    // A person finds out, and the second call is answered with that.
    let found = Resolution::happened(&json!({"receipt": 1})).unwrap();
    book.resolve("t", &doubts[0].step, found, "user:ada", "seen").await.unwrap();
    let ended = book.wait::<Agent>("t").await.unwrap();
    assert_eq!(world.count(), 1);
    assert_eq!(calls(&ended)[0].outcome.result(), Some(&json!({"receipt": 1})));
    assert!(calls(&ended)[1].replayed.is_some());
}

/// A hook that is not content with the first result.
struct Again(Check);

impl Hook for Again {
    async fn check(&self, call: &Call, _: &Value) -> Result<Check, StepError> {
        Ok(if call.attempt() == 1 { self.0.clone() } else { Check::Accept })
    }
}

#[tokio::test]
async fn d05_a_hook_that_wants_a_retry_gets_an_attempt_under_the_same_key() {
    let world = World::default();
    let refunds = world.tool("refund", Effect::idempotent(), soon(3));
    let model = script(vec![vec![refund("a")], vec![refund("b")]]);
    let ended = once(agent(model, [refunds]).hook(Again(Check::Retry("odd".into())))).await;
    let attempts: Vec<u32> = world.all().iter().map(|h| h.attempt).collect();
    assert_eq!((attempts.as_slice(), world.operations()), (&[1, 2][..], 1));
    // What is recorded is the result that was accepted.
    assert_eq!(calls(&ended)[0].outcome.result().unwrap()["receipt"], 2);
    assert_eq!(calls(&ended)[1].outcome, calls(&ended)[0].outcome);
}

#[tokio::test]
async fn b09_a_hook_cannot_make_a_tool_run_twice_that_runs_once() {
    let world = World::default();
    let agent = agent(script(vec![vec![pay("a")]]), [world.pay()])
        .hook(Again(Check::Retry("odd".into())))
        .build()
        .unwrap();
    let book = memory(&agent).await;
    let error = book.run::<Agent>("t", Opening::once("go")).await.unwrap_err();
    assert_eq!((error.kind(), world.count()), (ErrorKind::InDoubt, 1));

    // Unless it knows that nothing happened.
    let world = World::default();
    let refunds = world.tool("refund", Effect::at_most_once(), soon(3));
    let hook = Again(Check::NothingHappened("an empty answer".into()));
    once(crate::support::agent(script(vec![vec![refund("a")]]), [refunds]).hook(hook)).await;
    assert_eq!((world.count(), world.operations()), (2, 1));
}

/// A token that is another one at each attempt.
struct Token;

impl Hook for Token {
    async fn secrets(&self, call: &Call) -> Result<Secrets, StepError> {
        Ok(Secrets::new().with("token", format!("tok-VERY-SECRET-{}", call.attempt())))
    }
}

#[tokio::test]
async fn b18_a_secret_reaches_the_body_and_nothing_else() {
    let file = File::new();
    let world = World::default();
    let seen = world.clone();
    let refunds = tool("refund", Effect::idempotent(), soon(4), move |call, args| {
        seen.happen(&call, &args);
        let result =
            call.secret("token").map(str::to_owned).and_then(|token| match call.attempt() {
                1 => Err(StepError::new(format!("401 for {token}")).code("401")),
                2 => panic!("panicked with {token}"),
                _ => Ok(json!({"echo": [format!("Bearer {token}")], token: 1})),
            });
        async move { result }
    });
    let agent =
        agent(script(vec![vec![refund("a")], vec![refund("b")]]), [refunds]).hook(Token).build();
    let agent = agent.unwrap();
    let book = file.open(&agent).await;
    let ended = book.run::<Agent>("t", Opening::once("go")).await.unwrap();
    book.shutdown().await.unwrap();

    assert_eq!((world.count(), world.operations()), (3, 1));
    let shown = json!({"echo": ["Bearer [secret]"], "[secret]": 1});
    assert_eq!(calls(&ended)[0].outcome.result(), Some(&shown));
    assert_eq!(calls(&ended)[1].outcome.result(), Some(&shown));
    let bytes = file.bytes();
    let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(holds(b"[secret]") && !holds(b"VERY-SECRET"));
}

/// Two accounts are two operations if the hook that knows them says so: a secret is never part of
/// what identifies a call.
#[tokio::test]
async fn d08_an_account_is_part_of_the_identity_if_a_hook_says_so() {
    struct Account(AtomicU32);
    impl Hook for Account {
        async fn before(
            &self,
            wanted: &mut deedbook_agent::Wanted,
        ) -> Result<deedbook_agent::Decision, StepError> {
            let account = self.0.fetch_add(1, Ordering::SeqCst).min(1);
            wanted.context.insert("account".into(), json!(account));
            Ok(deedbook_agent::Decision::Proceed)
        }
    }
    let world = World::default();
    let model = script(vec![vec![refund("a")], vec![refund("b")], vec![refund("c")]]);
    let hook = Account(AtomicU32::new(0));
    let ended = once(agent(model, [world.refund()]).hook(hook)).await;
    assert_eq!((world.count(), world.operations()), (2, 2));
    assert_eq!(calls(&ended)[2].replayed.as_ref().unwrap().first, "t1.1.0");
    // The body is not given it.
    assert!(world.all().iter().all(|h| h.arguments.get("@context").is_none()));
}
