//! The pages tell what the run in `docs/reference/crashes.json` has tried, and that run was whole.

use std::{fs, path::PathBuf};

use deedbook_simulation::figures::Figures;

fn page(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

fn figures() -> Figures {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    Figures::read(&root.join("docs/reference/crashes.json")).unwrap()
}

const HOW: &str = "run `cargo run --release -p deedbook-simulation -- report --json --write \
                   docs/reference/crashes.json`, and bring the pages up to date with what \
                   `deedbook-simulation figures docs/reference/crashes.json` prints";

#[test]
fn the_run_that_pages_tell_of_was_whole_and_nothing_was_wrong_in_it() {
    assert_eq!(figures().problems(), Vec::<String>::new(), "{HOW}");
}

#[test]
fn the_pages_tell_what_that_run_has_tried() {
    let figures = figures();
    let (sentence, readme) = (figures.sentence(), page("README.md"));
    assert!(readme.contains(&sentence), "README.md lacks: {sentence}\n{HOW}");
    let guarantees = page("docs/reference/guarantees.md");
    for row in figures.rows() {
        assert!(guarantees.contains(&row), "guarantees.md lacks: {row}\n{HOW}");
    }
    let (table, crashes) = (figures.table(), page("docs/reference/crashes.md"));
    assert!(crashes.contains(&table), "crashes.md lacks:\n{table}\n{HOW}");
}
