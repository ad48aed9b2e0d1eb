//! The golden vectors of the record format: `tests/fixtures/records-v1.json`, which
//! `verify_records.py` checks without this code.
//!
//! With `DEEDBOOK_BLESS=1` the answers are written anew from the questions; look at what changed,
//! since a released vector never changes.

use std::{collections::HashSet, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::*;
use crate::{hex, limits::ValueLimits, value};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: Vec<String>,
    chains: Vec<Chain>,
    /// Checked by the Python program: the journal has no SHA-256 before seals exist.
    roots: Vec<String>,
    tampered: Vec<Tampered>,
    malformed: Vec<Malformed>,
    tolerated: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chain {
    name: String,
    log_id: String,
    thread: String,
    records: Vec<Case>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    fields: Map<String, Value>,
    payloads: Vec<CasePayload>,
    /// The log id from this record on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_id: Option<String>,
    #[serde(default)]
    header: String,
    #[serde(default)]
    hash: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CasePayload {
    role: String,
    salt: String,
    bytes: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    erased: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tampered {
    name: String,
    record: usize,
    change: Change,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    HeaderByte(isize),
    Prev(String),
    PrevOf(usize),
    LogId(String),
    PayloadByte(usize, usize),
    SaltByte(usize, usize),
    Role(usize, String),
    Add(String, String),
    Cut(usize),
    Exchange(usize, usize),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Malformed {
    name: String,
    header: String,
}

fn bytes(text: &str) -> Vec<u8> {
    let digits = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// The records of a chain, each with its log id and the hash before it.
type Sealed = Vec<([u8; 16], RecordHash, Record)>;

fn seal(chain: &Chain) -> Sealed {
    let mut log_id: [u8; 16] = hex::decode(&chain.log_id).unwrap();
    let mut prev = RecordHash::ZERO;
    let mut sealed = Vec::new();
    for (n, case) in chain.records.iter().enumerate() {
        if let Some(id) = &case.log_id {
            log_id = hex::decode(id).unwrap();
        }
        let mut fields = case.fields.clone();
        for (name, value) in
            [("v", json!(1)), ("n", json!(n)), ("th", json!(chain.thread)), ("pay", json!({}))]
        {
            assert!(fields.insert(name.into(), value).is_none(), "{name}");
        }
        // The map is in the order of the names, as a header is.
        let text = serde_json::to_string(&fields).unwrap();
        let header = Header::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(header.to_bytes(), text.as_bytes(), "a field was not kept");
        let payloads = case.payloads.iter().map(|p| Payload {
            role: Role::from_word(&p.role).unwrap(),
            salt: hex::decode(&p.salt).unwrap(),
            bytes: bytes(&p.bytes).into(),
        });
        let (_, written) = Record::seal(&log_id, &prev, header, payloads.collect());
        let mut record = written.into_record();
        for (payload, case) in record.payloads.iter().zip(&case.payloads) {
            assert_eq!(payload.role.as_str(), case.role, "in the order of the roles");
            value::check(&payload.bytes, &ValueLimits::new()).unwrap();
        }
        let erased = |role: Role| {
            let mut cases = case.payloads.iter();
            cases.any(|p| p.role == role.as_str() && p.erased)
        };
        record.payloads.retain(|p| !erased(p.role));
        let hash = record.hash;
        sealed.push((log_id, prev, record));
        prev = hash;
    }
    sealed
}

fn file() -> (File, Vec<Sealed>) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../tests/fixtures/records-v1.json");
    let file: File = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let sealed: Vec<Sealed> = file.chains.iter().map(seal).collect();
    let mut answered = file.clone();
    for (chain, sealed) in answered.chains.iter_mut().zip(&sealed) {
        for (case, (_, _, record)) in chain.records.iter_mut().zip(sealed) {
            case.header = String::from_utf8(record.header.to_vec()).unwrap();
            case.hash = record.hash.to_string();
        }
    }
    if std::env::var_os("DEEDBOOK_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&answered).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    } else {
        assert!(file == answered, "the code and the vectors differ; verify_records.py says where");
    }
    (answered, sealed)
}

#[test]
fn records_follow_their_vectors() {
    let (_, sealed) = file();
    for (log_id, prev, record) in sealed.iter().flatten() {
        record.verify(log_id, prev).unwrap();
    }
}

#[test]
fn every_kind_role_and_field_has_a_vector() {
    let (file, _) = file();
    let cases = || file.chains.iter().flat_map(|c| &c.records);
    let kinds: HashSet<_> = cases().map(|c| c.fields["k"].as_str().unwrap()).collect();
    for kind in Kind::ALL {
        assert!(kinds.contains(kind.as_str()), "{kind:?}");
    }
    let roles: HashSet<_> = cases().flat_map(|c| &c.payloads).map(|p| &*p.role).collect();
    assert_eq!(roles.len(), Role::ALL.len());
    assert!(cases().flat_map(|c| &c.payloads).any(|p| p.erased));
    // The fields of the format are the first column of the table in record-format.md.
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page = root.join("../docs/reference/record-format.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split("## 4. Fields").nth(1).unwrap();
    let table = table.split("## 5.").next().unwrap();
    let row = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
    let documented: HashSet<String> = table.lines().filter_map(row).collect();
    let mut used: HashSet<String> = cases().flat_map(|c| c.fields.keys().cloned()).collect();
    used.extend(["v", "n", "th", "pay"].map(String::from));
    assert_eq!(used, documented);
}

#[test]
fn every_change_is_found() {
    let (file, sealed) = file();
    for case in &file.tampered {
        let (mut log_id, mut prev, mut record) = sealed[0][case.record].clone();
        record.verify(&log_id, &prev).unwrap();
        let payloads = &mut record.payloads;
        match &case.change {
            Change::HeaderByte(at) => {
                let mut header = record.header.to_vec();
                let at = at.rem_euclid(isize::try_from(header.len()).unwrap());
                header[usize::try_from(at).unwrap()] ^= 1;
                record.header = header.into();
            }
            Change::Prev(hash) => prev = RecordHash(hex::decode(hash).unwrap()),
            Change::PrevOf(n) => prev = sealed[0][*n].1,
            Change::LogId(id) => log_id = hex::decode(id).unwrap(),
            Change::PayloadByte(of, at) => {
                let mut bytes = payloads[*of].bytes.to_vec();
                bytes[*at] ^= 1;
                payloads[*of].bytes = bytes.into();
            }
            Change::SaltByte(of, at) => payloads[*of].salt[*at] ^= 1,
            Change::Role(of, role) => payloads[*of].role = Role::from_word(role).unwrap(),
            Change::Add(role, content) => payloads.push(Payload {
                role: Role::from_word(role).unwrap(),
                salt: [0; 32],
                bytes: bytes(content).into(),
            }),
            Change::Cut(of) => {
                let bytes = payloads[*of].bytes.to_vec();
                payloads[*of].bytes = bytes[..bytes.len() - 1].into();
            }
            Change::Exchange(a, b) => {
                let role = payloads[*a].role;
                payloads[*a].role = payloads[*b].role;
                payloads[*b].role = role;
            }
        }
        assert!(record.verify(&log_id, &prev).is_err(), "{}", case.name);
    }
}

#[test]
fn headers_in_another_form_are_refused_and_those_of_later_builds_are_not() {
    let (file, _) = file();
    for case in &file.malformed {
        assert!(Header::parse(case.header.as_bytes()).is_err(), "{}", case.name);
    }
    for header in &file.tolerated {
        Header::parse(header.as_bytes()).unwrap_or_else(|e| panic!("{header}: {e}"));
    }
}
