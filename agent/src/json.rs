//! JSON as a model writes it: read without losing anything, and written in one form.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// A number with more digits than this is not the number that a program would read.
const DIGITS_MAX: usize = 17;

/// Reads arguments as a model wrote them. Refused is what could be read in two ways: a member
/// that stands there twice, a number that would lose digits, anything behind the end. Numbers are
/// brought into one form: `120.0` is `120`, and `-0.0` is `0`.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    exact(text)?;
    let Strict(value) = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(value)
}

/// Refuses numbers that no program reads exactly.
fn exact(text: &str) -> Result<(), String> {
    let (mut in_string, mut escaped) = (false, false);
    let mut number = String::new();
    for c in text.chars().chain([' ']) {
        if in_string {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        if c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E') {
            number.push(c);
            continue;
        }
        keeps_its_digits(&number)?;
        number.clear();
        in_string = c == '"';
    }
    Ok(())
}

fn keeps_its_digits(number: &str) -> Result<(), String> {
    let is_number = number.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    if !is_number {
        return Ok(());
    }
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let whole = !number.contains(['.', 'e', 'E']);
    let fits = number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_start_matches('0').trim_end_matches('0').len();
    if whole && !fits || !whole && digits > DIGITS_MAX {
        return Err(format!("the number {number} would lose digits; send it as a string"));
    }
    Ok(())
}

/// A number in its one form.
pub(crate) fn plain(number: &Number) -> Number {
    if number.is_i64() || number.is_u64() {
        return number.clone();
    }
    let Some(float) = number.as_f64() else {
        return number.clone();
    };
    whole(float).unwrap_or_else(|| number.clone())
}

/// The integer that this is, if it is one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range, and whole")]
fn whole(float: f64) -> Option<Number> {
    if float.trunc() != float {
        return None;
    }
    if (-9.2e18..9.2e18).contains(&float) {
        return Some(Number::from(float as i64));
    }
    (0.0..1.8e19).contains(&float).then(|| Number::from(float as u64))
}

/// The value with every number in its one form.
pub(crate) fn with_plain_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(plain(&number)),
        Value::Array(items) => items.into_iter().map(with_plain_numbers).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(k, v)| (k, with_plain_numbers(v)));
            Value::Object(members.collect())
        }
        other => other,
    }
}

/// One text for equal values: members in the order of their names, numbers in one form, no space.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Number(number) => text.push_str(&plain(number).to_string()),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|a, b| a.0.cmp(b.0));
            text.push('{');
            for (at, (name, member)) in members.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&Value::String(name.clone()).to_string());
                text.push(':');
                write(member, text);
            }
            text.push('}');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// The members that differ between two objects, as JSON pointers.
pub(crate) fn differences(a: &Value, b: &Value) -> Vec<String> {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        return Vec::new();
    };
    let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let other = |name: &&&String| {
        let text = |side: &Map<String, Value>| side.get(**name).map(canonical);
        text(a) != text(b)
    };
    names.iter().filter(other).map(|name| format!("/{name}")).collect()
}

/// A value without a member that stands there twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(Value::Bool(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Strict, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(Strict(Value::Number(plain(&number))))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Strict(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
        let mut members = Map::new();
        while let Some((name, Strict(member))) = map.next_entry::<String, Strict>()? {
            if members.contains_key(&name) {
                return Err(de::Error::custom(format!("{name:?} stands there twice")));
            }
            members.insert(name, member);
        }
        Ok(Strict(Value::Object(members)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_numbers_are_written_in_one_way() {
        for text in ["120", "120.0", "1.2e2", "1200e-1"] {
            assert_eq!(canonical(&read(text).unwrap()), "120", "{text}");
        }
        assert_eq!(canonical(&read("-0.0").unwrap()), "0");
        assert_eq!(canonical(&read("0.1").unwrap()), "0.1");
        assert_ne!(read("9007199254740992").unwrap(), read("9007199254740993").unwrap());
        assert_eq!(canonical(&read("1e18").unwrap()), "1000000000000000000");
        assert_eq!(canonical(&json!({"b": [1.0, true], "a": null})), r#"{"a":null,"b":[1,true]}"#);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"b":1,"b":1}}"#,
            "18446744073709551617",
            "0.123456789012345678901",
            "NaN",
            "Infinity",
            "1e999",
            "{\"a\":1} and more",
            "{\"a\":",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read(" ").unwrap(), json!({}));
        assert_eq!(
            read(r#"{"n":"184467440737095516170000"}"#).unwrap()["n"].as_str().unwrap().len(),
            24
        );
    }

    #[test]
    fn differences_name_members() {
        let (a, b) = (json!({"a": 1, "b": 2.0}), json!({"a": 3, "b": 2, "c": null}));
        assert_eq!(differences(&a, &b), ["/a", "/c"]);
    }
}
