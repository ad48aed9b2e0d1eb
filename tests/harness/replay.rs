//! A finished thread, as it would be had it crashed just before its end.

use std::time::Duration;

use deedbook::{
    Checkpointer, Row, Status, ThreadId,
    checkpointer::{Append, Claim, StoreIdentity},
};
use deedbook_journal::{
    id::{Epoch, Position, StoreTime},
    record::{Header, Kind, Record},
};
use deedbook_memory::{MemoryHome, MemoryOptions, MemorySnapshot};
use futures::FutureExt;

/// All records of a thread.
pub(crate) fn records(home: &MemoryHome, thread: &ThreadId, from: Position) -> Vec<Record> {
    let read = home.read(thread, from, usize::MAX).now_or_never();
    let page = read.expect("the home in memory answers at once");
    let items = page.map(|page| page.items).unwrap_or_default();
    items.into_iter().map(|(_, record)| record).collect()
}

/// Copies a thread's records, or a part of them from the beginning, into a new home, but for its
/// `thread.end`.
pub(crate) fn without_end(
    workflow: &str,
    identity: &StoreIdentity,
    thread: &ThreadId,
    records: &[Record],
) -> MemorySnapshot {
    let home = MemoryHome::new(MemoryOptions::new().identity(identity.clone()));
    let row =
        Row { wake_at: Some(StoreTime(0)), ..Row::new(workflow, Status::Running, StoreTime(0)) };
    let (mut at, mut held) = (0, Epoch(0));
    for record in records {
        let header = Header::parse(&record.header).expect("a header that parses");
        if header.kind == Kind::ThreadEnd {
            break;
        }
        claim_under(&home, thread, &row, &mut held, header.epoch);
        let append = Append {
            thread: thread.clone(),
            epoch: header.epoch,
            at,
            records: vec![record.clone()].into(),
            consumes: Vec::new(),
            row: row.clone(),
        };
        let appended = home.append(vec![append]).now_or_never();
        for result in appended.expect("an answer at once") {
            at = result.expect("a record that fits its thread");
        }
    }
    home.snapshot()
}

/// Takes hold of the thread until its epoch is this one.
fn claim_under(home: &MemoryHome, thread: &ThreadId, row: &Row, held: &mut Epoch, epoch: Epoch) {
    while *held != epoch {
        let release = [(thread.clone(), *held)];
        let released = home.renew(&release, Duration::ZERO).now_or_never();
        released.expect("an answer at once").expect("a release");
        let id = thread.clone();
        let create = Some(row.clone());
        let which = Claim::Thread { id, create };
        let claim = home.claim(which, "copy", Duration::from_secs(3600));
        let leases = claim.now_or_never().expect("an answer at once");
        *held = leases.expect("a claim").remove(0).epoch;
        assert!(*held <= epoch, "the records' epochs do not go up");
    }
}
