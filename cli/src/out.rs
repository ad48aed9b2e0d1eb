//! Where a command writes: plain text that is safe to print, or JSON that is.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::text;

/// The version of every JSON object that is written, its member `v`.
pub(crate) const JSON_VERSION: u32 = 1;

/// How a piece of text stands out on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// What the eye should find.
    Strong,
    /// What went well.
    Good,
    /// What needs a person.
    Alert,
    /// What matters less.
    Faint,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Strong => "\u{1b}[1m",
            Self::Good => "\u{1b}[32m",
            Self::Alert => "\u{1b}[31m",
            Self::Faint => "\u{1b}[2m",
        }
    }
}

/// The output of a command.
pub(crate) struct Out<'a> {
    to: &'a mut (dyn Write + Send),
    /// JSON instead of text.
    pub(crate) json: bool,
    colour: bool,
}

impl<'a> Out<'a> {
    pub(crate) fn new(to: &'a mut (dyn Write + Send), json: bool, colour: bool) -> Self {
        Self { to, json, colour: colour && !json }
    }

    /// Writes one line of text.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.piece(line)?;
        self.end()
    }

    /// Says something beside the output, to a person only: on standard error if that is a terminal,
    /// and not with JSON. What runs every night is not to send a letter of it.
    pub(crate) fn note(&mut self, line: &str) {
        if !self.json && io::stderr().is_terminal() {
            // Without a standard error there is nobody to tell.
            let _ = writeln!(io::stderr(), "{}", text::safe(line));
        }
    }

    /// Writes a part of a line; whatever a terminal would act on is escaped.
    pub(crate) fn piece(&mut self, text: &str) -> io::Result<()> {
        self.to.write_all(text::safe(text).as_bytes())
    }

    /// Writes a part of a line that stands out, where there are colours.
    pub(crate) fn styled(&mut self, style: Style, text: &str) -> io::Result<()> {
        if !self.colour {
            return self.piece(text);
        }
        write!(self.to, "{}", style.code())?;
        self.piece(text)?;
        write!(self.to, "\u{1b}[0m")
    }

    /// Ends a line.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.to.write_all(b"\n")
    }

    /// Hands over what was written so far, or says why that cannot be.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Writes bytes as they are: for shell completions.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)
    }

    /// Writes one JSON object on a line.
    pub(crate) fn object<T: Serialize>(
        &mut self,
        object: &T,
    ) -> Result<(), crate::failure::Failure> {
        let json = serde_json::to_string(object)?;
        self.to.write_all(safe_json(&json).as_bytes())?;
        self.end()?;
        Ok(())
    }
}

/// JSON with every character escaped that a terminal would act on: the same value, since such
/// characters stand in strings only.
pub(crate) fn safe_json(json: &str) -> String {
    text::safe(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(json: bool, colour: bool, write: impl FnOnce(&mut Out<'_>)) -> String {
        let mut bytes = Vec::new();
        write(&mut Out::new(&mut bytes, json, colour));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn s69_nothing_unsafe_is_printed() {
        let evil = "a\u{1b}[2J\u{7}\r\n\u{9b}\u{202e}\u{200b}";
        let text = written(false, false, |out| out.line(evil).unwrap());
        assert_eq!(text, "a\\u001b[2J\\u0007\\r\\n\\u009b\\u202e\\u200b\n");
        let json = written(true, true, |out| out.object(&[evil]).unwrap());
        assert!(!json.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'));
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [evil]);
    }

    #[test]
    fn colours_only_where_wanted() {
        let text = |colour| written(false, colour, |out| out.styled(Style::Good, "x").unwrap());
        assert_eq!(text(false), "x");
        assert_eq!(text(true), "\u{1b}[32mx\u{1b}[0m");
    }
}
