//! Erasing what a settled step was given and what it brought: that it happened stays.

use std::{ops::AddAssign, time::Duration};

use super::{GuardError, claim, is_guarded, row_at_rest, step};
use crate::{
    checkpointer::{Checkpointer, Lease, StoreError, ThreadInfo},
    history::History,
    id::{Position, StoreTime, ThreadId},
    limits::ValueLimits,
    pen::Draft,
    record::{Kind, Record, Role},
    row::{Row, Status},
    sheet::{self, READ_BYTES, Read, Sheet},
    value,
};

/// For how long a step is held at first. Each erasure extends it.
const LEASE: Duration = Duration::from_secs(60);

/// What stands as the detail of a step that has been forgotten: it need not be read again to find
/// that nothing of it is left.
const FORGOTTEN: &str = "forgotten";

/// What stands as `why` in the records of erasures.
const WHY: &str = "retention";

/// What was erased.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Of how many steps.
    pub steps: u64,
    /// How many payloads: arguments, results, errors.
    pub payloads: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl AddAssign for Forgotten {
    fn add_assign(&mut self, other: Self) {
        self.steps = self.steps.saturating_add(other.steps);
        self.payloads = self.payloads.saturating_add(other.payloads);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Whether a step can have anything to be forgotten: it rests since before that time, and nothing
/// came for it since it was forgotten. Without a look at its records.
#[must_use]
pub fn may_be_forgotten(info: &ThreadInfo, before: StoreTime) -> bool {
    info.row.status == Status::Idle && !is_forgotten(info) && info.row.since < before
}

/// Whether a step was forgotten, and neither happened anew since nor was told anything more.
#[must_use]
pub fn is_forgotten(info: &ThreadInfo) -> bool {
    let row = &info.row;
    row.status == Status::Idle && row.detail.as_deref() == Some(FORGOTTEN) && info.inbox == 0
}

/// Erases the arguments, results and errors of a step that was settled before that time. What is
/// left is that it happened, or that it failed for good; its key; who, when, and how often: enough
/// to keep it from happening again. A later caller with the same identity is told so, without the
/// result ([`crate::history::Answer::Erased`]).
///
/// Each erasure is recorded, with who asked for it and why. One that is interrupted has erased some
/// of them, and is carried on by the next call.
///
/// # Errors
/// [`GuardError::Refused`] if the step is under way, in doubt, open, or was settled later than
/// that.
pub async fn forget(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    before: StoreTime,
    by: &str,
    reason: &str,
    seed: [u8; 32],
) -> Result<Forgotten, GuardError> {
    if by.is_empty() || reason.is_empty() {
        return Err(refused("say who wants it forgotten, and why: both are recorded"));
    }
    let mut read = Read::nothing(home, thread);
    read.catch_up(home, Position::MAX).await?;
    let info = claim::free(home, thread).await?;
    allows(&read.history, before)?;
    // What came late is a part of it.
    let came = info.is_some_and(|info| info.inbox > 0);
    if !came && left(home, &read.history).await?.is_empty() {
        return Ok(Forgotten::default());
    }
    let lease = claim::act_on(home, thread, by, LEASE).await?;
    let hold = [(lease.thread.clone(), lease.epoch)];
    let done = under_hold(home, read, lease, before, (by, reason), seed).await;
    // A lease that cannot be released runs out by itself.
    let _ = home.renew(&hold, Duration::ZERO).await;
    done
}

async fn under_hold(
    home: &dyn Checkpointer,
    read: Read,
    lease: Lease,
    before: StoreTime,
    (by, reason): (&str, &str),
    seed: [u8; 32],
) -> Result<Forgotten, GuardError> {
    let mut sheet = Sheet::open(home, &lease, read, seed).await?;
    claim::resume(&mut sheet, by)?;
    // What came for the step is a part of it.
    sheet.listen(home).await?;
    allows(&sheet.history, before)?;
    let row = row_at_rest(&sheet.history, &lease.row, sheet.now);
    sheet.submit(home, &lease, row.clone()).await?;
    let left = left(home, &sheet.history).await?;
    let mut sum = Forgotten { steps: 1, ..Forgotten::default() };
    for (at, (n, role, bytes)) in left.iter().enumerate() {
        let draft = Draft::new(&lease.thread, Kind::Redact).with(|h| {
            h.call = Some(*n);
            h.role = Some(*role);
            h.by = Some(by.into());
            h.why = Some(WHY.into());
        });
        let note = value::encode(reason, &ValueLimits::new())?;
        sheet.write(draft.payload(Role::Note, note)).map_err(|error| sheet::refused(&error))?;
        let last = at + 1 == left.len();
        let detail = if last { Some(FORGOTTEN.into()) } else { row.detail.clone() };
        sheet.erase(home, &lease, (*n, *role), Row { detail, ..row.clone() }).await?;
        home.renew(&[(lease.thread.clone(), lease.epoch)], LEASE).await?;
        sum += Forgotten { steps: 0, payloads: 1, bytes: *bytes };
    }
    if left.is_empty() {
        // What came was not kept.
        sheet.submit(home, &lease, Row { detail: Some(FORGOTTEN.into()), ..row }).await?;
        return Ok(Forgotten::default());
    }
    Ok(sum)
}

fn refused(why: &str) -> GuardError {
    GuardError::Refused { why: why.to_owned() }
}

fn allows(history: &History, before: StoreTime) -> Result<(), GuardError> {
    if !is_guarded(history) {
        return Err(refused("this is not the thread of a guarded step; only those are forgotten"));
    }
    let outcome = step(history).and_then(|call| call.outcome.as_ref());
    let outcome = outcome.ok_or_else(|| {
        refused(
            "it is not settled: what it was given is needed until it is known what became of it",
        )
    })?;
    if outcome.time >= before {
        return Err(refused("it was settled later than that"));
    }
    Ok(())
}

/// The payloads that are there and may go: not the scope, which keys are derived from, and no
/// person's reason.
async fn left(
    home: &dyn Checkpointer,
    history: &History,
) -> Result<Vec<(Position, Role, u64)>, StoreError> {
    let mut left = Vec::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let page = home.read(history.thread(), from, READ_BYTES).await?;
        left.extend(page.items.iter().flat_map(|(n, record)| of(*n, record)));
        next = page.next;
    }
    Ok(left)
}

fn of(n: Position, record: &Record) -> impl Iterator<Item = (Position, Role, u64)> {
    let may_go = |role| matches!(role, Role::Args | Role::Result | Role::Error);
    let payloads = record.payloads.iter().filter(move |payload| may_go(payload.role));
    payloads.map(move |payload| (n, payload.role, payload.bytes.len() as u64))
}
