//! The request file that is shipped.

use std::collections::{BTreeMap, BTreeSet};

use refund_agent::bank::{BankError, Mode};
use refund_agent::judge::{RuleJudge, Verdict};
use refund_agent::requests::{Cause, Entry, Refund, read};

use crate::support::InProcess;

fn entries() -> Vec<Entry> {
    read(concat!(env!("CARGO_MANIFEST_DIR"), "/refunds.jsonl")).unwrap()
}

fn refunds() -> Vec<Refund> {
    let requests = entries().into_iter().filter_map(|entry| match entry {
        Entry::Request(request) => Some(request.refund),
        _ => None,
    });
    requests.collect()
}

#[test]
fn it_is_varied() {
    let entries = entries();
    assert!(entries.len() >= 48, "{} lines", entries.len());
    let repeats = entries.iter().filter(|entry| matches!(entry, Entry::Repeat { .. })).count();
    assert_eq!(repeats, 2);
    let same_order = entries.iter().filter(
        |entry| matches!(entry, Entry::Request(request) if request.order_seen_at.is_some()),
    );
    assert_eq!(same_order.count(), 1);

    let refunds = refunds();
    let decimals: BTreeSet<u8> = refunds.iter().map(|refund| refund.currency.decimals()).collect();
    assert_eq!(decimals, BTreeSet::from([0, 2, 3]));
    let currencies: BTreeSet<_> = refunds.iter().map(|refund| refund.currency).collect();
    assert!(currencies.len() >= 12, "{currencies:?}");
    let amounts = refunds.iter().map(|refund| refund.amount_minor);
    assert_eq!((amounts.clone().min(), amounts.max()), (Some(1), Some(6_500_000)));
    for script in ['ë', '佐', 'ف', '🦊', '\u{301}', '\u{200d}', 'Σ', '김', 'श', '\\', '"', '\'']
    {
        let found = refunds.iter().any(|refund| {
            refund.customer.to_uppercase().contains(script) || refund.customer.contains(script)
        });
        assert!(found, "no customer has {script:?}");
    }
}

#[test]
fn its_bad_lines_are_refused_each_for_its_own_reason() {
    let mut causes: BTreeMap<&str, u32> = BTreeMap::new();
    for entry in entries() {
        let Entry::Refused(refusal) = entry else {
            continue;
        };
        let cause = match refusal.cause {
            Cause::Empty => "empty",
            Cause::NotJson { .. } => "not json",
            Cause::NotAnObject => "not an object",
            Cause::Missing { .. } => "missing",
            Cause::Unknown { .. } => "unknown member",
            Cause::Duplicate { .. } => "duplicate",
            Cause::BadAmount { what } => what,
            Cause::UnknownCurrency { .. } => "unknown currency",
            Cause::IdReused { .. } => "id reused",
            other => panic!("line {}: {other}", refusal.line),
        };
        *causes.entry(cause).or_default() += 1;
    }
    let expected = [
        ("duplicate", 1),
        ("empty", 1),
        ("has a decimal point or an exponent", 1),
        ("id reused", 1),
        ("is negative", 1),
        ("is text, not a number", 1),
        ("is too large", 1),
        ("missing", 1),
        ("not an object", 1),
        ("not json", 2),
        ("unknown currency", 1),
        ("unknown member", 1),
    ];
    assert_eq!(causes, BTreeMap::from(expected));
}

#[test]
fn the_judge_finds_all_three_verdicts_in_it() {
    let judge = RuleJudge::new();
    let (mut approved, mut rejected, mut human) = (0, 0, Vec::new());
    for refund in refunds() {
        match judge.decide(&refund) {
            Verdict::Approve { .. } => approved += 1,
            Verdict::Reject { .. } => rejected += 1,
            Verdict::NeedsHuman { .. } => human.push(refund.id),
        }
    }
    assert_eq!(human, ["rq-1017", "rq-1018", "rq-1031", "rq-1035", "rq-1038", "rq-1045"]);
    assert_eq!((approved, rejected), (35, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bank_executes_all_but_three_of_its_requests() {
    let bank = InProcess::start(Mode::Keys, |_| {}).await;
    let (client, refunds) = (bank.client(), refunds());
    let mut refused = Vec::new();
    for refund in &refunds {
        match client.refund(refund, &refund.id, &refund.id).await {
            Ok(receipt) => assert_eq!(receipt.amount_minor, refund.amount_minor),
            Err(BankError::Rejected { code, .. }) => refused.push((refund.id.clone(), code)),
            Err(error) => panic!("{error}"),
        }
    }
    let refused: Vec<_> = refused.iter().map(|(id, code)| (id.as_str(), code.as_str())).collect();
    let expected =
        [("rq-1034", "closed-order"), ("rq-1035", "unknown-currency"), ("rq-1045", "over-limit")];
    assert_eq!(refused, expected);
    let summary = client.ledger().await.unwrap();
    assert_eq!(summary.executed, refunds.len() as u64 - 3);
    assert_eq!((summary.duplicates, summary.rejected), (0, 3));
}
