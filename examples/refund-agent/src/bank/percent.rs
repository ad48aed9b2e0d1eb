//! Percent-encoding of one query value (RFC 3986).

/// Escapes all but the unreserved characters.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Undoes [`encode`]; a plus sign is a plus sign. `None` for broken escapes and for what is not
/// UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let (high, low) = (hex_digit(bytes.next()?)?, hex_digit(bytes.next()?)?);
            decoded.push(high << 4 | low);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_comes_back() {
        for text in ["", "rq-1", "a/b?c&d=e+f g", "50%", "李 🦊 e\u{301}", "\n\0\u{7f}"] {
            let encoded = encode(text);
            assert!(encoded.bytes().all(|b| b.is_ascii_graphic() && !b"&=+#/?".contains(&b)));
            assert_eq!(decode(&encoded).as_deref(), Some(text));
        }
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in ["%", "%4", "%zz", "%+1", "%ff", "%c3"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
