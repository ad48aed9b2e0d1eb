//! MessagePack values.

use std::collections::BTreeMap;

use deedbook_journal::{
    limits::ValueLimits,
    value::{self, canonical, view},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Broken, Target, fixture, good, same};

pub(crate) const TARGET: Target = Target {
    name: "msgpack",
    promise: "what decodes is encoded to the same value; its reading leads back to it",
    run,
    seeds: fixture::values,
    words: &["\u{1}", "amount", "$int", "$f64", "$bytes", "$map", "note", "pair"],
    bytes_max: 1024,
};

/// A value of many forms.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    amount: Option<u64>,
    note: String,
    #[serde(default)]
    pair: Option<(i8, char)>,
    #[serde(default)]
    wide: Option<i128>,
    #[serde(default)]
    map: BTreeMap<String, Option<Choice>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Choice {
    None,
    One(u16),
    Two { a: bool, b: Vec<u32> },
}

fn run(input: &[u8]) -> Result<(), Broken> {
    let limits = ValueLimits::new();
    let sound = value::check(input, &limits).is_ok();
    decoded::<Sample>(input, sound)?;
    decoded::<serde_json::Value>(input, sound)?;
    decoded::<Vec<Option<String>>>(input, sound)?;
    decoded::<BTreeMap<i64, u128>>(input, sound)?;
    let canonical = canonical::of_msgpack(input, &limits);
    if !sound {
        let none = canonical.is_err();
        return if none { Ok(()) } else { Err("it is malformed and has a canonical form".into()) };
    }
    let (front, back) = input.split_at(input.len() / 2);
    let _ = value::diff(front, back, &["/a".into()]);
    if !value::diff(input, input, &[]).is_empty() {
        return Err("it differs from itself".into());
    }
    let mut reading = String::new();
    if let Err(error) = view::to_json(input, &mut reading) {
        let bad_text = canonical.is_err();
        return if bad_text { Ok(()) } else { Err(format!("it cannot be read: {error}")) };
    }
    let Ok(canonical) = canonical else {
        return Ok(());
    };
    let read = view::from_json(&reading, &limits)
        .map_err(|error| format!("its reading {reading} is refused: {error}"))?;
    let form = good("the form of the reading", canonical::of_msgpack(&read, &limits))?;
    same("the form of the reading", &form, &canonical)?;
    let mut again = String::new();
    view::to_json(&read, &mut again).map_err(|e| e.to_string())?;
    let last = good(&again, view::from_json(&again, &limits))?;
    same("the reading of the reading", &last, &read)
}

/// What decodes was sound, and is encoded to what decodes to the same.
fn decoded<T>(input: &[u8], sound: bool) -> Result<(), Broken>
where
    T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
{
    let limits = ValueLimits::new();
    let Ok(decoded) = value::decode::<T>(input, &limits) else {
        return Ok(());
    };
    if !sound {
        return Err(format!("malformed, and decodes to {decoded:?}"));
    }
    let encoded = value::encode(&decoded, &limits).map_err(|e| e.to_string())?;
    let again = good("decoded again", value::decode::<T>(&encoded, &limits))?;
    same("decoded again", &again, &decoded)
}
