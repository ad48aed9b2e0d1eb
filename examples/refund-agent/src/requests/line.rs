//! One line, read and checked.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Refund;
use super::refusal::Cause;
use crate::money::Currency;

/// The largest amount: the largest whole number that every JSON reader reads exactly.
pub const AMOUNT_MINOR_MAX: u64 = (1 << 53) - 1;

/// The longest text of one member, in bytes.
pub const TEXT_BYTES_MAX: usize = 2_000;

const MEMBERS: [&str; 6] = ["id", "order", "customer", "amount_minor", "currency", "reason"];

/// Reads one line, without its line end.
pub(super) fn parse(bytes: &[u8]) -> Result<Refund, Cause> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Cause::NotUtf8 { byte: error.valid_up_to().saturating_add(1) })?;
    if text.trim().is_empty() {
        return Err(Cause::Empty);
    }
    let whole: &RawValue = serde_json::from_str(text).map_err(not_json)?;
    if !whole.get().starts_with('{') {
        return Err(Cause::NotAnObject);
    }
    let members: Members<'_> = serde_json::from_str(whole.get()).map_err(not_json)?;
    members.check_names()?;

    Ok(Refund {
        id: members.text("id")?,
        order: members.text("order")?,
        customer: members.text("customer")?,
        amount_minor: amount(members.raw("amount_minor")?)?,
        currency: currency(&members.text("currency")?)?,
        reason: members.text("reason")?,
    })
}

/// The members of an object in their order, duplicates included, values as they were written:
/// a reader into numbers would already have rounded them, one into a map would have chosen.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn check_names(&self) -> Result<(), Cause> {
        for (at, (name, _)) in self.0.iter().enumerate() {
            if !MEMBERS.contains(&name.as_str()) {
                return Err(Cause::Unknown { member: name.clone() });
            }
            // At most six names pass the line above before one repeats, so this stays short.
            if self.0.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(Cause::Duplicate { member: name.clone() });
            }
        }
        Ok(())
    }

    fn raw(&self, member: &'static str) -> Result<&'a str, Cause> {
        let found = self.0.iter().find(|(name, _)| name == member);
        found.map(|(_, raw)| raw.get()).ok_or(Cause::Missing { member })
    }

    fn text(&self, member: &'static str) -> Result<String, Cause> {
        let raw = self.raw(member)?;
        let kind = kind_of(raw);
        if kind != TEXT {
            return Err(Cause::NotText { member, found: kind });
        }
        let bad = |what| Err(Cause::BadText { member, what });
        // JSON may escape half of a surrogate pair, which no text can hold.
        let Ok(text) = serde_json::from_str::<String>(raw) else {
            return bad("holds half a character");
        };
        if text.trim().is_empty() {
            return bad("is empty");
        }
        if text.len() > TEXT_BYTES_MAX {
            return bad("is too long");
        }
        if text.chars().any(char::is_control) {
            return bad("holds a control character");
        }
        if text.chars().any(turns_direction) {
            return bad("holds a character that turns the writing direction");
        }
        Ok(text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(InOrder).map(Members)
    }
}

fn currency(code: &str) -> Result<Currency, Cause> {
    Currency::from_code(code).ok_or_else(|| Cause::UnknownCurrency { code: code.into() })
}

/// A whole number from 1 on, judged by its digits: `1e3`, `4990.0` and `"4990"` are refused
/// rather than guessed at.
fn amount(raw: &str) -> Result<u64, Cause> {
    let bad = |what| Err(Cause::BadAmount { what });
    match kind_of(raw) {
        NUMBER => {}
        TEXT => return bad("is text, not a number"),
        _ => return bad("is not a number"),
    }
    if raw.starts_with('-') {
        return bad("is negative");
    }
    if !raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return bad("has a decimal point or an exponent");
    }
    match raw.parse::<u64>() {
        Ok(0) => bad("is zero"),
        Ok(minor) if minor <= AMOUNT_MINOR_MAX => Ok(minor),
        _ => bad("is too large"),
    }
}

const TEXT: &str = "text";
const NUMBER: &str = "a number";

/// What a JSON value is, from its first byte.
fn kind_of(raw: &str) -> &'static str {
    match raw.bytes().next() {
        Some(b'"') => TEXT,
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'n') => "null",
        Some(b't' | b'f') => "true or false",
        _ => NUMBER,
    }
}

/// Overrides and isolates make a reader see other words than a program does. The plain marks that
/// Arabic and Hebrew texts need are not among them.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn not_json(error: serde_json::Error) -> Cause {
    // Every value is on one line, so the column says it all.
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    Cause::NotJson { what: format!("{what} at column {}", error.column()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"id":"r-1","order":"A-1","customer":"Zoë","amount_minor":4990,"currency":"EUR","reason":"broken"}"#;

    #[track_caller]
    fn refused(line: impl AsRef<[u8]>, expected: &str) {
        let cause = parse(line.as_ref()).unwrap_err();
        assert_eq!(cause.to_string(), expected);
        assert!(!cause.cure().is_empty());
    }

    /// The good line with one text replaced by another.
    #[track_caller]
    fn refused_with(from: &str, to: &str, expected: &str) {
        assert!(GOOD.contains(from));
        refused(GOOD.replacen(from, to, 1), expected);
    }

    #[test]
    fn a_good_line_is_read_whole() {
        let refund = parse(GOOD.as_bytes()).unwrap();
        assert_eq!(refund.amount().to_string(), "49.90 EUR");
        assert_eq!(refund.customer, "Zoë");
        assert_eq!(serde_json::to_string(&refund).unwrap(), GOOD);
        let spaced = format!(" \t{} \r", GOOD.replace(':', " : "));
        assert_eq!(parse(spaced.as_bytes()).unwrap(), refund);
    }

    #[test]
    fn lines_that_are_no_object_are_refused() {
        refused("", "the line is empty");
        refused(" \t\r", "the line is empty");
        refused("refund please", "not JSON (expected value at column 1)");
        refused(&GOOD[..20], "not JSON (EOF while parsing a value at column 20)");
        refused(format!("{GOOD} {GOOD}"), "not JSON (trailing characters at column 101)");
        refused("[1]", "JSON, but not an object");
        refused("null", "JSON, but not an object");
        refused(b"{\"id\":\"\xff\"}", "byte 8 is not UTF-8");
        refused("\0\0", "not JSON (expected value at column 1)");
    }

    #[test]
    fn members_are_complete_known_and_single() {
        refused_with(r#","reason":"broken""#, "", "\"reason\" is missing");
        refused_with("amount_minor", "amount", "no request has a member \"amount\"");
        refused_with(r#""id":"r-1""#, r#""id":"r-1","id":"r-2""#, "\"id\" stands there twice");
        refused_with(r#""id":"r-1""#, r#""id":"r-1","\u0069d":"r-2""#, "\"id\" stands there twice");
        refused_with("reason", "\\u001b[2J", "no request has a member \"\\u{1b}[2J\"");
        refused("{}", "\"id\" is missing");
    }

    #[test]
    fn amounts_are_whole_positive_and_exact() {
        refused_with("4990", "-4990", "\"amount_minor\" is negative");
        refused_with("4990", "0", "\"amount_minor\" is zero");
        refused_with("4990", "\"49.90\"", "\"amount_minor\" is text, not a number");
        refused_with("4990", "null", "\"amount_minor\" is not a number");
        refused_with("4990", "49.90", "\"amount_minor\" has a decimal point or an exponent");
        refused_with("4990", "4990.0", "\"amount_minor\" has a decimal point or an exponent");
        refused_with("4990", "1e3", "\"amount_minor\" has a decimal point or an exponent");
        refused_with("4990", "9007199254740992", "\"amount_minor\" is too large");
        refused_with("4990", "99999999999999999999999", "\"amount_minor\" is too large");
        refused_with("4990", "1e400", "\"amount_minor\" has a decimal point or an exponent");
        let largest = GOOD.replace("4990", "9007199254740991");
        assert_eq!(parse(largest.as_bytes()).unwrap().amount_minor, AMOUNT_MINOR_MAX);
    }

    #[test]
    fn texts_are_texts() {
        refused_with("\"A-1\"", "1", "\"order\" is a number, not text");
        refused_with("\"A-1\"", "[\"A-1\"]", "\"order\" is a list, not text");
        refused_with("A-1", "  ", "\"order\" is empty");
        refused_with("A-1", "\\u0000", "\"order\" holds a control character");
        refused_with("A-1", "\\u009b31m", "\"order\" holds a control character");
        refused_with("A-1", "\\ud83d", "\"order\" holds half a character");
        refused_with(
            "Zoë",
            "\u{202e}eoZ",
            "\"customer\" holds a character that turns the writing direction",
        );
        refused_with("broken", &"ä".repeat(1001), "\"reason\" is too long");
        refused_with("EUR", "eur", "unknown currency \"eur\"");
        refused_with("EUR", &"€".repeat(50), &format!("unknown currency \"{}\"…", "€".repeat(40)));
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = "[".repeat(1_000_000);
        assert!(matches!(parse(deep.as_bytes()), Err(Cause::NotJson { .. })));
        let balanced = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
        refused(&balanced, "JSON, but not an object");
        refused_with("\"A-1\"", &balanced, "\"order\" is a list, not text");
        let nested = format!("{}1{}", r#"{"a":"#.repeat(300_000), "}".repeat(300_000));
        refused(nested, "no request has a member \"a\"");
    }
}
