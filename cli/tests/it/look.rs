//! Looking: lists, stories, odd ids, unsafe characters, journals that are none.

use deedbook_journal::{policy::Policy, row::Status};

use super::book::{Book, done, end, intent, request};

const EVIL: &str = "a\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\r\u{9b}1m\u{202e}\u{200b}\u{7f}\n../../x";

/// Whether a terminal could act on any character but a line's end.
fn is_safe(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !(c.is_control() || "\u{202e}\u{200b}".contains(c)))
}

fn sample() -> Book {
    let book = Book::new();
    let paid = vec![intent("pay", Policy::Idempotent), done(1, r#"{"id":"r_1"}"#), end("done")];
    book.thread("order-1", Status::Done, paid);
    book.thread("order-2", Status::Waiting, vec![request("big", r#"{"amount":99}"#)]);
    book.thread("other", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
    book
}

#[test]
fn threads_are_listed_and_filtered() {
    let book = sample();
    let table = book.ok(&["threads"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(lines[0].starts_with("THREAD"));
    assert!(lines[3].starts_with("other    in doubt  "), "{table}");
    let ids = |args: &[&str]| -> Vec<String> {
        let objects = book.json(&[&["threads"], args].concat());
        objects.iter().map(|o| o["thread"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&["--status", "done"]), ["order-1"]);
    assert_eq!(ids(&["--status", "done", "--status", "waiting"]), ["order-1", "order-2"]);
    assert_eq!(ids(&["--status", "in-doubt"]), ["other"]);
    assert_eq!(ids(&["--status", "running"]), [""; 0]);
    assert_eq!(ids(&["--prefix", "order"]), ["order-1", "order-2"]);
    assert_eq!(ids(&["--workflow", "nope"]), [""; 0]);
    assert_eq!(ids(&["--limit", "1"]), ["order-1"]);
    assert_eq!(ids(&["--since", "2500-01-01"]), [""; 0]);
    assert_eq!(ids(&["--until", "2500-01-01"]).len(), 3);
    assert_eq!(book.run(&["threads", "--status", "nope"]).code, 2);
    assert_eq!(book.run(&["threads", "--since", "yesterday"]).code, 2);
}

#[test]
fn a_story_says_what_happened() {
    let book = sample();
    let story = book.ok(&["show", "order-1"]);
    for part in [
        "workflow refund begins by worker:1, build v1",
        "step pay#0: attempt 1 begins (idempotent, key dk1_0123)",
        "step pay#0: executed, done after",
        "the thread ends: done",
    ] {
        assert!(story.contains(part), "{part}: {story}");
    }
    assert!(!story.contains("r_1"), "payloads only when asked for: {story}");
    assert!(book.ok(&["show", "order-1", "--payloads"]).contains(r#"result  {"id":"r_1"}"#));
    let story = book.ok(&["show", "order-2"]);
    assert!(story.contains("approval big#0 is open since"), "{story}");
    assert!(story.contains(r#"shown       {"amount":99}"#), "{story}");
    assert!(story.contains("deedbook approve -- order-2 big#0"), "{story}");
    let story = book.ok(&["show", "other"]);
    assert!(story.contains("step pay#0 is in doubt"), "{story}");
    let object = book.json(&["show", "other", "--payloads"]).remove(0);
    assert_eq!(object["v"], 1);
    assert_eq!(object["doubts"][0]["step"], "pay#0");
    assert_eq!(object["records"][1]["payloads"]["args"]["amount"], 4200);
    assert_eq!(object["records"][1]["rec"]["k"], "step.intent");
    let ran = book.run(&["show", "order"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("there is no thread order;"), "{}", ran.stderr);
}

#[test]
fn the_printed_commands_can_be_run() {
    let book = Book::new();
    book.thread("-odd 'id'", Status::Running, vec![intent("pay\u{1b}", Policy::AtMostOnce)]);
    let object = book.json(&["doubts"]).remove(0);
    let command = object["settle"][1].as_str().unwrap();
    let binary = env!("CARGO_BIN_EXE_deedbook");
    let script = command.replacen("deedbook", binary, 1).replace("WHY", "seen");
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .env("DEEDBOOK_JOURNAL", book.path())
        .env("USER", "alice")
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(book.run(&["doubts"]).code, 0);
}

#[test]
fn s69_nothing_from_a_journal_reaches_the_terminal_raw() {
    let book = Book::new();
    let text = serde_json::to_string(EVIL).unwrap();
    let drafts = vec![
        intent(EVIL, Policy::AtMostOnce).with(|h| h.key = Some(EVIL.into())),
        request(EVIL, &text),
    ];
    book.thread(EVIL, Status::Running, drafts);
    fn act<'a>(args: &[&'a str]) -> Vec<&'a str> {
        [args, &["--", EVIL]].concat()
    }
    let run = |args: &[&str]| {
        let ran = book.run(args);
        assert!(is_safe(&ran.stdout), "{args:?}: {:?}", ran.stdout);
        assert!(is_safe(&ran.stderr), "{args:?}: {:?}", ran.stderr);
        ran
    };
    for json in [&[][..], &["--json"]] {
        for args in [
            vec!["threads"],
            act(&["show", "--payloads"]),
            vec!["doubts"],
            vec!["export"],
            vec!["verify"],
            vec!["show", "\u{1b}[2Jmissing"],
            vec!["signal", EVIL, EVIL, EVIL],
            vec!["approve", EVIL, "\u{1b}x"],
            vec!["resolve", EVIL, "\u{1b}x", "--did-not-happen", "--reason", "x"],
            vec!["nonsense\u{1b}[2J"],
            vec!["threads", "--status", "\u{1b}[2J\u{202e}"],
        ] {
            run(&[json, &args].concat());
        }
    }
    // What was shown can be typed again.
    let shown = book.json(&act(&["show"])).remove(0);
    assert_eq!(shown["thread"], EVIL);
    let step = shown["doubts"][0]["step"].as_str().unwrap();
    assert!(step.contains('\u{1b}'));
    run(&["approve", EVIL, "--reason", EVIL, "--by", EVIL]);
    assert_eq!(run(&["resolve", EVIL, step, "--failed", EVIL, "--reason", EVIL]).code, 0);
    assert_eq!(run(&act(&["show", "--payloads"])).code, 0);
    assert_eq!(run(&["cancel", EVIL, "--reason", EVIL]).code, 0);
    assert_eq!(run(&act(&["verify"])).code, 0);
}

#[test]
fn s19_odd_ids_round_trip_and_make_no_files() {
    let book = Book::new();
    let long = "x".repeat(512);
    let ids = ["../../x", "/etc/passwd", "..", "con", "\n", "\u{202e}", "🙂", "%2e%2e", " ", &long];
    for id in ids {
        book.thread(id, Status::Waiting, vec![]);
    }
    let mut listed: Vec<String> =
        book.json(&["threads"]).iter().map(|o| o["thread"].as_str().unwrap().to_owned()).collect();
    let mut wanted = ids.map(str::to_owned).to_vec();
    wanted.sort();
    listed.sort();
    assert_eq!(listed, wanted);
    for id in ids {
        assert_eq!(book.json(&["show", "--", id])[0]["thread"], id);
        book.ok(&["export", "--", id]);
        book.ok(&["signal", "--", id, "s", "1"]);
    }
    let files: Vec<_> = std::fs::read_dir(book.dir()).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(book.run(&["show", ""]).code, 2);
    assert_eq!(book.run(&["show", &"x".repeat(10_000)]).code, 2);
}

#[test]
fn looking_leaves_the_journal_as_it_was() {
    let book = sample();
    let before = book.bytes();
    for args in [
        &["threads"][..],
        &["show", "order-1", "--payloads"],
        &["doubts"],
        &["export"],
        &["verify"],
        &["verify", "order-1"],
        &["key", "--thread", "t", "--step", "pay"],
        &["approve", "order-1"],
        &["signal", "order-1", "s", "1"],
        &["resolve", "order-1", "pay#0", "--did-not-happen", "--reason", "x"],
    ] {
        book.run(args);
        assert!(book.bytes() == before, "{args:?} changed the journal");
    }
}

#[test]
fn init_makes_a_journal_once_and_nothing_else_makes_one() {
    let book = Book::none();
    for args in [&["threads"][..], &["show", "t"], &["verify"], &["export"], &["doubts"]] {
        let ran = book.run(args);
        assert_eq!(ran.code, 1, "{args:?}");
        assert!(ran.stderr.contains("deedbook init"), "{}", ran.stderr);
        assert!(!book.path().exists());
    }
    let namespace = "07".repeat(16);
    let made = book.ok(&["init", "--namespace", &namespace]);
    assert!(made.contains(&namespace), "{made}");
    assert_eq!(book.ok(&["threads"]), "");
    assert_eq!(book.ok(&["threads", "--json"]), "");
    let before = book.bytes();
    let ran = book.run(&["init"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("already"), "{}", ran.stderr);
    assert!(book.bytes() == before);
    assert_eq!(book.run(&["init", "--namespace", "xyz"]).code, 2);
    let other = book.file("other.deedbook");
    let object = book.json(&["init", "--journal", other.to_str().unwrap()]).remove(0);
    assert_eq!(object["namespace"].as_str().unwrap().len(), 32);
    let nowhere = book.command().env_remove("DEEDBOOK_JOURNAL").arg("threads").output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("--journal FILE"));
}

#[test]
fn s80_what_is_no_journal_is_refused_and_left_alone() {
    let book = sample();
    let whole = book.bytes();
    let mut sqlite = b"SQLite format 3\0".to_vec();
    sqlite.resize(4096, 0);
    let mut files = vec![
        ("text", b"hello, this is a text file\n".repeat(100)),
        ("empty", Vec::new()),
        ("sqlite", sqlite),
    ];
    for (name, part) in [("cut10", 10), ("cut50", 50), ("cut90", 90)] {
        files.push((name, whole[..whole.len() * part / 100].to_vec()));
    }
    files.push(("cut1", whole[..whole.len() - 1].to_vec()));
    for (name, bytes) in files {
        let path = book.file(name);
        std::fs::write(&path, &bytes).unwrap();
        let path = path.to_str().unwrap();
        for args in [&["threads"][..], &["verify"], &["signal", "t", "s", "1"], &["init"]] {
            let ran = book.run(&[&["--journal", path], args].concat());
            assert_eq!(ran.code, 1, "{name} {args:?}: {}", ran.stdout);
            assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
            assert!(std::fs::read(path).unwrap() == bytes, "{name} {args:?} changed it");
        }
    }
    let ran = book.run(&["--journal", book.dir().to_str().unwrap(), "threads"]);
    assert_eq!(ran.code, 1, "a folder: {}", ran.stderr);
}

#[test]
fn s51_a_journal_in_use_is_named_with_its_holder() {
    let book = sample();
    let home = book.home();
    for args in [
        &["threads"][..],
        &["show", "order-1"],
        &["verify"],
        &["export"],
        &["cancel", "other", "--reason", "x"],
    ] {
        let ran = book.run(args);
        assert_eq!(ran.code, 5, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("in use by"), "{}", ran.stderr);
        let pid = std::process::id().to_string();
        assert!(ran.stderr.contains(&pid), "{}", ran.stderr);
    }
    let ran = book.run(&["--json", "threads"]);
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!((ran.code, &error["error"]["exit"]), (5, &serde_json::json!(5)));
    drop(home);
    book.ok(&["verify"]);
}

#[test]
fn s51_of_twenty_that_make_a_journal_one_does() {
    let book = Book::none();
    let children: Vec<_> = (0..20)
        .map(|_| {
            let mut command = book.command();
            command.arg("init").stdout(std::process::Stdio::null());
            command.stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let codes: Vec<_> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
            output.status.code().unwrap()
        })
        .collect();
    assert_eq!(codes.iter().filter(|c| **c == 0).count(), 1, "{codes:?}");
    book.ok(&["verify"]);
    assert_eq!(std::fs::read_dir(book.dir()).unwrap().count(), 1);
}
