//! Commands on a journal that another process holds: real processes, and the same output.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use deedbook_control::Remote;
use deedbook_journal::{
    checkpointer::{Checkpointer, Claim, Filter, Message, StoreError},
    id::{MessageId, ThreadId},
    message::SIGNAL,
    policy::Policy,
    row::Status,
};
use serde_json::Value;

use super::book::{Book, Ran, block_on, done, end, intent, msgpack, request};

/// A process of the tool that is ended when it is dropped.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another process that holds the journal, and lets others in.
pub(super) fn owner(book: &Book, idle: &str) -> Running {
    let mut own = book.command();
    own.args(["own", "--idle", idle]).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut running = Running(own.spawn().unwrap());
    let mut said = String::new();
    let stdout = running.0.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut said).unwrap();
    assert!(said.contains("is open to others at"), "{said}");
    running
}

pub(super) fn socket(book: &Book) -> PathBuf {
    book.file("book.deedbook.control")
}

pub(super) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < until, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn sample() -> Book {
    let book = Book::new();
    let paid = vec![intent("pay", Policy::Idempotent), done(1, r#"{"id":"r_1"}"#), end("done")];
    book.thread("order-1", Status::Done, paid);
    book.thread("order-2", Status::Waiting, vec![request("big", r#"{"amount":99}"#)]);
    book.thread("order-3", Status::Waiting, vec![request("big", r#"{"amount":98}"#)]);
    book.thread("order-4", Status::Waiting, vec![]);
    book.thread("other", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
    book
}

/// The same journal once more.
fn twin(book: &Book) -> Book {
    let twin = Book::none();
    fs::copy(book.path(), twin.path()).unwrap();
    twin
}

/// What a run printed, without what depends on when it ran: the time of an export, and how long
/// ago something was.
fn printed(ran: &Ran) -> (i32, String, String) {
    let lines = ran.stdout.lines().map(|line| {
        let export = line.starts_with("{\"export\":").then(|| line.split_once("\"time\":"));
        let since = line.contains("since").then(|| line.rsplit_once(" ("));
        let before = export.flatten().or(since.flatten()).map(|(before, _)| before);
        before.unwrap_or(line).to_owned()
    });
    (ran.code, lines.collect::<Vec<_>>().join("\n"), ran.stderr.clone())
}

const LOOKING: &[&[&str]] = &[
    &["threads"],
    &["threads", "--all", "--json"],
    &["threads", "--status", "in-doubt"],
    &["show", "order-1", "--payloads"],
    &["show", "order-2"],
    &["show", "other", "--json", "--payloads"],
    &["show", "none"],
    &["doubts"],
    &["doubts", "--json"],
    &["export"],
    &["export", "order-1"],
    &["verify"],
    &["verify", "--json"],
    &["verify", "order-1"],
    &["key", "--thread", "order-1", "--step", "pay"],
    &["key", "--thread", "order-1", "--step", "pay", "--json"],
];

const ACTS: &[&[&str]] = &[
    &["signal", "order-4", "address", r#"{"city":"Bern"}"#],
    &["signal", "order-4", "address", r#"{"city":"Biel"}"#, "--json"],
    &["signal", "none", "address", "1"],
    &["signal", "order-1", "address", "1"],
    &["approve", "order-2", "--reason", "seen"],
    &["approve", "order-2", "--reason", "seen"],
    &["deny", "order-3", "--json"],
    &["resolve", "other", "pay#0", "--happened", r#"{"id":"r"}"#, "--reason", "seen"],
    &["resolve", "other", "none#0", "--did-not-happen", "--reason", "seen"],
    &["cancel", "order-4", "--reason", "withdrawn"],
    &["cancel", "order-4", "--reason", "withdrawn", "--json"],
];

#[test]
fn every_command_says_the_same_whether_or_not_somebody_holds_the_journal() {
    let closed = sample();
    let held = twin(&closed);
    let _owner = owner(&held, "1h");
    for args in LOOKING.iter().chain(ACTS).chain(LOOKING) {
        let (here, there) = (printed(&closed.run(args)), printed(&held.run(args)));
        if args.contains(&"show") && ACTS.len() + LOOKING.len() > 0 && here != there {
            // The acts were carried out at other times and by other processes.
            assert_eq!(without_times(&here.1), without_times(&there.1), "{args:?}");
            continue;
        }
        let alike = |(code, out, err): (i32, String, String)| (code, without_times(&out), err);
        assert_eq!(alike(here), alike(there), "{args:?}");
    }
}

/// Digits do not count: times, hashes and process ids.
fn without_times(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_hexdigit() { '0' } else { c }).collect()
}

#[test]
fn what_is_only_looked_at_is_the_same_byte_by_byte() {
    let closed = sample();
    let held = twin(&closed);
    let _owner = owner(&held, "1h");
    for args in LOOKING {
        assert_eq!(printed(&closed.run(args)), printed(&held.run(args)), "{args:?}");
    }
}

#[test]
fn the_owner_makes_the_backup_and_it_is_the_same_journal() {
    let closed = sample();
    let held = twin(&closed);
    let _owner = owner(&held, "1h");
    let args = ["backup", "copy.deedbook", "--json"];
    let (here, there) = (closed.json(&args).remove(0), held.json(&args).remove(0));
    for member in ["log_id", "records", "threads", "head", "backup"] {
        assert_eq!(here[member], there[member], "{member}");
    }
    let verify = ["--journal", "copy.deedbook", "verify"];
    assert_eq!(closed.ok(&verify), held.ok(&verify));
    let again = held.run(&["backup", "copy.deedbook"]);
    let same = closed.run(&["backup", "copy.deedbook"]);
    assert_eq!((again.code, again.stderr), (same.code, same.stderr));
    let told = held.run(&["backup", "watched.deedbook", "--progress"]);
    assert!(told.code == 0 && told.stderr.contains("of 11 records"), "{}", told.stderr);
}

#[test]
fn what_needs_the_journal_alone_names_who_has_it() {
    let book = sample();
    let running = owner(&book, "1h");
    let pid = format!("process {}", running.0.id());
    for (args, more) in
        [(&["compact"][..], "nobody may have a journal open"), (&["own"], "in use by")]
    {
        let ran = book.run(args);
        assert_eq!(ran.code, 5, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(&pid) && ran.stderr.contains(more), "{}", ran.stderr);
    }
    // A program that lets nobody in is named, and what it could do.
    drop(running);
    let home = book.home();
    let ran = book.run(&["threads"]);
    assert_eq!(ran.code, 5);
    assert!(ran.stderr.contains("deedbook_control::serve"), "{}", ran.stderr);
    let ran = book.run(&["doctor"]);
    assert_eq!(ran.code, 5);
    assert!(ran.stderr.contains("deedbook_control::serve"), "{}", ran.stderr);
    drop(home);
}

#[test]
fn an_owner_leaves_when_nobody_is_there_and_closes_in_order() {
    let book = sample();
    let mut running = owner(&book, "400ms");
    let remote = block_on(Remote::connect(book.path())).unwrap();
    std::thread::sleep(Duration::from_millis(900));
    assert!(running.0.try_wait().unwrap().is_none(), "somebody is there");
    block_on(remote.now()).unwrap();
    drop(remote);
    eventually("its end", || running.0.try_wait().unwrap().is_some());
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    assert_eq!(book.names(), ["book.deedbook"], "it was closed, and its socket is gone");
    // So it does when the journal is not what it was any more.
    let mut running = owner(&book, "1h");
    fs::rename(book.path(), book.file("moved.deedbook")).unwrap();
    eventually("its end", || running.0.try_wait().unwrap().is_some());
    assert!(!socket(&book).exists());
}

#[test]
fn an_owner_that_is_told_to_end_closes_in_order_though_somebody_is_there() {
    for signal in ["TERM", "INT"] {
        let book = sample();
        let mut running = owner(&book, "1h");
        let remote = block_on(Remote::connect(book.path())).unwrap();
        block_on(remote.now()).unwrap();
        let pid = running.0.id().to_string();
        let told = Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(told.success());
        eventually("its end", || running.0.try_wait().unwrap().is_some());
        assert_eq!(running.0.wait().unwrap().code(), Some(0), "{signal}");
        assert_eq!(book.names(), ["book.deedbook"], "{signal}: it was closed");
        block_on(remote.now()).unwrap_err();
    }
}

#[test]
fn an_owner_that_is_to_outlive_its_terminal_does() {
    let book = sample();
    let tool = book.command();
    let mut shell = Command::new("sh");
    shell.current_dir(book.dir());
    shell.envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // As `nohup` does.
    shell.args(["-c", "trap '' HUP; exec \"$0\" own --idle 1h"]).arg(tool.get_program());
    let mut running = Running(shell.stdout(Stdio::piped()).spawn().unwrap());
    eventually("the socket", || block_on(Remote::connect(book.path())).is_ok());
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(300));
    assert!(running.0.try_wait().unwrap().is_none(), "it ended with its terminal");
    block_on(block_on(Remote::connect(book.path())).unwrap().now()).unwrap();
}

#[test]
fn an_owner_that_was_killed_is_replaced_and_loses_nothing() {
    let book = sample();
    let mut running = owner(&book, "1h");
    let remote = block_on(Remote::connect(book.path())).unwrap();
    let thread = ThreadId::new("order-4").unwrap();
    let post = |n: u32| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        let (name, by) = ("s".into(), "test".into());
        Message { id: MessageId(id), kind: SIGNAL, name, by, body: msgpack("1").into() }
    };
    let pid = running.0.id();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
    });
    let mut told = 0;
    let error = loop {
        match block_on(remote.post(&thread, post(told))) {
            Ok(_) => told += 1,
            Err(error) => break error,
        }
    };
    killer.join().unwrap();
    running.0.wait().unwrap();
    assert!(told > 0, "nothing was posted before");
    assert!(matches!(error, StoreError::Unknown { .. } | StoreError::Failed { .. }), "{error}");
    assert!(socket(&book).exists(), "nobody has removed it");
    // The tool does not mind, and neither does the next owner.
    book.ok(&["verify"]);
    let _next = owner(&book, "1h");
    let remote = block_on(Remote::connect(book.path())).unwrap();
    let inbox = block_on(remote.inbox(&thread)).unwrap();
    assert!(inbox.len() >= told as usize, "{} of {told}", inbox.len());
}

#[test]
fn an_act_on_a_thread_that_nobody_lets_go_of_stays_in_its_inbox() {
    let book = sample();
    let _owner = owner(&book, "1h");
    let remote = block_on(Remote::connect(book.path())).unwrap();
    let id = ThreadId::new("order-4").unwrap();
    let which = Claim::Thread { id: id.clone(), create: None };
    block_on(remote.claim(which, "worker:9", Duration::from_secs(60))).unwrap();
    // What would be refused is refused at once.
    let ran = book.run(&["approve", "order-4"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let ran = book.run(&["signal", "order-4", "address", "1"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    for part in ["posted to thread order-4 as", "worker:9 holds the thread", "do not say it again"]
    {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert_eq!(block_on(remote.inbox(&id)).unwrap().len(), 1);
}

#[test]
fn twenty_processes_that_start_at_once_get_through_to_one_owner() {
    let book = Book::none();
    let script = "\"$0\" init >/dev/null 2>&1 && echo made >&2\n\
                  printf '%s\\n' '{\"id\":0,\"op\":\"hello\",\"args\":{\"v\":1}}' \
                  '{\"id\":1,\"op\":\"now\"}' | \"$0\" guard --stdio";
    let children: Vec<_> = (0..20)
        .map(|_| {
            let mut command = Command::new("sh");
            command.args(["-c", script, env!("CARGO_BIN_EXE_deedbook")]);
            command.env("DEEDBOOK_JOURNAL", book.path()).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let (mut made, mut owners) = (0, Vec::new());
    for child in children {
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        made += usize::from(ran.stderr.contains("made"));
        let lines: Vec<Value> =
            ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1]["ok"]["now"].is_string(), "{lines:?}");
        owners.push(lines[0]["ok"]["pid"].as_u64().unwrap());
    }
    owners.sort_unstable();
    owners.dedup();
    assert_eq!((made, owners.len()), (1, 1), "{owners:?}");
    let killed = Command::new("kill").arg(owners[0].to_string()).status().unwrap();
    assert!(killed.success());
}

#[test]
fn an_owner_on_demand_is_replaced_when_it_was_killed() {
    let book = sample();
    let mut pids = Vec::new();
    for _ in 0..3 {
        let mut guard = book.command();
        guard.args(["guard", "--stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = Running(guard.stderr(Stdio::piped()).spawn().unwrap());
        let mut input = guard.0.stdin.take().unwrap();
        let mut output = BufReader::new(guard.0.stdout.take().unwrap());
        input.write_all(b"{\"id\":0,\"op\":\"hello\",\"args\":{\"v\":1}}\n").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let hello: Value = serde_json::from_str(&line).unwrap();
        let pid = hello["ok"]["pid"].as_u64().unwrap();
        assert!(!pids.contains(&pid));
        pids.push(pid);
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        let ended = guard.0.wait().unwrap();
        assert_eq!((rest.as_str(), ended.code()), ("", Some(1)));
    }
    book.ok(&["verify"]);
}

#[test]
fn a_client_in_another_language_lists_threads_and_posts_a_signal() {
    let book = sample();
    let _owner = owner(&book, "1h");
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/control_client.py");
    let mut command = Command::new("python3");
    command.args(["-B", client]).arg(socket(&book)).stdin(Stdio::null());
    command.args(["order-4", "address", r#"{"city":"Bern"}"#]);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said: Vec<&str> = ran.stdout.lines().collect();
    let threads = ["order-1 done", "order-2 waiting", "order-3 waiting", "order-4 waiting"];
    assert_eq!(said[..4], threads);
    assert_eq!(said[4..], ["other running", "stored"]);
    let remote = block_on(Remote::connect(book.path())).unwrap();
    let inbox = block_on(remote.inbox(&ThreadId::new("order-4").unwrap())).unwrap();
    assert_eq!((&*inbox[0].name, &*inbox[0].by), ("address", "svc:python"));
    assert_eq!(*inbox[0].body, *msgpack(r#"{"city":"Bern"}"#));
    let listed = block_on(remote.list(&Filter::default(), None, 9)).unwrap();
    assert_eq!(listed.items.iter().filter(|info| info.inbox == 1).count(), 1);
}
