//! The command line.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use crate::{Broken, Target};

pub(crate) const TARGET: Target = Target {
    name: "arguments",
    promise: "a command line is understood, or refused with a message",
    run,
    seeds,
    words: &[
        "\n",
        "--json",
        "--journal",
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
        "backup",
        "doctor",
        "compact",
        "key",
        "completions",
        "--status",
        "--since",
        "--until",
        "--limit",
        "--all",
        "--prefix",
        "--namespace",
        "--step",
        "--thread",
        "--scope",
        "--branch",
        "--occurrence",
        "--episode",
        "--by-arguments",
        "--key",
        "--generation",
        "--happened",
        "--did-not-happen",
        "--failed",
        "--reason",
        "--by",
        "--shown",
        "--export",
        "--output",
        "--force",
        "--progress",
        "--accept-rollback",
        "--help",
        "--version",
        "=",
        "-o",
        "--",
        "in-doubt",
        "2026-11-29",
        "2026-11-29T12:00:00Z",
        "journal",
        "bash",
        "000102030405060708090a0b0c0d0e0f",
        "{\"a\":1}",
    ],
    bytes_max: 512,
};

/// A word a line.
fn run(input: &[u8]) -> Result<(), Broken> {
    let words: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    // A file or standard input would be read.
    if words.iter().any(|word| is_elsewhere(word)) {
        return Ok(());
    }
    let words = words.into_iter().map(|word| OsString::from_vec(word.to_vec()));
    let (code, said) = deedbook_cli::typed([OsString::from("deedbook")].into_iter().chain(words));
    match (code, said.trim().is_empty()) {
        // A value that is no JSON is a failure, and no misunderstood command line.
        (0, _) | (1 | 2, false) => Ok(()),
        _ => Err(format!("it ended with {code} and said {said:?}")),
    }
}

fn is_elsewhere(word: &[u8]) -> bool {
    let value = word.strip_prefix(b"--by-arguments=").unwrap_or(word);
    value == b"-" || value.first() == Some(&b'@')
}

fn seeds() -> Vec<Vec<u8>> {
    let lines = [
        "init --journal refunds.deedbook",
        "threads --status waiting --status in-doubt --limit 3 --json",
        "threads --workflow refund --since 2026-11-29 --until 2026-11-30T12:00:00Z",
        "show order-4821 --payloads",
        "signal order-4821 address {\"city\":\"Bern\"} --by user:alice",
        "approve order-4821 big-refund#0 --reason checked",
        "resolve order-4821 pay#0 --happened {\"id\":1} --reason seen",
        "resolve order-4821 pay#0 --did-not-happen --reason seen",
        "export order-4821 -o file --force",
        "verify --export journal.jsonl",
        "key --thread order-4821 --step pay --branch left --occurrence 1 \
         --namespace 000102030405060708090a0b0c0d0e0f",
        "key --step refund --by-arguments {\"amount\":4200} --scope journal \
         --namespace 000102030405060708090a0b0c0d0e0f --json",
        "key --step refund --thread t --key k --namespace 000102030405060708090a0b0c0d0e0f",
        "doctor --accept-rollback --progress",
        "completions fish",
        "--help",
    ];
    let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join("\n"));
    lines.map(String::into_bytes).into()
}
