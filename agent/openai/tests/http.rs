//! Agents and a model over real HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends at the first surprise"
)]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use deedbook::{Deedbook, Retry};
use deedbook_agent::{
    Agent, AgentBuilder, Chat, Declaration, DynTool, Effect, Opening, Outcome, Pieces, Schema,
    Terms, Toolbox, TurnEnd,
};
use deedbook_model_script::{Script, Server, serve};
use deedbook_openai::{Misfit, OpenAi};
use serde_json::{Value, json};

async fn plays(lines: Value) -> Server {
    let script = json!({"conversations": [{"lines": lines}]});
    serve(serde_json::from_value::<Script>(script).unwrap(), 0).await.unwrap()
}

/// An agent that may refund, and how often it did.
fn agent(server: &Server, streams: bool) -> (AgentBuilder, Arc<AtomicUsize>) {
    let refunds = Arc::new(AtomicUsize::new(0));
    let counted = refunds.clone();
    let schema = Schema::new(json!({
        "type": "object",
        "properties": {"order": {"type": "string"}, "amount": {"type": "number"}},
        "required": ["order"],
    }));
    let declaration = Declaration { name: "refund".into(), description: "Refunds.".into(), schema };
    let terms = Terms::new();
    let tool = DynTool::new(declaration, Effect::idempotent(), terms, move |_, args: Value| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(json!({"refunded": args["order"]})) }
    });
    let model = OpenAi::new(&server.url(), "script").unwrap().streams(streams).key("sk-hidden");
    let model = model.silent_for(Duration::from_millis(500)).option("temperature", 0);
    let retry = Retry::attempts(4).first(Duration::from_millis(5));
    let agent = Agent::builder(model).tools(Toolbox::new().with_dyn(tool)).model_retry(retry);
    (agent, refunds)
}

async fn run(agent: AgentBuilder) -> deedbook_agent::Reply {
    let agent = agent.build().unwrap();
    let book = Deedbook::memory().host(agent.clone()).start().await.unwrap();
    let ended = book.run::<Agent>("t", Opening::once("go")).await.unwrap();
    book.shutdown().await.unwrap();
    ended.last.unwrap()
}

fn refund(id: &str, arguments: Value) -> Value {
    json!({"id": id, "name": "refund", "arguments": arguments})
}

#[tokio::test]
async fn a_model_calls_tools_over_http_streaming_and_not() {
    for streams in [true, false] {
        let call = || refund("c", json!({"order": "ORD-4821"}));
        let server = plays(json!([
            {"text": "Let me see.", "calls": [call(), call()], "usage": [100, 20]},
            {"calls": [call()]},
            {"text": "It is on its way, in a stream of many pieces."},
        ]))
        .await;
        let (agent, refunds) = agent(&server, streams);
        let heard = Arc::new(Mutex::new(String::new()));
        let listener = heard.clone();
        let pieces = Pieces::to(move |piece| listener.lock().unwrap().push_str(piece));
        let reply = run(agent.pieces(pieces)).await;
        assert_eq!(reply.end, TurnEnd::Answered, "{reply:?}");
        assert_eq!(reply.text, "It is on its way, in a stream of many pieces.");
        assert_eq!(refunds.load(Ordering::SeqCst), 1);
        let ids: Vec<_> = reply.calls.iter().map(|call| call.model_id.as_str()).collect();
        assert_eq!(ids, ["c", "c-2", "c"]);
        assert_eq!(reply.spent.tokens.input, 120);
        assert!(heard.lock().unwrap().starts_with("Let me see.It is on"));
        assert_eq!(server.requests(), 3);
    }
}

#[tokio::test]
async fn faults_of_the_server_are_retried_and_nothing_is_done_twice() {
    for streams in [true, false] {
        let server = plays(json!([
            {"calls": [refund("a", json!({"order": "o"}))], "faults": [{"status": 500}, {"cut_after": 3}]},
            {"text": "done", "faults": [{"malformed": true}, {"status": 503}, {"silent_ms": 2000}]},
        ]))
        .await;
        let (agent, refunds) = agent(&server, streams);
        let reply = run(agent).await;
        assert_eq!((reply.text.as_str(), refunds.load(Ordering::SeqCst)), ("done", 1));
        assert_eq!(server.requests(), 7);
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_as_long_as_it_says() {
    let server =
        plays(json!([{"text": "done", "faults": [{"status": 429, "retry_after": 0.4}]}])).await;
    let began = Instant::now();
    let (agent, _) = agent(&server, true);
    assert_eq!(run(agent).await.text, "done");
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_request_that_is_refused_is_not_sent_again() {
    let server = plays(json!([{"text": "x", "faults": [{"status": 401}, {"status": 401}]}])).await;
    let (agent, _) = agent(&server, true);
    let TurnEnd::ModelFailed { code, message } = run(agent).await.end else { panic!("it failed") };
    assert_eq!((code.as_str(), server.requests()), ("rejected", 1));
    assert!(message.contains("401") && !message.contains("sk-hidden"), "{message}");
}

#[tokio::test]
async fn what_a_model_does_wrong_over_http_is_told_and_not_executed() {
    let server = plays(json!([
        {"calls": [
            refund("a", json!("{\"order\": \"ORD-1\"")),
            {"id": "b", "name": "refundd", "arguments": {}},
            {"id": "", "name": "refund", "arguments": {"order": 7}},
            refund("d", json!("not even close")),
        ]},
        {"text": ""},
        {"text": "sorry", "finish": "length"},
    ]))
    .await;
    let (agent, refunds) = agent(&server, true);
    let reply = run(agent).await;
    assert_eq!((reply.end, reply.text.as_str()), (TurnEnd::Cut, "sorry"));
    assert_eq!(refunds.load(Ordering::SeqCst), 0);
    let malformed = |n: usize| matches!(reply.calls[n].outcome, Outcome::Malformed { .. });
    assert!(malformed(0) && malformed(2) && malformed(3));
    assert!(matches!(reply.calls[1].outcome, Outcome::Unknown { .. }));

    let refusal = plays(json!([{"refusal": "I will not."}])).await;
    let filtered = plays(json!([{"text": "", "finish": "content_filter"}])).await;
    for server in [refusal, filtered] {
        let (agent, _) = self::agent(&server, true);
        assert!(matches!(run(agent).await.end, TurnEnd::Refused { .. }));
    }
}

/// The server insists that every call has one answer: so this also shows that a transcript of
/// several turns is well-formed.
#[tokio::test]
async fn a_conversation_of_several_turns_is_well_formed() {
    let server = plays(json!([
        {"calls": [refund("a", json!({"order": "1"})), refund("a", json!({"order": "2"}))]},
        {"text": "one"},
        {"calls": [refund("a", json!({"order": "1"})), {"id": "a", "name": "none", "arguments": "x"}]},
        {"text": "two"},
    ]))
    .await;
    let (agent, refunds) = agent(&server, true);
    let agent = agent.build().unwrap();
    let book = Deedbook::memory().host(agent.clone()).start().await.unwrap();
    let chat = Chat::<Agent>::new(&book, &agent, "t").unwrap();
    assert_eq!(chat.say("m1", "go").await.unwrap().text, "one");
    assert_eq!(chat.say("m2", "again").await.unwrap().text, "two");
    assert_eq!(refunds.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn nobody_at_the_other_end_is_a_failure_with_a_name() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", free.local_addr().unwrap());
    drop(free);
    let agent = Agent::builder(OpenAi::new(&url, "m").unwrap());
    let retry = Retry::attempts(2).first(Duration::from_millis(1));
    let end = run(agent.model_retry(retry)).await.end;
    assert!(matches!(end, TurnEnd::ModelFailed { code, .. } if code == "connection"));
}

#[test]
fn a_base_url_is_looked_at_before_anything_is_sent() {
    for wrong in ["", "api.example.org/v1", "ftp://example.org"] {
        assert!(matches!(OpenAi::new(wrong, "m"), Err(Misfit::Url(_))), "{wrong:?}");
    }
    let secure = OpenAi::new("https://example.org/v1", "m");
    assert_eq!(secure.is_ok(), cfg!(feature = "tls"));
    let model = OpenAi::new("http://example.org/v1", "m").unwrap().key("sk-hidden");
    assert!(!format!("{model:?}").contains("sk-hidden"));
}
