//! Numbers as JSON writes them, without a silent change of their value.

use super::walk::Int;

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
