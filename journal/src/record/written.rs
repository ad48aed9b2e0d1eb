//! What was written in this process, and need not be read again to be known.
//!
//! A home checks what it is given before it stores it ([`crate::admit`]): hashes, commitments, and
//! all of each header. For a record that was sealed here a moment before this is the same work
//! once more, and as much as sealing it was. So a record that [`Record::seal`] has made carries a
//! *seal*, which says what it follows; it is lost with the first change of anything that it says.

use std::{ops::Deref, sync::Arc};

use super::{Header, Record, RecordHash};
use crate::{
    id::{Epoch, Position, StoreTime, ThreadId},
    limits::HEADER_BYTES_MAX,
};

/// A record, and its seal if it was made here.
#[derive(Debug, Clone)]
pub struct Written {
    record: Record,
    seal: Option<Seal>,
}

/// What is known of sealed records that follow one another.
#[derive(Debug, Clone)]
pub(crate) struct Seal {
    pub(crate) log_id: [u8; 16],
    /// What stands before the first of them.
    pub(crate) prev: RecordHash,
    pub(crate) thread: ThreadId,
    pub(crate) epoch: Epoch,
    /// The position of the first of them.
    pub(crate) at: Position,
    /// The time of the first of them.
    pub(crate) from: StoreTime,
    /// The time of the last of them.
    pub(crate) to: StoreTime,
}

impl Written {
    /// A record that was made of this header, and sealed behind `prev`.
    pub(super) fn sealed(
        log_id: &[u8; 16],
        prev: &RecordHash,
        header: &Header,
        record: Record,
    ) -> Self {
        let seal = is_whole(header, &record).then(|| Seal {
            log_id: *log_id,
            prev: *prev,
            thread: header.thread.clone(),
            epoch: header.epoch,
            at: header.n,
            from: header.time,
            to: header.time,
        });
        debug_assert!(seal.is_none() || record.verify(log_id, prev).is_ok(), "{header:?}");
        Self { record, seal }
    }

    /// The record.
    #[must_use]
    pub fn into_record(self) -> Record {
        self.record
    }
}

/// Whether every reader of the format reads what was made of this header: the types of its fields
/// leave room for nothing else that is not.
fn is_whole(header: &Header, record: &Record) -> bool {
    record.header.len() <= HEADER_BYTES_MAX
        && header.payloads.is_sorted_by(|a, b| a.role.as_str() < b.role.as_str())
}

/// A record from elsewhere: whoever stores it looks at it.
impl From<Record> for Written {
    fn from(record: Record) -> Self {
        Self { record, seal: None }
    }
}

impl Deref for Written {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

/// Records to be stored, one after another. Cheap to clone.
///
/// Those that a [`Pen`](crate::pen::Pen) has written one behind the other keep their seal, so that
/// a home need not check them again. Any others, and all that are changed here, it checks.
///
/// ```
/// use deedbook_journal::{
///     id::{Epoch, StoreTime, ThreadId},
///     pen::{Draft, Pen},
///     record::{Kind, RecordHash, Records},
/// };
/// let thread = ThreadId::new("refund-7")?;
/// let mut pen = Pen::new([1; 16], thread.clone(), Epoch(1), 0, RecordHash::ZERO);
/// let mut records = Records::default();
/// for kind in [Kind::ThreadStart, Kind::Marker] {
///     let draft = Draft::new(&thread, kind);
///     records.push(pen.write(draft, StoreTime(5), &mut || [9; 32]).1);
/// }
/// assert_eq!(records.len(), 2);
/// # Ok::<(), deedbook_journal::id::InvalidName>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Records {
    records: Arc<Vec<Record>>,
    /// `None` if one of them is to be looked at.
    seal: Option<Seal>,
}

impl Records {
    /// Adds a record behind the others.
    pub fn push(&mut self, written: impl Into<Written>) {
        let Written { record, seal } = written.into();
        self.seal = match (self.seal.take(), seal) {
            (None, seal) if self.records.is_empty() => seal,
            (Some(before), Some(seal)) if self.follows(&before, &seal) => {
                Some(Seal { to: seal.to, ..before })
            }
            _ => None,
        };
        Arc::make_mut(&mut self.records).push(record);
    }

    fn follows(&self, before: &Seal, seal: &Seal) -> bool {
        self.records.last().is_some_and(|last| last.hash == seal.prev)
            && before.at.saturating_add(self.records.len() as Position) == seal.at
            && (before.log_id, before.epoch) == (seal.log_id, seal.epoch)
            && before.thread == seal.thread
            && before.to <= seal.from
    }

    /// What is known of them, if all of them were sealed here, each behind the one before.
    pub(crate) fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// The records, to be changed: what they are then is to be looked at.
    pub fn change(&mut self) -> &mut Vec<Record> {
        self.seal = None;
        Arc::make_mut(&mut self.records)
    }

    /// The records.
    #[must_use]
    pub fn into_vec(self) -> Vec<Record> {
        Arc::unwrap_or_clone(self.records)
    }
}

impl Deref for Records {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        &self.records
    }
}

impl<'r> IntoIterator for &'r Records {
    type Item = &'r Record;
    type IntoIter = std::slice::Iter<'r, Record>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.iter()
    }
}

impl<W: Into<Written>> From<Vec<W>> for Records {
    fn from(written: Vec<W>) -> Self {
        written.into_iter().collect()
    }
}

impl<W: Into<Written>> FromIterator<W> for Records {
    fn from_iter<I: IntoIterator<Item = W>>(written: I) -> Self {
        let written = written.into_iter();
        let mut records = Self::default();
        Arc::make_mut(&mut records.records).reserve(written.size_hint().0);
        written.for_each(|written| records.push(written));
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pen::{Draft, Pen},
        record::{Kind, Payload, Role},
    };

    const LOG: [u8; 16] = [7; 16];

    fn pen() -> (ThreadId, Pen) {
        let thread = ThreadId::new("t").unwrap();
        (thread.clone(), Pen::new(LOG, thread, Epoch(1), 0, RecordHash::ZERO))
    }

    fn write(pen: &mut Pen, thread: &ThreadId, time: u64) -> Written {
        let draft = Draft::new(thread, Kind::Marker).payload(Role::Value, vec![0xc0]);
        pen.write(draft, StoreTime(time), &mut || [1; 32]).1
    }

    #[test]
    fn what_a_pen_writes_in_a_row_is_sealed() {
        let (thread, mut pen) = pen();
        let records: Records = (0..3).map(|n| write(&mut pen, &thread, 5 + n)).collect();
        let seal = records.seal().unwrap();
        assert_eq!((seal.at, seal.from, seal.to), (0, StoreTime(5), StoreTime(7)));
        assert_eq!((seal.prev, seal.log_id), (RecordHash::ZERO, LOG));
    }

    #[test]
    fn what_does_not_follow_what_is_changed_and_what_came_from_elsewhere_is_not() {
        let (thread, mut pen) = pen();
        let [first, second, third] = [1, 2, 3].map(|time| write(&mut pen, &thread, time));
        let sealed = |written: &[&Written]| {
            let records: Records = written.iter().map(|w| (*w).clone()).collect();
            records.seal().is_some()
        };
        assert!(sealed(&[&first, &second]) && sealed(&[&second, &third]));
        assert!(!sealed(&[&first, &third]) && !sealed(&[&second, &first]));
        let foreign = Written::from(second.clone().into_record());
        assert!(!sealed(&[&foreign]) && !sealed(&[&first, &foreign]));
        assert!(!sealed(&[&foreign, &third]), "what stands behind it does not make it known");
        let mut records: Records = [first, second].into_iter().collect();
        records.change();
        assert!(records.seal().is_none());
        records.push(third);
        assert!(records.seal().is_none());
    }

    #[test]
    fn a_record_that_no_reader_takes_is_not() {
        let (thread, mut pen) = pen();
        let twice = Draft::new(&thread, Kind::Marker)
            .payload(Role::Value, vec![0xc0])
            .payload(Role::Value, vec![0xc0]);
        let long = Draft::new(&thread, Kind::Marker)
            .with(|h| h.why = Some("x".repeat(HEADER_BYTES_MAX).into()));
        for draft in [twice, long] {
            let record = pen.write(draft, StoreTime(1), &mut || [1; 32]).1;
            assert!(record.seal.is_none());
            let Record { header, .. } = record.into_record();
            assert!(Header::parse(&header).is_err());
        }
    }

    #[test]
    fn a_clone_is_not_changed_with_the_other() {
        let (thread, mut pen) = pen();
        let mut records: Records = [write(&mut pen, &thread, 1)].into_iter().collect();
        let kept = records.clone();
        records.change()[0].payloads.push(Payload {
            role: Role::Note,
            salt: [0; 32],
            bytes: [0xc0].into(),
        });
        assert_eq!((kept[0].payloads.len(), records[0].payloads.len()), (1, 2));
        assert!(kept.seal().is_some());
    }
}
