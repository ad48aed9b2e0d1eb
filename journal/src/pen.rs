//! The pen: writes a thread's next record.

use crate::{
    history::History,
    id::{Epoch, Position, StoreTime, ThreadId},
    record::{Header, Kind, Payload, Record, RecordHash, Role, Written},
};

/// A record before it has a place: a kind, the fields that the kind needs, and payload bytes.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Its fields. The thread, the position, the epoch, the time and the run are set by the pen.
    pub header: Header,
    /// Its payloads, encoded.
    pub payloads: Vec<(Role, Vec<u8>)>,
}

impl Draft {
    /// A record of this kind in `thread`.
    #[must_use]
    pub fn new(thread: &ThreadId, kind: Kind) -> Self {
        let header = Header::new(thread.clone(), 0, Epoch(0), kind, StoreTime(0), 0);
        Self { header, payloads: Vec::new() }
    }

    /// Sets fields.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Header)) -> Self {
        set(&mut self.header);
        self
    }

    /// Adds a payload.
    #[must_use]
    pub fn payload(mut self, role: Role, bytes: Vec<u8>) -> Self {
        self.payloads.push((role, bytes));
        self
    }
}

/// Gives records their positions, times and hashes. Pure: times and salts are passed in.
#[derive(Debug, Clone)]
pub struct Pen {
    log_id: [u8; 16],
    thread: ThreadId,
    epoch: Epoch,
    next: Position,
    head: RecordHash,
    run: Position,
    time: StoreTime,
}

impl Pen {
    /// A pen for a thread held under `epoch` whose last record is `head`.
    #[must_use]
    pub fn new(
        log_id: [u8; 16],
        thread: ThreadId,
        epoch: Epoch,
        next: Position,
        head: RecordHash,
    ) -> Self {
        Self { log_id, thread, epoch, next, head, run: 0, time: StoreTime(0) }
    }

    /// A pen for a thread held under `epoch` whose records add up to `history`, the last of which
    /// is `head`.
    #[must_use]
    pub fn behind(log_id: [u8; 16], epoch: Epoch, history: &History, head: RecordHash) -> Self {
        Self {
            log_id,
            thread: history.thread().clone(),
            epoch,
            next: history.next(),
            head,
            run: history.run(),
            time: history.time(),
        }
    }

    /// The position of the next record.
    #[must_use]
    pub fn next(&self) -> Position {
        self.next
    }

    /// Writes the next record. `thread.start` and `thread.resume` begin a run, to which the
    /// records behind them belong. A time earlier than the last record's is taken as that.
    pub fn write(
        &mut self,
        draft: Draft,
        time: StoreTime,
        salt: &mut dyn FnMut() -> [u8; 32],
    ) -> (Header, Written) {
        let Draft { mut header, payloads } = draft;
        if matches!(header.kind, Kind::ThreadStart | Kind::ThreadResume) {
            self.run = self.next;
        }
        self.time = self.time.max(time);
        header.thread = self.thread.clone();
        header.n = self.next;
        header.epoch = self.epoch;
        header.time = self.time;
        header.run = self.run;
        let payloads = payloads
            .into_iter()
            .map(|(role, bytes)| Payload { role, salt: salt(), bytes: bytes.into() })
            .collect();
        let (header, record) = Record::seal(&self.log_id, &self.head, header, payloads);
        self.next += 1;
        self.head = record.hash;
        (header, record)
    }

    /// Moves behind a record that is stored already.
    pub fn pass(&mut self, header: &Header, hash: RecordHash) {
        if matches!(header.kind, Kind::ThreadStart | Kind::ThreadResume) {
            self.run = header.n;
        }
        self.time = self.time.max(header.time);
        self.next = header.n + 1;
        self.head = hash;
    }
}
