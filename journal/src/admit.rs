//! What every checkpointer checks before it stores: one implementation for all of them.
//!
//! A fault of a caller must not become a chain that nobody can verify, so a home checks each
//! element against the thread's tail before it writes it. What was sealed in this process is known
//! to be whole ([`crate::record::Written`]): of that only the place is compared. Anything else is
//! read and hashed, record by record.

use crate::{
    checkpointer::{Append, Message, StoreError},
    id::{Position, StoreTime},
    limits::{APPEND_BYTES_MAX, APPEND_RECORDS_MAX, MESSAGE_BYTES_MAX},
    record::{Record, RecordHash},
    row::Row,
};

/// The end of a thread: what its next record must follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tail {
    /// The position of the next record.
    pub next: Position,
    /// The hash of the last record; zero for a thread without records.
    pub head: RecordHash,
    /// The time of the last record; zero for a thread without records.
    pub time: StoreTime,
}

/// Checks an element against the thread's tail: its position, the thread, epoch and position in
/// each header, the chain, the payloads, and that time does not go back. Returns the tail after
/// it. The epoch itself and the messages it consumes are the caller's to check, who knows them, and
/// so is [`not_ahead`], for which it has the clock.
///
/// # Errors
/// [`StoreError::Moved`] if it begins at another position; [`StoreError::Refused`] if it breaks a
/// rule of the format or is beyond a limit.
pub fn admit(log_id: &[u8; 16], tail: &Tail, append: &Append) -> Result<Tail, StoreError> {
    if append.at != tail.next {
        return Err(StoreError::Moved { next: tail.next });
    }
    if append.records.len() > APPEND_RECORDS_MAX {
        let count = append.records.len();
        return Err(refused(format!(
            "an append holds {count} records and {APPEND_RECORDS_MAX} are the most; split it"
        )));
    }
    let bytes: usize = append.records.iter().map(Record::size).sum();
    if bytes > APPEND_BYTES_MAX {
        return Err(refused(format!(
            "an append holds {bytes} bytes and {APPEND_BYTES_MAX} are the most; split it"
        )));
    }
    if let Some(after) = sealed(log_id, tail, append) {
        return Ok(after);
    }
    let mut after = *tail;
    for record in &append.records {
        let n = after.next;
        let header = record.verify(log_id, &after.head).map_err(|why| {
            refused(format!("record {n} does not follow the record before: {why}"))
        })?;
        if header.thread != append.thread {
            return Err(refused(format!(
                "record {n} is of thread {:?}, not of {:?}",
                header.thread, append.thread
            )));
        }
        if header.n != n {
            return Err(refused(format!("record {n} says that it is record {}", header.n)));
        }
        if header.epoch != append.epoch {
            return Err(refused(format!(
                "record {n} is of epoch {}, written under epoch {}",
                header.epoch.0, append.epoch.0
            )));
        }
        if header.time < after.time {
            return Err(refused(format!(
                "record {n} is of {}, before the record that it follows ({}); \
                 take times from the store's clock",
                header.time, after.time
            )));
        }
        if header.payloads.len() != record.payloads.len() {
            return Err(refused(format!("record {n} lacks a payload that it commits to")));
        }
        after = Tail { next: n + 1, head: record.hash, time: header.time };
    }
    Ok(after)
}

/// Refuses what ends at this tail if its last record is from a time that the store's clock has not
/// reached. The clock never goes back behind a record: one from the end of time would stop it for
/// ever, and with it every lease and timer.
///
/// # Errors
/// [`StoreError::Refused`].
pub fn not_ahead(
    after: &Tail,
    has_reached: impl FnOnce(StoreTime) -> bool,
) -> Result<(), StoreError> {
    if has_reached(after.time) {
        return Ok(());
    }
    Err(refused(format!(
        "record {} is of {}, which the store's clock has not reached; take times from the store's \
         clock",
        after.next.saturating_sub(1),
        after.time
    )))
}

/// The tail behind records whose seal says that they follow this one.
fn sealed(log_id: &[u8; 16], tail: &Tail, append: &Append) -> Option<Tail> {
    let (seal, last) = (append.records.seal()?, append.records.last()?);
    let follows = seal.prev == tail.head
        && seal.at == tail.next
        && seal.log_id == *log_id
        && seal.epoch == append.epoch
        && seal.thread == append.thread
        && seal.from >= tail.time;
    let next = tail.next.saturating_add(append.records.len() as Position);
    follows.then_some(Tail { next, head: last.hash, time: seal.to })
}

/// Checks a message against the limits.
///
/// # Errors
/// [`StoreError::Refused`] if it is too large.
pub fn admit_message(message: &Message) -> Result<(), StoreError> {
    let bytes = message.name.len() + message.by.len() + message.body.len();
    if bytes > MESSAGE_BYTES_MAX {
        return Err(refused(format!(
            "a message holds {bytes} bytes and {MESSAGE_BYTES_MAX} are the most"
        )));
    }
    Ok(())
}

/// Whether an unheld thread has something to do: see [`crate::checkpointer::Claim::Due`].
#[must_use]
pub fn is_due(row: &Row, unconsumed: usize, now: StoreTime) -> bool {
    !row.status.is_ended() && (unconsumed > 0 || row.wake_at.is_some_and(|at| at <= now))
}

/// A refusal, in words.
pub(crate) fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Refused { why: why.into().into() }
}
