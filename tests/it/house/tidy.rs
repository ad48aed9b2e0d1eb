//! The form of the files. A rule that is not executed is not kept.

use super::tree::{Tracked, every_file, files, report};

const FILE_LINES_MAX: usize = 600;
/// Between the first line and the last one.
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Files that may be longer, each with its reason.
const LONG: &[(&str, &str)] = &[];

/// What may stand at the root. A folder there answers one question (see ARCHITECTURE.md).
const ROOT: &[&str] = &[
    ".ci",
    ".editorconfig",
    ".github",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "agent",
    "benches",
    "checkpointers",
    "cli",
    "clippy.toml",
    "control",
    "deny.toml",
    "docs",
    "examples",
    "journal",
    "macros",
    "runtime",
    "rustfmt.toml",
    "testkit",
    "tests",
];

/// Drawers for what nobody found a place for.
const VAGUE: &[&str] = &["common", "helper", "helpers", "misc", "types", "util", "utils"];

// Written in halves, so that this file passes its own checks.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const UNFINISHED_CODE: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];
const SKIPPED_TEST: &str = concat!("#[", "ignore");
const MACHINE: &[&str] = &[
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/", "home/"),
    concat!(".", "library"),
    concat!("/", "tmp/"),
];

#[test]
fn files_hold_one_idea() {
    every_file(|file| {
        let lines = file.text.lines().count();
        let excused = LONG.iter().any(|(path, _)| *path == file.path);
        match (file.is_shipped_rust() && lines > FILE_LINES_MAX, excused) {
            (true, false) => {
                vec![format!("{}: {lines} lines; give an idea its own file", file.path)]
            }
            (false, true) => vec![format!("{}: not long any more; leave LONG", file.path)],
            _ => Vec::new(),
        }
    });
    for (path, reason) in LONG {
        assert!(files().iter().any(|file| file.path == *path), "{path} is gone");
        assert!(reason.len() > 20, "{path} needs a reason");
    }
}

#[test]
fn functions_fit_a_screen() {
    every_file(long_functions);

    let body = "    let x = 1;\n".repeat(FUNCTION_LINES_MAX);
    let fits = Tracked::made_up("a/src/b.rs", &format!("pub async fn f() {{\n{body}}}\n"));
    assert!(long_functions(&fits).is_empty());
    let long = Tracked::made_up("a/src/b.rs", &format!("fn f() {{\n{body}    g();\n}}\n"));
    assert_eq!(long_functions(&long).len(), 1);
}

fn long_functions(file: &Tracked) -> Vec<String> {
    if !file.is_shipped_rust() {
        return Vec::new();
    }
    let lines: Vec<(usize, &str)> = file.code().collect();
    let mut problems = Vec::new();
    for (at, (first, line)) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let head = line.trim_start();
        let is_function = head.starts_with("fn ")
            || (head.starts_with("pub")
                || head.starts_with("async ")
                || head.starts_with("const "))
                && head.split('(').any(|part| part.contains(" fn "));
        if !is_function {
            continue;
        }
        // The code is formatted: a function ends at a brace, or is declared by a line that ends
        // with a semicolon, at the column where it began.
        let end = lines[at..].iter().find(|(_, line)| {
            line.len() - line.trim_start().len() == indent
                && (line.trim() == "}" || line.ends_with(';') || line.ends_with('}'))
        });
        if let Some((last, _)) = end
            && last - first > FUNCTION_LINES_MAX + 1
        {
            problems.push(format!("{}:{first}: {} lines; split it", file.path, last - first + 1));
        }
    }
    problems
}

#[test]
fn lines_fit_a_window() {
    every_file(wide_lines);

    let wide = "x".repeat(COLUMNS_MAX + 1);
    let found = |line: &str| wide_lines(&Tracked::made_up("x.rs", line)).len();
    assert_eq!(found(&format!("// {wide}\n")), 1);
    assert_eq!(found(&format!("//! | a table | {wide} |\n")), 0);
    assert_eq!(found(&format!("f(\"{wide}\");\n")), 0);
}

fn wide_lines(file: &Tracked) -> Vec<String> {
    if !file.ends_with(&[".rs", ".py", ".sh", ".ci/run"]) {
        return Vec::new();
    }
    // A table's row cannot be broken, a text is read better whole, and a hidden line is not read.
    let whole = |line: &str| line.contains('"') || line.ends_with('|') || line.contains("/// # ");
    file.lines()
        .filter(|(_, line)| line.chars().count() > COLUMNS_MAX && !whole(line))
        .map(|(n, _)| format!("{}:{n}: more than {COLUMNS_MAX} columns", file.path))
        .collect()
}

#[test]
fn white_space_is_plain() {
    every_file(white_space);

    for bad in ["a \nb\n", "a\r\n", "a", "\ta\n", "a\n\n"] {
        assert_eq!(white_space(&Tracked::made_up("x.rs", bad)).len(), 1, "{bad:?}");
    }
    assert!(white_space(&Tracked::made_up("x.rs", "a\n\n    b\n")).is_empty());
}

fn white_space(file: &Tracked) -> Vec<String> {
    if !file.ends_with(&[".rs", ".md", ".toml", ".py", ".sh", ".yml", ".ci/run"]) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (n, line) in (1..).zip(file.text.split_terminator('\n')) {
        if line.ends_with([' ', '\r']) || line.starts_with('\t') {
            problems.push(format!("{}:{n}: white space at the wrong place", file.path));
        }
    }
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        problems.push(format!("{}: a file ends with one line end", file.path));
    }
    problems
}

#[test]
fn nothing_is_left_unfinished() {
    every_file(unfinished);

    let marker = UNFINISHED[0];
    for bad in [format!("// {marker}: later\n"), format!("{}x)\n", UNFINISHED_CODE[2])] {
        assert_eq!(unfinished(&Tracked::made_up("x.rs", &bad)).len(), 1, "{bad:?}");
    }
    let skipped = format!("{SKIPPED_TEST} = \"slow\"]\n");
    assert_eq!(unfinished(&Tracked::made_up("x.rs", &skipped)).len(), 1);
    assert!(unfinished(&Tracked::made_up("x.rs", "let code = \"METHOD\";\n")).is_empty());
}

fn unfinished(file: &Tracked) -> Vec<String> {
    if !file.ends_with(&[".rs", ".py", ".sh", ".toml", ".yml", ".ci/run"]) {
        return Vec::new();
    }
    let mark = if file.path.ends_with(".rs") { "//" } else { "#" };
    let mut problems = Vec::new();
    for (n, line) in file.lines() {
        let comment = line.find(mark).map_or("", |at| &line[at..]);
        let marked =
            comment.split(|c: char| !c.is_alphanumeric()).any(|word| UNFINISHED.contains(&word));
        let coded = UNFINISHED_CODE.iter().any(|code| line.contains(code));
        if marked || coded || line.contains(SKIPPED_TEST) {
            problems.push(format!("{}:{n}: finish it or leave it out", file.path));
        }
    }
    problems
}

#[test]
fn shipped_code_says_what_it_imports() {
    every_file(imports_of_everything);

    let made_up = |text: &str| Tracked::made_up("a/src/b/c.rs", text);
    assert_eq!(imports_of_everything(&made_up("use super::*;\n")).len(), 1);
    assert_eq!(imports_of_everything(&made_up("use crate::desk::*;\n")).len(), 1);
    let tests = "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
    assert!(imports_of_everything(&made_up(tests)).is_empty());
}

/// Who reads a file learns from its head what it stands on.
fn imports_of_everything(file: &Tracked) -> Vec<String> {
    if !file.is_shipped_rust() {
        return Vec::new();
    }
    let all = |line: &&(usize, &str)| line.1.starts_with("use ") && line.1.ends_with("::*;");
    let lines: Vec<_> = file.code().collect();
    let found = lines.iter().filter(all);
    found.map(|(n, _)| format!("{}:{n}: name what is imported", file.path)).collect()
}

#[test]
fn every_module_has_a_name_that_says_something() {
    let vague = |file: &Tracked| {
        let mut parts = file.path.trim_end_matches(".rs").split('/');
        match file.path.ends_with(".rs") && parts.any(|part| VAGUE.contains(&part)) {
            true => vec![format!("{}: name it after what it holds", file.path)],
            false => Vec::new(),
        }
    };
    every_file(vague);
    assert_eq!(vague(&Tracked::made_up("runtime/src/utils/clock.rs", "")).len(), 1);
    assert_eq!(vague(&Tracked::made_up("runtime/src/types.rs", "")).len(), 1);
}

#[test]
fn every_rust_file_is_part_of_a_crate() {
    report(&dead_files(files()));

    let made_up = [
        Tracked::made_up("a/Cargo.toml", ""),
        Tracked::made_up("a/src/lib.rs", "mod b;\n"),
        Tracked::made_up("a/src/b.rs", ""),
        Tracked::made_up("a/src/forgotten.rs", ""),
    ];
    assert_eq!(dead_files(&made_up), ["a/src/forgotten.rs: no `mod forgotten;` names it"]);
}

fn dead_files(files: &[Tracked]) -> Vec<String> {
    let crate_of = |path: &str| {
        let manifests = files.iter().filter_map(|file| file.path.strip_suffix("Cargo.toml"));
        manifests.filter(|folder| path.starts_with(folder)).max_by_key(|folder| folder.len())
    };
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let mut names = file.path.trim_end_matches(".rs").rsplit('/');
        let name = match names.next() {
            Some("mod") => names.next().unwrap_or_default(),
            Some("lib" | "main" | "build") => continue,
            Some(name) => name,
            None => continue,
        };
        // Cargo finds these by their place, and trybuild by its list of cases.
        let by_place = ["/bin/", "/fuzz_targets/", "/compile_fail/", "/compile_pass/"];
        let in_tests = file.path.split_once("/tests/").map_or("/", |(_, inner)| inner);
        if file.path.starts_with("benches/")
            || by_place.iter().any(|place| file.path.contains(place))
            || (!in_tests.contains('/') && !file.path.contains("/src/"))
        {
            continue;
        }
        let home = crate_of(&file.path);
        let declared = format!("mod {name};");
        let named = files
            .iter()
            .filter(|other| other.path.ends_with(".rs") && crate_of(&other.path) == home)
            .any(|other| other.lines().any(|(_, line)| line.trim().ends_with(&declared)));
        if !named {
            problems.push(format!("{}: no `{declared}` names it", file.path));
        }
    }
    problems
}

#[test]
fn the_root_is_a_table_of_contents() {
    let strangers = |file: &Tracked| {
        let first = file.path.split('/').next().unwrap_or_default();
        match ROOT.contains(&first) {
            true => Vec::new(),
            false => vec![format!("{first}: not known at the root; find its folder")],
        }
    };
    every_file(strangers);
    assert_eq!(strangers(&Tracked::made_up("notes/progress.md", "")).len(), 1);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    every_file(machine_paths);

    let bad = format!("path = \"{}x\"\n", MACHINE[0]);
    assert_eq!(machine_paths(&Tracked::made_up("x.rs", &bad)).len(), 1);
    let relative = format!("checkpointers{}mod.rs\n", MACHINE[2]);
    assert!(machine_paths(&Tracked::made_up("x.md", &relative)).is_empty());
}

fn machine_paths(file: &Tracked) -> Vec<String> {
    let mut problems = Vec::new();
    for (n, line) in file.lines() {
        let named = MACHINE.iter().any(|path| {
            line.match_indices(path).any(|(at, _)| {
                // In `a/home/b` it is a folder of ours.
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-~$}".contains(c))
            })
        });
        if named {
            problems.push(format!("{}:{n}: a path of one machine", file.path));
        }
    }
    problems
}
