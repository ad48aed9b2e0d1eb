//! Text and bytes for people: escapes, words of a shell and base64, shared by the view, the diff,
//! errors and printed commands.

use std::fmt::{self, Write};

/// Whether `c` can move a cursor, hide text or change its direction.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{061c}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Writes `text` with every unsafe character as a JSON escape, and nothing else changed.
pub fn write_safe(out: &mut impl Write, text: &str) -> fmt::Result {
    let mut from = 0;
    for (at, c) in text.char_indices() {
        if is_unsafe(c) {
            out.write_str(text.get(from..at).unwrap_or_default())?;
            escape(out, c)?;
            from = at + c.len_utf8();
        }
    }
    out.write_str(text.get(from..).unwrap_or_default())
}

/// Writes `text` as a JSON string that is safe to print.
pub fn write_json_string(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    let mut from = 0;
    for (at, c) in text.char_indices() {
        if c != '"' && c != '\\' && !is_unsafe(c) {
            continue;
        }
        out.write_str(text.get(from..at).unwrap_or_default())?;
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            c => escape(out, c)?,
        }
        from = at + c.len_utf8();
    }
    out.write_str(text.get(from..).unwrap_or_default())?;
    out.write_char('"')
}

fn escape(out: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c => {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}")?;
            }
            Ok(())
        }
    }
}

/// Bytes as one word, safe to print, that a POSIX shell takes for exactly them. `$'..'` would be
/// shorter, and only some shells know it. None for what no argument can hold, and for a line break
/// at the end, which the shell drops.
#[must_use]
pub fn shell_word(bytes: &[u8]) -> Option<String> {
    if bytes.contains(&0) || bytes.ends_with(b"\n") {
        return None;
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=#~".contains(c);
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(is_unsafe) => {
            // `#` and `~` mean something at the front of a word only.
            let front = text.starts_with(['#', '~', '-']);
            let bare = !text.is_empty() && !front && text.chars().all(plain);
            Some(if bare { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) })
        }
        _ => Some(printf(bytes)),
    }
}

/// The same by `printf`, which reads three octal digits for a byte.
fn printf(bytes: &[u8]) -> String {
    let mut out = String::from("\"$(printf '");
    let octal = |out: &mut String, bytes: &[u8]| {
        out.extend(bytes.iter().map(|byte| format!("\\{byte:03o}")));
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut buffer = [0; 4];
            match c {
                // `-` at the front begins an option, and `!` may stand for an earlier command.
                '\'' | '\\' | '%' | '!' | '-' => octal(&mut out, &[c as u8]),
                c if is_unsafe(c) => octal(&mut out, c.encode_utf8(&mut buffer).as_bytes()),
                c => out.push(c),
            }
        }
        octal(&mut out, chunk.invalid());
    }
    out.push_str("')\"");
    out
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes `bytes` as base64 (RFC 4648 section 4, with padding).
pub fn write_base64(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.chunks(3) {
        let mut group = 0u32;
        for i in 0..3 {
            group = group << 8 | u32::from(chunk.get(i).copied().unwrap_or(0));
        }
        for i in 0..4 {
            let six = (group >> (18 - 6 * i) & 63) as usize;
            let c = if i > chunk.len() { b'=' } else { ALPHABET.get(six).copied().unwrap_or(b'=') };
            out.write_char(char::from(c))?;
        }
    }
    Ok(())
}

/// Reads exactly what [`write_base64`] writes: padded, no spaces, unused bits zero.
pub fn read_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.as_bytes().chunks(4) {
        let mut group = 0u32;
        for i in 0..4 {
            let six = match chunk.get(i) {
                Some(c) => ALPHABET.iter().position(|a| a == c)?,
                None => 0,
            };
            group = group << 6 | u32::try_from(six).ok()?;
        }
        let [_, a, b, c] = group.to_be_bytes();
        match (chunk.len(), b, c) {
            (4, ..) => bytes.extend_from_slice(&[a, b, c]),
            (3, _, 0) => bytes.extend_from_slice(&[a, b]),
            (2, 0, 0) => bytes.push(a),
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_rfc_4648() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[0, 1, 255], "AAH/"),
        ] {
            let mut out = String::new();
            write_base64(&mut out, bytes).unwrap();
            assert_eq!(out, text);
            assert_eq!(read_base64(text).unwrap(), bytes);
        }
        for bad in ["Zg", "Zg=", "Zh==", "Zm9=", "Z g=", "====", "=Zg=", "Zg==Zg=="] {
            assert_eq!(read_base64(bad), None, "{bad}");
        }
    }

    #[test]
    fn unsafe_characters_are_escaped() {
        let mut out = String::new();
        write_json_string(&mut out, "a\"\\\n\u{1b}\u{9b}\u{202e}é🙂\u{7f}").unwrap();
        assert_eq!(out, r#""a\"\\\n\u001b\u009b\u202eé🙂\u007f""#);
        let mut out = String::new();
        write_safe(&mut out, "/a\u{1b}b\"").unwrap();
        assert_eq!(out, "/a\\u001bb\"");
    }
}
