//! The table of behaviours: every row is there, and every test that it names exists and is run.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Tracked, files, report};

const PAGE: &str = "docs/reference/behaviours.md";

/// The rows that there are, by letter.
const ROWS: &[(char, u32)] = &[('T', 28), ('I', 33), ('B', 19)];

/// The folder of a package, by its name.
fn folders() -> BTreeMap<String, String> {
    let manifests = files().iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let named = manifests.filter_map(|file| {
        let name = file.text.lines().find_map(|line| line.strip_prefix("name = \""))?;
        let folder = file.path.strip_suffix("Cargo.toml")?.to_owned();
        Some((name.trim_end_matches('"').to_owned(), folder))
    });
    named.collect()
}

/// A row of the page: its id, what is said, and the named tests as package and function.
struct Row {
    id: String,
    said: String,
    tests: Vec<(String, String)>,
}

fn rows(page: &Tracked) -> Vec<Row> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<_> = line.split(" | ").map(str::to_owned).collect();
        (cells.len() == 3 && cells[0].len() <= 4 && cells[0] != "id").then_some(cells)
    };
    let rows = page.text.lines().filter_map(cells).filter(|cells| !cells[0].starts_with('-'));
    rows.map(|cells| {
        let tests = cells[2].split('`').skip(1).step_by(2);
        let named = tests.filter_map(|test| test.split_once(": "));
        let named = named.map(|(package, test)| (package.to_owned(), test.to_owned()));
        Row { id: cells[0].clone(), said: cells[1].clone(), tests: named.collect() }
    })
    .collect()
}

/// Whether this is a test function of the file, and one that is run.
fn is_run(file: &Tracked, test: &str) -> bool {
    let lines: Vec<_> = file.text.lines().map(str::trim).collect();
    let fits = |line: &&str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(test))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(fits) else { return false };
    let attributes: Vec<_> =
        lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).collect();
    attributes.iter().any(|line| line.contains("test"))
        && !attributes.iter().any(|line| line.contains("ignore"))
}

fn faults(page: &Tracked, all: &[Tracked]) -> Vec<String> {
    let folders = folders();
    let rows = rows(page);
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for Row { id, said, tests } in &rows {
        seen.insert(id.clone());
        if said.len() < 10 || tests.is_empty() {
            faults.push(format!("{id} says nothing, or names no test"));
        }
        for (package, test) in tests {
            let folder = folders.get(package);
            let there = folder.is_some_and(|folder| {
                let inside = |file: &&Tracked| {
                    file.path.starts_with(folder.as_str()) && file.path.ends_with(".rs")
                };
                all.iter().filter(inside).any(|file| is_run(file, test))
            });
            if !there {
                faults.push(format!("{id} names a test that is not run: {package}: {test}"));
            }
        }
    }
    for (letter, count) in ROWS {
        let missing = (1..=*count).map(|n| format!("{letter}{n}")).filter(|id| !seen.contains(id));
        faults.extend(missing.map(|id| format!("{id} is missing")));
    }
    faults
}

#[test]
fn every_behaviour_has_a_row_and_every_row_a_test_that_runs() {
    let page = files().iter().find(|file| file.path == PAGE).unwrap();
    report(&faults(page, files()));
}

#[test]
fn what_is_missing_is_noticed() {
    let page = Tracked::made_up(PAGE, "| T1 | what is done here, in a few words | `x: t01` |\n");
    let faults = faults(&page, &[]);
    assert!(faults.contains(&"T1 names a test that is not run: x: t01".to_owned()), "{faults:?}");
    assert!(faults.contains(&"T2 is missing".to_owned()), "{faults:?}");
    let skipped = format!("#[tokio::test]\n#[{}]\nasync fn t01() {{}}\n", "ignore");
    let text = skipped + "#[test]\nfn t02() {}\nfn t03() {}\n";
    let file = Tracked::made_up("x/tests/it.rs", &text);
    assert!(!is_run(&file, "t01") && is_run(&file, "t02") && !is_run(&file, "t03"));
    assert!(!is_run(&file, "t0"));
}
