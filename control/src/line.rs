//! Lines on a socket: nothing is read without a bound, in bytes or in time.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::limits::{LINE_BYTES_MAX, LINE_BYTES_SMALL};

/// How much is read at once, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// A line, without its end.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    /// What it may occupy memory with, if it is long; goes with it.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// Why there is no line.
#[derive(Debug)]
pub(crate) enum NoLine {
    /// The other side has closed the connection, between two lines.
    End,
    /// It went away within a line.
    Half,
    /// The line is longer than any may be.
    TooLong,
    /// It took too long.
    Slow,
    /// It is no UTF-8. The next line may be one.
    NotText,
    /// The system said so.
    Io(std::io::Error),
}

/// How lines are bounded.
#[derive(Clone)]
pub(crate) struct Bounds {
    /// Who has a long line in memory.
    pub(crate) large: Arc<Semaphore>,
    /// How long a line may take from its first byte.
    pub(crate) time: Duration,
}

/// The lines of a stream.
pub(crate) struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    /// How much of it is known to hold no end of a line.
    looked: usize,
    room: Option<OwnedSemaphorePermit>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), looked: 0, room: None }
    }

    /// The next line. `first_by` is until when its first byte must be there.
    ///
    /// Cancel-safe: what was read of a line is kept.
    pub(crate) async fn next(
        &mut self,
        bounds: &Bounds,
        first_by: Option<Instant>,
    ) -> Result<Line, NoLine> {
        let mut by = (!self.buffer.is_empty()).then(|| Instant::now() + bounds.time);
        loop {
            if let Some(bytes) = self.cut() {
                let room = self.room.take();
                let text = String::from_utf8(bytes).map_err(|_| NoLine::NotText)?;
                return Ok(Line { text, room });
            }
            if self.buffer.len() >= LINE_BYTES_MAX {
                return Err(NoLine::TooLong);
            }
            let until = by.or(first_by);
            if self.buffer.len() > LINE_BYTES_SMALL && self.room.is_none() {
                let large = Arc::clone(&bounds.large);
                // It is never closed.
                self.room = within(until, large.acquire_owned()).await?.ok();
            }
            let read = within(until, self.read()).await?;
            if read.map_err(NoLine::Io)? == 0 {
                return Err(if self.buffer.is_empty() { NoLine::End } else { NoLine::Half });
            }
            by = by.or_else(|| Some(Instant::now() + bounds.time));
        }
    }

    async fn read(&mut self) -> std::io::Result<usize> {
        self.buffer.reserve(CHUNK_BYTES);
        let most = LINE_BYTES_MAX.saturating_sub(self.buffer.len());
        let mut from = (&mut self.from).take(most.min(CHUNK_BYTES) as u64);
        from.read_buf(&mut self.buffer).await
    }

    /// Takes the first whole line out of what was read.
    fn cut(&mut self) -> Option<Vec<u8>> {
        let fresh = self.buffer.get(self.looked..).unwrap_or_default();
        let Some(at) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.looked = self.buffer.len();
            return None;
        };
        let end = self.looked + at;
        let rest = self.buffer.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.buffer, rest);
        line.truncate(end);
        self.looked = 0;
        Some(line)
    }

    /// Reads what still comes and throws it away, so that the other side can end its sentence and
    /// then hear what was wrong with it.
    pub(crate) async fn drain(&mut self, time: Duration) {
        self.buffer = Vec::new();
        let by = Instant::now() + time;
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(Ok(1..)) = timeout_at(by, self.from.read(&mut chunk)).await {}
    }
}

async fn within<T>(by: Option<Instant>, what: impl Future<Output = T>) -> Result<T, NoLine> {
    match by {
        Some(by) => timeout_at(by, what).await.map_err(|_| NoLine::Slow),
        None => Ok(what.await),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test of two sides runs both")]

    use tokio::io::AsyncWriteExt;

    use super::*;

    fn bounds() -> Bounds {
        Bounds { large: Arc::new(Semaphore::new(2)), time: Duration::from_millis(200) }
    }

    #[tokio::test]
    async fn lines_come_whole_in_whatever_pieces_they_are_sent() {
        let (mut to, from) = tokio::io::duplex(4093);
        let long = "x".repeat(200_000);
        let sent = format!("a\n\n{long}\nsecond to last\nhalf");
        tokio::spawn(async move { to.write_all(sent.as_bytes()).await });
        let (mut lines, bounds) = (Lines::new(from), bounds());
        assert_eq!(lines.next(&bounds, None).await.unwrap().text, "a");
        assert_eq!(lines.next(&bounds, None).await.unwrap().text, "");
        let line = lines.next(&bounds, None).await.unwrap();
        assert_eq!(line.text, long);
        assert_eq!(bounds.large.available_permits(), 1);
        drop(line);
        assert_eq!(bounds.large.available_permits(), 2);
        assert_eq!(lines.next(&bounds, None).await.unwrap().text, "second to last");
        assert!(matches!(lines.next(&bounds, None).await, Err(NoLine::Half)));
    }

    #[tokio::test]
    async fn a_line_is_bounded_in_bytes_and_in_time() {
        let (mut to, from) = tokio::io::duplex(1 << 20);
        let writer = tokio::spawn(async move {
            let chunk = vec![b'x'; 1 << 20];
            while to.write_all(&chunk).await.is_ok() {}
        });
        let patient = Bounds { time: Duration::from_secs(30), ..bounds() };
        let mut lines = Lines::new(from);
        assert!(matches!(lines.next(&patient, None).await, Err(NoLine::TooLong)));
        assert!(lines.buffer.len() <= LINE_BYTES_MAX);
        drop(lines);
        writer.await.unwrap();

        let (mut to, from) = tokio::io::duplex(64);
        to.write_all(b"begun").await.unwrap();
        let mut lines = Lines::new(from);
        assert!(matches!(lines.next(&bounds(), None).await, Err(NoLine::Slow)));
        let (_kept, from) = tokio::io::duplex(64);
        let soon = Instant::now() + Duration::from_millis(20);
        let nothing = Lines::new(from).next(&bounds(), Some(soon)).await;
        assert!(matches!(nothing, Err(NoLine::Slow)));
    }

    #[tokio::test]
    async fn what_is_no_text_does_not_end_the_stream() {
        let (mut to, from) = tokio::io::duplex(64);
        to.write_all(b"\xff\xfe\nok\n").await.unwrap();
        drop(to);
        let mut lines = Lines::new(from);
        assert!(matches!(lines.next(&bounds(), None).await, Err(NoLine::NotText)));
        assert_eq!(lines.next(&bounds(), None).await.unwrap().text, "ok");
        assert!(matches!(lines.next(&bounds(), None).await, Err(NoLine::End)));
    }
}
