//! Exports: exact, readable, complete or not there.

use deedbook_journal::{policy::Policy, row::Status};
use serde_json::Value;

use super::book::{Book, done, end, intent, request};

fn sample() -> Book {
    let book = Book::new();
    let odd = r#"{"big":{"$int":"18446744073709551615"},"bytes":{"$bytes":"AP8="},"f":1.5}"#;
    book.thread(
        "a",
        Status::Done,
        vec![intent("pay", Policy::Idempotent), done(1, odd), end("done")],
    );
    book.thread("b\u{202e}", Status::Waiting, vec![request("ask", "\"\\u0000\"")]);
    book
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn an_export_holds_every_record_in_order_and_verifies() {
    let book = sample();
    let text = book.ok(&["export"]);
    let lines = lines(&text);
    assert_eq!(lines[0]["export"]["v"], 1);
    let end = &lines.last().unwrap()["end"];
    let records: Vec<&Value> = lines.iter().filter(|l| l.get("rec").is_some()).collect();
    assert_eq!(end["records"], records.len());
    assert_eq!(end["records"], 6);
    assert_eq!(end["threads"], 2);
    assert_eq!(end["kinds"]["thread.start"], 2);
    assert_eq!(records[2]["pay"]["result"]["view"]["big"]["$int"], "18446744073709551615");
    assert_eq!(records[1]["prev"], records[0]["hash"]);
    assert_eq!(records[0].get("prev"), None);
    let leaves: Vec<u64> = records.iter().map(|r| r["leaf"].as_u64().unwrap()).collect();
    assert_eq!(leaves, [0, 1, 2, 3, 4, 5]);
    std::fs::write(book.file("x.jsonl"), &text).unwrap();
    let said = book.ok(&["verify", "--export", "x.jsonl"]);
    assert!(said.contains("export: 6 records of 2 threads"), "{said}");
    assert!(said.contains("unsigned: this detects accidents, not a rewrite"), "{said}");
    let one = book.ok(&["export", "a"]);
    std::fs::write(book.file("one.jsonl"), &one).unwrap();
    assert!(!one.contains("\"leaf\""));
    let said = book.ok(&["verify", "--export", "one.jsonl"]);
    assert!(said.contains("4 records of 1 thread, 4 payloads\n"), "{said}");
    assert!(said.contains("not checked: the order among other threads"), "{said}");
    assert!(!said.contains("erased"), "nothing was: {said}");
}

#[test]
fn changed_exports_are_found() {
    let book = sample();
    let text = book.ok(&["export"]);
    let lines: Vec<&str> = text.lines().collect();
    let join = |lines: &[&str]| lines.iter().map(|l| format!("{l}\n")).collect::<String>();
    let without = |n: usize| {
        let mut kept = lines.clone();
        kept.remove(n);
        join(&kept)
    };
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    let mut doubled = lines.clone();
    doubled.insert(2, lines[2]);
    // The end of one thread and the beginning of another: each chain is as it was.
    let mut across = lines.clone();
    across.swap(4, 5);
    let salt = "\"salt\":\"03";
    let changes = [
        ("a header's field", text.replacen("\"wf\":\"refund\"", "\"wf\":\"refuse\"", 1)),
        ("a view", text.replacen("\"view\":{\"amount\":4200}", "\"view\":{\"amount\":42}", 1)),
        (
            "a doubled member",
            text.replacen("{\"amount\":4200}", "{\"amount\":1,\"amount\":4200}", 1),
        ),
        ("a salt", text.replacen(salt, "\"salt\":\"04", 1)),
        (
            "a doubled field of a header",
            text.replacen("\"wf\":\"refund\"", "\"wf\":\"x\",\"wf\":\"refund\"", 1),
        ),
        ("a removed record", without(2)),
        ("a removed last record", without(lines.len() - 2)),
        ("a removed end", without(lines.len() - 1)),
        ("swapped records", join(&swapped)),
        ("another order of the threads", join(&across)),
        ("a place of the log left out", text.replacen(",\"leaf\":2,", ",", 1)),
        ("another place of the log", text.replacen(",\"leaf\":5,", ",\"leaf\":6,", 1)),
        ("a doubled record", join(&doubled)),
        ("a cut line", text[..text.len() / 2].to_owned()),
        ("a line behind the end", format!("{text}{{}}\n")),
    ];
    for (what, changed) in changes {
        assert_ne!(changed, text, "{what}");
        std::fs::write(book.file("x.jsonl"), changed).unwrap();
        let ran = book.run(&["verify", "--export", "x.jsonl"]);
        assert_eq!(ran.code, 3, "{what}: {}{}", ran.stdout, ran.stderr);
    }
    let swapped = "x.jsonl";
    std::fs::write(book.file(swapped), join(&across)).unwrap();
    let ran = book.run(&["verify", "--export", swapped]);
    assert!(ran.stdout.contains("line 5 has place 4 of the log where 3 must stand"), "{ran:?}");
    // An export of one thread has no places, and nobody would check them.
    let one = book.ok(&["export", "a"]).replacen(",\"pay\":", ",\"leaf\":0,\"pay\":", 1);
    std::fs::write(book.file("x.jsonl"), one).unwrap();
    assert_eq!(book.run(&["verify", "--export", "x.jsonl"]).code, 3);
    assert_eq!(book.run(&["verify", "--export", "missing.jsonl"]).code, 1);
    // Another spelling of the same values is the same export.
    let spelled = text.replace("{\"amount\":4200}", "{ \"amount\": 4200 }");
    std::fs::write(book.file("x.jsonl"), spelled).unwrap();
    book.ok(&["verify", "--export", "x.jsonl"]);
}

/// It ended with 1, as if the file could not have been read at all.
#[test]
fn a_first_line_that_is_damaged_does_not_verify() {
    let book = sample();
    let text = book.ok(&["export"]);
    let (first, rest) = text.split_once('\n').unwrap();
    let log_id = &serde_json::from_str::<Value>(first).unwrap()["export"]["log_id"];
    let log_id = log_id.as_str().unwrap();
    for (what, first) in [
        ("nothing", String::new()),
        ("another object", "{}".into()),
        ("cut", first[..first.len() / 2].into()),
        ("no JSON", first.replacen('{', "", 1)),
        ("bytes", "\u{1b}[2J\u{0}".into()),
        ("a member more", first.replacen("{\"v\"", "{\"extra\":\"lie\",\"v\"", 1)),
        ("a member twice", first.replacen("{\"v\":1", "{\"v\":1,\"v\":1", 1)),
        ("a log id cut", first.replacen(log_id, &log_id[2..], 1)),
        ("another log id", first.replacen(log_id, &"00".repeat(16), 1)),
        ("a version of another type", first.replacen("{\"v\":1", "{\"v\":\"1\"", 1)),
    ] {
        std::fs::write(book.file("x.jsonl"), format!("{first}\n{rest}")).unwrap();
        let ran = book.run(&["verify", "--export", "x.jsonl"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (3, ""), "{what}: {}", ran.stdout);
        let ran = book.json(&["verify", "--export", "x.jsonl"]).remove(0);
        assert_eq!(ran["ok"], false, "{what}");
    }
    // A newer one is not damaged: this build cannot tell.
    let newer = first.replacen("{\"v\":1", "{\"new\":1,\"v\":2", 1);
    std::fs::write(book.file("x.jsonl"), format!("{newer}\n{rest}")).unwrap();
    let ran = book.run(&["verify", "--export", "x.jsonl"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("use a newer build"), "{}", ran.stderr);
}

#[test]
fn deep_values_are_exported_and_verified() {
    let book = Book::new();
    let deep = format!("{}1{}", "{\"$map\":[[1,".repeat(60), "]]}".repeat(60));
    book.thread("t", Status::Waiting, vec![request("ask", &deep)]);
    book.ok(&["export", "-o", "x.jsonl"]);
    book.ok(&["verify", "--export", "x.jsonl"]);
    assert!(book.ok(&["approve", "t"]).contains(&deep));
}

#[test]
fn an_export_takes_the_place_of_regular_files_only() {
    let book = sample();
    let device = book.file("device");
    let _held = std::os::unix::net::UnixListener::bind(&device).unwrap();
    std::os::unix::fs::symlink("elsewhere", book.file("link")).unwrap();
    for name in ["device", "link"] {
        let ran = book.run(&["export", "-o", name, "--force"]);
        assert_eq!(ran.code, 1, "{name}");
        let there = std::fs::symlink_metadata(book.file(name)).unwrap();
        assert!(!there.is_file(), "{name} is still what it was");
    }
}

#[test]
fn s72_an_export_gets_its_name_when_it_is_complete() {
    let book = sample();
    book.ok(&["export", "-o", "x.jsonl"]);
    let first = std::fs::read(book.file("x.jsonl")).unwrap();
    let ran = book.run(&["export", "-o", "x.jsonl"]);
    assert_eq!(ran.code, 1, "an export never replaces a file by itself");
    assert!(std::fs::read(book.file("x.jsonl")).unwrap() == first);
    book.ok(&["export", "-o", "x.jsonl", "--force"]);
    let before = book.bytes();
    let journal = book.path();
    let log = format!("{}-log0", journal.to_str().unwrap());
    let ran = book.run(&["export", "-o", &log, "--force"]);
    assert_eq!(ran.code, 1, "a name that the journal's log needs");
    let ran = book.run(&["export", "-o", journal.to_str().unwrap(), "--force"]);
    assert_eq!(ran.code, 1);
    assert!(book.bytes() == before);
    assert_eq!(book.run(&["export", "missing", "-o", "y.jsonl"]).code, 1);
    assert_eq!(book.run(&["export", "-o", "no/such/folder/y"]).code, 1);
    assert_eq!(book.names(), ["book.deedbook", "x.jsonl"], "nothing is left behind");
}

#[test]
fn s72_damage_fails_the_export_and_names_the_record() {
    let book = Book::new();
    for id in 0..50 {
        let shown = format!("\"canary-{id:04}-{}\"", "x".repeat(200));
        book.thread(&format!("t{id:02}"), Status::Waiting, vec![request("ask", &shown)]);
    }
    let mut bytes = book.bytes();
    let at = bytes.windows(11).position(|w| w == b"canary-0033").unwrap();
    bytes[at + 3] ^= 1;
    std::fs::write(book.path(), &bytes).unwrap();
    for args in [&["export"][..], &["export", "-o", "x.jsonl"]] {
        let ran = book.run(args);
        assert_eq!(ran.code, 1, "{args:?}");
        assert!(ran.stderr.contains("t33"), "{}", ran.stderr);
        assert!(!ran.stdout.contains("\"end\""));
    }
    assert_eq!(book.names(), ["book.deedbook"]);
    let ran = book.run(&["verify"]);
    assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("record 1 of thread t33"), "{}", ran.stdout);
    assert_eq!(book.run(&["verify", "t33"]).code, 3);
    // Nor do other threads hide behind it: doubts of the rest are told, and that one was not read.
    book.thread("u", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
    let ran = book.run(&["doubts"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("u  pay#0") && ran.stderr.contains("t33"), "{}", ran.stderr);
    book.ok(&["verify", "t34"]);
}

#[test]
fn s72_ten_thousand_records_are_exported_in_order_or_not_at_all() {
    let book = Book::new();
    for id in 0..10 {
        let steps = (0..500).flat_map(|n| {
            let name = format!("step-{n}");
            [intent(&name, Policy::Read), done(1 + 2 * n, "1")]
        });
        book.thread(&format!("t{id}"), Status::Running, steps.collect());
    }
    let text = book.ok(&["export"]);
    let records = text.lines().filter(|l| l.starts_with("{\"rec\":")).count();
    assert_eq!(records, 10 * 1001);
    assert_eq!(text.lines().count(), records + 2);
    assert!(text.lines().last().unwrap().contains(&format!("\"records\":{records}")));
    // Killed on the way: nothing has the final name.
    let mut child = book.command().args(["export", "-o", "x.jsonl"]).spawn().unwrap();
    let part = book.file(&format!(".x.jsonl.{}.part", child.id()));
    while std::fs::metadata(&part).map_or(0, |m| m.len()) < 1 << 20 {
        assert!(child.try_wait().unwrap().is_none(), "it was faster than this test");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!book.file("x.jsonl").exists());
    book.ok(&["export", "-o", "x.jsonl"]);
    assert!(book.ok(&["verify", "--export", "x.jsonl"]).contains("10010 records of 10 threads"));
}
