//! `call`, `steps`, `reset`, `guards`, `explain`: real programs as steps, real kills, many
//! processes at once.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::ExitStatusExt,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use deedbook_journal::{embedded::Embedded, policy::Policy, row::Status};
use serde_json::{Value, json};

use super::book::{Book, Ran, done, intent};

/// Calls a shell script as a step of this name within `ORD-42`.
fn call(book: &Book, options: &[&str], script: &str) -> Ran {
    let mut args = vec!["call", "charge", "--thread", "ORD-42"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    book.run(&args)
}

/// How often the world outside was changed.
fn effects(book: &Book) -> usize {
    fs::read_to_string(book.file("ledger")).map_or(0, |ledger| ledger.lines().count())
}

const EFFECT: &str = "echo $DEEDBOOK_OPERATION_KEY >> ledger";

/// Calls again until nobody is at it any more.
fn call_later(book: &Book, options: &[&str], script: &str) -> Ran {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let ran = call(book, options, script);
        if ran.code != 5 || Instant::now() > until {
            return ran;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn i01_any_program_is_a_step() {
    let book = Book::new();
    let policy = ["--policy", "idempotent", "--args", r#"{"cents":4200}"#];
    let script = "echo ran >> ledger; read -r input; \
                  printf '%s %s ' \"$input\" $DEEDBOOK_ATTEMPT; \
                  printf '%s %s' $DEEDBOOK_THREAD $DEEDBOOK_STEP";
    for _ in 0..3 {
        let ran = call(&book, &policy, &format!("{script}; true"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        assert_eq!(ran.stdout, r#"{"cents":4200} 1 ORD-42 charge"#);
    }
    assert_eq!(effects(&book), 1);
    // JSON is JSON, and numbers are compared by value.
    let again = call(&book, &["--policy", "idempotent", "--args", r#"{"cents":4.2e3}"#], "false");
    assert_eq!(again.code, 0, "{}", again.stderr);
    let ran = call(&book, &["--policy", "read", "--key", "k"], r#"echo '{"id": 7}'"#);
    assert_eq!(ran.stdout, "{\"id\":7}\n");
    let told = book.json(&[
        "call", "charge", "--thread", "ORD-42", "--policy", "read", "--key", "k", "--", "false",
    ]);
    assert_eq!(told[0]["replayed"], true);
    assert_eq!(told[0]["result"], json!({"id": 7}));
}

#[test]
fn exit_statuses_say_what_is_known() {
    let book = Book::new();
    let known = ["--terminal-exit", "3,4", "--not-applied-exit", "75"];
    let with = |key: &'static str, policy: &'static str| {
        [&["--policy", policy, "--key", key], &known[..]].concat()
    };
    // Certainly without an effect: the next call tries again.
    for attempt in ["1", "2"] {
        let script = format!("test $DEEDBOOK_ATTEMPT = {attempt} && exit 75");
        let ran = call(&book, &with("a", "at-most-once"), &script);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("tries again"), "{}", ran.stderr);
    }
    // For good.
    for script in ["exit 3", "exit 0"] {
        let ran = call(&book, &with("a", "at-most-once"), script);
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains("failed for good: sh: exit status 3"), "{}", ran.stderr);
    }
    // Nobody knows.
    for script in ["exit 9", "exit 0"] {
        let ran = call(&book, &with("b", "at-most-once"), script);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
    }
    let doubts = book.run(&["doubts"]);
    assert_eq!(doubts.code, 4);
    assert!(doubts.stdout.contains("charge=b"), "{}", doubts.stdout);
    // A program that is not there has certainly done nothing.
    let ran = book.run(&[
        "call",
        "x",
        "--thread",
        "t",
        "--policy",
        "at-most-once",
        "--",
        "./no-such-program",
    ]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("cannot be started"), "{}", ran.stderr);
    // Time is up.
    let ran =
        call(&book, &[&with("c", "at-most-once")[..], &["--timeout", "200ms"]].concat(), "sleep 9");
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    // What was written is more than may be recorded: it happened all the same.
    for _ in 0..2 {
        let options = [&with("d", "at-most-once")[..], &["--result-max", "10"]].concat();
        let ran = call(&book, &options, "echo ran >> ledger; echo 12345678901");
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains("it happened"), "{}", ran.stderr);
    }
    assert_eq!(effects(&book), 1);
}

#[test]
fn a_program_is_given_what_is_recorded_and_is_done_when_it_ends() {
    let book = Book::new();
    // Standard input and files are read once, and passed on whole.
    let mut command = book.command();
    command.args(["call", "s", "--thread", "t", "--policy", "at-most-once", "--args", "-"]);
    command.args(["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"{\"n\":1}").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"{\"n\":1}\n");
    fs::write(book.file("big"), format!("{:?}", "x".repeat(1_000_000))).unwrap();
    let big = ["--policy", "at-most-once", "--args", "@big"];
    let ran = call(&book, &big, "exec >&-; sleep 0.3; cat > got");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(fs::read(book.file("got")).unwrap(), fs::read(book.file("big")).unwrap());
    // What it leaves behind may keep its output open.
    let since = Instant::now();
    let ran = call(&book, &["--policy", "at-most-once", "--key", "d"], "sleep 30 2>&- & echo done");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done\n"), "{}", ran.stderr);
    assert!(since.elapsed() < Duration::from_secs(20));
    // Its time is that of all that it does.
    let script = "sleep 1.2; exec >&-; sleep 1.2";
    let options = ["--policy", "at-most-once", "--key", "e", "--timeout", "2s"];
    assert_eq!(call(&book, &options, script).code, 4);
    let ages = ["--policy", "read", "--key", "f", "--timeout", "18446744073709551615s"];
    assert_eq!(call(&book, &ages, "echo 1").code, 0);
}

#[test]
fn a_caller_who_wants_more_care_than_is_recorded_is_told_so() {
    let book = Book::new();
    call(&book, &["--policy", "read", "--key", "k"], "exit 9");
    for policy in ["idempotent", "at-most-once"] {
        let ran = call(&book, &["--policy", policy, "--key", "k"], EFFECT);
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains("recorded under `read`"), "{}", ran.stderr);
    }
    call(&book, &["--policy", "idempotent", "--key", "l"], "exit 9");
    let ran = call(&book, &["--policy", "at-most-once", "--key", "l"], EFFECT);
    assert!(ran.stderr.contains("recorded under `idempotent`"), "{}", ran.stderr);
    assert_eq!(effects(&book), 0);
}

#[test]
fn an_owner_keeps_nothing_of_whoever_started_it() {
    let book = Book::new();
    let lock = book.file("lock");
    let script = "exec 3> lock; flock 3; \"$DEEDBOOK\" call x --thread t --policy read -- echo 1";
    let mut command = std::process::Command::new("bash");
    command.args(["-c", script]).env("DEEDBOOK", env!("CARGO_BIN_EXE_deedbook"));
    command.env("DEEDBOOK_JOURNAL", book.path()).current_dir(book.dir());
    assert_eq!(command.output().unwrap().stdout, b"1\n");
    let mut free = std::process::Command::new("flock");
    free.arg("--nonblock").arg(&lock).arg("true");
    assert!(free.status().unwrap().success(), "the lock is let go with the command");
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_runs() {
    let book = Book::new();
    for (options, part) in [
        (&[][..], "say what may happen after a crash"),
        (&["--policy", "reconcile"][..], "--reconcile-cmd"),
        (&["--policy", "read", "--reconcile-cmd", "true"][..], "asks with"),
        (&["--policy", "read", "--honoured-for", "1h"][..], "belongs to"),
        (&["--policy", "at-most-once", "--take-over"][..], "cannot be taken over"),
        (&["--policy", "read", "--args", "{"][..], "JSON"),
        (&["--policy", "read", "--key", ""][..], "empty"),
        (&["--policy", "read", "--scope", "journal"][..], "either within which thread"),
        (&["--policy", "read", "--terminal-exit", "0"][..], "says that it is done"),
    ] {
        let ran = call(&book, options, EFFECT);
        assert!([1, 2].contains(&ran.code), "{options:?}: {}", ran.code);
        assert!(ran.stderr.contains(part), "{options:?}: {}", ran.stderr);
    }
    let ran = book.run(&["call", "charge", "--policy", "read", "--", "sh", "-c", EFFECT]);
    assert_eq!(ran.code, 2, "a missing scope is an error: {}", ran.stderr);
    assert_eq!(effects(&book), 0);
}

/// The program kills the tool at a place, and goes on or not.
fn killed(book: &Book, options: &[&str], script: &str) {
    let mut args = vec!["call", "charge", "--thread", "ORD-42", "--lease", "300ms"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    let status = book.command().args(&args).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.signal(), Some(9), "{status}");
}

#[test]
fn b11_a_kill_at_every_place_leaves_what_the_policy_says() {
    let places = [
        ("inside the body, before the effect", "kill -9 $PPID; exit 1".to_owned(), 0),
        ("inside the body, after the effect", format!("{EFFECT}; kill -9 $PPID"), 1),
        ("behind the body, before the record", format!("{EFFECT}; echo 7; exec kill -9 $PPID"), 1),
    ];
    for (place, script, before) in &places {
        // The other side honours the key: sent again under the same one.
        let book = Book::new();
        let idempotent = ["--policy", "idempotent", "--key", "k"];
        killed(&book, &idempotent, script);
        assert_eq!(effects(&book), *before, "{place}");
        let ran = call_later(&book, &idempotent, &format!("{EFFECT}; echo done $DEEDBOOK_ATTEMPT"));
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "done 2\n"), "{place}: {}", ran.stderr);
        let ledger = fs::read_to_string(book.file("ledger")).unwrap();
        let keys: std::collections::BTreeSet<_> = ledger.lines().collect();
        assert_eq!(keys.len(), 1, "{place}: one key, so one effect: {ledger}");
        assert!(keys.iter().all(|key| key.starts_with("dk1_")), "{place}");

        // It honours none: at most one effect, and a doubt that nothing but a person settles.
        let book = Book::new();
        let once = ["--policy", "at-most-once", "--key", "k"];
        killed(&book, &once, script);
        for _ in 0..2 {
            let ran = call_later(&book, &once, EFFECT);
            assert_eq!(ran.code, 4, "{place}: {}", ran.stderr);
        }
        assert_eq!(effects(&book), *before, "{place}");
        let doubts = book.json(&["doubts"]);
        let (thread, step) = (&doubts[0]["thread"], &doubts[0]["step"]);
        let names = [thread.as_str().unwrap(), step.as_str().unwrap()];
        let verdict = ["resolve", "--happened", "7", "--reason", "seen", "--", names[0], names[1]];
        book.ok(&verdict);
        // Not the attempt: a person settled it.
        let told = &book.json(&["explain", "--", names[0]])[0];
        let words = told.to_string();
        assert!(told["is"] == "resolved" && words.contains("said that it happened"), "{words}");
        assert!(words.contains("(seen)") && !words.contains("it settled the step"), "{words}");
        let ran = call(&book, &once, EFFECT);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "7\n"), "{place}: {}", ran.stderr);

        // It can be asked.
        let book = Book::new();
        let asks = ["--reconcile-cmd", "test -e ledger && cat ledger", "--key", "k"];
        let asks =
            [&asks[..], &["--timeout", "400ms", "--quiet", "500ms", "--wait", "10s"]].concat();
        killed(&book, &asks, script);
        let ran = call_later(&book, &asks, &format!("{EFFECT}; cat ledger"));
        assert_eq!(ran.code, 0, "{place}: {}", ran.stderr);
        assert_eq!(effects(&book), 1, "{place}");
        assert!(ran.stdout.starts_with("dk1_"), "{place}: {}", ran.stdout);
    }
}

#[test]
fn b14_eight_processes_of_many_keys_have_one_effect_each() {
    const KEYS: usize = 25;
    let book = Book::new();
    let script = format!(
        "for n in $(seq {KEYS}); do \
         \"$DEEDBOOK\" call charge --thread ORD-42 --policy idempotent --key $n --args $n \
         --wait 60s -- sh -c \
         'echo $DEEDBOOK_OPERATION_KEY >> ledger; echo $DEEDBOOK_ARGS by $PPID' || exit 1; done"
    );
    let program = |_| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).env("DEEDBOOK", env!("CARGO_BIN_EXE_deedbook"));
        command.env("DEEDBOOK_JOURNAL", book.path()).current_dir(book.dir());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<Child> = (0..8).map(program).collect();
    let mut told: BTreeMap<usize, String> = BTreeMap::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        for (n, line) in String::from_utf8(output.stdout).unwrap().lines().enumerate() {
            // All are told what the one that did it was told.
            assert_eq!(told.entry(n).or_insert_with(|| line.to_owned()), line);
        }
    }
    assert_eq!((told.len(), effects(&book)), (KEYS, KEYS));
    let ledger = fs::read_to_string(book.file("ledger")).unwrap();
    let keys: std::collections::BTreeSet<_> = ledger.lines().collect();
    assert_eq!(keys.len(), KEYS);
}

#[test]
fn b14_a_duplicate_is_refused_waits_or_takes_over() {
    let book = Book::new();
    let slow = |options: &[&str]| {
        let args = ["call", "charge", "--thread", "ORD-42", "--policy", "idempotent", "--key", "k"];
        let script =
            ["--", "sh", "-c", "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo slow"];
        let mut command = book.command();
        command.args(args).args(options).args(script).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let owner = slow(&[]);
    while !book.file("begun").exists() {
        thread::sleep(Duration::from_millis(10));
    }
    let key = ["--policy", "idempotent", "--key", "k"];
    let ran = call(&book, &key, EFFECT);
    assert_eq!(ran.code, 5);
    let who = format!("call:{}", owner.id());
    assert!(ran.stderr.contains(&who) && ran.stderr.contains("dk1_"), "{}", ran.stderr);
    let ran = call(&book, &[&key[..], &["--wait", "300ms"]].concat(), EFFECT);
    assert_eq!(ran.code, 5, "its deadline is over, and no second body ran: {}", ran.stderr);
    let waiter = slow(&["--wait", "60s"]);
    thread::sleep(Duration::from_millis(200));
    let taken = call(&book, &[&key[..], &["--take-over"]].concat(), "echo taken");
    assert_eq!((taken.code, taken.stdout.as_str()), (0, "taken\n"), "{}", taken.stderr);
    fs::write(book.file("go"), "").unwrap();
    // The owner is fenced: what it brings is kept, and changes nothing.
    let owner = owner.wait_with_output().unwrap();
    assert_eq!(owner.status.code(), Some(1));
    let said = String::from_utf8_lossy(&owner.stderr);
    assert!(said.contains("kept as evidence"), "{said}");
    let waiter = waiter.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&waiter.stderr);
    // Unless it was the waiter's turn between the two, and it was taken over in its place.
    assert!(waiter.stdout == b"taken\n" || said.contains("kept as evidence"), "{said}");
    assert_eq!(call(&book, &key, EFFECT).stdout, "taken\n");
    assert_eq!(effects(&book), 0);
}

#[test]
fn b15_a_paused_owner_that_wakes_up_cannot_overwrite() {
    let book = Book::new();
    let key = ["--policy", "idempotent", "--key", "k"];
    let mut command = book.command();
    command.args(["call", "charge", "--thread", "ORD-42", "--lease", "500ms"]).args(key);
    command.args([
        "--",
        "sh",
        "-c",
        "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo first",
    ]);
    let owner = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !book.file("begun").exists() {
        thread::sleep(Duration::from_millis(10));
    }
    // a: an owner that lives holds on for as long as its body takes.
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(call(&book, &key, EFFECT).code, 5);
    // c: paused beyond its lease, taken over, and continued.
    let pid = owner.id().to_string();
    let signal = |name: &str| {
        let kill = std::process::Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(kill.success());
    };
    signal("-STOP");
    let ran = call_later(&book, &key, "echo second");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "second\n"), "{}", ran.stderr);
    fs::write(book.file("go"), "").unwrap();
    signal("-CONT");
    let owner = owner.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&owner.stderr).into_owned();
    assert!(said.contains("kept as evidence"), "{said}");
    assert_eq!(call(&book, &key, "false").stdout, "second\n");
    // d: the evidence has its place once somebody holds the step again.
    let thread = book.json(&["steps"])[0]["thread"].as_str().unwrap().to_owned();
    book.ok(&["reset", "--reason", "to see it", "--", &thread]);
    assert!(book.kinds(&thread).contains(&"step.late".to_owned()));
    book.ok(&["verify"]);
}

#[test]
fn i26_steps_are_listed_with_filters_and_nothing_is_made_by_looking() {
    let book = Book::new();
    assert_eq!(book.run(&["steps"]).code, 1, "nothing is found");
    call(&book, &["--policy", "idempotent", "--key", "a", "--args", "1"], "echo 1");
    call(&book, &["--policy", "at-most-once", "--key", "b"], "exit 9");
    book.ok(&["call", "mail", "--scope", "journal", "--policy", "read", "--", "echo", "sent"]);
    let all = book.json(&["steps"]);
    assert_eq!(all.len(), 3);
    let is = |found: &[Value]| -> Vec<String> {
        found.iter().map(|step| step["is"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(is(&book.json(&["steps", "--state", "in-doubt"])), ["in doubt"]);
    assert_eq!(is(&book.json(&["steps", "mail"])), ["done"]);
    assert_eq!(book.json(&["steps", "--thread", "ORD-42"]).len(), 2);
    assert_eq!(book.json(&["steps", "--key", "a"])[0]["within"], "ORD-42");
    assert_eq!(book.json(&["steps", "--limit", "1"]).len(), 1);
    assert_eq!(book.json(&["threads"]), Vec::<Value>::new(), "steps are no threads of users");
    // A journal that is not there stays so.
    let none = Book::none();
    assert_eq!(none.run(&["steps"]).code, 1);
    assert_eq!(none.names(), Vec::<String>::new());
}

#[test]
fn i27_a_reset_needs_a_reason_and_refuses_what_is_open() {
    let book = Book::new();
    let key = ["--policy", "at-most-once", "--key", "a"];
    call(&book, &key, EFFECT);
    let thread = book.json(&["steps"])[0]["thread"].as_str().unwrap().to_owned();
    assert_eq!(book.run(&["reset", &thread]).code, 2, "without a reason");
    let said = book.ok(&["reset", &thread, "--reason", "the customer wants it twice"]);
    assert!(said.contains("fresh key"), "{said}");
    assert_eq!(book.run(&["reset", &thread, "--reason", "x"]).code, 1, "nothing to reset");
    call(&book, &key, EFFECT);
    let ledger = fs::read_to_string(book.file("ledger")).unwrap();
    let keys: std::collections::BTreeSet<_> = ledger.lines().collect();
    assert_eq!(keys.len(), 2, "{ledger}");
    let story = book.ok(&["show", "--", &thread]);
    assert!(
        story.contains("the customer wants it twice") && story.contains("user:alice"),
        "{story}"
    );
    // In doubt: a person settles it first.
    call(&book, &["--policy", "at-most-once", "--key", "b"], "exit 9");
    let thread = book.json(&["steps", "--state", "in-doubt"])[0]["thread"].clone();
    let ran = book.run(&["reset", "--reason", "x", "--", thread.as_str().unwrap()]);
    assert!(ran.code == 1 && ran.stderr.contains("settle it first"), "{}", ran.stderr);
}

#[test]
fn i28_i30_every_command_works_while_processes_are_at_it() {
    let book = Book::new();
    let mut command = book.command();
    command.args(["call", "charge", "--thread", "ORD-42", "--policy", "idempotent", "--"]);
    command.args(["sh", "-c", "touch begun; while [ ! -e go ]; do sleep 0.02; done"]);
    let mut owner = command.stdout(Stdio::null()).spawn().unwrap();
    while !book.file("begun").exists() {
        thread::sleep(Duration::from_millis(10));
    }
    let steps = book.json(&["steps"]);
    assert_eq!(steps[0]["is"], "in flight");
    let thread = steps[0]["thread"].as_str().unwrap();
    let ran = book.run(&["reset", "--reason", "x", "--", thread]);
    assert!(ran.code == 1 && ran.stderr.contains("is at it"), "{}", ran.stderr);
    assert!(book.ok(&["show", "--", thread]).contains("attempt 1 begins"));
    assert!(book.ok(&["explain", "--", thread]).contains("under way"));
    assert!(book.ok(&["guards"]).contains("on"));
    book.ok(&["export"]);
    book.ok(&["verify"]);
    fs::write(book.file("go"), "").unwrap();
    assert!(owner.wait().unwrap().success());
}

#[test]
fn i32_what_there_is_to_see_is_json_too() {
    let book = Book::new();
    call(&book, &["--policy", "idempotent", "--args", r#"{"cents":4200,"card":"a"}"#], "echo 1");
    call(&book, &["--policy", "idempotent", "--args", r#"{"cents":4300,"card":"a"}"#], "echo 2");
    let steps = book.json(&["steps"]);
    let second = steps.iter().max_by_key(|step| step["since"].as_str().unwrap().to_owned());
    let thread = second.unwrap()["thread"].as_str().unwrap();
    let told = &book.json(&["explain", "--", thread])[0];
    assert_eq!((&told["is"], &told["scope"]), (&json!("executed"), &json!("thread ORD-42")));
    assert_eq!(told["near_misses"][0]["fields"], json!(["/cents recorded 4200, now 4300"]));
    let words = book.ok(&["explain", "--", thread]);
    assert!(
        words.contains("near-miss") && words.contains("/cents recorded 4200, now 4300"),
        "{words}"
    );
}

#[test]
fn guards_are_turned_off_on_record_only() {
    let book = Book::new();
    let key = ["--policy", "idempotent", "--key", "a"];
    call(&book, &key, EFFECT);
    assert_eq!(book.run(&["guards", "off"]).code, 2, "without a reason");
    let said = book.ok(&["guards", "off", "--reason", "a load test"]);
    assert!(said.contains("user:alice (a load test)"), "{said}");
    for _ in 0..2 {
        let ran = call(&book, &key, EFFECT);
        assert!(ran.stderr.contains("guards are off"), "{}", ran.stderr);
    }
    assert_eq!(effects(&book), 3);
    book.ok(&["guards", "on", "--reason", "it is over"]);
    call(&book, &key, EFFECT);
    assert_eq!((effects(&book), book.json(&["steps"]).len()), (3, 3));
    book.ok(&["verify"]);
}

#[test]
fn explain_tells_of_workflows_too() {
    let book = Book::new();
    let drafts = vec![intent("pay", Policy::Idempotent), done(1, "7")];
    book.thread("order-1", Status::Running, drafts);
    let told = book.json(&["explain", "order-1"]);
    assert_eq!(told[0]["is"], "executed", "{told:?}");
    assert_eq!(told[0]["scope"], "thread order-1");
    assert_eq!(book.run(&["explain", "no-such-thread"]).code, 1);
}

#[test]
fn what_a_program_brought_outlives_whoever_held_the_journal() {
    let book = Book::new();
    let once = ["--policy", "at-most-once", "--key", "k"];
    let mut command = book.command();
    command.args(["call", "charge", "--thread", "ORD-42"]).args(once);
    command.args(["--", "sh", "-c", "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo 7"]);
    let caller = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !book.file("begun").exists() {
        thread::sleep(Duration::from_millis(10));
    }
    let owner = Embedded::holder(book.path()).unwrap().unwrap().pid.unwrap().to_string();
    let killed = std::process::Command::new("kill").args(["-9", &owner]).status().unwrap();
    assert!(killed.success());
    fs::write(book.file("go"), "").unwrap();
    let caller = caller.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&caller.stderr).into_owned();
    assert_eq!(caller.status.code(), Some(1));
    assert!(said.contains("is kept as evidence"), "{said}");
    // Nobody runs it again; a person finds what it brought, and says so.
    let ran = call(&book, &once, EFFECT);
    assert_eq!((ran.code, effects(&book)), (4, 0), "{}", ran.stderr);
    let doubts = book.json(&["doubts"]);
    let (thread, step) = (&doubts[0]["thread"], &doubts[0]["step"]);
    let names = [thread.as_str().unwrap(), step.as_str().unwrap()];
    let story = book.ok(&["show", "--payloads", "--", names[0]]);
    assert!(story.contains("a result that came too late is kept"), "{story}");
    let verdict = ["resolve", "--happened", "7", "--reason", "as kept", "--", names[0], names[1]];
    book.ok(&verdict);
    assert_eq!(call(&book, &once, EFFECT).stdout, "7\n");
    book.ok(&["verify"]);
}

#[test]
fn a_call_that_says_neither_where_nor_how_is_told_both() {
    let book = Book::new();
    let ran = book.run(&["call", "pay", "--", "true"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    for said in ["`--thread`", "`--scope journal`", "; and say what may happen after a crash"] {
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    let ran = book.run(&["call", "pay", "--policy", "read", "--", "true"]);
    assert!(!ran.stderr.contains("; and "), "{}", ran.stderr);
}
