//! What a client may conclude when things go wrong on the way.

use std::io::Write;
use std::net::TcpListener;
use std::num::NonZeroU64;
use std::time::Duration;

use refund_agent::bank::ledger::read;
use refund_agent::bank::{Bank, BankError, Mode};

use crate::support::{InProcess, body, refund, wait_for};

const EVERY: Option<NonZeroU64> = NonZeroU64::new(1);
const SECOND: Option<NonZeroU64> = NonZeroU64::new(2);

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_not_applied() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bank = Bank::new(format!("http://{free}")).unwrap();
    let error = bank.refund(&refund("a"), "k", "a").await.unwrap_err();
    assert!(matches!(error, BankError::NotApplied { .. }), "{error}");
    assert!(error.to_string().contains(&free.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_503_that_says_so_is_not_applied_and_leaves_the_key_free() {
    let bank = InProcess::start(Mode::Keys, |options| options.fail_every = SECOND).await;
    let client = bank.client();
    client.refund(&refund("a"), "ka", "a").await.unwrap();
    let error = client.refund(&refund("b"), "kb", "b").await.unwrap_err();
    assert!(matches!(error, BankError::NotApplied { .. }), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(client.ledger().await.unwrap().executed, 1);
    client.refund(&refund("b"), "kb", "b").await.unwrap();
    assert_eq!(client.ledger().await.unwrap().duplicates, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_ambiguous_and_the_key_brings_the_receipt() {
    let bank = InProcess::start(Mode::Keys, |options| options.lose_reply_every = EVERY).await;
    let client = bank.client();
    let error = client.refund(&refund("a"), "k", "a").await.unwrap_err();
    assert!(matches!(error, BankError::Ambiguous { .. }), "{error}");
    assert_eq!(client.ledger().await.unwrap().executed, 1);
    assert_eq!(client.refund(&refund("a"), "k", "a").await.unwrap().reference, "a");
    assert_eq!(client.ledger().await.unwrap().executed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_found_by_look_up_and_doubled_by_a_careless_retry() {
    let bank = InProcess::start(Mode::Lookup, |options| options.lose_reply_every = SECOND).await;
    let client = bank.client();
    client.refund(&refund("a"), "k", "a").await.unwrap();
    let error = client.refund(&refund("b"), "k", "b").await.unwrap_err();
    assert!(matches!(error, BankError::Ambiguous { .. }), "{error}");
    assert_eq!(client.find("b").await.unwrap().unwrap().reference, "b");
    client.refund(&refund("b"), "k", "b").await.unwrap();
    assert_eq!(client.ledger().await.unwrap().duplicates, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_is_ambiguous_whether_or_not_the_effect_came() {
    for (before, after) in [(600, 0), (0, 600)] {
        let bank = InProcess::start(Mode::Keys, |options| {
            options.delay_before_ms = before;
            options.delay_after_ms = after;
        })
        .await;
        let hasty = bank.client().with_timeout(Duration::from_millis(150));
        let error = hasty.refund(&refund("a"), "k", "a").await.unwrap_err();
        assert!(matches!(error, BankError::Ambiguous { .. }), "{error}");
        // The bank goes on without its client.
        loop {
            match bank.client().refund(&refund("a"), "k", "a").await {
                Err(BankError::InFlight { .. }) => tokio::task::yield_now().await,
                receipt => break receipt.map(drop).unwrap(),
            }
        }
        assert_eq!(bank.client().ledger().await.unwrap().executed, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_vanish_in_the_middle_harm_nobody() {
    let bank = InProcess::start(Mode::Keys, |options| options.delay_before_ms = 500).await;
    let (client, ledger) = (bank.client(), bank.ledger());
    let whole = body("half", 100);
    for sent in [0, 1, whole.len() / 2, whole.len() - 1] {
        let address = bank.url.strip_prefix("http://").unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head = "POST /refunds HTTP/1.1\r\nHost: bank\r\nContent-Type: application/json";
        let rest = format!("Idempotency-Key: \"k\"\r\nContent-Length: {}\r\n\r\n", whole.len());
        stream.write_all(format!("{head}\r\n{rest}{}", &whole[..sent]).as_bytes()).unwrap();
    }

    // This one hangs up after its refund has begun, which a twin is told.
    let hasty = client.clone().with_timeout(Duration::from_millis(100));
    while !matches!(hasty.refund(&refund("a"), "a", "a").await, Err(BankError::InFlight { .. })) {
        assert_eq!(client.ledger().await.unwrap().executed, 0, "this machine is too slow");
    }
    wait_for("the refund", || (read(&ledger).unwrap().len() == 1).then_some(()));
    client.refund(&refund("b"), "b", "b").await.unwrap();
    let summary = client.ledger().await.unwrap();
    assert_eq!((summary.executed, summary.references), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_is_not_sent() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    let long = "k".repeat(256);
    for key in ["", "é", "a\r\nX: y", &long] {
        let error = bank.client().refund(&refund("a"), key, "a").await.unwrap_err();
        assert!(matches!(error, BankError::Unsendable { .. }), "{error}");
        assert!(error.is_terminal() && error.is_not_applied());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_kept_and_a_restarted_bank_is_reached_again() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    let (client, url) = (bank.client(), bank.url.clone());
    client.refund(&refund("a"), "a", "a").await.unwrap();
    let folder = bank.stop().await;
    let mut error = client.refund(&refund("b"), "b", "b").await.unwrap_err();
    // A request can go out on the kept connection before its end is noticed: in doubt, once.
    if matches!(error, BankError::Ambiguous { .. }) {
        error = client.refund(&refund("b"), "b", "b").await.unwrap_err();
    }
    assert!(matches!(error, BankError::NotApplied { .. }), "{error}");

    let mut options =
        refund_agent::bank::Options::new(folder.path().join("bank.jsonl"), Mode::Keys);
    options.port = url.rsplit(':').next().unwrap().parse().unwrap();
    let server = refund_agent::bank::Server::open(options).await.unwrap();
    let _served = tokio::spawn(server.run(std::future::pending()));
    client.refund(&refund("b"), "b", "b").await.unwrap();
    assert_eq!(client.ledger().await.unwrap().executed, 2);
}

/// Counts connections in front of a server that answers the same to everything.
#[tokio::test(flavor = "multi_thread")]
async fn one_connection_serves_calls_that_follow_each_other() {
    use std::io::{BufRead, BufReader};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = lines.next() {
                if line.is_empty() {
                    let body = r#"{"executed":7,"references":7,"duplicates":0,"rejected":0,"by_currency":{}}"#;
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
                }
            }
        }
    });
    let bank = Bank::new(url).unwrap();
    for _ in 0..20 {
        assert_eq!(bank.ledger().await.unwrap().executed, 7);
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}
