//! The bank as a process of its own: killed, restarted, ended.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use refund_agent::bank::BankError;
use refund_agent::bank::ledger::{Summary, read};
use tokio::task::JoinSet;

use crate::support::{Process, refund, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_survives_kill_9_and_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("bank.jsonl");
    let bank = Process::start(&ledger, "keys", &[]);
    let receipt = bank.client().refund(&refund("a"), "k", "a").await.unwrap();
    bank.kill();

    let bank = Process::start(&ledger, "keys", &[]);
    let client = bank.client();
    assert_eq!(client.refund(&refund("a"), "k", "a").await.unwrap(), receipt);
    let error = client.refund(&refund("b"), "k", "b").await.unwrap_err();
    assert!(matches!(error, BankError::Rejected { status: 422, .. }), "{error}");
    assert_eq!(client.ledger().await.unwrap().executed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_cut_off_before_its_effect_leaves_the_key_free() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("bank.jsonl");
    let bank = Process::start(&ledger, "keys", &["--delay-before-ms", "60000"]);
    let hasty = bank.client().with_timeout(Duration::from_millis(200));
    loop {
        match hasty.refund(&refund("a"), "k", "a").await.unwrap_err() {
            // Whether it had arrived is not known to its client; the next call tells.
            BankError::Ambiguous { .. } => {}
            BankError::InFlight { .. } => break,
            other => panic!("{other}"),
        }
    }
    bank.kill();
    assert_eq!(read(&ledger).unwrap(), []);

    let bank = Process::start(&ledger, "keys", &[]);
    bank.client().refund(&refund("a"), "k", "a").await.unwrap();
    assert_eq!(bank.client().ledger().await.unwrap().executed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_under_load_every_refund_is_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("bank.jsonl");
    let mut bank = Process::start(&ledger, "keys", &[]);
    let mut answered = Vec::new();
    for round in 0..6 {
        let stop = Arc::new(AtomicBool::new(false));
        let mut calls = JoinSet::new();
        for lane in 0..8 {
            let (client, stop) = (bank.client(), Arc::clone(&stop));
            calls.spawn(async move {
                let mut ids = Vec::new();
                for number in 0.. {
                    // Half of the names come again in the next round.
                    let id = format!("{lane}-{}", round / 2 * 100_000 + number);
                    match client.refund(&refund(&id), &id, &id).await {
                        Ok(receipt) => ids.push((id, receipt.id)),
                        Err(_) if stop.load(Ordering::SeqCst) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                ids
            });
        }
        tokio::time::sleep(Duration::from_millis(60 + 17 * round)).await;
        stop.store(true, Ordering::SeqCst);
        bank.kill();
        answered.extend(calls.join_all().await.into_iter().flatten());

        let entries = read(&ledger).unwrap();
        for (reference, id) in &answered {
            let found = entries.iter().filter_map(|entry| entry.receipt());
            let ids: Vec<_> =
                found.filter(|receipt| receipt.reference == *reference).map(|r| r.id).collect();
            assert_eq!(&ids, &[id.as_str()], "round {round}, reference {reference}");
        }
        assert_eq!(Summary::of(&entries).duplicates, 0);
        bank = Process::start(&ledger, "keys", &[]);
    }
    assert!(answered.len() > 20, "only {} refunds in all rounds", answered.len());
    let summary = bank.client().ledger().await.unwrap();
    assert_eq!(summary, Summary::of(&read(&ledger).unwrap()));
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_open_calls_finish() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("bank.jsonl");
    let mut bank = Process::start(&ledger, "keys", &["--delay-before-ms", "700"]);
    let client = bank.client();
    // An idle connection must not hold up the end.
    client.ledger().await.unwrap();
    let call = tokio::spawn(async move { client.refund(&refund("a"), "k", "a").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let sent = Command::new("kill").arg(bank.child.id().to_string()).status().unwrap();
    assert!(sent.success());

    assert_eq!(call.await.unwrap().unwrap().reference, "a");
    let status = wait_for("the bank to end", || bank.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    assert_eq!(read(&ledger).unwrap().len(), 1);
}

#[test]
fn a_bank_that_cannot_start_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("bank.jsonl");
    let start = |ledger: &std::path::Path| {
        Command::new(env!("CARGO_BIN_EXE_refund-agent"))
            .args(["bank", "--ledger"])
            .arg(ledger)
            .output()
            .unwrap()
    };
    let bank = Process::start(&ledger, "none", &[]);
    let second = start(&ledger);
    assert!(!second.status.success());
    let text = String::from_utf8(second.stderr).unwrap();
    assert!(text.contains("another bank holds it"), "{text}");
    drop(bank);

    std::fs::write(&ledger, "not a ledger\n").unwrap();
    let text = String::from_utf8(start(&ledger).stderr).unwrap();
    assert!(text.contains("line 1 is damaged"), "{text}");
    let text = String::from_utf8(start(folder.path()).stderr).unwrap();
    assert!(text.starts_with("refund-agent: ledger"), "{text}");
}
