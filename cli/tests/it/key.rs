//! Operation keys.

use super::book::Book;

#[test]
fn keys_are_those_of_the_golden_vectors() {
    let book = Book::none();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/keys-v1.json");
    let vectors: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(fixture).unwrap()).unwrap();
    let mut checked = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let mut args = vec!["key".to_owned()];
        let mut option = |name: &str, value: &serde_json::Value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // One argument, so that values may begin with a dash.
            args.push(format!("--{name}={text}"));
        };
        option("namespace", &case["namespace"]);
        option("step", &case["step"]);
        option("generation", &case["generation"]);
        match case["thread"].as_str() {
            Some(_) => option("thread", &case["thread"]),
            None => option("scope", &"journal".into()),
        }
        let identity = &case["identity"];
        if let Some(place) = identity.get("positional") {
            option("episode", &place["episode"]);
            option("occurrence", &place["occurrence"]);
            for part in place["branch"].as_array().unwrap() {
                option("branch", part);
            }
        } else if let Some(arguments) = identity.get("arguments") {
            option("by-arguments", &arguments["json"]);
            option("occurrence", &arguments["occurrence"]);
        } else {
            option("key", &identity["key"]);
        }
        // A command line cannot hold it.
        if args.iter().any(|a| a.contains('\0')) {
            continue;
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let object = book.json(&args).remove(0);
        assert_eq!(object["key"], case["key"], "{args:?}");
        assert_eq!(object["uuid"], case["uuid"], "{args:?}");
        checked += 1;
    }
    assert!(checked >= 15, "{checked}");
}

#[test]
fn a_key_needs_a_journal_or_a_namespace() {
    let book = Book::new();
    let namespace = "07".repeat(16);
    let with = |args: &[&str]| book.ok(&[&["key"], args].concat());
    let first = with(&["--thread", "t", "--step", "pay"]);
    assert!(first.starts_with("dk1_") && first.len() == 53, "{first}");
    let none = Book::none();
    let same = none.ok(&["key", "--thread", "t", "--step", "pay", "--namespace", &namespace]);
    assert_eq!(first, same);
    let keys = [
        first.clone(),
        with(&["--thread", "t", "--step", "pay", "--occurrence", "1"]),
        with(&["--thread", "t", "--step", "pay", "--branch", "left"]),
        with(&["--thread", "t", "--step", "pay", "--branch", "left", "--branch", "x"]),
        with(&["--thread", "t", "--step", "pay", "--episode", "1"]),
        with(&["--thread", "t", "--step", "pay", "--generation", "1"]),
        with(&["--thread", "t", "--step", "pay", "--key", "k"]),
        with(&["--scope", "journal", "--step", "pay", "--key", "k"]),
        with(&["--thread", "t", "--step", "pay", "--by-arguments", r#"{"n":100}"#]),
    ];
    let distinct: std::collections::HashSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
    for spelling in [r#"{"n":1e2}"#, r#"{"n":100.0}"#] {
        let key = with(&["--thread", "t", "--step", "pay", "--by-arguments", spelling]);
        assert_eq!(key, keys[8]);
    }
    let object = book.json(&["key", "--thread", "t", "--step", "pay"]).remove(0);
    assert_eq!(format!("{}\n", object["key"].as_str().unwrap()), first);
    assert_eq!(object["namespace"], namespace);
    for args in [
        &["key", "--step", "pay"][..],
        &["key", "--thread", "t"],
        &["key", "--thread", "t", "--step", "pay", "--key", "k", "--by-arguments", "1"],
        &["key", "--thread", "t", "--step", "pay", "--key", "k", "--branch", "b"],
    ] {
        assert_eq!(book.run(args).code, 2, "{args:?}");
    }
    let args = ["key", "--thread", "t", "--step", "s", "--by-arguments", r#"{"a":1,"a":2}"#];
    assert_eq!(book.run(&args).code, 1);
}
