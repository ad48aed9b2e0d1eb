//! Acts of a person: signals, decisions, settlements, cancellations.

use deedbook_journal::{
    checkpointer::{Checkpointer, Claim},
    id::{StoreTime, ThreadId},
    operator,
    policy::Policy,
    row::Status,
};

use super::book::{Book, block_on, done, intent, request, unknown};

/// The row as the journal has it.
fn row(book: &Book, thread: &str) -> deedbook_journal::row::Row {
    let home = book.home();
    block_on(async {
        let list = home.list(&Default::default(), None, 100).await.unwrap();
        let info = list.items.into_iter().find(|t| t.id.as_str() == thread).unwrap();
        assert_eq!(info.holder, None, "the tool let go");
        home.close().await.unwrap();
        info.row
    })
}

#[test]
fn a_signal_is_recorded_and_wakes_its_thread() {
    let book = Book::new();
    book.thread("t", Status::Waiting, vec![]);
    let said = book.ok(&["signal", "t", "address", r#"{"city":"Bern"}"#]);
    assert!(said.contains("signal address sent by user:alice (record 2 of t)"), "{said}");
    assert_eq!(book.kinds("t"), ["thread.start", "thread.resume", "signal"]);
    let row = row(&book, "t");
    assert_eq!((row.status, row.wake_at), (Status::Running, Some(StoreTime(0))));
    let shown = book.ok(&["show", "t", "--payloads"]);
    assert!(shown.contains("signal address by user:alice"), "{shown}");
    assert!(shown.contains(r#"{"city":"Bern"}"#), "{shown}");
    assert!(shown.contains("taken up by cli:"), "{shown}");
    book.ok(&["verify"]);
}

#[test]
fn a_value_comes_from_a_file_or_standard_input() {
    let book = Book::new();
    book.thread("t", Status::Waiting, vec![]);
    std::fs::write(book.file("v.json"), "[1, 2]").unwrap();
    book.ok(&["signal", "t", "a", "@v.json"]);
    let mut command = book.command();
    let stdin = std::fs::File::open(book.file("v.json")).unwrap();
    let output = command.args(["signal", "t", "b", "-", "--by", "svc:x"]).stdin(stdin).output();
    assert_eq!(output.unwrap().status.code(), Some(0));
    book.ok(&["signal", "t", "c", "-5"]);
    let shown = book.ok(&["show", "t", "--payloads"]);
    assert_eq!(shown.matches("[1,2]").count(), 2, "{shown}");
    assert!(shown.contains("value   -5"), "{shown}");
    let ran = book.run(&["signal", "t", "a", "@missing.json"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("cannot open missing.json"), "{}", ran.stderr);
}

#[test]
fn s09_duplicate_members_are_refused_and_nothing_is_written() {
    let book = Book::new();
    book.thread("t", Status::Waiting, vec![]);
    let before = book.kinds("t");
    for json in [r#"{"amount":1,"amount":1000}"#, r#"{"amount":1,"\u0061mount":1000}"#] {
        let ran = book.run(&["signal", "t", "s", json]);
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains("amount"), "{}", ran.stderr);
    }
    assert_eq!(book.kinds("t"), before);
}

#[test]
fn s43_a_doubt_is_settled_by_a_person() {
    for (verdict, status) in [
        (&["--happened", r#"{"id":"r_17"}"#][..], "ready"),
        (&["--did-not-happen"], "ready"),
        (&["--failed", "card expired"], "ready"),
    ] {
        let book = Book::new();
        book.thread("t", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
        assert_eq!(book.status("t"), "in doubt");
        let ran = book.run(&["doubts"]);
        assert_eq!(ran.code, 4);
        for part in ["t  pay#0", "at_most_once, 1 attempt", "dk1_0123", "the process died"] {
            assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
        }
        assert!(ran.stdout.contains("deedbook resolve --did-not-happen --reason WHY -- t pay#0"));
        assert!(ran.stdout.contains("policy    at_most_once, 1 attempt\n"), "{}", ran.stdout);
        let args = [&["resolve", "t", "pay#0", "--reason", "asked the bank"], verdict].concat();
        book.ok(&args);
        assert_eq!(book.status("t"), status);
        assert_eq!(book.run(&["doubts"]).code, 0);
        let shown = book.ok(&["show", "t"]);
        assert!(shown.contains("settled by user:alice"), "{shown}");
        assert!(shown.contains("(asked the bank)"), "{shown}");
        // Its program has not been given it: it can be said otherwise.
        book.ok(&args);
        assert_eq!(book.run(&["doubts"]).code, 0);
        book.ok(&["verify"]);
    }
}

/// It was called `running`, and nobody ran it.
#[test]
fn a_thread_that_nobody_runs_is_ready() {
    let book = Book::new();
    book.thread("t", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
    book.thread("u", Status::Waiting, vec![]);
    let resolve = ["resolve", "t", "pay#0", "--happened", "1", "--reason", "seen"];
    for act in [&resolve[..], &["signal", "u", "s", "1"]] {
        let said = book.ok(act);
        let next = "the thread is ready: nobody runs it; start its program\n";
        assert!(said.ends_with(next), "{said}");
    }
    let said = book.json(&["signal", "u", "s", "2"]).remove(0);
    assert_eq!(said["status"], "ready");
    for thread in ["t", "u"] {
        assert_eq!(book.status(thread), "ready");
        let shown = book.ok(&["show", thread]);
        assert!(shown.contains("status    ready since"), "{shown}");
        assert!(shown.contains("next      nobody runs it; start its program\n"), "{shown}");
    }
    let table = book.ok(&["threads"]);
    assert_eq!(table.matches("  ready   ").count(), 2, "{table}");
    assert_eq!(table.matches("  nobody runs it; start its program\n").count(), 2, "{table}");
    assert_eq!(book.json(&["threads", "--status", "ready"]).len(), 2);
    assert_eq!(book.json(&["threads", "--status", "running"]).len(), 0);
    // One that waits for somebody is not ready.
    book.thread("v", Status::Waiting, vec![]);
    assert_eq!(book.status("v"), "waiting");
}

/// An effect that may have happened is in doubt once the code is over, whatever its policy was.
/// Only the row tells that it is; the lists and `resolve` looked at the records alone.
#[test]
fn a_doubt_that_only_the_row_tells_of_is_listed_and_settled() {
    let book = Book::new();
    let drafts = vec![intent("pay", Policy::Idempotent), unknown(1, "timeout", None)];
    book.thread_with("t", drafts, |row| {
        row.status = Status::InDoubt;
        row.open_doubts = 1;
        row.detail = Some("step pay#0: the body took longer than its timeout".into());
    });
    let ran = book.run(&["doubts"]);
    assert_eq!(ran.code, 4, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("t  pay#0") && ran.stdout.contains("dk1_0123"), "{}", ran.stdout);
    let shown = book.ok(&["show", "t"]);
    assert!(shown.contains("step pay#0 is in doubt"), "{shown}");
    assert!(shown.contains("  key       dk1_0123\n"), "{shown}");
    let shown = book.json(&["show", "t"]).remove(0);
    assert_eq!(shown["doubts"][0]["key"], "dk1_0123");
    assert_eq!(shown["open_doubts"], 1);
    assert_eq!(book.json(&["threads", "--status", "in-doubt"])[0]["open_doubts"], 1);
    book.ok(&["resolve", "t", "pay#0", "--happened", "1", "--reason", "asked the bank"]);
    assert_eq!(book.run(&["doubts"]).code, 0);
    assert_eq!((book.status("t").as_str(), row(&book, "t").open_doubts), ("ready", 0));
    book.ok(&["verify"]);
}

#[test]
fn resolve_needs_a_verdict_a_reason_and_a_known_step() {
    let book = Book::new();
    book.thread("t", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
    for args in [
        &["resolve", "t", "pay#0", "--reason", "x"][..],
        &["resolve", "t", "pay#0", "--did-not-happen"],
        &["resolve", "t", "pay#0", "--did-not-happen", "--failed", "x", "--reason", "x"],
        &["resolve", "t", "pay#0", "--did-not-happen", "--reason", ""],
    ] {
        assert_eq!(book.run(args).code, 2, "{args:?}");
    }
    let ran = book.run(&["resolve", "t", "pya#0", "--did-not-happen", "--reason", "x"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("there is no step pya#0; there are pay#0"), "{}", ran.stderr);
    let ran = book.run(&["resolve", "u", "pay#0", "--did-not-happen", "--reason", "x"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("there is no thread u"), "{}", ran.stderr);
}

#[test]
fn s55_without_a_request_only_a_single_one_is_decided() {
    let book = Book::new();
    let requests = ["a", "b", "c"].map(|name| request(name, r#"{"n":1}"#));
    book.thread("t", Status::Waiting, requests.to_vec());
    let before = book.kinds("t");
    let ran = book.run(&["approve", "t"]);
    assert_eq!(ran.code, 1);
    for id in ["a#0", "b#0", "c#0"] {
        assert!(ran.stderr.contains(id), "{}", ran.stderr);
    }
    assert_eq!(book.kinds("t"), before);
    book.ok(&["approve", "t", "c#0", "--reason", "fine"]);
    book.ok(&["deny", "t", "a#0", "--reason", "no", "--by", "user:bob"]);
    // Only one is left.
    book.ok(&["approve", "t"]);
    let shown = book.ok(&["show", "t"]);
    for line in
        ["c#0: granted by user:alice (fine)", "a#0: denied by user:bob (no)", "b#0: granted"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let ran = book.run(&["deny", "t", "c#0"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("already decided"), "{}", ran.stderr);
    assert_eq!(book.run(&["approve", "t"]).code, 1);
    book.ok(&["verify"]);
}

#[test]
fn s59_a_decision_is_bound_to_what_was_shown() {
    let book = Book::new();
    let evil = r#"{"to":"\u001b[2Jx\u202egnp","deep":[[[[[[[[[[]]]]]]]]]]}"#;
    book.thread("t", Status::Waiting, vec![request("a", evil)]);
    let shown = book.json(&["show", "t"]).remove(0);
    let digest = shown["approvals"][0]["commitment"].as_str().unwrap().to_owned();
    assert_eq!(shown["approvals"][0]["shown"]["to"], "\u{1b}[2Jx\u{202e}gnp");
    let wrong = digest.replace(|c: char| c.is_ascii_digit(), "f");
    let ran = book.run(&["approve", "t", "--shown", &wrong]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let said = book.ok(&["approve", "t", "--shown", &digest]);
    assert!(said.contains(&digest), "{said}");
    assert!(said.contains(r"\u001b[2Jx\u202egnp"), "{said}");
    assert!(!said.contains(['\u{1b}', '\u{202e}']));
}

#[test]
fn s59_long_contents_are_clearly_cut() {
    let book = Book::new();
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    book.thread("t", Status::Waiting, vec![request("a", &long)]);
    let said = book.ok(&["deny", "t"]);
    assert!(said.len() < 100_000);
    assert!(said.contains("[cut: 1048578 bytes in all]"));
}

#[test]
fn a_cancelled_thread_without_loose_ends_has_ended() {
    let book = Book::new();
    let drafts = vec![
        intent("pay", Policy::AtMostOnce),
        done(1, "1"),
        intent("look", Policy::Read),
        request("a", "1"),
    ];
    book.thread("t", Status::Waiting, drafts);
    let said = book.ok(&["cancel", "t", "--reason", "customer withdrew"]);
    assert!(said.contains("the thread is cancelled"), "{said}");
    assert_eq!(book.status("t"), "cancelled");
    assert_eq!(book.kinds("t").last().unwrap(), "thread.end");
    let ran = book.run(&["signal", "t", "a", "1"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("the thread has ended"), "{}", ran.stderr);
    assert_eq!(book.run(&["cancel", "t", "--reason", "again"]).code, 1);
    book.ok(&["verify"]);
}

#[test]
fn s47_cancelling_with_an_open_doubt_leaves_it_in_doubt_until_it_is_settled() {
    for verdict in [&["--did-not-happen"][..], &["--happened", "1"], &["--failed", "x"]] {
        let book = Book::new();
        book.thread("t", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
        book.ok(&["cancel", "t", "--reason", "stop"]);
        assert_eq!(book.status("t"), "in doubt");
        assert_eq!(row(&book, "t").open_doubts, 1);
        let args = [&["resolve", "t", "pay#0", "--reason", "asked"], verdict].concat();
        let said = book.ok(&args);
        assert!(said.contains("the thread is cancelled"), "{said}");
        assert_eq!(book.status("t"), "cancelled");
        assert_eq!(row(&book, "t").open_doubts, 0);
        book.ok(&["verify"]);
    }
}

#[test]
fn s47_an_attempt_to_be_repeated_keeps_a_cancelled_thread_for_its_program() {
    let book = Book::new();
    book.thread("t", Status::Running, vec![intent("pay", Policy::Idempotent)]);
    let said = book.ok(&["cancel", "t", "--reason", "stop"]);
    assert!(said.contains("takes it up at its next start"), "{said}");
    assert_eq!(book.status("t"), "in doubt", "never cancelled before its effect is accounted for");
    book.ok(&["verify"]);
}

#[test]
fn an_ambiguous_attempt_to_be_repeated_keeps_a_cancelled_thread_for_its_program() {
    let book = Book::new();
    let due = Some(StoreTime(1));
    let drafts = vec![intent("pay", Policy::Idempotent), unknown(1, "timeout", due)];
    book.thread("t", Status::Sleeping, drafts);
    let said = book.ok(&["cancel", "t", "--reason", "stop"]);
    assert!(said.contains("its program takes it up at its next start"), "{said}");
    assert_ne!(book.kinds("t").last().unwrap(), "thread.end");
    assert_eq!(row(&book, "t").wake_at, Some(StoreTime(0)));
}

#[test]
fn what_waits_in_the_inbox_comes_first() {
    let book = Book::new();
    book.thread("t", Status::Waiting, vec![request("a", "1")]);
    let home = book.home();
    let id = ThreadId::new("t").unwrap();
    block_on(async {
        let found = operator::Found::load(&home, &id).await.unwrap();
        let call = &found.history.calls()[0];
        let message = deedbook_journal::id::MessageId([9; 16]);
        let denied = operator::decide(message, call, false, "first", "user:bob").unwrap();
        home.post(&id, denied).await.unwrap();
        home.close().await.unwrap();
    });
    let before = book.kinds("t");
    let ran = book.run(&["approve", "t", "a#0"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("already decided"), "{}", ran.stderr);
    assert_eq!(book.kinds("t"), before);
    let said = book.ok(&["signal", "t", "s", "1"]);
    assert!(said.contains("before it, 1 earlier message of the inbox got a place"), "{said}");
    assert!(book.ok(&["show", "t"]).contains("a#0: denied by user:bob (first)"));
}

#[test]
fn a_thread_with_another_doubt_stays_in_doubt() {
    let book = Book::new();
    let drafts = vec![intent("a", Policy::AtMostOnce), intent("b", Policy::AtMostOnce)];
    book.thread("t", Status::Running, drafts);
    book.ok(&["resolve", "t", "a#0", "--happened", "1", "--reason", "x"]);
    let row = row(&book, "t");
    assert_eq!((row.status, row.open_doubts), (Status::InDoubt, 1));
    assert_eq!(row.wake_at, Some(StoreTime(0)));
}

#[test]
fn after_an_act_the_thread_is_due() {
    let book = Book::new();
    book.thread("t", Status::Waiting, vec![]);
    book.ok(&["signal", "t", "s", "1"]);
    let home = book.home();
    block_on(async {
        let which = Claim::Due { workflows: vec!["refund".into()], max: 10 };
        let leases =
            home.claim(which, "worker:2", std::time::Duration::from_secs(9)).await.unwrap();
        assert_eq!(leases.len(), 1);
        home.close().await.unwrap();
    });
}
