//! The `Idempotency-Key` header: a structured-header String (RFC 9651, section 3.3.3).

/// The longest key, in characters.
const KEY_CHARS_MAX: usize = 255;

/// Writes a key as the header's value, or says why it cannot be one.
pub(super) fn to_header(key: &str) -> Result<String, &'static str> {
    check(key)?;
    Ok(format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// Reads the header's value.
pub(super) fn from_header(value: &[u8]) -> Result<String, &'static str> {
    let text = std::str::from_utf8(value).map_err(|_| NOT_ASCII)?.trim_matches([' ', '\t']);
    let inside = text.strip_prefix('"').ok_or("does not begin with a double quote")?;
    let mut key = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    loop {
        match chars.next() {
            None => return Err("does not end with a double quote"),
            Some('"') => break,
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err("escapes something other than a double quote or a backslash"),
            },
            Some(plain) => key.push(plain),
        }
    }
    if chars.next().is_some() {
        return Err("goes on after its closing quote");
    }
    check(&key)?;
    Ok(key)
}

const NOT_ASCII: &str = "holds a character outside printable ASCII";

fn check(key: &str) -> Result<(), &'static str> {
    if key.is_empty() {
        return Err("is empty");
    }
    if !key.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return Err(NOT_ASCII);
    }
    if key.len() > KEY_CHARS_MAX {
        return Err("is longer than 255 characters");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_went() {
        for key in ["a", "order-4821/pay#0", r#"say "hi" \o/"#, r"\", "\"", " spaced ", "~"] {
            let header = to_header(key).unwrap();
            assert_eq!(from_header(header.as_bytes()).as_deref(), Ok(key), "{header}");
            assert_eq!(from_header(format!(" {header}\t").as_bytes()).as_deref(), Ok(key));
        }
        assert_eq!(to_header(r#"a"b\c"#).unwrap(), r#""a\"b\\c""#);
        assert!(to_header(&"k".repeat(KEY_CHARS_MAX)).is_ok());
    }

    #[test]
    fn what_is_no_key_is_not_sent() {
        for key in ["", "é", "a\nb", "\0", "\x7f", &"k".repeat(KEY_CHARS_MAX + 1)] {
            assert!(to_header(key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn what_is_no_string_is_not_read() {
        #[track_caller]
        fn refused(value: impl AsRef<[u8]>, expected: &str) {
            assert_eq!(from_header(value.as_ref()), Err(expected));
        }
        refused("", "does not begin with a double quote");
        refused("8e03978e-40d5-43dd-bc93-6894a57f9324", "does not begin with a double quote");
        refused("?1", "does not begin with a double quote");
        refused("\"", "does not end with a double quote");
        refused(r#""a\""#, "does not end with a double quote");
        refused(r#""a\n""#, "escapes something other than a double quote or a backslash");
        refused(r#""a\"#, "escapes something other than a double quote or a backslash");
        refused(r#""a", "b""#, "goes on after its closing quote");
        refused(r#""a";v=1"#, "goes on after its closing quote");
        refused("\"\"", "is empty");
        refused("\"é\"", NOT_ASCII);
        refused(b"\"\xff\"", NOT_ASCII);
        refused(format!("\"{}\"", "k".repeat(256)), "is longer than 255 characters");
    }
}
