//! The whole story, with real kills of real processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use deedbook::{Deedbook, Filter, Resolution};
use refund_agent::bank::ledger::{self, Entry};
use tempfile::TempDir;

use crate::support::wait_for;

/// A story that was told.
struct Told {
    code: Option<i32>,
    text: String,
    errors: String,
}

impl Told {
    /// The number in a row of the table.
    #[track_caller]
    fn row(&self, name: &str) -> usize {
        let row = self.text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
            rest.split_whitespace().next()?.parse().ok()
        });
        row.unwrap_or_else(|| panic!("no row {name:?} in:\n{}\n{}", self.text, self.errors))
    }

    #[track_caller]
    fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.text, self.errors);
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(!self.text.contains(steers), "{:?}", self.text);
        self
    }

    #[track_caller]
    fn says(&self, what: &str) -> &Self {
        assert!(self.text.contains(what), "no {what:?} in:\n{}", self.text);
        self
    }
}

/// A folder with a file of requests and a place for a journal.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new(requests: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("requests.jsonl"), requests).unwrap();
        Self { folder }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("r.redb")
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("r.redb.bank.jsonl")
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_refund-agent"));
        command
            .arg("--refunds")
            .arg(self.folder.path().join("requests.jsonl"))
            .arg("--journal")
            .arg(self.journal())
            .args(more)
            .stdin(Stdio::null());
        command
    }

    fn tell(&self, more: &[&str]) -> Told {
        told(&mut self.command(more))
    }
}

fn told(command: &mut Command) -> Told {
    let output = command.output().unwrap();
    Told {
        code: output.status.code(),
        text: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The first lines of the file that comes with the story.
fn lines(count: usize) -> String {
    let all = include_str!("../../refunds.jsonl").lines();
    all.take(count).flat_map(|line| [line, "\n"]).collect()
}

#[track_caller]
fn every_refund_once(told: &Told, kills: usize) {
    told.ends_with(0).says("the bank's ledger and the journal agree");
    assert_eq!(told.row("duplicates"), 0);
    assert_eq!(told.row("in doubt"), 0);
    assert_eq!(told.row("kills"), kills, "{}", told.text);
    assert_eq!(told.row("threads"), told.row("requests read"));
    assert_eq!(told.row("executed at the bank"), told.row("refunded"));
    assert_eq!(told.row("letters"), told.row("refunded"));
}

#[test]
fn with_keys_every_refund_is_executed_once() {
    let told = Place::new(&lines(40)).tell(&["--bank-mode", "keys", "--kills", "7", "--seed", "7"]);
    every_refund_once(&told, 7);
    assert_eq!(told.row("requests read"), 30);
    assert_eq!(told.row("repeated lines"), 1);
    for point in [
        "before-effect",
        "in-flight",
        "after-effect",
        "settling",
        "between-steps",
        "after-letter",
        "awaiting-approval",
    ] {
        assert_eq!(told.row(&format!("  {point}")), 1, "{}", told.text);
    }
    told.says("line 39: line 3 used the id \"rq-1003\" for something else");
}

#[test]
fn with_a_look_up_every_refund_is_executed_once() {
    let told =
        Place::new(&lines(40)).tell(&["--bank-mode", "lookup", "--kills", "6", "--seed", "2"]);
    every_refund_once(&told, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_neither_doubts_are_left_to_a_person_and_nothing_is_paid_twice() {
    let place = Place::new(&lines(36));
    let arguments = ["--bank-mode", "none", "--seed", "5"];
    let told = place.tell(&[&arguments[..], &["--kills", "6"]].concat());
    told.ends_with(0).says("the bank's books say what happened");
    assert_eq!(told.row("kills"), 6, "{}", told.text);
    assert_eq!(told.row("duplicates"), 0);
    let doubts = told.row("in doubt");
    assert!(doubts > 0, "a kill after the effect leaves a doubt:\n{}", told.text);
    assert_eq!(told.text.matches("settle it: deedbook").count(), doubts);
    assert!(told.row("executed at the bank") > told.row("refunded"));

    settle_by_the_books(&place).await;
    let told = place.tell(&[&arguments[..], &["--no-kill"]].concat());
    every_refund_once(&told, 0);
}

/// What a person does who may look into the bank's books.
async fn settle_by_the_books(place: &Place) {
    let paid: BTreeMap<_, _> = ledger::read(place.ledger())
        .unwrap()
        .iter()
        .filter_map(Entry::receipt)
        .map(|receipt| (receipt.reference.clone(), receipt))
        .collect();
    let book = Deedbook::open(place.journal()).start().await.unwrap();
    let filter = Filter { doubts_only: true, ..Filter::default() };
    for info in book.threads(&filter, None, 100).await.unwrap().items {
        let thread = info.id.as_str();
        let resolution = match paid.get(thread) {
            Some(receipt) => Resolution::happened(receipt).unwrap(),
            None => Resolution::did_not_happen(),
        };
        let by = ("user:kim", "seen in the ledger");
        let settled = book.resolve(thread, "pay#0", resolution, by.0, by.1).await;
        settled.unwrap();
    }
    book.shutdown().await.unwrap();
}

#[test]
fn a_bank_that_loses_answers_and_a_second_and_third_telling_change_nothing() {
    for mode in ["keys", "lookup"] {
        let place = Place::new(&lines(20));
        let faults = ["--bank-mode", mode, "--lose-reply-every", "4", "--fail-every", "5"];
        let first = place.tell(&[&faults[..], &["--kills", "2"]].concat());
        every_refund_once(&first, 2);
        for kills in ["2", "0"] {
            let again = place.tell(&[&faults[..], &["--kills", kills]].concat());
            every_refund_once(&again, 0);
            assert_eq!(again.row("refunded"), first.row("refunded"));
            assert_eq!(again.row("denied"), first.row("denied"));
        }
    }
}

#[cfg(unix)]
#[test]
fn a_story_that_is_cut_off_leaves_no_process_and_goes_on() {
    let place = Place::new(&lines(24));
    for signal in ["INT", "KILL"] {
        let ledger = place.ledger();
        let before = entries(&ledger);
        let mut story = place.command(&["--no-kill"]);
        let mut story = story.stdout(Stdio::null()).spawn().unwrap();
        wait_for("the bank to pay", || {
            assert_eq!(story.try_wait().unwrap(), None, "the story has ended early");
            (entries(&ledger) > before + 2).then_some(())
        });
        let pid = story.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
        let ended = story.wait().unwrap();
        if signal == "INT" {
            assert_eq!(ended.code(), Some(130));
        }
        wait_for("the journal and the ledger to be let go", || {
            let free = |path: &Path| {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                file.try_lock().is_ok()
            };
            (free(&ledger) && free(&place.journal())).then_some(())
        });
    }
    every_refund_once(&place.tell(&["--kills", "1"]), 1);
}

fn entries(ledger: &Path) -> usize {
    ledger::read(ledger).map_or(0, |entries| entries.len())
}

#[test]
fn a_file_without_a_request_says_why() {
    let place = Place::new("hello\n\n{\"id\":\"\u{1b}[31m\"}\n[1]\n");
    let told = place.tell(&[]);
    told.ends_with(0).says("line 1: not JSON");
    assert_eq!(told.row("requests read"), 0);
    assert_eq!(told.row("refused lines"), 4);
    assert_eq!(told.row("threads"), 0);
    assert_eq!(told.row("kills"), 0);
}

#[test]
fn ids_of_any_kind_are_threads_and_one_that_is_too_long_is_refused() {
    let request = |id: &str, reason: &str| {
        let request = serde_json::json!({
            "id": id, "order": id, "customer": "Zoë", "amount_minor": 1, "currency": "EUR",
            "reason": reason,
        });
        format!("{request}\n")
    };
    let long = "x".repeat(600);
    let text = request("it's/a $(day) 🦊", "final sale")
        + &request("-n", "late")
        + &request("--", "fraud")
        + &request(&long, "late");
    let told = Place::new(&text).tell(&["--kills", "1"]);
    told.ends_with(0).says("stopped\n  xxx");
    assert_eq!(told.row("requests read"), 4);
    assert_eq!(told.row("threads"), 3);
}

#[test]
fn a_bank_that_breaks_its_promise_is_found_out() {
    let place = Place::new(&lines(16));
    let told = place.tell(&["--faithless-bank", "--kills", "3"]);
    told.ends_with(1).says("DISAGREE").says("the bank has paid 2 times");
    assert!(told.row("duplicates") > 0);
}

#[test]
fn a_ledger_with_a_line_too_many_or_too_few_is_found_out() {
    let place = Place::new(&lines(3));
    place.tell(&["--no-kill"]).ends_with(0);
    let good = std::fs::read_to_string(place.ledger()).unwrap();
    let (first, rest) = good.split_once('\n').unwrap();
    let renamed = first.replace("\"reference\":\"rq-", "\"reference\":\"other-");
    assert_ne!(first, renamed);
    for (ledger, complaint) in [
        (format!("{good}{renamed}\n"), "the journal has no such thread"),
        (format!("{good}{first}\n"), "the bank has paid 2 times"),
        (rest.to_owned(), "refunded, and the bank has not paid"),
        (
            good.replacen("\"amount_minor\":", "\"amount_minor\":1", 1),
            "its receipt is not the one in the bank's ledger",
        ),
    ] {
        std::fs::write(place.ledger(), ledger).unwrap();
        place.tell(&["--no-kill"]).ends_with(1).says(complaint);
    }
    std::fs::write(place.ledger(), good).unwrap();
    place.tell(&["--no-kill"]).ends_with(0);
}

#[test]
fn letters_that_are_missing_or_written_twice_are_found_out() {
    let place = Place::new(&lines(2));
    place.tell(&["--no-kill"]).ends_with(0);
    let outbox = place.folder.path().join("r.redb.outbox.jsonl");
    let letters = std::fs::read_to_string(&outbox).unwrap();
    std::fs::write(&outbox, letters.repeat(2)).unwrap();
    let told = place.tell(&["--no-kill"]);
    told.ends_with(1).says("2 letters were written, not 1");
    std::fs::write(&outbox, "").unwrap();
    let told = place.tell(&["--no-kill"]);
    told.ends_with(1).says("0 letters were written, not 1");
}

#[test]
fn a_changed_request_under_a_known_id_is_not_paid() {
    let place = Place::new(&lines(2));
    place.tell(&["--no-kill"]).ends_with(0);
    let changed = lines(2).replacen("4990", "9990", 1);
    std::fs::write(place.folder.path().join("requests.jsonl"), changed).unwrap();
    let told = place.tell(&["--no-kill"]);
    told.ends_with(0)
        .says("stopped\n  rq-1001: thread \"rq-1001\": it exists with another input")
        .says("/refund/amount_minor recorded 4990, now 9990");
    assert_eq!(told.row("executed at the bank"), 2);
}

#[test]
fn wrong_usage_and_missing_files_are_told_apart() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refund-agent"));
    assert_eq!(told(command.args(["--bank-mode", "maybe"])).code, Some(2));
    let mut command = Command::new(env!("CARGO_BIN_EXE_refund-agent"));
    let missing = told(command.args(["--discard", "--refunds", "/nowhere/r.jsonl"]));
    assert_eq!(missing.code, Some(1));
    assert!(missing.errors.contains("/nowhere/r.jsonl"), "{}", missing.errors);
}

#[test]
fn a_folder_of_its_own_is_left_or_discarded() {
    let temporary = tempfile::tempdir().unwrap();
    let requests = temporary.path().join("r.jsonl");
    std::fs::write(&requests, lines(1)).unwrap();
    let tell = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_refund-agent"));
        command.env("TMPDIR", temporary.path()).arg("--refunds").arg(&requests);
        told(command.args(["--no-kill"]).args(more)).ends_with(0);
        std::fs::read_dir(temporary.path()).unwrap().count() - 1
    };
    assert_eq!(tell(&["--discard"]), 0);
    assert_eq!(tell(&[]), 1);
}
