//! `guard --stdio`: the control protocol on standard input and output.
//!
//! Whoever holds the journal answers; if nobody does, a process that does is started. So one
//! program in another language, or eighty, work on one journal without knowing of each other.

use std::{
    io::{self, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::{
    args::Guard,
    failure::{Failure, Outcome, code},
    open,
    reach::reach,
    text::safe,
};

/// The longest last line that is looked at; what closes a connection is said in less.
const LAST_BYTES_MAX: usize = 4096;

pub(crate) async fn run(args: &Guard, journal: Option<&Path>) -> Outcome {
    debug_assert!(args.stdio, "there is no other way yet");
    let path = open::path(journal)?;
    // Kept until the end: whoever was started for it leaves when nobody is connected.
    let home = reach(path).await?;
    let owner = home.owner().clone();
    let lost =
        |e: io::Error| Failure::new(format!("{}: {e}", safe(&owner.socket.to_string_lossy())));
    let mut from = UnixStream::connect(&owner.socket).map_err(lost)?;
    let mut to = from.try_clone().map_err(lost)?;
    let over = Arc::new(AtomicBool::new(false));
    let said = Arc::clone(&over);
    let forward = move || {
        let copied = io::copy(&mut io::stdin().lock(), &mut to);
        said.store(copied.is_ok(), Ordering::Release);
        // What was asked is still answered.
        let _ = to.shutdown(Shutdown::Write);
    };
    let forward = thread::Builder::new().name("deedbook-stdin".into()).spawn(forward);
    forward.map_err(|e| Failure::new(format!("cannot start: {e}")))?;
    let mut out = io::stdout().lock();
    let answered = copy_lines(&mut from, &mut out);
    let owner = safe(&owner.to_string());
    match (answered, over.load(Ordering::Acquire)) {
        (Err(error), _) => Err(error.into()),
        (Ok(_), true) => Ok(code::OK),
        (Ok(last), false) => Err(Failure::new(match last.closes() {
            Some(why) => format!("{owner} has closed the connection: {}", safe(&why)),
            None => format!(
                "{owner} held the journal and has gone; start again to learn what became of what \
                 was asked"
            ),
        })),
    }
}

/// The last line of what went by, as far as it is looked at.
#[derive(Default)]
struct Last {
    line: Vec<u8>,
    /// How many lines there were before it.
    before: u64,
    is_whole: bool,
}

impl Last {
    fn goes_by(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if std::mem::take(&mut self.is_whole) {
                self.line.clear();
                self.before += 1;
            }
            let room = LAST_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend(part.iter().take(room));
            self.is_whole = part.ends_with(b"\n");
        }
    }

    /// Why the other side closed the connection, if it said so here: in an error that answers no
    /// request. Such a one closes it in the place of the answer to the hello, and where a line was
    /// too slow or too long; after any other the conversation goes on.
    fn closes(&self) -> Option<String> {
        let said: serde_json::Value = serde_json::from_slice(&self.line).ok()?;
        let error = said.get("error")?;
        let kind = error.get("kind")?.as_str()?;
        let is_of_none = said.get("id").is_none_or(serde_json::Value::is_null);
        let closes = self.before == 0 || ["slow", "too_long"].contains(&kind);
        (is_of_none && closes).then(|| error.get("message")?.as_str().map(str::to_owned)).flatten()
    }
}

/// Copies what comes as it comes; its last line. That nothing comes any more is no error.
fn copy_lines(from: &mut UnixStream, out: &mut impl Write) -> io::Result<Last> {
    let mut chunk = vec![0; 64 * 1024];
    let mut last = Last::default();
    loop {
        let read = match io::Read::read(from, &mut chunk) {
            Ok(0) => return Ok(last),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Ok(last),
        };
        let bytes = chunk.get(..read).unwrap_or_default();
        last.goes_by(bytes);
        out.write_all(bytes)?;
        out.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_that_closes_is_the_cause() {
        let closes = |lines: &[&str]| {
            let mut last = Last::default();
            // In pieces, as they come.
            for piece in lines.concat().as_bytes().chunks(7) {
                last.goes_by(piece);
            }
            last.closes()
        };
        let of = |id: &str, kind: &str| {
            format!("{{\"id\":{id},\"error\":{{\"kind\":\"{kind}\",\"message\":\"why\"}}}}\n")
        };
        let hello = "{\"id\":0,\"ok\":{}}\n";
        let (slow, long, bad) =
            (of("null", "slow"), of("null", "too_long"), of("null", "bad_json"));
        for lines in [&[&*slow][..], &[&bad], &[hello, &slow], &[hello, &bad, &long]] {
            assert_eq!(closes(lines).as_deref(), Some("why"), "{lines:?}");
        }
        let refused = of("1", "slow");
        for lines in [&[][..], &[hello], &[hello, &bad], &[hello, &slow, hello], &[hello, &refused]]
        {
            assert_eq!(closes(lines), None, "{lines:?}");
        }
    }
}
