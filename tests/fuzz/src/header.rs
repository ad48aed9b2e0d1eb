//! Headers.

use deedbook_journal::{embedded::bare, record::Header};
use serde_json::Value;

use crate::{Broken, Target, fixture, same};

pub(crate) const TARGET: Target = Target {
    name: "header",
    promise: "a header that is read is JSON, is written again as it was, and replay reads the same",
    run,
    seeds: fixture::headers,
    words: WORDS,
    bytes_max: 2048,
};

/// The members that a header may have, and what stands in them.
pub(crate) const WORDS: &[&str] = &[
    "\"abandon\":true,",
    "\"appr\":1,",
    "\"att\":1,",
    "\"att_max\":3,",
    "\"bkey\":\"b\",",
    "\"br\":[\"a\"],",
    "\"build\":\"1\",",
    "\"by\":\"a\",",
    "\"call\":2,",
    "\"carry\":[1],",
    "\"doubts\":1,",
    "\"due\":\"2026-11-29T12:00:00.000000000Z\",",
    "\"e\":1,",
    "\"ep\":1,",
    "\"gen\":1,",
    "\"heads\":",
    "\"idk\":\"key\",",
    "\"idk\":\"args\",",
    "\"k\":\"step.intent\",",
    "\"k\":\"step.done\",",
    "\"key\":\"k\",",
    "\"msg\":",
    "\"n\":1,",
    "\"occ\":1,",
    "\"pay\":{}",
    "\"pol\":\"idempotent\",",
    "\"proc\":0,",
    "\"quiet_ms\":1,",
    "\"ref\":\"t\",",
    "\"ref_hash\":",
    "\"ref_n\":1,",
    "\"role\":\"args\",",
    "\"root\":",
    "\"rule\":\"r\",",
    "\"run\":0,",
    "\"size\":1,",
    "\"step\":\"pay\",",
    "\"t\":\"2026-11-29T12:00:00.000000007Z\",",
    "\"th\":\"t\",",
    "\"timeout_ms\":1,",
    "\"v\":1",
    "\"verdict\":\"granted\",",
    "\"wf\":\"w\",",
    "\"why\":\"w\",",
    "\"window_ms\":1,",
    "\\u0001",
    "\\\"",
    "\\n",
    "\\ud83d",
    "{",
    "}",
    "[",
    "]",
];

/// Every name of a member; others are passed over, and are not written again.
const NAMES: &[&str] = &[
    "abandon",
    "appr",
    "att",
    "att_max",
    "bkey",
    "br",
    "build",
    "by",
    "call",
    "carry",
    "doubts",
    "due",
    "e",
    "ep",
    "gen",
    "heads",
    "idk",
    "k",
    "key",
    "msg",
    "n",
    "occ",
    "pay",
    "pol",
    "proc",
    "quiet_ms",
    "ref",
    "ref_hash",
    "ref_n",
    "role",
    "root",
    "rule",
    "run",
    "size",
    "step",
    "t",
    "th",
    "timeout_ms",
    "v",
    "verdict",
    "wf",
    "why",
    "window_ms",
];

fn run(input: &[u8]) -> Result<(), Broken> {
    let Ok(header) = Header::parse(input) else {
        return Ok(());
    };
    let written = header.to_bytes();
    same("read again", &Header::parse(&written), &Ok(header))?;
    bare::gist_agrees(input)?;
    bare::gist_agrees(&written)?;
    let json: Value = serde_json::from_slice(input).map_err(|e| format!("it is no JSON: {e}"))?;
    let members = json.as_object().ok_or("it is no object")?;
    if members.keys().all(|name| NAMES.contains(&name.as_str())) {
        let text = String::from_utf8_lossy;
        same("written again", &text(&written), &text(input))?;
    }
    Ok(())
}
