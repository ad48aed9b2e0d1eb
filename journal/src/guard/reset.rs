//! Letting a settled step happen anew, on purpose.

use std::time::Duration;

use super::{GuardError, claim, is_guarded, row_at_rest, step, wanted::recorded_key};
use crate::{
    checkpointer::{Checkpointer, StoreIdentity},
    history::History,
    id::{Position, ThreadId},
    limits::ValueLimits,
    record::Role,
    sheet::{self, Read, Sheet},
    value,
};

/// For how long a step is held; this takes one append.
const LEASE: Duration = Duration::from_secs(30);

/// Lets a settled step happen anew: the next claim begins an attempt under a fresh key. Who asked
/// for it, and why, is recorded; what happened before stays.
///
/// # Errors
/// [`GuardError::Refused`] if the step is under way, in doubt, or has no outcome to reset.
pub async fn reset(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    by: &str,
    reason: &str,
    seed: [u8; 32],
) -> Result<Position, GuardError> {
    if by.is_empty() || reason.is_empty() {
        let why = "say who resets it, and why: both are recorded".to_owned();
        return Err(GuardError::Refused { why });
    }
    let mut read = Read::nothing(home, thread);
    read.catch_up(home, Position::MAX).await?;
    claim::free(home, thread).await?;
    allows(&read.history)?;
    let lease = claim::act_on(home, thread, by, LEASE).await?;
    let hold = [(lease.thread.clone(), lease.epoch)];
    let done = async {
        let mut sheet = Sheet::open(home, &lease, read, seed).await?;
        claim::resume(&mut sheet, by)?;
        sheet.listen(home).await?;
        let position = grant(&mut sheet, home.identity(), by, reason)?;
        let row = row_at_rest(&sheet.history, &lease.row, sheet.now);
        sheet.submit(home, &lease, row).await?;
        Ok(position)
    };
    let done = done.await;
    // A lease that cannot be released runs out by itself.
    let _ = home.renew(&hold, Duration::ZERO).await;
    done
}

fn allows(history: &History) -> Result<(), GuardError> {
    let refused = |why: &str| Err(GuardError::Refused { why: why.to_owned() });
    if !is_guarded(history) {
        return refused("this is not the thread of a guarded step; only those can be reset");
    }
    match step(history) {
        Some(call) if call.outcome.is_some() => Ok(()),
        Some(call) if call.unanswered().is_some() => refused(
            "nobody knows whether it happened; settle it first (`deedbook resolve`): what is in \
             doubt is never run anew",
        ),
        _ => refused("it has no outcome yet, so there is nothing to reset"),
    }
}

fn grant(
    sheet: &mut Sheet,
    store: &StoreIdentity,
    by: &str,
    reason: &str,
) -> Result<Position, GuardError> {
    allows(&sheet.history)?;
    let note = value::encode(reason, &ValueLimits::new())?;
    let key = recorded_key(&sheet.history, store, claim::generation(&sheet.history))?;
    let draft = claim::fresh_key(&sheet.history, &key, by).payload(Role::Note, note);
    Ok(sheet.write(draft).map_err(|error| sheet::refused(&error))?)
}
