//! Exports that anybody may have written.

use std::{collections::BTreeMap, io::BufReader};

use deedbook_journal::{
    hex,
    record::{Header, RecordHash},
};
use serde_json::Value;

use crate::{
    Broken, Target,
    fixture::{self, Which},
    header,
};

pub(crate) const TARGET: Target = Target {
    name: "export",
    promise: "an export is consistent only if its hashes are, and is told damaged or unknown else",
    run,
    seeds,
    words: header::WORDS,
    bytes_max: 8192,
};

/// A byte that says whether hashes are put right first, then the lines.
fn run(input: &[u8]) -> Result<(), Broken> {
    let Some((how, lines)) = input.split_first() else {
        return Ok(());
    };
    let right;
    let lines = match how & 1 {
        0 => lines,
        _ => {
            right = put_right(lines);
            &right
        }
    };
    // So small a buffer that lines do not end with it.
    let (code, said) = deedbook_cli::verify_export(BufReader::with_capacity(64, lines));
    if said.chars().any(|c| c.is_control() && c != '\n') {
        return Err(format!("what is said is not safe: {said:?}"));
    }
    match code {
        0 => consistent(lines),
        1 if said.contains("export version") => Ok(()),
        3 if said.contains("problem") => Ok(()),
        _ => Err(format!("it ended with {code} and said {said:?}")),
    }
}

fn lines_of(export: &[u8]) -> impl Iterator<Item = &[u8]> {
    export.split(|byte| *byte == b'\n')
}

fn log_id(export: &[u8]) -> Option<[u8; 16]> {
    let first: Value = serde_json::from_slice(lines_of(export).next()?).ok()?;
    hex::decode(first["export"]["log_id"].as_str()?)
}

/// Gives each line the hash that its header has, and says the hash before.
fn put_right(export: &[u8]) -> Vec<u8> {
    let log_id = log_id(export).unwrap_or_default();
    let mut heads: BTreeMap<String, RecordHash> = BTreeMap::new();
    let mut right = Vec::new();
    for line in lines_of(export) {
        if !right.is_empty() {
            right.push(b'\n');
        }
        let read = serde_json::from_slice::<Value>(line);
        match read {
            Ok(Value::Object(mut line)) if line.get("rec").is_some_and(Value::is_object) => {
                let header = serde_json::to_vec(&line["rec"]).unwrap();
                let thread = line["rec"]["th"].as_str().unwrap_or_default().to_owned();
                let before = heads.get(&thread).copied();
                let hash = RecordHash::of(&log_id, &before.unwrap_or_default(), &header);
                heads.insert(thread, hash);
                line.insert("hash".into(), hash.to_string().into());
                match before {
                    Some(before) => drop(line.insert("prev".into(), before.to_string().into())),
                    None => drop(line.remove("prev")),
                }
                right.extend(serde_json::to_vec(&line).unwrap());
            }
            _ => right.extend(line),
        }
    }
    right
}

/// The chain once more, by code of its own.
fn consistent(export: &[u8]) -> Result<(), Broken> {
    let log_id = log_id(export).ok_or("consistent, and without a log id")?;
    let mut heads: BTreeMap<String, (u64, RecordHash)> = BTreeMap::new();
    for line in lines_of(export) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        let Some(rec) = line.get("rec") else {
            continue;
        };
        let bytes = serde_json::to_vec(rec).map_err(|error| error.to_string())?;
        let header = Header::parse(&bytes).map_err(|error| format!("consistent, and {error}"))?;
        let (next, head) = heads.entry(header.thread.as_str().to_owned()).or_default();
        let hash = RecordHash::of(&log_id, head, &bytes);
        if line["hash"] != hash.to_string() || header.n != *next {
            return Err(format!("consistent, and record {} is not {hash}", header.n));
        }
        (*next, *head) = (*next + 1, hash);
    }
    Ok(())
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for export in &fixture::journal(Which::Closed).exports {
        let lines: Vec<&str> = export.lines().collect();
        for how in [0, 1] {
            let with = |text: &str| [&[how], text.as_bytes()].concat();
            seeds.push(with(export));
            // Cut, and with an end that follows too early.
            let front = lines[..3].join("\n");
            seeds.push(with(&front));
            seeds.push(with(&format!("{front}\n{}\n", lines[lines.len() - 1])));
            seeds.push(with(&export.replace("\"v\":1", "\"v\":2")));
        }
    }
    seeds
}
