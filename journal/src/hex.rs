//! Lower-case hexadecimal, the form of every hash and id in a header.

use std::fmt::{self, Write};

/// The two digits of a byte.
fn digits(byte: u8) -> [u8; 2] {
    let digit = |nibble: u8| match nibble {
        0..=9 => b'0' + nibble,
        _ => b'a' + nibble - 10,
    };
    [digit(byte >> 4), digit(byte & 15)]
}

/// Writes `bytes` as lower-case hex.
///
/// # Errors
/// As the writer.
pub fn write(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for [high, low] in bytes.iter().copied().map(digits) {
        out.write_char(char::from(high))?;
        out.write_char(char::from(low))?;
    }
    Ok(())
}

/// Appends `bytes` as lower-case hex.
pub(crate) fn extend(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes.iter().copied().flat_map(digits));
}

/// `bytes` as lower-case hex.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    // Writing to a String cannot fail.
    let _ = write(&mut text, bytes);
    text
}

/// Reads exactly `N` bytes of lower-case hex.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != N * 2 {
        return None;
    }
    for (out, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *out = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}
