//! Looking: lists, stories, odd ids, unsafe characters, journals that are none.

use std::process::{Command, Stdio};

use deedbook_journal::{policy::Policy, row::Status};

use super::book::{Book, Ran, done, end, intent, request};

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
    assert_eq!(ids(&["--status", "ready"]), [""; 0], "it died with a doubt");
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
    // With a name, and where the system tells none: then they have a place for it.
    for (n, user) in [(0, Some("alice")), (1, None), (2, Some(""))] {
        let book = Book::new();
        let step = intent("pay\u{1b}", Policy::AtMostOnce);
        book.thread("-odd 'id'", Status::Running, vec![step, request("ask", "1")]);
        let tool = |args: &[&str]| {
            let mut command = book.command();
            match user {
                Some(user) => command.env("USER", user),
                None => command.env_remove("USER"),
            };
            String::from_utf8(command.args(args).output().unwrap().stdout).unwrap()
        };
        let doubt: serde_json::Value = serde_json::from_str(&tool(&["doubts", "--json"])).unwrap();
        let shown = tool(&["show", "--", "-odd 'id'"]);
        let approve = shown.lines().find(|line| line.contains(" approve ")).unwrap();
        let settle = doubt["settle"][n].as_str().unwrap();
        for command in [settle, approve.trim_start()] {
            let script = command.replacen("deedbook", env!("CARGO_BIN_EXE_deedbook"), 1);
            assert_eq!(script.contains(" --by YOU "), user != Some("alice"), "{script}");
            let output = Command::new("sh")
                .args(["-c", &script.replace("WHY", "seen").replace("JSON", "1")])
                .env("DEEDBOOK_JOURNAL", book.path())
                .env("USER", user.unwrap_or_default())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{script}: {said}");
        }
        assert_eq!(book.run(&["doubts"]).code, 0);
    }
}

/// One that is stopped for another reason had its doubts out of sight: its code does not go on
/// before somebody changes it, and the effect may have happened all the same.
#[test]
fn doubts_of_threads_that_are_stopped_are_found() {
    let book = sample();
    let pay = || vec![intent("pay", Policy::AtMostOnce)];
    for (id, status) in [("stalled", Status::Stalled), ("diverged", Status::Diverged)] {
        book.thread_with(id, pay(), |row| {
            row.status = status;
            row.detail = Some("because".into());
        });
    }
    book.thread("calm", Status::Stalled, vec![]);
    book.thread_with("over", pay(), |row| {
        row.status = Status::Sleeping;
        row.detail = Some("timer nap#0".into());
    });
    let ids: Vec<String> = book
        .json(&["threads", "--status", "in-doubt"])
        .iter()
        .map(|o| format!("{}: {}", o["thread"].as_str().unwrap(), o["open_doubts"]))
        .collect();
    assert_eq!(ids, ["diverged: 1", "other: 1", "over: 1", "stalled: 1"]);
    assert_eq!(book.json(&["threads", "--status", "stalled"]).len(), 2);
    let table = book.ok(&["threads"]);
    assert_eq!(table.matches("  1 open doubt; because\n").count(), 2, "{table}");
    let shown = book.ok(&["show", "stalled"]);
    assert!(shown.contains("detail    1 open doubt; because\n"), "{shown}");
    assert!(shown.contains("step pay#0 is in doubt"), "{shown}");
}

/// Only some shells know `$'..'`, which the hint for a path with such characters was.
#[test]
fn the_hint_for_a_journal_that_is_missing_works_in_every_shell() {
    use std::os::unix::ffi::OsStrExt;
    let book = Book::none();
    let names = [&b"a b'.deedbook"[..], b"\x1b[2J%s.deedbook", b"\xff\t\\.deedbook", b"-x\n!y"];
    for name in names {
        let path = book.dir().join(std::ffi::OsStr::from_bytes(name));
        let mut command = book.command();
        let output = command.env("DEEDBOOK_JOURNAL", &path).arg("threads").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let hint = said.split('`').nth(1).unwrap();
        assert!(is_safe(&said) && hint.starts_with("deedbook init --journal "), "{said}");
        let script = hint.replacen("deedbook", env!("CARGO_BIN_EXE_deedbook"), 1);
        for shell in ["dash", "bash", "sh"] {
            let made = Command::new(shell).args(["-c", &script]).output();
            let Ok(made) = made else { continue };
            assert!(made.status.success(), "{script}: {}", String::from_utf8_lossy(&made.stderr));
            std::fs::remove_file(&path).unwrap();
        }
    }
    let output = book.command().env("DEEDBOOK_JOURNAL", "x\n").arg("threads").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("; `deedbook init` makes one\n"), "{said}");
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
    assert_eq!(book.names(), ["book.deedbook"]);
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
            command.arg("init").stdout(Stdio::null());
            command.stderr(Stdio::piped()).spawn().unwrap()
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

#[test]
fn a_list_with_nothing_in_it_says_so_to_a_person() {
    let book = Book::new();
    for (args, exit, said) in [
        (&["threads"][..], 0, "no threads of workflows; `--all` shows Deedbook's own"),
        (&["threads", "--all"], 0, "no threads: nothing has run"),
        (&["threads", "--prefix", "a"], 0, "no threads that are as asked"),
        (&["doubts"], 0, "no open doubts"),
        (&["steps"], 1, "no guarded steps: nothing was called"),
        (&["steps", "pay"], 1, "no guarded steps that are as asked"),
    ] {
        let seen = on_a_terminal(&book, args);
        assert_eq!(seen.code, exit, "{args:?}");
        assert!(seen.stdout.starts_with(said), "{args:?}: {}", seen.stdout);
        for more in [&[][..], &["--json"]] {
            let ran = book.run(&[args, more].concat());
            let streams = (ran.stdout.as_str(), ran.stderr.as_str());
            assert_eq!((ran.code, streams), (exit, ("", "")), "no person, no note");
        }
    }
}

/// A run whose streams are a terminal: both are in its output.
fn on_a_terminal(book: &Book, args: &[&str]) -> Ran {
    let tool = book.command();
    let mut script = Command::new("script");
    script.current_dir(book.dir());
    script.envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let line = format!("{} {}", tool.get_program().to_str().unwrap(), args.join(" "));
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    Ran::of(script.output().unwrap())
}
