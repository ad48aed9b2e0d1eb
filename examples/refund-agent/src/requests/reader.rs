//! A file of requests, line by line.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::Refund;
use super::line::parse;
use super::refusal::{Cause, Refusal};

/// The longest line that is read, in bytes, without its line end. A longer one is skipped
/// without being kept in memory, and refused.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// The most requests of one file.
pub const REQUESTS_MAX: usize = 1_000_000;

/// What one line turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A request, seen for the first time.
    Request(Request),
    /// The same request again, member for member: the same thread, and no second refund.
    Repeat {
        /// The line's number, from 1.
        line: u64,
        /// The request's id.
        id: String,
        /// The line that had it first.
        first_line: u64,
    },
    /// Not a request.
    Refused(Refusal),
}

/// A request, and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The line's number, from 1.
    pub line: u64,
    /// What is asked for.
    pub refund: Refund,
    /// The first line that asked for a refund of the same order under another id. It may be a
    /// second part, or the same wish sent twice: whoever decides should know.
    pub order_seen_at: Option<u64>,
}

/// The entries of a stream of lines. Ends at the end of the stream, or after the first error of
/// the stream itself.
///
/// ```
/// use refund_agent::requests::{Entry, Requests};
///
/// let lines = "{\"id\":\"r-1\"}\n";
/// let entries: Vec<Entry> = Requests::new(lines.as_bytes()).collect::<Result<_, _>>().unwrap();
/// let [Entry::Refused(refusal)] = entries.as_slice() else { panic!("{entries:?}") };
/// assert_eq!(refusal.to_string(), "line 1: \"order\" is missing: add \"order\"");
/// ```
#[derive(Debug)]
pub struct Requests<R> {
    input: R,
    line: u64,
    ended: bool,
    by_id: HashMap<String, (u64, Refund)>,
    by_order: HashMap<String, u64>,
}

impl<R: BufRead> Requests<R> {
    /// Reads from a stream.
    pub fn new(input: R) -> Self {
        Self { input, line: 0, ended: false, by_id: HashMap::new(), by_order: HashMap::new() }
    }

    fn entry(&mut self, bytes: &[u8]) -> Entry {
        let line = self.line;
        let refused = |cause| Entry::Refused(Refusal { line, cause });
        if bytes.len() > LINE_BYTES_MAX {
            return refused(Cause::TooLong);
        }
        let refund = match parse(bytes) {
            Ok(refund) => refund,
            Err(cause) => return refused(cause),
        };
        if let Some((first_line, first)) = self.by_id.get(&refund.id) {
            let (id, first_line) = (refund.id.clone(), *first_line);
            return if *first == refund {
                Entry::Repeat { line, id, first_line }
            } else {
                refused(Cause::IdReused { id, first_line })
            };
        }
        if self.by_id.len() >= REQUESTS_MAX {
            return refused(Cause::TooMany);
        }
        let order_seen_at = self.by_order.get(&refund.order).copied();
        self.by_order.entry(refund.order.clone()).or_insert(line);
        self.by_id.insert(refund.id.clone(), (line, refund.clone()));
        Entry::Request(Request { line, refund, order_seen_at })
    }
}

impl<R: BufRead> Iterator for Requests<R> {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let bytes = match next_line(&mut self.input) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                self.ended = true;
                return None;
            }
            Err(error) => {
                self.ended = true;
                return Some(Err(error));
            }
        };
        self.line = self.line.saturating_add(1);
        // Some editors put a byte order mark before the first line.
        let text = match bytes.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if self.line == 1 => rest,
            _ => &bytes,
        };
        Some(Ok(self.entry(text)))
    }
}

/// Reads a whole file.
///
/// # Errors
///
/// When the file cannot be opened or read. Bad lines are entries, not errors.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<Entry>> {
    Requests::new(BufReader::new(File::open(path)?)).collect()
}

/// One line without its end; one byte more than allowed stands for "too long", and the rest of
/// such a line is skipped.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    // Two for the line end, whichever it is, and one to see that there is more.
    let most = (LINE_BYTES_MAX as u64).saturating_add(3);
    if input.by_ref().take(most).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    } else if bytes.len() as u64 == most {
        input.skip_until(b'\n')?;
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, order: &str, minor: u64) -> String {
        format!(
            r#"{{"id":"{id}","order":"{order}","customer":"李","amount_minor":{minor},"currency":"EUR","reason":"late"}}"#
        )
    }

    fn entries(text: impl AsRef<[u8]>) -> Vec<Entry> {
        Requests::new(text.as_ref()).collect::<io::Result<_>>().unwrap()
    }

    fn cause(entry: &Entry) -> Option<&Cause> {
        match entry {
            Entry::Refused(refusal) => Some(&refusal.cause),
            _ => None,
        }
    }

    #[test]
    fn the_same_id_is_the_same_request_or_refused() {
        let text = [line("a", "O1", 1), line("a", "O1", 1), line("a", "O1", 2), line("b", "O1", 1)];
        let entries = entries(text.join("\n"));
        let Entry::Request(first) = &entries[0] else { panic!("{entries:?}") };
        assert_eq!((first.line, first.order_seen_at), (1, None));
        assert_eq!(entries[1], Entry::Repeat { line: 2, id: "a".into(), first_line: 1 });
        assert_eq!(cause(&entries[2]), Some(&Cause::IdReused { id: "a".into(), first_line: 1 }));
        let Entry::Request(other) = &entries[3] else { panic!("{entries:?}") };
        assert_eq!((other.line, other.order_seen_at), (4, Some(1)));
    }

    #[test]
    fn spacing_does_not_make_another_request() {
        let spaced = line("a", "O1", 1).replace(',', " , ");
        let entries = entries(format!("{}\r\n{spaced}\n", line("a", "O1", 1)));
        assert!(matches!(entries[1], Entry::Repeat { .. }), "{entries:?}");
    }

    #[test]
    fn a_refused_line_does_not_take_an_id() {
        let entries = entries(format!("{}\n{}", line("a", "O1", 0), line("a", "O1", 1)));
        assert!(cause(&entries[0]).is_some());
        assert!(matches!(&entries[1], Entry::Request(request) if request.line == 2));
    }

    #[test]
    fn lines_are_counted_whatever_they_hold() {
        let long = "x".repeat(LINE_BYTES_MAX * 40);
        let text =
            format!("\u{feff}{}\r\n\n{long}\nnope\n{}", line("a", "O", 1), line("b", "P", 1));
        let entries = entries(text);
        assert_eq!(entries.len(), 5);
        assert!(matches!(&entries[0], Entry::Request(request) if request.line == 1));
        assert_eq!(cause(&entries[1]), Some(&Cause::Empty));
        assert_eq!(cause(&entries[2]), Some(&Cause::TooLong));
        assert!(matches!(cause(&entries[3]), Some(Cause::NotJson { .. })));
        assert!(matches!(&entries[4], Entry::Request(request) if request.line == 5));
    }

    #[test]
    fn the_limit_of_a_line_is_exact() {
        for end in ["\n", "\r\n"] {
            let fits = format!("{}{}{end}{}", line("a", "O", 1), pad(0), line("b", "P", 1));
            assert!(matches!(entries(&fits)[0], Entry::Request(_)), "{end:?}");
            for over in 1..5 {
                let long = format!("{}{}{end}{}", line("a", "O", 1), pad(over), line("b", "P", 1));
                let entries = entries(&long);
                assert_eq!(entries.len(), 2, "{end:?} {over}");
                assert_eq!(cause(&entries[0]), Some(&Cause::TooLong), "{end:?} {over}");
                assert!(matches!(entries[1], Entry::Request(_)), "{end:?} {over}");
            }
        }
        for over in 0..5 {
            let last = entries(format!("{}{}", line("a", "O", 1), pad(over)));
            assert_eq!(cause(&last[0]).is_some(), over > 0, "{over}");
            assert_eq!(last.len(), 1);
        }
    }

    fn pad(over: usize) -> String {
        " ".repeat(LINE_BYTES_MAX - line("a", "O", 1).len() + over)
    }

    #[test]
    fn no_bytes_make_it_panic() {
        // A small generator instead of a dependency: every run reads the same bytes.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let good = line("a", "O", 1).into_bytes();
        for round in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..=(round % 4) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 24) as u8;
            }
            for entry in entries(&bytes) {
                if let Entry::Refused(refusal) = entry {
                    assert!(!refusal.to_string().contains(char::is_control), "{refusal}");
                }
            }
        }
    }

    #[test]
    fn a_broken_stream_is_an_error_once() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let mut requests = Requests::new(BufReader::new(Broken));
        assert!(requests.next().unwrap().is_err());
        assert!(requests.next().is_none());
    }
}
