//! Forgetting what settled steps were given and brought.

use super::{
    book::{Book, Ran},
    held::{eventually, owner, socket},
};

fn call(book: &Book, name: &str, thread: &str, more: &[&str], program: &[&str]) -> Ran {
    let args = format!("\"secret-{name}\"");
    let mut all = vec!["call", name, "--thread", thread, "--args", &args];
    all.extend(["--policy", "idempotent", "--terminal-exit", "66"]);
    all.extend(more);
    all.push("--");
    all.extend(program);
    book.run(&all)
}

/// Three settled steps, of which one failed, and one that may be sent again.
fn shop() -> Book {
    let book = Book::new();
    for (name, thread, program) in [
        ("mail", "T1", &["echo", r#"{"sent":"secret-1"}"#][..]),
        ("mail", "T2", &["echo", r#"{"sent":"secret-2"}"#]),
        ("pay", "T1", &["sh", "-c", "echo secret-3 >&2; exit 66"]),
        ("pay", "T2", &["sh", "-c", "exit 1"]),
    ] {
        call(&book, name, thread, &[], program);
    }
    book
}

const OLD: [&str; 6] = ["forget", "--older-than", "0s", "--reason", "old", "--by=ann"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&OLD[..], more].concat()
}

#[test]
fn what_is_settled_is_erased_and_what_is_not_is_left() {
    let book = shop();
    let listed = book.ok(&with(&["--dry-run"]));
    assert!(listed.contains("3 steps settled before") && listed.contains("1 left"), "{listed}");
    assert!(listed.contains("secret-mail"), "nothing is erased yet: {listed}");
    assert!(book.ok(&["steps"]).contains("secret-mail"));
    let young = ["forget", "--older-than", "1d", "--reason", "old", "--by=ann", "--json"];
    let young = &book.json(&young)[0];
    assert_eq!((&young["steps"], &young["left"]), (&0.into(), &4.into()), "{young}");
    let told = &book.json(&with(&["mail", "--thread", "T1", "--json"]))[0];
    assert_eq!((&told["steps"], &told["payloads"]), (&1.into(), &2.into()), "{told}");
    let told = &book.json(&with(&["--json"]))[0];
    assert_eq!((&told["steps"], &told["payloads"]), (&2.into(), &4.into()), "{told}");
    assert_eq!(told["left"], 1, "{told}");
    let again = book.ok(&OLD);
    assert!(again.starts_with("0 steps settled before"), "{again}");
    // The open one is as it was.
    let all = book.ok(&["export"]);
    assert!(all.contains("secret-pay"), "{all}");
    for gone in ["secret-1", "secret-2", "secret-3", "secret-mail"] {
        assert!(!all.contains(gone), "{gone} is there: {all}");
    }
    let verified = book.ok(&["verify"]);
    assert!(verified.contains("6 erased"), "{verified}");
}

#[test]
fn a_forgotten_step_is_not_executed_again_and_says_why_it_has_no_result() {
    let book = shop();
    book.ok(&OLD);
    let again = call(&book, "mail", "T1", &[], &["touch", "executed"]);
    assert_eq!(again.code, 1, "{}", again.stdout);
    assert!(again.stderr.contains("it happened") && again.stderr.contains("erased"));
    let failed = call(&book, "pay", "T1", &[], &["touch", "executed"]);
    assert_eq!(failed.code, 1, "{}", failed.stdout);
    assert!(failed.stderr.contains("failed for good"), "{}", failed.stderr);
    assert!(failed.stderr.contains("what went wrong was erased"), "{}", failed.stderr);
    assert!(!book.names().iter().any(|name| name == "executed"));
    let json = call(&book, "mail", "T2", &["--json"], &["true"]);
    assert!(json.stdout.contains(r#""is":"no result""#), "{}", json.stdout);
    let steps = book.json(&["steps", "mail", "--thread", "T1", "--json"]);
    assert_eq!((&steps[0]["is"], &steps[0]["args"]), (&"done".into(), &serde_json::Value::Null));
    let thread = steps[0]["thread"].as_str().unwrap().to_owned();
    let shown = book.ok(&["show", &thread, "--payloads"]);
    assert!(shown.contains("args of record 1 erased by ann (old)"), "{shown}");
    let why = book.ok(&["explain", &thread]);
    assert!(why.contains("its result was erased since"), "{why}");
    let reset = book.run(&["reset", &thread, "--reason", "again", "--by=ann"]);
    assert!(reset.code == 1 && reset.stderr.contains("erased"), "{}", reset.stderr);
    // A caller who does not take the outcome any more brings the arguments along.
    let fresh = call(&book, "mail", "T1", &["--valid-for", "1ms"], &["echo", "7"]);
    assert_eq!((fresh.code, fresh.stdout.trim()), (0, "7"), "{}", fresh.stderr);
    assert!(book.ok(&["steps", "mail", "--thread", "T1"]).contains("secret-mail"));
    book.ok(&["verify"]);
}

#[test]
fn it_works_with_and_without_somebody_who_holds_the_journal() {
    let book = shop();
    // The owner that the calls have started leaves.
    eventually("the owner's end", || !socket(&book).exists());
    let told = book.ok(&with(&["mail"]));
    assert!(told.starts_with("2 steps"), "{told}");
    // It has one of its own, so that others need not wait for its end.
    eventually("the owner's end", || !socket(&book).exists());
    let held = owner(&book, "1h");
    let told = book.ok(&OLD);
    assert!(told.starts_with("1 step settled"), "{told}");
    drop(held);
    let verified = book.ok(&["verify"]);
    assert!(verified.contains("6 erased"), "{verified}");
}

#[test]
fn names_that_are_shown_alike_are_told_apart() {
    let book = Book::new();
    let long = "n".repeat(200);
    let names = ["a/b", "a_b", &format!("{long}1"), &format!("{long}2")];
    for name in names {
        call(&book, name, "T", &[], &["echo", "1"]);
    }
    for name in names {
        let listed = book.json(&["steps", name, "--json"]);
        let of: Vec<_> = listed.iter().map(|step| step["name"].as_str().unwrap()).collect();
        assert_eq!(of, [name]);
    }
    assert!(book.ok(&with(&["a/b"])).starts_with("1 step settled"));
    assert!(book.ok(&["steps", "a_b"]).contains("secret-a_b"));
}

#[test]
fn who_and_why_are_needed() {
    let book = shop();
    let ran = book.run(&["forget", "--reason", "old"]);
    assert!(ran.code == 2 && ran.stderr.contains("--older-than"), "{}", ran.stderr);
    let ran = book.run(&["forget", "--older-than", "90d"]);
    assert!(ran.code == 2 && ran.stderr.contains("--reason"), "{}", ran.stderr);
    let ran = book.run(&["forget", "--older-than", "90", "--reason", "old"]);
    assert!(ran.code == 2 && ran.stderr.contains("7d"), "{}", ran.stderr);
}
