//! The program says what its README shows, and a second run on the same journal does nothing
//! outside.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first surprise")]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// Runs the program, and returns what it says.
fn run(journal: &Path) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_replace-idempotent-tools"))
        .arg(journal)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    said
}

/// What stands under a heading's number.
fn section(said: &str, number: u32) -> Vec<&str> {
    let parts = said.split("\n\n").find(|part| part.starts_with(&format!("{number} ")));
    parts.unwrap_or_else(|| panic!("no section {number} in\n{said}")).lines().skip(1).collect()
}

#[test]
fn the_readme_shows_what_the_first_run_says_and_the_second_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("shop.redb");
    let first = run(&journal);
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let shown = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(first.trim_end(), shown.unwrap().trim_end(), "the README shows something else");

    let books = fs::read_to_string(journal.with_extension("bank")).unwrap();
    let second = run(&journal);
    assert_eq!(fs::read_to_string(journal.with_extension("bank")).unwrap(), books);
    for number in [1, 2, 3, 4, 8, 9, 11, 12] {
        for line in section(&second, number) {
            let word = |word: &str| line.contains(&format!(" {word} "));
            assert!(!word("ran") && !word("known") && !word("killed"), "{line}");
        }
        // The same receipts as the first time, for those who asked for the same.
        let receipts = |said: &str| -> Vec<String> {
            let lines = section(said, number).into_iter().map(str::to_owned);
            let given = lines.filter(|line| line.contains(" receipt "));
            given.filter_map(|line| line.rsplit(' ').next().map(str::to_owned)).collect()
        };
        assert_eq!(receipts(&first), receipts(&second), "section {number}");
    }
}

#[test]
fn a_wrong_word_is_told() {
    let program = env!("CARGO_BIN_EXE_replace-idempotent-tools");
    let done = Command::new(program).args(["--nonsense"]).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
}
