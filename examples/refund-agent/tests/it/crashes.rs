//! The agent's code in a world that crashes it everywhere, for each of the banks.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deedbook::Probe;
use deedbook_testkit::{CrashMatrix, Downstream, DownstreamError, Matrix, World};
use refund_agent::agent::hands::{Answer, Letters, Payments};
use refund_agent::agent::outbox::OutboxError;
use refund_agent::agent::{APPROVAL_REQUEST, Asked, Outcome, RefundAgent};
use refund_agent::bank::{BankError, Mode, Receipt};
use refund_agent::judge::RuleJudge;
use refund_agent::requests::Refund;

/// The bank, as the world has it; its references outlive a crash as its ledger does.
#[derive(Debug, Clone)]
struct TestBank {
    ledger: Downstream,
    references: Arc<Mutex<BTreeMap<String, String>>>,
}

fn unanswered(error: DownstreamError) -> BankError {
    match error.is_not_applied() {
        true => BankError::NotApplied { cause: error.to_string(), retry_after: None },
        false => BankError::Ambiguous { cause: error.to_string() },
    }
}

impl Payments for TestBank {
    fn refund<'a>(
        &'a self,
        refund: &'a Refund,
        key: &'a str,
        reference: &'a str,
    ) -> Answer<'a, Receipt, BankError> {
        let receipt = Receipt {
            id: "bk-1".to_owned(),
            reference: reference.to_owned(),
            order: refund.order.clone(),
            amount_minor: refund.amount_minor,
            currency: refund.currency.code().to_owned(),
            at_ms: 0,
        };
        let key_of = (reference.to_owned(), key.to_owned());
        self.references.lock().unwrap().extend([key_of]);
        Box::pin(async move { self.ledger.perform(key, receipt).await.map_err(unanswered) })
    }

    fn find<'a>(&'a self, reference: &'a str) -> Answer<'a, Option<Receipt>, BankError> {
        Box::pin(async move {
            let key = self.references.lock().unwrap().get(reference).cloned();
            let found = self.ledger.find(&key.unwrap_or_default()).await.map_err(unanswered)?;
            Ok(match found {
                Probe::Happened(receipt) => Some(receipt),
                _ => None,
            })
        })
    }
}

#[derive(Debug)]
struct TestOutbox(Downstream);

impl TestOutbox {
    fn fault(error: DownstreamError) -> OutboxError {
        OutboxError { path: "outbox".into(), source: io::Error::other(error) }
    }
}

impl Letters for TestOutbox {
    fn write<'a>(
        &'a self,
        key: &'a str,
        _thread: &'a str,
        _text: &'a str,
    ) -> Answer<'a, (), OutboxError> {
        Box::pin(async move { self.0.perform(key, ()).await.map_err(Self::fault) })
    }

    fn holds<'a>(&'a self, key: &'a str) -> Answer<'a, bool, OutboxError> {
        Box::pin(async move {
            let found: Probe<()> = self.0.find(key).await.map_err(Self::fault)?;
            Ok(matches!(found, Probe::Happened(())))
        })
    }
}

fn refund(amount_minor: u64) -> Refund {
    serde_json::from_value(serde_json::json!({
        "id": "rq-1", "order": "ORD-1", "customer": "kim", "amount_minor": amount_minor,
        "currency": "EUR", "reason": "arrived broken",
    }))
    .unwrap()
}

/// Crashes the agent everywhere, with a bank that promises this.
fn matrix(mode: Mode, amount_minor: u64) -> Matrix {
    let references: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let prepare = move |world: &World| {
        if mode != Mode::Keys {
            world.downstream("bank").without_keys();
        }
        world.downstream("outbox").without_keys();
    };
    // The agent's quiet is measured for a bank on the same machine.
    let matrix = CrashMatrix::new().prepare(prepare).on_its_way(Duration::from_millis(150));
    matrix.explore(move |world: World| {
        let ledger = world.downstream("bank");
        let bank = TestBank { ledger, references: references.clone() };
        let outbox = Arc::new(TestOutbox(world.downstream("outbox")));
        let judge = Arc::new(RuleJudge::new());
        let settle = Duration::from_secs(3 * 86_400);
        let agent = RefundAgent::new(judge, Arc::new(bank), mode, outbox, settle);
        let asked = Asked { refund: refund(amount_minor), order_seen_before: false };
        async move {
            let book = world.book().host(agent).start().await?;
            book.spawn::<RefundAgent>("rq-1", asked).await?;
            world.settled().await;
            let asks = book.decide("rq-1", APPROVAL_REQUEST, true, "user:kim", "");
            let _none_needed = world.once("decides", asks).await;
            let outcome = book.wait::<RefundAgent>("rq-1").await?;
            assert!(matches!(outcome, Outcome::Refunded { .. }), "{outcome:?}");
            Ok::<_, deedbook::Error>(outcome)
        }
    })
}

#[test]
fn every_crash_refunds_once_where_the_bank_honours_keys_or_answers() {
    for mode in [Mode::Keys, Mode::Lookup] {
        for amount_minor in [4_200, 420_000] {
            let matrix = matrix(mode, amount_minor);
            assert!(matrix.is_fine(), "{mode:?}, {amount_minor}: {matrix}");
            assert_eq!(matrix.doubts(), 0, "{matrix}");
            assert!(matrix.points() >= 60, "{matrix}");
        }
    }
}

#[test]
fn where_the_bank_promises_nothing_a_person_is_asked_and_nothing_is_paid_twice() {
    let matrix = matrix(Mode::None, 4_200);
    assert!(matrix.is_fine(), "{matrix}");
    assert!(matrix.doubts() > 0, "{matrix}");
}
