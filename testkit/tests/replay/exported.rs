//! Exports as the tool writes them, and exports that were spoilt. That files of the tool itself
//! are read is tested with the refund agent's.

use std::{fmt::Write, sync::Arc};

use deedbook::Checkpointer;
use deedbook_journal::{
    hex,
    record::{Header, Record, RecordHash},
    value::{text, view},
};

fn line(header: &Header, record: &Record, prev: Option<RecordHash>, leaf: u64) -> String {
    let mut out = format!("{{\"rec\":{}", std::str::from_utf8(&record.header).unwrap());
    write!(out, ",\"hash\":\"{}\"", record.hash).unwrap();
    if let Some(prev) = prev {
        write!(out, ",\"prev\":\"{prev}\"").unwrap();
    }
    write!(out, ",\"leaf\":{leaf},\"pay\":{{").unwrap();
    for (number, commitment) in header.payloads.iter().enumerate() {
        let payload = record.payload(commitment.role).unwrap();
        let comma = if number > 0 { "," } else { "" };
        let (role, salt) = (commitment.role.as_str(), hex::encode(&payload.salt));
        write!(out, "{comma}\"{role}\":{{\"salt\":\"{salt}\",\"bin\":\"").unwrap();
        text::write_base64(&mut out, &payload.bytes).unwrap();
        out.push_str("\",\"view\":");
        view::to_json(&payload.bytes, &mut out).unwrap();
        out.push('}');
    }
    out + "}}\n"
}

/// All records of a journal.
pub(crate) async fn lines(home: &Arc<dyn Checkpointer>) -> String {
    let log_id = hex::encode(&home.identity().log_id);
    let mut out = opening(&log_id, "null");
    let log = home.log(0, 10_000).await.unwrap().items;
    for entry in &log {
        let page = home.read(&entry.thread, 0, usize::MAX).await.unwrap().items;
        let n = usize::try_from(entry.n).unwrap();
        let header = Header::parse(&page[n].1.header).unwrap();
        let prev = n.checked_sub(1).map(|before| page[before].1.hash);
        out += &line(&header, &page[n].1, prev, entry.index);
    }
    out + &closing(log.len(), 0)
}

fn opening(log_id: &str, thread: &str) -> String {
    format!(
        "{{\"export\":{{\"v\":1,\"log_id\":\"{log_id}\",\"thread\":{thread},\"time\":\"then\",\
         \"tool\":\"a test\"}}}}\n"
    )
}

fn closing(records: usize, erased: usize) -> String {
    format!(
        "{{\"end\":{{\"records\":{records},\"threads\":0,\"payloads\":0,\"erased\":{erased},\
         \"kinds\":{{}}}}}}\n"
    )
}

/// These records of one thread, as an export of that thread alone.
pub(crate) fn of_one(whole: &str, thread: &str, records: &[&str]) -> String {
    let first = whole.lines().next().unwrap();
    let log_id = first.split("\"log_id\":\"").nth(1).unwrap().split('"').next().unwrap();
    let mut out = opening(log_id, &format!("\"{thread}\""));
    for record in records {
        let (before, rest) = record.split_once(",\"leaf\":").unwrap();
        let (_leaf, pay) = rest.split_once(",\"pay\"").unwrap();
        out += &format!("{before},\"pay\"{pay}\n");
    }
    out + &closing(records.len(), 0)
}

/// The same export with the payloads of the first record of this kind erased.
pub(crate) fn erased(whole: &str, thread: &str, kind: &str) -> String {
    let (of, word) = (format!("\"th\":\"{thread}\""), format!("\"k\":\"{kind}\""));
    let mut gone = 0;
    let mut out = String::new();
    for line in whole.lines() {
        if gone == 0 && line.contains(&of) && line.contains(&word) {
            let (record, pay) = line.rsplit_once("\"pay\":{\"").unwrap();
            let role = pay.split('"').next().unwrap();
            out += &format!("{record}\"pay\":{{\"{role}\":null}}}}\n");
            gone = 1;
        } else if line.starts_with("{\"end\"") {
            out += &line.replace("\"erased\":0", &format!("\"erased\":{gone}"));
            out.push('\n');
        } else {
            out += line;
            out.push('\n');
        }
    }
    assert_eq!(gone, 1, "no {kind} in {thread}");
    out
}
