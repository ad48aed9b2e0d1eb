//! The golden vectors that every front end runs: `tests/fixtures/canonical-v1.json` and
//! `keys-v1.json`.
//!
//! With `DEEDBOOK_BLESS=1` the answers are written anew from the questions; look at what changed,
//! since a released vector never changes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::*;
use crate::{
    hex,
    id::{Branch, Name, ThreadId},
    key::{KeyIdentity, KeyScope, Namespace, OperationKey},
};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CanonicalFile {
    about: Vec<String>,
    secret: String,
    cases: Vec<CanonicalCase>,
    equal: Vec<Vec<String>>,
    distinct: Vec<Vec<String>>,
    refused: Vec<RefusedCase>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CanonicalCase {
    name: String,
    #[serde(flatten)]
    input: Input,
    #[serde(default)]
    canonical: String,
    #[serde(default)]
    fingerprint: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Input {
    Json(String),
    Msgpack(String),
}

impl Input {
    fn canonical(&self) -> Result<Vec<u8>, ValueError> {
        let bytes = match self {
            Self::Json(text) => view::from_json(text, &limits())?,
            Self::Msgpack(text) => bytes(text),
        };
        canonical::of_msgpack(&bytes, &limits())
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct RefusedCase {
    name: String,
    #[serde(flatten)]
    input: Input,
    why: Why,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Why {
    Json,
    Duplicate,
    Number,
    Malformed,
    Depth,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    about: Vec<String>,
    cases: Vec<KeyCase>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyCase {
    name: String,
    namespace: String,
    /// `null` is the scope of the whole journal.
    thread: Option<String>,
    step: String,
    identity: KeyCaseIdentity,
    generation: u64,
    #[serde(default)]
    key: String,
    #[serde(default)]
    uuid: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum KeyCaseIdentity {
    Positional { episode: u32, branch: Vec<String>, occurrence: u32 },
    Arguments { json: String, occurrence: u32 },
    Key(String),
}

fn bytes(text: &str) -> Vec<u8> {
    let digits = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

fn path(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../tests/fixtures").join(name)
}

/// Compares the file with what `answer` makes of it, or writes that.
fn check_file<T>(name: &str, answer: impl FnOnce(&mut T)) -> T
where
    T: DeserializeOwned + Serialize + PartialEq + Clone + std::fmt::Debug,
{
    let text = std::fs::read_to_string(path(name)).unwrap();
    let file: T = serde_json::from_str(&text).unwrap();
    let mut answered = file.clone();
    answer(&mut answered);
    if std::env::var_os("DEEDBOOK_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&answered).unwrap();
        std::fs::write(path(name), text + "\n").unwrap();
    } else {
        assert_eq!(file, answered, "{name}");
    }
    answered
}

#[test]
fn canonical_form_follows_its_vectors() {
    let file: CanonicalFile = check_file("canonical-v1.json", |file: &mut CanonicalFile| {
        let secret = hex::decode(&file.secret).unwrap();
        for case in &mut file.cases {
            let canonical = case.input.canonical().unwrap_or_else(|e| panic!("{}: {e}", case.name));
            case.fingerprint = Fingerprint::of(&secret, &canonical).to_string();
            case.canonical = hex::encode(&canonical);
        }
    });
    let of = |name: &String| {
        let mut found = file.cases.iter().filter(|case| case.name == *name);
        let case = found.next().unwrap_or_else(|| panic!("no case {name}"));
        assert!(found.next().is_none(), "two cases {name}");
        &case.canonical
    };
    for group in &file.equal {
        assert!(group.iter().all(|name| of(name) == of(&group[0])), "{group:?}");
    }
    for group in &file.distinct {
        let mut forms: Vec<_> = group.iter().map(of).collect();
        forms.sort();
        forms.dedup();
        assert_eq!(forms.len(), group.len(), "{group:?}");
    }
    for case in &file.refused {
        let error = case.input.canonical().expect_err(&case.name);
        let why = match error.kind() {
            ValueErrorKind::Json => Why::Json,
            ValueErrorKind::DuplicateKey => Why::Duplicate,
            ValueErrorKind::NotCanonical => Why::Number,
            ValueErrorKind::TooDeep => Why::Depth,
            _ => Why::Malformed,
        };
        assert_eq!(why, case.why, "{}: {error}", case.name);
    }
}

#[test]
fn operation_keys_follow_their_vectors() {
    let file: KeyFile = check_file("keys-v1.json", |file: &mut KeyFile| {
        for case in &mut file.cases {
            let key = case_key(case);
            case.key = key.to_string();
            case.uuid = key.to_uuid().to_string();
        }
    });
    let mut keys: Vec<_> = file.cases.iter().map(|case| &case.key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), file.cases.len());
}

fn case_key(case: &KeyCase) -> OperationKey {
    let thread = case.thread.as_ref().map(|id| ThreadId::new(id).unwrap());
    let scope = thread.as_ref().map_or(KeyScope::Journal, KeyScope::Thread);
    let parts = |names: &[String]| names.iter().map(|n| Name::new(n).unwrap()).collect();
    let (branch, canonical);
    let identity = match &case.identity {
        KeyCaseIdentity::Positional { episode, branch: names, occurrence } => {
            branch = Branch::new(parts(names)).unwrap();
            KeyIdentity::Positional { episode: *episode, branch: &branch, occurrence: *occurrence }
        }
        KeyCaseIdentity::Arguments { json, occurrence } => {
            canonical = Input::Json(json.clone()).canonical().unwrap();
            KeyIdentity::Arguments { canonical: &canonical, occurrence: *occurrence }
        }
        KeyCaseIdentity::Key(key) => KeyIdentity::Key(key),
    };
    let namespace = Namespace(hex::decode(&case.namespace).unwrap());
    OperationKey::derive(&namespace, scope, &case.step, identity, case.generation)
}
