//! A sheet: what somebody who is no run writes to a thread under one hold.

use crate::{
    checkpointer::{Append, Checkpointer, Lease, StoreError},
    history::{History, HistoryError, ReplayError},
    id::{MessageId, Position, StoreTime, ThreadId},
    message::admit,
    pen::{Draft, Pen},
    record::{RecordHash, Records, Role},
    row::Row,
};

/// How many bytes of records are read at once.
pub(crate) const READ_BYTES: usize = 4 * 1024 * 1024;

/// Records that are being written, and what they and those before them add up to.
#[derive(Debug)]
pub(crate) struct Sheet {
    pub(crate) history: History,
    pub(crate) pen: Pen,
    /// The position of the first of the records.
    at: Position,
    pub(crate) records: Records,
    /// The messages that these records give a position to.
    pub(crate) consumes: Vec<MessageId>,
    pub(crate) now: StoreTime,
    salts: Salts,
}

impl Sheet {
    /// A sheet behind what `history` tells. `seed` is 32 fresh random bytes that are kept nowhere.
    pub(crate) fn new(history: History, pen: Pen, now: StoreTime, seed: [u8; 32]) -> Self {
        let now = now.max(history.time());
        let salts = Salts::new(seed);
        let at = pen.next();
        Self { history, pen, at, records: Records::default(), consumes: Vec::new(), now, salts }
    }

    /// Reads the rest of the thread that was taken hold of.
    pub(crate) async fn open(
        home: &dyn Checkpointer,
        lease: &Lease,
        mut read: Read,
        seed: [u8; 32],
    ) -> Result<Self, StoreError> {
        read.catch_up(home, lease.next).await?;
        let Read { mut history, head } = read;
        if history.next() != lease.next {
            return Err(StoreError::Moved { next: lease.next });
        }
        history.loaded();
        let pen = Pen::behind(home.identity().log_id, lease.epoch, &history, head);
        Ok(Self::new(history, pen, home.now().await?, seed))
    }

    /// Admits what waits in the thread's inbox.
    pub(crate) async fn listen(&mut self, home: &dyn Checkpointer) -> Result<(), StoreError> {
        let inbox = match home.inbox(self.history.thread()).await {
            // A new thread exists for others from its first append on.
            Err(StoreError::NoSuchThread) => return Ok(()),
            inbox => inbox?,
        };
        for message in inbox {
            let draft = admit(&self.history, &message, self.now);
            self.write(draft).map_err(|error| refused(&error))?;
            self.consumes.push(message.id);
        }
        Ok(())
    }

    /// Writes a record: gives it its position, and takes it into the history.
    pub(crate) fn write(&mut self, draft: Draft) -> Result<Position, HistoryError> {
        let (header, record) = self.pen.write(draft, self.now, &mut || self.salts.next());
        self.history.apply(&header, &record.payloads)?;
        self.records.push(record);
        Ok(header.n)
    }

    /// Stores what is written, with this row, and begins an empty sheet behind it.
    pub(crate) async fn submit(
        &mut self,
        home: &dyn Checkpointer,
        lease: &Lease,
        row: Row,
    ) -> Result<Position, StoreError> {
        let append = self.append(lease, row);
        let stored = home.append(vec![append]).await.into_iter().next();
        self.at = stored.unwrap_or(Err(StoreError::Closed))?;
        Ok(self.at)
    }

    /// Deletes a payload, and stores what is written, which says so, with this row; begins an
    /// empty sheet behind it.
    pub(crate) async fn erase(
        &mut self,
        home: &dyn Checkpointer,
        lease: &Lease,
        (n, role): (Position, Role),
        row: Row,
    ) -> Result<Position, StoreError> {
        let note = self.append(lease, row);
        self.at = home.erase(&lease.thread, n, role, note).await?;
        Ok(self.at)
    }

    fn append(&mut self, lease: &Lease, row: Row) -> Append {
        Append {
            thread: lease.thread.clone(),
            epoch: lease.epoch,
            at: self.at,
            records: std::mem::take(&mut self.records),
            consumes: std::mem::take(&mut self.consumes),
            row,
        }
    }
}

/// A thread as far as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) history: History,
    /// The hash of the last record; zero for a thread without records.
    pub(crate) head: RecordHash,
}

impl Read {
    /// Nothing of the thread yet.
    pub(crate) fn nothing(home: &dyn Checkpointer, thread: &ThreadId) -> Self {
        let history = History::new(thread.clone(), home.identity().secret);
        Self { history, head: RecordHash::default() }
    }

    /// Reads on, up to this position; a thread that is not there has no records.
    pub(crate) async fn catch_up(
        &mut self,
        home: &dyn Checkpointer,
        to: Position,
    ) -> Result<(), StoreError> {
        let thread = self.history.thread().clone();
        let mut next = Some(self.history.next()).filter(|from| *from < to);
        while let Some(from) = next {
            let page = match home.read(&thread, from, READ_BYTES).await {
                Err(StoreError::NoSuchThread) => return Ok(()),
                page => page?,
            };
            for (n, record) in page.items.iter().take_while(|(n, _)| *n < to) {
                let replayed = self.history.replay(record);
                replayed.map_err(|error| damaged(&thread, *n, &error))?;
                self.head = record.hash;
            }
            next = page.next.filter(|from| *from < to);
        }
        Ok(())
    }
}

fn damaged(thread: &ThreadId, n: Position, error: &ReplayError) -> StoreError {
    StoreError::Damaged { thread: thread.clone(), n, why: error.to_string().into() }
}

/// The rules that write records and the rules that read them disagree: our fault.
pub(crate) fn refused(error: &HistoryError) -> StoreError {
    StoreError::Refused { why: error.to_string().into() }
}

/// Salts from a seed: as unpredictable as the seed, and nothing can fail in the middle of a write.
struct Salts(blake3::OutputReader);

impl std::fmt::Debug for Salts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salts")
    }
}

impl Salts {
    fn new(seed: [u8; 32]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("deedbook 2026-11-29 salts of an act");
        hasher.update(&seed);
        Self(hasher.finalize_xof())
    }

    fn next(&mut self) -> [u8; 32] {
        let mut salt = [0; 32];
        self.0.fill(&mut salt);
        salt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_differ_and_follow_from_the_seed() {
        let mut salts = Salts::new([1; 32]);
        let (a, b) = (salts.next(), salts.next());
        assert_ne!(a, b);
        assert_eq!(Salts::new([1; 32]).next(), a);
        assert_ne!(Salts::new([2; 32]).next(), a);
    }
}
