//! Text for terminals: nothing from a journal may move a cursor, hide text or forge a line.

use std::{fmt, time::Duration};

use deedbook_journal::{
    id::StoreTime,
    value::{text, view},
};

/// `text` with every character escaped that a terminal would act on.
pub(crate) fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Writing to a String cannot fail.
    let _ = text::write_safe(&mut out, text);
    out
}

/// A text as one word of a shell command that gives exactly it, or where there is none,
/// `placeholder`.
pub(crate) fn shell(word: impl AsRef<[u8]>, placeholder: &str) -> String {
    text::shell_word(word.as_ref()).unwrap_or_else(|| placeholder.to_owned())
}

/// The reading of a MessagePack value, safe to print.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut out = String::new();
    match view::to_json(bytes, &mut out) {
        Ok(()) => out,
        Err(error) => format!("(not readable: {error})"),
    }
}

/// A text in MessagePack as it is, without quotes; any other value as its reading.
pub(crate) fn shown_text(bytes: &[u8]) -> String {
    let limits = deedbook_journal::limits::ValueLimits::new();
    match deedbook_journal::value::decode::<String>(bytes, &limits) {
        Ok(text) => safe(&text),
        Err(_) => shown(bytes),
    }
}

/// At most `chars_max` characters of `text`, clearly cut.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((at, _)) => {
            let front = text.get(..at).unwrap_or_default();
            format!("{front}… [cut: {} bytes in all]", text.len())
        }
    }
}

/// How many there are of something: `1 thread`, `2 threads`.
pub(crate) fn count<N: fmt::Display + PartialEq + From<u8>>(number: N, what: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// So many bytes, for people.
pub(crate) fn bytes(number: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let (mut tenths, mut unit) = (number.saturating_mul(10), "B");
    for next in units {
        if tenths < 10_240 {
            break;
        }
        (tenths, unit) = (tenths / 1024, next);
    }
    match (tenths / 10, tenths % 10) {
        (whole, _) if unit == "B" || whole >= 100 => format!("{whole} {unit}"),
        (whole, tenth) => format!("{whole}.{tenth} {unit}"),
    }
}

/// A time for people: RFC 3339, UTC, milliseconds.
pub(crate) fn time(time: StoreTime) -> String {
    let full = time.to_string();
    format!("{}Z", full.get(..23).unwrap_or(&full))
}

/// A duration for people.
pub(crate) fn span(duration: Duration) -> String {
    let (secs, millis) = (duration.as_secs(), duration.as_millis());
    match secs {
        0 if millis == 0 => format!("{} µs", duration.as_micros()),
        0 => format!("{millis} ms"),
        1..=59 => format!("{secs}.{} s", millis % 1000 / 100),
        60..=3599 => format!("{} min {} s", secs / 60, secs % 60),
        3600..=86_399 => format!("{} h {} min", secs / 3600, secs / 60 % 60),
        _ => format!("{} d {} h", secs / 86_400, secs / 3600 % 24),
    }
}

/// Reads a time: a day, or RFC 3339 in UTC with up to nine digits behind the second.
pub(crate) fn read_time(text: &str) -> Result<StoreTime, String> {
    let full = match text.strip_suffix(['Z', 'z']) {
        None if text.len() == 10 => format!("{text}T00:00:00.000000000Z"),
        Some(front) if front.len() == 19 => format!("{front}.000000000Z"),
        Some(front) if (21..=29).contains(&front.len()) && front.is_ascii() => {
            format!("{front:0<29}Z")
        }
        _ => text.to_owned(),
    };
    full.parse().map_err(|_| {
        format!("{text:?} is not a time; write a day (2026-11-29) or UTC (2026-11-29T12:00:00Z)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_come_back_as_they_were() {
        for (text, wanted) in [
            (&b"order-4821"[..], "order-4821"),
            (b"pay#0", "pay#0"),
            (b"#0", "'#0'"),
            (b"", "''"),
            (b"it's", r"'it'\''s'"),
            (b"a\x1b[2J'\n1%s", r#""$(printf 'a\033[2J\047\0121\045s')""#),
            (b"-\t\\!$x`y`\"", r#""$(printf '\055\011\134\041$x`y`"')""#),
            ("é\u{202e}".as_bytes(), r#""$(printf 'é\342\200\256')""#),
            (b"\xffx", r#""$(printf '\377x')""#),
        ] {
            assert_eq!(shell(text, "WORD"), wanted);
            assert_eq!(safe(wanted), wanted);
            let script = format!("printf %s {wanted}");
            for shell in ["sh", "dash", "bash"] {
                let ran = std::process::Command::new(shell).args(["-c", &script]).output();
                match ran {
                    Ok(output) => assert_eq!(output.stdout, text, "{shell}: {script}"),
                    Err(_) => assert_ne!(shell, "sh", "there is no shell"),
                }
            }
        }
        assert_eq!(shell("a\n", "THREAD"), "THREAD");
        assert_eq!(shell(b"a\0b", "FILE"), "FILE");
    }

    #[test]
    fn counts_are_said_as_people_do() {
        assert_eq!(count(0_u64, "thread"), "0 threads");
        assert_eq!(count(1_u64, "thread"), "1 thread");
        assert_eq!(count(2_u32, "thread"), "2 threads");
    }

    #[test]
    fn bytes_have_three_digits_or_so() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_500_000, "1.4 MiB"),
            (500 << 20, "500 MiB"),
            (3 << 40, "3.0 TiB"),
            (u64::MAX, "1677721 TiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn times_are_read_in_short_forms() {
        for (text, full) in [
            ("2026-11-29", "2026-11-29T00:00:00.000000000Z"),
            ("2026-11-29T12:30:00Z", "2026-11-29T12:30:00.000000000Z"),
            ("2026-11-29T12:30:00.25Z", "2026-11-29T12:30:00.250000000Z"),
        ] {
            assert_eq!(read_time(text).unwrap().to_string(), full);
        }
        for bad in ["", "now", "2026-13-01", "2026-11-29T12:30:00", "2026-11-29T12:30:00+01:00"] {
            assert!(read_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn long_texts_are_clearly_cut() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("äbcd", 3), "äbc… [cut: 5 bytes in all]");
    }

    #[test]
    fn spans_have_two_units() {
        for (millis, text) in [
            (0, "0 µs"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (61_000, "1 min 1 s"),
            (3_720_000, "1 h 2 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }
}
