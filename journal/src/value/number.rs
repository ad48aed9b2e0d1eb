//! Numbers as JSON writes them, without a silent change of their value.

use serde::Serialize;

use super::{
    encode::Msgpack,
    error::{ValueError, ValueErrorKind},
    serializer::Serializer,
    sink::{Sink, Written},
    walk::{Int, Reader, Token},
};
use crate::limits::ValueLimits;

/// The struct that a number of `serde_json` with `arbitrary_precision` passes itself off as; its
/// one field is the literal.
pub(crate) const SERDE_JSON: &str = "$serde_json::private::Number";

/// A number of JSON text.
#[derive(Debug, PartialEq)]
pub(crate) enum Number {
    /// Without fraction and exponent; exact.
    Int(Int),
    /// With either; the nearest 64-bit float.
    Float(f64),
}

impl Number {
    /// Reads a literal, or says why it is refused.
    pub(crate) fn read(literal: &str) -> Result<Self, &'static str> {
        if !literal.contains(['.', 'e', 'E']) {
            return integer(literal).map(Self::Int);
        }
        if !is_number(literal) {
            return Err(NO_NUMBER);
        }
        let value: f64 = literal.parse().map_err(|_| NO_NUMBER)?;
        let mantissa = literal.split(['e', 'E']).next().unwrap_or_default();
        if value.is_infinite() {
            return Err("this number is beyond the range of a 64-bit float; pass it as text");
        }
        if value == 0.0 && mantissa.contains(|c| matches!(c, '1'..='9')) {
            return Err("this number is so small that it would become 0; pass 0 or text");
        }
        Ok(Self::Float(value))
    }
}

const NO_NUMBER: &str = "this is no JSON number";

/// Reads an integer literal of the 128-bit range, or says why it is refused.
pub(crate) fn integer(literal: &str) -> Result<Int, &'static str> {
    let why = "this is no integer from -2^127 to 2^128 - 1; pass it as text";
    if literal.contains(['.', 'e', 'E']) || !is_number(literal) {
        return Err(why);
    }
    let value = match literal.starts_with('-') {
        true => literal.parse().ok().map(|value: i128| value.into()),
        false => literal.parse().ok().map(Int::Pos),
    };
    value.ok_or(why)
}

/// Whether `literal` follows the grammar of RFC 8259.
fn is_number(literal: &str) -> bool {
    let unsigned = literal.strip_prefix('-').unwrap_or(literal);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

/// Writes a literal that `serde_json` kept as text, unless digits of it would be lost.
pub(crate) fn write<T: Serialize + ?Sized>(literal: &T, sink: &mut impl Sink) -> Written {
    let refused = |why: &str| ValueError::new(ValueErrorKind::WouldChange, why);
    let mut kept = Msgpack::new(&ValueLimits::new());
    literal.serialize(Serializer::new(&mut kept))?;
    let kept = kept.into_bytes();
    let Token::Text(literal) = Reader::new(&kept).next()? else {
        return Err(refused("it passes itself off as a number of serde_json and holds no literal"));
    };
    match Number::read(literal).map_err(refused)? {
        Number::Int(value) => sink.int(value),
        Number::Float(value) if digits(literal) == digits(&format!("{value:e}")) => sink.f64(value),
        Number::Float(_) => {
            Err(refused("this number has more digits than a 64-bit float keeps; pass it as text"))
        }
    }
}

/// The significant digits of a literal and the power of ten of the last one.
fn digits(literal: &str) -> (String, i64) {
    let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = whole.trim_start_matches('-').to_owned() + fraction;
    let kept = all.trim_end_matches('0');
    if kept.is_empty() {
        return (String::new(), 0);
    }
    let dropped = i64::try_from(all.len() - kept.len()).unwrap_or(i64::MAX);
    let fraction = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let exponent: i64 = exponent.parse().unwrap_or(i64::MAX);
    let power = exponent.saturating_add(dropped).saturating_sub(fraction);
    (kept.trim_start_matches('0').to_owned(), power)
}
