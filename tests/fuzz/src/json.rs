//! JSON that an operator types.

use deedbook_journal::{
    limits::ValueLimits,
    value::{self, view},
};
use serde::de::IgnoredAny;

use crate::{Broken, Target, fixture, good, same};

pub(crate) const TARGET: Target = Target {
    name: "json",
    promise: "what is taken is JSON, and is read back from how it is shown",
    run,
    seeds,
    words: &[
        "{\"$int\":\"1\"}",
        "{\"$f64\":\"8000000000000000\",\"$is\":\"-0\"}",
        "{\"$map\":[[1,2]]}",
        "{\"$bytes\":\"AAEC\"}",
        "{\"$ext\":[5,\"AA==\"]}",
        "\\u0000",
        "\\ud83d\\ude00",
        "\\ud83d",
        "1e400",
        "1e-400",
        "-0",
        "-0.0",
        "0.1",
        "18446744073709551616",
        "null",
        "true",
        "false",
        "[",
        "]",
        "{",
        "}",
        "\"a\":",
        ",",
        ":",
        " ",
        "\"",
        "\\",
    ],
    bytes_max: 1024,
};

fn run(input: &[u8]) -> Result<(), Broken> {
    let Ok(text) = std::str::from_utf8(input) else {
        return Ok(());
    };
    let limits = ValueLimits::new();
    let Ok(value) = view::from_json(text, &limits) else {
        return Ok(());
    };
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("it is no JSON: {error}"))?;
    value::check(&value, &limits).map_err(|error| error.to_string())?;
    let mut shown = String::new();
    view::to_json(&value, &mut shown).map_err(|error| error.to_string())?;
    same("read back", &good(&shown, view::from_json(&shown, &limits))?, &value)
}

fn seeds() -> Vec<Vec<u8>> {
    let shown = |value: Vec<u8>| {
        let mut shown = String::new();
        view::to_json(&value, &mut shown).ok()?;
        Some(shown.into_bytes())
    };
    let mut seeds: Vec<_> = fixture::values().into_iter().filter_map(shown).collect();
    seeds.extend(fixture::json());
    seeds
}
