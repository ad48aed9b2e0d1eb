//! Mode `keys`: what the IETF draft asks of a server, word by word.

use std::time::Duration;

use refund_agent::bank::{BankError, Mode};
use tokio::task::JoinSet;

use crate::support::{InProcess, ask, body, post, refund};

const KEY: &str = "Idempotency-Key: \"k-1\"";

#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_gets_the_same_answer_and_one_refund() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    let first = post(&bank.url, &[KEY], &body("r1", 100)).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));

    // Another spelling of the same payload, and of the header.
    let members: serde_json::Value = serde_json::from_str(&body("r1", 100)).unwrap();
    let mut turned: Vec<_> = members.as_object().unwrap().iter().collect();
    turned.reverse();
    let turned: Vec<_> =
        turned.iter().map(|(name, value)| format!("\"{name}\" : {value}")).collect();
    let again =
        post(&bank.url, &["IDEMPOTENCY-KEY:  \"k-1\" "], &format!("{{ {} }}", turned.join(", ")))
            .await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("content-type"), first.header("content-type"));

    let summary = bank.client().ledger().await.unwrap();
    assert_eq!((summary.executed, summary.references, summary.duplicates), (1, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_required_and_well_formed() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    let body = body("r1", 100);
    post(&bank.url, &[], &body).await.is_problem(400, "idempotency-key-required");
    for header in [
        "Idempotency-Key: k-1",
        "Idempotency-Key: \"k-1",
        "Idempotency-Key: \"\"",
        "Idempotency-Key:",
        "Idempotency-Key: \"k\u{e9}\"",
        "Idempotency-Key: \"k-1\", \"k-2\"",
        "Idempotency-Key: \"k-1\";v=2",
        "Idempotency-Key: \"k-1\"\r\nIdempotency-Key: \"k-1\"",
    ] {
        post(&bank.url, &[header], &body).await.is_problem(400, "idempotency-key-malformed");
    }
    assert_eq!(bank.client().ledger().await.unwrap().executed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_payload_under_a_used_key_is_refused() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    assert_eq!(post(&bank.url, &[KEY], &body("r1", 100)).await.status, 201);
    for other in [body("r1", 101), body("r2", 100)] {
        post(&bank.url, &[KEY], &other).await.is_problem(422, "idempotency-key-reused");
    }
    let client = bank.client();
    client.refund(&refund("a"), "k-2", "a").await.unwrap();
    let error = client.refund(&refund("b"), "k-2", "b").await.unwrap_err();
    assert!(matches!(&error, BankError::Rejected { status: 422, .. }), "{error}");
    assert!(error.is_terminal());
    assert_eq!(client.ledger().await.unwrap().executed, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_at_work_answers_409_to_its_twin_and_422_to_a_stranger() {
    let bank = InProcess::start(Mode::Keys, |options| options.delay_before_ms = 1_000).await;
    let client = bank.client();
    let (one, two) = (client.clone(), refund("a"));
    let first = tokio::spawn(async move { one.refund(&two, "k", "a").await });
    // The twin arrives while the first is at work, unless this machine stood still for a second.
    tokio::time::sleep(Duration::from_millis(200)).await;

    let error = client.refund(&refund("a"), "k", "a").await.unwrap_err();
    assert!(matches!(error, BankError::InFlight { .. }), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    let error = client.refund(&refund("b"), "k", "b").await.unwrap_err();
    assert!(matches!(error, BankError::Rejected { status: 422, .. }), "{error}");

    let receipt = first.await.unwrap().unwrap();
    assert_eq!(client.refund(&refund("a"), "k", "a").await.unwrap(), receipt);
    assert_eq!(client.ledger().await.unwrap().executed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_twins_at_once_are_one_refund() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    let client = bank.client();
    let mut calls = JoinSet::new();
    for call in 0..400 {
        let client = client.clone();
        calls.spawn(async move {
            let id = format!("r{}", call % 20);
            loop {
                match client.refund(&refund(&id), &id, &id).await {
                    Ok(receipt) => return receipt,
                    Err(BankError::InFlight { .. }) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    let receipts = calls.join_all().await;
    let ids: std::collections::HashSet<_> = receipts.iter().map(|receipt| &receipt.id).collect();
    let summary = client.ledger().await.unwrap();
    assert_eq!((summary.executed, summary.references, summary.duplicates), (20, 20, 0));
    assert_eq!(ids.len(), 20);
    assert_eq!(summary.by_currency["EUR"].amount_minor, 20 * 4_990);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_bank_is_definite_and_remembered() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    let first = post(&bank.url, &[KEY], &body("r1", 5_000_001)).await;
    first.is_problem(422, "over-limit");
    let again = post(&bank.url, &[KEY], &body("r1", 5_000_001)).await;
    again.is_problem(422, "over-limit");
    assert_eq!((again.header("idempotent-replayed"), &again.body), (Some("true"), &first.body));

    let client = bank.client();
    let mut closed = refund("c");
    closed.order = "A-7-CLOSED".into();
    let error = client.refund(&closed, "k-2", "c").await.unwrap_err();
    assert!(
        matches!(&error, BankError::Rejected { code, .. } if code == "closed-order"),
        "{error}"
    );
    let mut krona = refund("d");
    krona.currency = refund_agent::money::Currency::from_code("ISK").unwrap();
    let error = client.refund(&krona, "k-3", "d").await.unwrap_err();
    assert!(matches!(&error, BankError::Rejected { code, .. } if code == "unknown-currency"));
    assert!(error.is_terminal() && error.is_not_applied());

    let summary = client.ledger().await.unwrap();
    assert_eq!((summary.executed, summary.rejected), (0, 3));
    // A mistake in the body is not remembered: mended, it may use the same key.
    let key = "Idempotency-Key: \"k-4\"";
    post(&bank.url, &[key], &body("r2", 0)).await.is_problem(400, "bad-instruction");
    assert_eq!(post(&bank.url, &[key], &body("r2", 1)).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_answered_and_executes_nothing() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    let good = body("r1", 100);
    for bad in [
        "",
        "{",
        "null",
        "[]",
        &good.replace("100", "-1"),
        &good.replace("100", "\"100\""),
        &good.replace("100", "1.5"),
        &good.replace("\"order\"", "\"Order\""),
        &good.replace("\"reason\"", "\"order\""),
        &good.replace("100", "99999999999999999999"),
        &"[".repeat(60_000),
    ] {
        post(&bank.url, &[KEY], bad).await.is_problem(400, "bad-instruction");
    }
    let huge = format!("{good}{}", " ".repeat(70_000));
    post(&bank.url, &[KEY], &huge).await.is_problem(413, "body-too-large");
    let text = ["Content-Type: text/plain", KEY];
    ask(&bank.url, "POST", "/refunds", &text, &good).await.is_problem(415, "not-json");
    let put = ask(&bank.url, "PUT", "/refunds", &[], "").await;
    put.is_problem(405, "method-not-allowed");
    assert_eq!(put.header("allow"), Some("GET, POST"));
    ask(&bank.url, "GET", "/", &[], "").await.is_problem(404, "no-such-page");
    assert_eq!(bank.client().ledger().await.unwrap().executed, 0);
}
