//! Every example of `docs/reference/cli.md` is run, in its order.

use std::process::Command;

use deedbook_journal::{policy::Policy, row::Status};

use super::book::{Book, Ran, intent, request};

#[test]
fn the_examples_of_the_reference_work() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/cli.md");
    let page = std::fs::read_to_string(page).unwrap();
    let book = Book::new();
    let ask = || request("big-refund", r#"{"amount":99000}"#);
    book.thread("order-4821", Status::Waiting, vec![ask()]);
    book.thread("order-4822", Status::Running, vec![intent("pay", Policy::AtMostOnce)]);
    book.thread("order-4823", Status::Waiting, vec![]);
    book.thread("order-4824", Status::Waiting, vec![]);
    book.thread("order-4825", Status::Waiting, vec![ask()]);
    let binary = env!("CARGO_BIN_EXE_deedbook");
    let examples: Vec<&str> = page.lines().filter_map(|l| l.strip_prefix("$ ")).collect();
    assert!(examples.len() > 20);
    for example in &examples {
        let script = format!("deedbook() {{ {binary} \"$@\"; }}\n{example}");
        let output = Command::new("bash")
            .args(["-c", &script])
            .env("DEEDBOOK_JOURNAL", book.path())
            .env("USER", "alice")
            .current_dir(book.dir())
            .output()
            .unwrap();
        let ran = Ran::of(output);
        let wanted = if example.ends_with("# exits with 4") { 4 } else { 0 };
        assert_eq!(ran.code, wanted, "{example}: {}", ran.stderr);
        assert_eq!(ran.stderr, "", "{example}");
    }
    let help = book.ok(&["--help"]);
    let commands = help.lines().skip_while(|l| *l != "Commands:").skip(1);
    for line in commands.take_while(|l| !l.is_empty()) {
        let command = line.split_whitespace().next().unwrap();
        let tried = examples.iter().any(|e| e.contains(&format!("deedbook {command}")));
        assert!(tried || command == "help", "no example of {command}");
    }
}
