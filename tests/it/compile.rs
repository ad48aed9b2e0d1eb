//! The compiler says what is wrong in the words of this crate, where it is wrong; and everything
//! that the design says works compiles. One `cargo check` of a package made of
//! `tests/compile_fail` and `tests/compile_pass`.
//!
//! In a case, `//~ text` asks for an error that says so, and `//~ here` for one on its line; a
//! case without either must compile.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// A case: what its errors must say, and on which lines.
#[derive(Debug, Default)]
struct Case {
    says: Vec<String>,
    lines: Vec<u64>,
}

/// The errors of a case, as shown, and the lines that they point at.
#[derive(Debug, Default)]
struct Errors {
    shown: String,
    lines: Vec<u64>,
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_path_buf()
}

fn cases() -> BTreeMap<String, (PathBuf, Case)> {
    let mut cases = BTreeMap::new();
    let files = ["compile_fail", "compile_pass"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root().join("tests").join(folder)).unwrap());
    for file in files {
        let path = file.unwrap().path();
        let mut case = Case::default();
        for (number, line) in (1..).zip(fs::read_to_string(&path).unwrap().lines()) {
            match line.split_once("//~ ") {
                Some((_, "here")) => case.lines.push(number),
                Some((_, text)) => case.says.push(text.to_owned()),
                None => {}
            }
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        cases.insert(name, (path, case));
    }
    cases
}

/// Writes the package whose programs are the cases.
fn package(directory: &Path, cases: &BTreeMap<String, (PathBuf, Case)>) {
    let root = root();
    let mut manifest = format!(
        "[package]\nname = \"ui\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\ndeedbook = {{ path = {:?}, features = [\"macros\"] }}\nserde = {{ version = \"1\", features = \
         [\"derive\"] }}\nfutures = {{ version = \"0.3\", default-features = false, features = \
         [\"std\", \"async-await\"] }}\ntokio = {{ version = \"1\", default-features = false, \
         features = [\"rt\", \"macros\"] }}\n",
        root.join("runtime"),
    );
    for (name, (path, _)) in cases {
        manifest += &format!("\n[[bin]]\nname = {name:?}\npath = {path:?}\n");
    }
    fs::write(directory.join("Cargo.toml"), manifest).unwrap();
    // The versions that everything else was built with.
    fs::copy(root.join("Cargo.lock"), directory.join("Cargo.lock")).unwrap();
}

/// Checks every case and returns the errors of each.
fn check(directory: &Path) -> BTreeMap<String, Errors> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui");
    // The compiler beside this cargo: a dependency's folder may ask for another toolchain.
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let output = Command::new(env!("CARGO"))
        .env("RUSTC", rustc)
        .args(["check", "--bins", "--keep-going", "--offline", "--quiet"])
        .arg("--message-format=json")
        .arg("--target-dir")
        .arg(target)
        .current_dir(directory)
        .output()
        .unwrap();
    let mut errors: BTreeMap<String, Errors> = BTreeMap::new();
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines() {
        let said: Value = serde_json::from_str(line).unwrap();
        let message = &said["message"];
        if said["reason"] != "compiler-message" || message["level"] != "error" {
            continue;
        }
        let case = said["target"]["name"].as_str().unwrap();
        let errors = errors.entry(case.to_owned()).or_default();
        errors.shown += message["rendered"].as_str().unwrap();
        let spans = message["spans"].as_array().unwrap().iter();
        let primary = spans.filter(|span| span["is_primary"] == true);
        errors.lines.extend(primary.filter_map(|span| span["line_start"].as_u64()));
    }
    assert!(
        text.contains("build-finished") && !errors.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    errors
}

#[test]
fn mistakes_are_told_where_they_are_and_everything_else_compiles() {
    let cases = cases();
    assert!(cases.len() >= 6, "cases are missing");
    let directory = tempfile::tempdir().unwrap();
    package(directory.path(), &cases);
    let errors = check(directory.path());
    for (name, (_, case)) in &cases {
        let Some(found) = errors.get(name) else {
            let others: Vec<_> = errors.keys().collect();
            assert!(case.says.is_empty(), "{name} compiles, and must not: {others:?}");
            continue;
        };
        assert!(!case.says.is_empty(), "{name} does not compile:\n{}", found.shown);
        for text in &case.says {
            assert!(found.shown.contains(text), "{name}: {text:?} in\n{}", found.shown);
        }
        for line in &case.lines {
            assert!(found.lines.contains(line), "{name}: on line {line}\n{}", found.shown);
        }
    }
}
