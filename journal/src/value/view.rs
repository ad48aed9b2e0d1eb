//! Values for people and their tools: a lossless JSON reading of MessagePack, and back.
//!
//! | value | JSON |
//! | --- | --- |
//! | integer from -(2^53 - 1) to 2^53 - 1; any other | a number; `{"$int":"18446744073709551615"}` |
//! | finite float (a 32-bit one widened) | the shortest number that reads back as it, with `.` or `e` |
//! | NaN, infinities, -0 | `{"$f64":"7ff8000000000000","$is":"NaN"}`: the bits |
//! | bytes; text that is not UTF-8 | `{"$bytes":"AP8="}`; the same with `"$invalid_utf8":true` |
//! | extension | `{"$ext":[type,"base64"]}` |
//! | map whose keys are distinct text not beginning with `$` | an object |
//! | any other map | `{"$map":[[key,value],..]}` in the stored order |
//!
//! An object with a `$` member can come from these rules only, so the reading is unambiguous.
//! Characters that could move a cursor, hide or reverse text are escaped, so that it is safe to
//! print.

use std::fmt::Write;

pub use super::json::from_json;
use super::{
    error::{ValueError, ValueErrorKind},
    text::{write_base64, write_json_string},
    walk::{Int, Reader, Token},
};

/// Integers up to here are exact in every JSON reader.
const SAFE_INTEGER: u128 = (1 << 53) - 1;

/// The deepest value that is shown; no deeper one is ever written.
const DEPTH_MAX: usize = 128;

/// Writes the reading of one MessagePack value to `out`.
///
/// [`from_json`] makes the same bytes of it again, for every value that Deedbook writes; 32-bit
/// floats alone come back as the 64-bit floats of the same value.
///
/// ```
/// use deedbook_journal::{limits::ValueLimits, value::{encode, view}};
/// let bytes = encode(&(u64::MAX, "é", -0.0), &ValueLimits::new())?;
/// let mut json = String::new();
/// view::to_json(&bytes, &mut json)?;
/// assert_eq!(
///     json,
///     r#"[{"$int":"18446744073709551615"},"é",{"$f64":"8000000000000000","$is":"-0"}]"#
/// );
/// assert_eq!(view::from_json(&json, &ValueLimits::new())?, bytes);
/// # Ok::<(), deedbook_journal::value::ValueError>(())
/// ```
///
/// # Errors
/// Bytes that are not one whole MessagePack value, or nest deeper than 128 levels; `out` may hold
/// a part of the reading then.
pub fn to_json(bytes: &[u8], out: &mut String) -> Result<(), ValueError> {
    let mut reader = Reader::new(bytes);
    write(&mut reader, out, DEPTH_MAX)?;
    reader.finish()
}

/// As [`to_json`] for the value at the front of `bytes`, into any writer, whose error ends it.
pub(crate) fn write_to(bytes: &[u8], out: &mut impl Write) -> Result<(), ValueError> {
    write(&mut Reader::new(bytes), out, DEPTH_MAX)
}

/// The key at the front of `key` as a part of a JSON pointer: text as it is, anything else as its
/// reading.
pub(crate) fn shown_key(key: &[u8]) -> String {
    if let Ok(Token::Text(text)) = Reader::new(key).next() {
        return text.to_owned();
    }
    let mut shown = String::new();
    match write_to(key, &mut shown) {
        Ok(()) => shown,
        Err(_) => "(unreadable key)".to_owned(),
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_base64(&mut text, bytes);
    text
}

fn write(reader: &mut Reader<'_>, out: &mut impl Write, levels: usize) -> Result<(), ValueError> {
    match reader.next()? {
        Token::Nil => out.write_str("null"),
        Token::Bool(value) => write!(out, "{value}"),
        Token::Int(value) => write_int(out, value),
        Token::F32(value) => write_float(out, super::canonical::widen(value)),
        Token::F64(value) => write_float(out, value),
        Token::Text(value) => write_json_string(out, value),
        Token::BadText(value) => write_bytes(out, value, r#","$invalid_utf8":true"#),
        Token::Bytes(value) => write_bytes(out, value, ""),
        Token::Ext(kind, value) => write!(out, r#"{{"$ext":[{kind},"{}"]}}"#, base64(value)),
        Token::Array(count) => return write_array(reader, out, count, deeper(levels)?),
        Token::Map(count) => return write_map(reader, out, count, deeper(levels)?),
    }
    .map_err(full)
}

fn deeper(levels: usize) -> Result<usize, ValueError> {
    levels.checked_sub(1).ok_or_else(|| ValueError::too_deep(DEPTH_MAX))
}

fn full(_: std::fmt::Error) -> ValueError {
    ValueError::new(ValueErrorKind::TooLarge, "there is no room for its reading")
}

fn write_int(out: &mut impl Write, value: Int) -> std::fmt::Result {
    let magnitude = match value {
        Int::Pos(value) => value,
        Int::Neg(value) => value.unsigned_abs(),
    };
    if magnitude <= SAFE_INTEGER {
        write!(out, "{value}")
    } else {
        write!(out, r#"{{"$int":"{value}"}}"#)
    }
}

fn write_float(out: &mut impl Write, value: f64) -> std::fmt::Result {
    let bits = value.to_bits();
    let is = match value {
        _ if value.is_nan() => "NaN",
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ if bits == (-0.0f64).to_bits() => "-0",
        // Debug writes the shortest digits that read back, always with `.` or `e`.
        _ => return write!(out, "{value:?}"),
    };
    write!(out, r#"{{"$f64":"{bits:016x}","$is":"{is}"}}"#)
}

fn write_bytes(out: &mut impl Write, value: &[u8], mark: &str) -> std::fmt::Result {
    out.write_str(r#"{"$bytes":""#)?;
    write_base64(out, value)?;
    write!(out, "\"{mark}}}")
}

fn write_array(
    reader: &mut Reader<'_>,
    out: &mut impl Write,
    count: usize,
    levels: usize,
) -> Result<(), ValueError> {
    out.write_char('[').map_err(full)?;
    for i in 0..count {
        if i > 0 {
            out.write_char(',').map_err(full)?;
        }
        write(reader, out, levels)?;
    }
    out.write_char(']').map_err(full)
}

fn write_map(
    reader: &mut Reader<'_>,
    out: &mut impl Write,
    count: usize,
    levels: usize,
) -> Result<(), ValueError> {
    let plain = is_object(reader.clone(), count)?;
    let [start, open, between, close, end] = match plain {
        true => ["{", "", ":", "", "}"],
        false => [r#"{"$map":["#, "[", ",", "]", "]}"],
    };
    out.write_str(start).map_err(full)?;
    for i in 0..count {
        if i > 0 {
            out.write_char(',').map_err(full)?;
        }
        out.write_str(open).map_err(full)?;
        write(reader, out, levels)?;
        out.write_str(between).map_err(full)?;
        write(reader, out, levels)?;
        out.write_str(close).map_err(full)?;
    }
    out.write_str(end).map_err(full)
}

/// Whether the next `count` pairs have distinct text keys that do not begin with `$`.
fn is_object(mut reader: Reader<'_>, count: usize) -> Result<bool, ValueError> {
    let mut keys = Vec::new();
    for _ in 0..count {
        match reader.next()? {
            Token::Text(key) if !key.starts_with('$') => keys.push(key),
            _ => return Ok(false),
        }
        reader.skip()?;
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys.len() == count)
}
