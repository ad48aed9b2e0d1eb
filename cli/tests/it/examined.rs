//! `doctor` and `compact` on a journal that another process holds: real processes.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use deedbook_control::Remote;
use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim},
    id::{StoreTime, ThreadId},
    pen::{Draft, Pen},
    policy::Policy,
    record::{Kind, Role},
    row::{Row, Status},
};
use serde_json::Value;

use super::{
    book::{Book, block_on, done, end, intent},
    held::{Running, eventually, owner},
};

fn sample() -> Book {
    let book = Book::new();
    let paid = vec![intent("pay", Policy::Idempotent), done(1, r#"{"id":"r_1"}"#), end("done")];
    book.thread("order-1", Status::Done, paid);
    book.thread("order-2", Status::Waiting, vec![]);
    book.thread("other", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
    book
}

fn twin(book: &Book) -> Book {
    let twin = Book::none();
    fs::copy(book.path(), twin.path()).unwrap();
    fs::copy(book.file("book.deedbook-anchor"), twin.file("book.deedbook-anchor")).unwrap();
    twin
}

/// What was looked at, how it stands, and what was said of it.
fn findings(seen: &Value) -> Vec<(String, String, String)> {
    let text = |finding: &Value, member: &str| finding[member].as_str().unwrap().to_owned();
    let findings = seen["findings"].as_array().unwrap().iter();
    findings.map(|f| (text(f, "about"), text(f, "verdict"), text(f, "said"))).collect()
}

fn of<'f>(findings: &'f [(String, String, String)], about: &str) -> Vec<&'f str> {
    findings.iter().filter(|f| f.0 == about).map(|f| &*f.2).collect()
}

#[test]
fn a_held_journal_is_examined_like_a_closed_one() {
    let closed = sample();
    let held = twin(&closed);
    let running = owner(&held, "1h");
    let (here, there) = (closed.json(&["doctor"]).remove(0), held.json(&["doctor"]).remove(0));
    for same in ["v", "records", "faults", "warnings"] {
        assert_eq!(here[same], there[same], "{same}");
    }
    let (here, there) = (findings(&here), findings(&there));
    let verdicts = |findings: &[(String, String, String)]| -> Vec<(String, String)> {
        findings.iter().map(|f| (f.0.clone(), f.1.clone())).collect()
    };
    let mut expected = verdicts(&here);
    for (about, verdict) in &mut expected {
        if about == "pages" {
            // They are looked at where nobody writes them.
            "note".clone_into(verdict);
        }
    }
    assert_eq!(verdicts(&there), expected, "{there:?}");
    for same in ["file", "anchor", "records"] {
        assert_eq!(of(&there, same), of(&here, same));
    }
    let pid = format!("process {} is at work", running.0.id());
    assert!(of(&there, "opening")[0].contains(&pid), "{there:?}");
    // As text, in the same form and with the same end.
    let (here, there) = (closed.ok(&["doctor"]), held.ok(&["doctor"]));
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|l| l.split_whitespace().nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(lines(&here), lines(&there));
    assert_eq!(here.lines().last(), there.lines().last());
    let told = held.run(&["doctor", "--progress"]);
    assert!(told.code == 0 && told.stderr.contains("verifying: "), "{}", told.stderr);
    // A rollback is accepted where the journal is not open.
    let ran = held.run(&["doctor", "--accept-rollback"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("process {}", running.0.id())), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot be opened"), "{}", ran.stderr);
}

#[test]
fn damage_in_a_held_journal_is_the_same_fault() {
    let closed = sample();
    let mut bytes = closed.bytes();
    let place = bytes.windows(3).position(|part| part == b"r_1").unwrap();
    bytes[place] ^= 0x10;
    fs::write(closed.path(), bytes).unwrap();
    let held = twin(&closed);
    let _owner = owner(&held, "1h");
    let here = closed.run(&["doctor", "--json"]);
    let there = held.run(&["doctor", "--json"]);
    assert_eq!((here.code, there.code), (3, 3), "{}{}", there.stdout, there.stderr);
    let read = |text: &str| findings(&serde_json::from_str(text).unwrap());
    let (here, there) = (read(&here.stdout), read(&there.stdout));
    assert_eq!(of(&there, "records"), of(&here, "records"));
    assert!(of(&there, "records")[0].contains("order-1"), "{there:?}");
}

struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Appends through the owner until told to stop; how long the slowest append took.
async fn write(home: &Remote, id: &str, stop: &AtomicBool, written: &AtomicU64) -> Duration {
    let thread = ThreadId::new(id).unwrap();
    let row = Row::new("refund", Status::Running, StoreTime(1));
    let which = Claim::Thread { id: thread.clone(), create: Some(row.clone()) };
    let lease = home.claim(which, id, Duration::from_secs(600)).await.unwrap().remove(0);
    let log_id = home.identity().log_id;
    let mut pen = Pen::new(log_id, thread.clone(), lease.epoch, lease.next, lease.head);
    let (mut at, mut slowest) = (lease.next, Duration::ZERO);
    while !stop.load(Ordering::SeqCst) {
        let draft = match at {
            0 => Draft::new(&thread, Kind::ThreadStart)
                .with(|h| h.workflow = Some("refund".into()))
                .payload(Role::Input, vec![0xc0]),
            _ => Draft::new(&thread, Kind::Marker).payload(Role::Value, vec![0xc0]),
        };
        let record = pen.write(draft, home.now().await.unwrap(), &mut || [3; 32]).1;
        let (thread, epoch, row) = (thread.clone(), lease.epoch, row.clone());
        let records = vec![record];
        let append =
            Append { thread, epoch, at, records: records.into(), consumes: Vec::new(), row };
        let since = Instant::now();
        at = home.append(vec![append]).await.remove(0).unwrap();
        slowest = slowest.max(since.elapsed());
        written.fetch_add(1, Ordering::SeqCst);
    }
    slowest
}

#[test]
fn writers_go_on_beside_an_examination_and_are_no_damage() {
    let book = sample();
    let _owner = owner(&book, "1h");
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let slowest = std::thread::scope(|scope| {
        let _end = Stop(&stop);
        let (book, stop, written) = (&book, &stop, &written);
        let writer = |n: u32| {
            let remote = block_on(Remote::connect(book.path())).unwrap();
            block_on(write(&remote, &format!("w{n}"), stop, written))
        };
        let writers: Vec<_> = (0..3).map(|n| scope.spawn(move || writer(n))).collect();
        for round in 0..8 {
            eventually("more of it", || written.load(Ordering::SeqCst) > round * 100);
            let before = written.load(Ordering::SeqCst);
            let seen = book.json(&["doctor"]).remove(0);
            assert_eq!((&seen["faults"], &seen["warnings"]), (&0.into(), &0.into()), "{seen:#}");
            assert!(seen["records"].as_u64().unwrap() >= before, "{seen:#}");
        }
        stop.store(true, Ordering::SeqCst);
        writers.into_iter().map(|writer| writer.join().unwrap()).max().unwrap()
    });
    println!("{} written, the slowest append in {slowest:?}", written.into_inner());
    assert!(slowest < Duration::from_secs(5), "an append waited for {slowest:?}");
}

const CALL: [&str; 9] =
    ["call", "ship", "--thread", "t", "--policy", "idempotent", "--", "echo", "shipped"];

#[test]
fn an_owner_that_was_started_for_a_call_is_not_in_the_way_of_compact() {
    let book = Book::new();
    for _ in 0..3 {
        book.ok(&CALL);
        let since = Instant::now();
        let ran = book.run(&["compact"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    }
    book.ok(&["verify"]);
}

#[test]
fn an_owner_that_somebody_uses_stays_and_is_named() {
    let book = Book::new();
    book.ok(&CALL);
    let mut guard = book.command();
    guard.args(["guard", "--stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guard = Running(guard.spawn().unwrap());
    let hello = b"{\"id\":0,\"op\":\"hello\",\"args\":{\"v\":1}}\n";
    std::io::Write::write_all(guard.0.stdin.as_mut().unwrap(), hello).unwrap();
    let mut line = String::new();
    BufReader::new(guard.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let pid = said["ok"]["pid"].as_u64().unwrap();
    let ran = book.run(&["compact"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("process {pid}")), "{}", ran.stderr);
    // It goes on with it, and the next one finds nobody.
    drop(guard.0.stdin.take());
    assert_eq!(guard.0.wait().unwrap().code(), Some(0));
    book.ok(&["compact"]);
}
