//! What is said, in which words and in which order: values, how steps stand, why a connection ends.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use serde_json::Value;

use super::{
    book::{Book, Ran},
    held::owner,
};

#[test]
fn what_is_wrong_with_a_value_says_the_word_once() {
    let book = Book::new();
    let twice = r#"{"a":1,"a":2}"#;
    for (given, said) in [
        (twice, "the value cannot be taken at /a: a map holds this key twice"),
        ("1 2", "the value cannot be taken: the JSON text is refused at byte 2"),
    ] {
        let args = ["call", "x", "--thread", "T", "--policy", "read", "--args", given, "--json"];
        let ran = book.run(&[&args[..], &["--", "true"]].concat());
        assert_eq!(ran.code, 1);
        let error: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert!(error["error"]["message"].as_str().unwrap().starts_with(said), "{error}");
    }
    let args = ["call", "y", "--thread", "T", "--policy", "read", "--result", "json", "--"];
    let ran = book.run(&[&args[..], &["echo", twice]].concat());
    assert!(ran.stderr.contains("echo: its output at /a: a map holds"), "{}", ran.stderr);

    let mut guard = book.command();
    guard.args(["guard", "--stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guard = guard.spawn().unwrap();
    let mut to = guard.stdin.take().unwrap();
    let mut from = BufReader::new(guard.stdout.take().unwrap());
    let mut ask = |line: String| {
        writeln!(to, "{line}").unwrap();
        let mut answer = String::new();
        from.read_line(&mut answer).unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    ask(r#"{"id":0,"op":"hello","args":{"v":1}}"#.to_owned());
    let claim = format!(
        r#"{{"id":1,"op":"guard.claim","args":{{"step":"z","scope":"journal","policy":"read",{}}}}}"#,
        format_args!("\"arguments\":{twice}"),
    );
    let signal = format!(
        r#"{{"id":2,"op":"signal","args":{{"thread":"T","name":"s","by":"me","value":{twice}}}}}"#
    );
    for (line, said) in [(claim, "`arguments` at /a: a map"), (signal, "the value at /a: a map")] {
        let answer = ask(line);
        assert!(answer["error"]["message"].as_str().unwrap().contains(said), "{answer}");
    }
    drop(to);
    assert!(guard.wait().unwrap().success());
}

#[test]
fn what_the_other_side_is_asked_about_is_not_called_in_doubt() {
    let book = Book::new();
    let call = |key: &str, policy: [&str; 2], json: &[&str]| -> Ran {
        let args = ["call", "x", "--thread", "T", "--key", key, policy[0], policy[1]];
        book.run(&[&args[..], json, &["--quiet", "1h", "--", "sh", "-c", "exit 9"]].concat())
    };
    let asked = call("a", ["--reconcile-cmd", "exit 2"], &[]);
    assert_eq!(asked.code, 4, "{}", asked.stderr);
    assert!(asked.stderr.contains(" is to be asked (operation key "), "{}", asked.stderr);
    assert!(!asked.stderr.contains("in doubt"), "{}", asked.stderr);
    let asked = call("a", ["--reconcile-cmd", "exit 2"], &["--json"]);
    let told: Value = serde_json::from_str(&asked.stdout).unwrap();
    // As `steps` says it.
    assert_eq!(
        (&told["is"], &book.json(&["steps"])[0]["is"]),
        (&"to be asked".into(), &told["is"])
    );
    let doubtful = call("b", ["--policy", "at-most-once"], &[]);
    assert!(doubtful.stderr.contains(" is in doubt (operation key "), "{}", doubtful.stderr);
}

#[test]
fn guard_says_why_the_owner_closed_the_connection() {
    let book = Book::new();
    let owner = owner(&book, "1h");
    for (first, why) in [
        // Nobody says hello in time.
        ("", "no hello came: it has to begin within 10 seconds"),
        ("{\"id\":0,\"op\":\"now\"}\n", "hello"),
    ] {
        let mut guard = book.command();
        guard.args(["guard", "--stdio"]).stdin(Stdio::piped());
        guard.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut guard = guard.spawn().unwrap();
        let mut to = guard.stdin.take().unwrap();
        to.write_all(first.as_bytes()).unwrap();
        let ran = Ran::of(guard.wait_with_output().unwrap());
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("has closed the connection: "), "{}", ran.stderr);
        assert!(ran.stderr.contains(why) && !ran.stderr.contains("gone"), "{}", ran.stderr);
        drop(to);
    }
    drop(owner);
}

#[test]
fn steps_are_listed_by_the_time_of_their_last_change() {
    let book = Book::new();
    for name in ["c", "a", "b"] {
        book.ok(&["call", name, "--scope", "journal", "--policy", "read", "--", "true"]);
    }
    let names = |args: &[&str]| -> Vec<String> {
        let steps = book.json(&[&["steps"], args].concat());
        steps.iter().map(|step| step["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["c", "a", "b"]);
    assert_eq!(names(&["--limit", "2"]), ["a", "b"], "the newest");
    // What happens anew has changed last.
    let anew = ["call", "c", "--scope", "journal", "--policy", "read", "--valid-for", "0s"];
    book.ok(&[&anew[..], &["--", "true"]].concat());
    assert_eq!(names(&[]), ["a", "b", "c"]);
}
