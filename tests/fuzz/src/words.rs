//! Names, hex, base64, and text that is made safe.

use deedbook_journal::{
    hex,
    id::{Branch, Name, ThreadId},
    value::text,
};

use crate::{Broken, Target, same};

pub(crate) const TARGET: Target = Target {
    name: "words",
    promise: "what is written is read back; what is made safe has nothing that a terminal acts on",
    run,
    seeds,
    words: &["deedbook:", "\u{1b}[31m", "\u{202e}", "'", "\\", "=", "==", "\u{0}", "é", "🙂"],
    bytes_max: 1100,
};

fn run(input: &[u8]) -> Result<(), Broken> {
    let mut base64 = String::new();
    text::write_base64(&mut base64, input).map_err(|error| error.to_string())?;
    same("base64", &text::read_base64(&base64), &Some(input.to_vec()))?;
    if let Some(bytes) = input.first_chunk::<16>() {
        let digits = hex::encode(bytes);
        same("hex", &hex::decode::<16>(&digits), &Some(*bytes))?;
    }
    let _ = text::shell_word(input);
    let Ok(word) = std::str::from_utf8(input) else {
        return Ok(());
    };
    if let Some(bytes) = text::read_base64(word) {
        let mut again = String::new();
        text::write_base64(&mut again, &bytes).map_err(|error| error.to_string())?;
        same("base64 of one spelling", &again.as_str(), &word)?;
    }
    if let Some(bytes) = hex::decode::<4>(word) {
        same("hex of one spelling", &hex::encode(&bytes).as_str(), &word)?;
    }
    let mut safe = String::new();
    text::write_safe(&mut safe, word).map_err(|error| error.to_string())?;
    if safe.chars().any(text::is_unsafe) {
        return Err(format!("{safe:?} is not safe"));
    }
    let mut json = String::new();
    text::write_json_string(&mut json, word).map_err(|error| error.to_string())?;
    if json.chars().any(text::is_unsafe) {
        return Err(format!("{json:?} is not safe"));
    }
    let read: String = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    same("JSON", &read.as_str(), &word)?;
    names(word)
}

fn names(word: &str) -> Result<(), Broken> {
    if let Ok(id) = ThreadId::new(word) {
        same("a thread", &id.as_str(), &word)?;
        if id.is_reserved() {
            return Err(format!("{id:?} is reserved"));
        }
    }
    if ThreadId::new(word).is_ok() && ThreadId::any(word).is_err() {
        return Err(format!("{word:?} is a thread and none"));
    }
    let parts: Result<Vec<_>, _> = word.split('/').map(Name::new).collect();
    if let Ok(parts) = parts
        && let Ok(branch) = Branch::new(parts.clone())
    {
        same("a branch", &branch.parts(), &parts.as_slice())?;
    }
    Ok(())
}

fn seeds() -> Vec<Vec<u8>> {
    let seeds = [
        "order-4821",
        "deedbook:system",
        "a/b/c",
        "🙂 \u{1b}[31mred\u{1b}[0m",
        "AAECAw==",
        "0001020304050607",
        "it's",
        "\u{202e}txt.exe",
        "",
        "line\nline\t\u{0}",
        "00ff00fe",
    ];
    seeds.map(|seed| seed.as_bytes().to_vec()).into()
}
