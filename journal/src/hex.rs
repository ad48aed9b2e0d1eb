//! Lower-case hexadecimal, the form of every hash and id in a header.

use std::fmt::{self, Write};

/// Writes `bytes` as lower-case hex.
pub fn write(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for byte in bytes {
        write!(out, "{byte:02x}")?;
    }
    Ok(())
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
