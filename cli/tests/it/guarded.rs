//! Guarded steps of programs in another language, through `guard --stdio`.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
};

use super::{
    book::{Book, Ran},
    held::owner,
};

fn client(book: &Book, args: &[&str]) -> Command {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/guard_client.py");
    let mut python = Command::new("python3");
    python.args(["-B", program, env!("CARGO_BIN_EXE_deedbook")]).arg(book.file("ledger"));
    python.args(args).env("DEEDBOOK_JOURNAL", book.path());
    python.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    python
}

fn ran(book: &Book, args: &[&str]) -> Ran {
    Ran::of(client(book, args).output().unwrap())
}

fn ledger(book: &Book) -> Vec<String> {
    let text = fs::read_to_string(book.file("ledger")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_charge_whose_program_is_killed_is_resumed_and_made_once() {
    for policy in ["idempotent", "reconcile"] {
        for die in ["before", "after"] {
            let book = Book::new();
            let _owner = owner(&book, "1h");
            let killed = ran(&book, &["--policy", policy, "--die", die, "ORD-1"]);
            assert_eq!(killed.code, -1, "it was to be killed: {}", killed.stderr);
            assert_eq!(ledger(&book).len(), usize::from(die == "after"));
            let resumed = ran(&book, &["--policy", policy, "ORD-1"]);
            assert_eq!(resumed.code, 0, "{}", resumed.stderr);
            let paid = ledger(&book);
            assert_eq!(paid.len(), 1, "{policy}, killed {die}: {paid:?}");
            let told = format!("{{\"result\": {{\"paid\": \"{}\"}}}}", paid[0]);
            assert!(resumed.stdout.contains("ORD-1 settled"), "{}", resumed.stdout);
            assert!(resumed.stdout.contains(&told), "{}", resumed.stdout);
            // Whoever asks again is given what happened.
            let again = ran(&book, &["--policy", policy, "ORD-1"]);
            assert_eq!((again.code, &again.stdout), (0, &resumed.stdout), "{}", again.stderr);
            assert_eq!(ledger(&book), paid);
        }
    }
}

#[test]
fn b14_eight_processes_make_a_hundred_charges_once_each() {
    let book = Book::new();
    let orders: Vec<String> = (0..100).map(|n| format!("ORD-{n}")).collect();
    let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
    let children: Vec<_> = (0..8)
        .map(|n| {
            // Each begins somewhere else, and meets the others.
            let mut mine = orders.clone();
            mine.rotate_left(n * 5);
            client(&book, &mine).spawn().unwrap()
        })
        .collect();
    for child in children {
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(ran.stdout.lines().filter(|line| line.contains(" settled 1 ")).count(), 100);
    }
    let paid = ledger(&book);
    let keys: BTreeSet<_> = paid.iter().collect();
    assert_eq!((paid.len(), keys.len()), (100, 100));
    book.ok(&["verify"]);
}

#[test]
fn a_tool_that_ends_at_once_is_told_in_its_own_words() {
    let book = Book::new();
    let nowhere = book.file("nowhere.deedbook");
    let mut client = client(&book, &["ORD-1"]);
    let ran = Ran::of(client.env("DEEDBOOK_JOURNAL", &nowhere).output().unwrap());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("there is no journal"), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(!nowhere.exists() && ledger(&book).is_empty());
}
