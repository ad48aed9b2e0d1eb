//! Lower-case hexadecimal, the form of every hash and id in a header.

use std::fmt::{self, Write};

/// The two digits of a byte.
fn digits(byte: u8) -> [u8; 2] {
    // Without a branch, so that many bytes are done at once.
    let digit = |nibble: u8| b'0' + nibble + u8::from(nibble > 9) * (b'a' - b'0' - 10);
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
    let at = out.len();
    out.resize(at + bytes.len() * 2, 0);
    let (pairs, _) = out.get_mut(at..).unwrap_or_default().as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(bytes) {
        *pair = digits(*byte);
    }
}

/// `bytes` as lower-case hex.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    extend(&mut text, bytes);
    // ASCII by construction.
    String::from_utf8(text).unwrap_or_default()
}

/// Reads exactly `N` bytes of lower-case hex.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    const NONE: u8 = 0xff;
    let worth = |c: u8| match c {
        b'0'..=b'9' => c - b'0',
        b'a'..=b'f' => c - b'a' + 10,
        _ => NONE,
    };
    let mut bytes = [0; N];
    if text.len() != N * 2 {
        return None;
    }
    // One test behind all digits instead of one for each: headers hold many hashes.
    let mut all = 0;
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    for (out, [high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = (worth(*high), worth(*low));
        // Digits are below 16: a high bit says that there was another byte.
        all |= high | low;
        *out = high << 4 | low;
    }
    (all < 16).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_back_and_nothing_else_is() {
        let all: [u8; 256] = std::array::from_fn(|n| u8::try_from(n).unwrap());
        assert_eq!(decode(&encode(&all)), Some(all));
        for byte in 0..=0x7f {
            let text: String = ['0', char::from(byte)].iter().collect();
            let lower = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            assert_eq!(decode::<1>(&text).is_some(), lower, "{text:?}");
        }
        assert_eq!(decode::<1>("é"), None);
        assert_eq!(decode::<1>("000"), None);
        assert_eq!(decode::<1>("0"), None);
    }
}
