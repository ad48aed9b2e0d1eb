//! Readers that go away, devices that are full, help, versions, completions.

use std::process::Command;

use deedbook_journal::{policy::Policy, row::Status};

use super::book::{Book, intent, request};

fn shell(book: &Book, script: &str) -> (String, String) {
    let output = Command::new("bash")
        .args(["-c", script])
        .env("D", env!("CARGO_BIN_EXE_deedbook"))
        .env("DEEDBOOK_JOURNAL", book.path())
        .current_dir(book.dir())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

fn large() -> Book {
    let book = Book::new();
    let shown = format!("\"{}\"", "x".repeat(500_000));
    book.thread("t", Status::Waiting, vec![request("a", &shown), request("b", &shown)]);
    book
}

#[test]
fn s74_a_reader_that_goes_away_ends_it_quietly() {
    let book = large();
    for command in ["export", "show t --payloads", "show t --payloads --json", "export | true"] {
        let script = format!("\"$D\" {command} | head -c 10; echo; echo ${{PIPESTATUS[0]}}");
        let (stdout, stderr) = shell(&book, &script);
        assert_eq!(stderr, "", "{command}");
        let code = stdout.lines().last().unwrap();
        assert!(["0", "141"].contains(&code), "{command}: {code}");
    }
    for command in ["threads", "--help", "completions bash", "export --help", "doubts"] {
        let script = format!("\"$D\" {command} | true; echo ${{PIPESTATUS[0]}}");
        let (stdout, stderr) = shell(&book, &script);
        assert_eq!((stdout.as_str(), stderr.as_str()), ("0\n", ""), "{command}");
    }
    let (stdout, _) = shell(&book, "\"$D\" threads | head -1");
    assert!(stdout.starts_with("THREAD"));
}

#[test]
fn s74_a_full_device_is_an_error() {
    let book = large();
    for command in
        ["threads", "export", "show t", "show t --json", "verify", "completions zsh", "--help"]
    {
        let (stdout, stderr) = shell(&book, &format!("\"$D\" {command} > /dev/full; echo $?"));
        assert_eq!(stdout, "1\n", "{command}");
        assert!(!stderr.contains("panicked"), "{command}: {stderr}");
        assert!(stderr.contains("No space left"), "{command}: {stderr}");
    }
}

/// The exit code alone says that something failed, and who reads no more would do it again.
#[test]
fn what_is_done_is_said_on_standard_error_where_it_cannot_be_told() {
    let book = large();
    book.thread("d", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
    for (command, record, told) in [
        ("signal t s 1", "signal", "recorded as 4 of thread t; cannot write the output: "),
        ("--json approve t a#0", "approval.decide", "recorded as 6 of thread t; cannot write "),
        ("resolve d pay#0 --happened 1 --reason x", "step.resolve", "recorded as 3 of thread d; "),
        ("cancel t --reason x", "thread.end", "recorded as 8 of thread t; cannot write the "),
    ] {
        let (stdout, stderr) =
            shell(&book, &format!("USER=a \"$D\" {command} >/dev/full; echo $?"));
        assert_eq!(stdout, "1\n", "{command}");
        assert!(stderr.contains(told), "{command}: {stderr}");
        assert!(stderr.contains("No space left"), "{command}: {stderr}");
        let thread = if command.starts_with("resolve") { "d" } else { "t" };
        assert_eq!(book.kinds(thread).last().unwrap(), record, "{command}: it stays so");
    }
    for (command, told) in [
        ("init --journal new", "deedbook: made new; cannot write the output: "),
        ("export d -o x", "deedbook: exported 4 records of 1 thread to x; cannot write the output"),
    ] {
        let (stdout, stderr) = shell(&book, &format!("\"$D\" {command} > /dev/full; echo $?"));
        assert!(stdout == "1\n" && stderr.starts_with(told), "{command}: {stderr}");
    }
    shell(&book, "\"$D\" --journal new verify && \"$D\" verify --export x || touch wrong");
    assert!(!book.file("wrong").exists());
}

/// A decision is bound to what was shown; what could not be shown is not decided on.
#[test]
fn nothing_is_decided_that_could_not_be_shown() {
    let book = large();
    let before = book.bytes();
    for command in ["approve", "deny"] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let (reader, gone) = std::io::pipe().unwrap();
        drop(reader);
        for output in [std::process::Stdio::from(full), gone.into()] {
            let ran = book.command().args([command, "t", "a#0"]).stdout(output).output().unwrap();
            let stderr = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(ran.status.code(), Some(1), "{command}: {stderr}");
            assert!(stderr.contains("nothing was recorded: "), "{command}: {stderr}");
            assert!(book.bytes() == before, "{command}");
        }
    }
}

#[test]
fn help_version_and_completions() {
    let book = Book::none();
    let commands = [
        "init",
        "threads",
        "show",
        "signal",
        "approve",
        "deny",
        "doubts",
        "resolve",
        "cancel",
        "export",
        "verify",
        "key",
        "completions",
    ];
    let help = book.ok(&["--help"]);
    for command in commands {
        assert!(help.contains(command), "{command}: {help}");
        let help = book.ok(&[command, "--help"]);
        assert!(help.contains("Example"), "{command}: {help}");
    }
    assert!(help.contains("Exit codes"));
    assert_eq!(book.ok(&["--version"]), concat!("deedbook ", env!("CARGO_PKG_VERSION"), "\n"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(book.ok(&["completions", shell]).contains("deedbook"), "{shell}");
    }
    assert_eq!(book.run(&[]).code, 2);
    assert_eq!(book.run(&["list"]).code, 2);
}

#[test]
fn who_acts_is_known_or_asked_for() {
    let book = large();
    let output =
        book.command().env_remove("USER").args(["signal", "t", "s", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--by"));
}

/// A shell that appends to the journal is past every lock: nothing may be written then.
#[test]
fn a_journal_is_never_standard_output() {
    let book = large();
    let before = book.bytes();
    let journal = book.path();
    let journal = journal.to_str().unwrap();
    for redirect in [">>", "1<>"] {
        for command in ["export", "threads", "verify"] {
            let script = format!("\"$D\" {command} {redirect} '{journal}'; echo $? >&2");
            let (_, stderr) = shell(&book, &script);
            assert!(stderr.contains("standard output is this journal"), "{stderr}");
            assert!(stderr.ends_with("1\n"), "{stderr}");
            assert!(book.bytes() == before, "{command} {redirect} changed the journal");
        }
    }
}
