//! Modes `lookup` and `none`: every call executes, and only one of them can be asked.

use refund_agent::bank::{BankError, Mode};

use crate::support::{InProcess, ask, body, post, refund};

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_finds_what_was_executed_and_nothing_else() {
    let bank = InProcess::start(Mode::Lookup, |_| {}).await;
    let client = bank.client();
    // Names that a careless client would cut at the first special character.
    let names = ["rq-1", "rq-1 ", "a/b?c&d=e+f", "50%", "李 🦊 e\u{301}", "\"\n\\"];
    for name in names {
        assert_eq!(client.find(name).await.unwrap(), None, "{name:?}");
        let receipt = client.refund(&refund("a"), "k", name).await.unwrap();
        assert_eq!(receipt.reference, name);
        assert_eq!(client.find(name).await.unwrap(), Some(receipt));
    }
    assert_eq!(client.find("rq-").await.unwrap(), None);
    for path in [
        "/refunds",
        "/refunds?",
        "/refunds?ref=a",
        "/refunds?reference=%",
        "/refunds?reference=a&b=c",
    ] {
        ask(&bank.url, "GET", path, &[], "").await.is_problem(400, "bad-lookup");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_ignored_and_the_ledger_shows_the_duplicates() {
    for mode in [Mode::Lookup, Mode::None] {
        let bank = InProcess::start(mode, |_| {}).await;
        let client = bank.client();
        let first = client.refund(&refund("a"), "k", "a").await.unwrap();
        let second = client.refund(&refund("a"), "k", "a").await.unwrap();
        client.refund(&refund("b"), "k", "b").await.unwrap();
        assert_ne!(first.id, second.id);
        assert_eq!(post(&bank.url, &[], &body("c", 1)).await.status, 201, "{mode:?}");
        let summary = client.ledger().await.unwrap();
        assert_eq!((summary.executed, summary.references, summary.duplicates), (4, 3, 1));
        if mode == Mode::Lookup {
            assert_eq!(client.find("a").await.unwrap(), Some(first));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bank_without_look_up_says_so() {
    for mode in [Mode::Keys, Mode::None] {
        let bank = InProcess::start(mode, |_| {}).await;
        let error = bank.client().find("a").await.unwrap_err();
        let expected = matches!(&error, BankError::Rejected { status: 404, code, .. } if code == "lookup-not-supported");
        assert!(expected, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_definite_in_every_mode() {
    for mode in [Mode::Lookup, Mode::None] {
        let bank = InProcess::start(mode, |_| {}).await;
        let mut closed = refund("c");
        closed.order = "CLOSED".into();
        let error = bank.client().refund(&closed, "k", "c").await.unwrap_err();
        assert!(error.is_terminal() && error.is_not_applied(), "{error}");
        assert_eq!(bank.client().ledger().await.unwrap().executed, 0);
    }
}
