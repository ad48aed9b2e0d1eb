//! The weight and the terms of what we depend on: few crates, no duplicates, permissive licences.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    sync::LazyLock,
};

use serde_json::Value;

use super::tree::{report, root};

/// Crates a user of `deedbook` builds beside our own: the figure in the README.
const CORE_MAX: usize = 31;

/// Features of tokio the core may ask for: no network, no macros, no signals.
const TOKIO: &[&str] = &["default", "rt", "sync", "time"];

/// One crate of the core, as `cargo tree` prints it.
struct Crate {
    name: String,
    version: String,
    features: BTreeSet<String>,
    ours: bool,
}

fn cargo(args: &[&str]) -> String {
    let done = Command::new(env!("CARGO")).args(args).current_dir(root()).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// What `cargo add deedbook` brings: normal and build dependencies, on this platform.
fn core() -> Vec<Crate> {
    let printed = cargo(&[
        "tree",
        "--locked",
        "--package=deedbook",
        "--edges=normal,build",
        "--prefix=none",
        "--no-dedupe",
        "--format={p}|{f}",
    ]);
    let mut crates = BTreeMap::new();
    for line in printed.lines().filter(|line| line.contains('|')) {
        let (package, features) = line.split_once('|').unwrap();
        let mut words = package.split(' ');
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        let found = Crate {
            name: name.to_owned(),
            version: version.to_owned(),
            features: features.split(',').filter(|f| !f.is_empty()).map(str::to_owned).collect(),
            ours: package.contains('/'),
        };
        crates.insert((found.name.clone(), found.version.clone()), found);
    }
    crates.into_values().collect()
}

/// Everything in the workspace, leaves and tests included, on this platform.
fn metadata() -> &'static Value {
    static METADATA: LazyLock<Value> = LazyLock::new(|| {
        let rustc = Command::new("rustc").arg("-vV").output().unwrap();
        let rustc = String::from_utf8(rustc.stdout).unwrap();
        let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        let platform = format!("--filter-platform={host}");
        let printed = cargo(&["metadata", "--locked", "--format-version=1", &platform]);
        serde_json::from_str(&printed).unwrap()
    });
    &METADATA
}

fn packages() -> &'static [Value] {
    metadata()["packages"].as_array().unwrap()
}

#[test]
fn the_core_stays_light() {
    let core = core();
    let foreign: Vec<&Crate> = core.iter().filter(|c| !c.ours).collect();
    let names: Vec<&str> = foreign.iter().map(|c| c.name.as_str()).collect();
    assert!(names.len() > 10, "cargo tree was not understood: {names:?}");
    assert!(names.len() <= CORE_MAX, "{} crates in the core: {names:?}", names.len());

    let ours: Vec<&str> = core.iter().filter(|c| c.ours).map(|c| c.name.as_str()).collect();
    assert!(ours.contains(&"deedbook") && ours.contains(&"deedbook-journal"), "{ours:?}");
}

#[test]
fn the_core_builds_nothing_twice() {
    let core = core();
    for pair in core.windows(2) {
        let (a, b) = (&pair[0], &pair[1]);
        assert_ne!(a.name, b.name, "{} {} and {}", a.name, a.version, b.version);
    }
}

#[test]
fn the_core_asks_for_few_features() {
    let core = core();
    let features = |name: &str| {
        let found = core.iter().find(|c| c.name == name);
        found.unwrap_or_else(|| panic!("{name} is in the core")).features.clone()
    };
    // `attributes` would bring a second syn; `log` a second way to say the same.
    for unwanted in ["default", "attributes", "tracing-attributes", "log"] {
        assert!(!features("tracing").contains(unwanted), "tracing with {unwanted}");
    }
    let tokio = features("tokio");
    let known: BTreeSet<String> = TOKIO.iter().map(|f| (*f).to_owned()).collect();
    assert!(tokio.is_subset(&known), "tokio with {:?}", &tokio - &known);
}

/// No account, no service, nothing that is sent anywhere: whoever adds the core adds no crate and
/// no feature that could open a connection.
#[test]
fn i33_the_core_reaches_no_network() {
    let core = core();
    let names: BTreeSet<&str> = core.iter().map(|c| c.name.as_str()).collect();
    for unwanted in ["mio", "socket2", "hyper", "reqwest", "ureq", "rustls", "native-tls", "h2"] {
        assert!(!names.contains(unwanted), "{unwanted} is in the core");
    }
    let tokio = core.iter().find(|c| c.name == "tokio").unwrap();
    assert!(!tokio.features.contains("net"));
}

#[test]
fn redb_is_pinned_and_used_by_the_journal_only() {
    let mut users = Vec::new();
    for package in packages().iter().filter(|p| p["source"].is_null()) {
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["name"] == "redb" {
                let wanted = dependency["req"].as_str().unwrap();
                assert!(wanted.starts_with('='), "redb is wanted as {wanted}");
                users.push(package["name"].as_str().unwrap());
            }
        }
    }
    assert_eq!(users, ["deedbook-journal"]);
}

#[test]
fn everything_comes_from_one_registry() {
    let sources: BTreeSet<&str> = packages().iter().filter_map(|p| p["source"].as_str()).collect();
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(sources.iter().all(|source| source.starts_with("registry+")), "{sources:?}");
}

#[test]
fn nothing_needs_a_newer_rust_than_we_say() {
    let number = |text: &str| -> Vec<u32> { text.split('.').map(|n| n.parse().unwrap()).collect() };
    let said = |package: &Value| package["rust_version"].as_str().map(number);
    let ours = packages().iter().find(|p| p["name"] == "deedbook").and_then(said).unwrap();
    let newer: Vec<String> = packages()
        .iter()
        .filter(|package| said(package).is_some_and(|theirs| theirs > ours))
        .map(|package| format!("{} needs Rust {}", package["name"], package["rust_version"]))
        .collect();
    report(&newer);
}

#[test]
fn every_licence_is_permissive() {
    let allowed = allowed_licences();
    let mut problems = Vec::new();
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or("none");
        if !satisfied(licence, &allowed) {
            problems.push(format!("{} is under {licence}", package["name"]));
        }
    }
    report(&problems);
}

/// The list in `deny.toml`, so that there is one.
fn allowed_licences() -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let section = text.split("\n[licenses]\n").nth(1).expect("deny.toml has [licenses]");
    let list = section.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let names: Vec<String> = list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(names.iter().any(|name| name == "MIT"), "{names:?}");
    names
}

/// Whether a licence expression can be met by licences of the list.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    // Of old, `/` meant `OR`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = any_of(&mut rest, allowed);
    met && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = all_of(words, allowed);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        met |= all_of(words, allowed);
    }
    met
}

fn all_of(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = one(words, allowed);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut &[&str], allowed: &[String]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let met = any_of(words, allowed);
            *words = words.strip_prefix(&[")"]).unwrap_or(words);
            met
        }
        // An exception only adds permissions.
        [name, "WITH", _, rest @ ..] | [name, rest @ ..] => {
            *words = rest;
            allowed.iter().any(|known| known == name)
        }
        [] => false,
    }
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = ["MIT".to_owned(), "Apache-2.0".to_owned()];
    for fine in [
        "MIT",
        "MIT/GPL-3.0-only",
        "GPL-2.0-only OR MIT AND Apache-2.0",
        "(GPL-2.0-only OR MIT) AND Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(satisfied(fine, &allowed), "{fine}");
    }
    for wrong in [
        "none",
        "",
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "(MIT OR Apache-2.0) AND LGPL-2.1-only",
        "MIT Apache-2.0",
    ] {
        assert!(!satisfied(wrong, &allowed), "{wrong}");
    }
}
