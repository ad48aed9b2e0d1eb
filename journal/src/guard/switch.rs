//! The switch that turns guards off, on purpose and on record.

use std::{sync::Arc, time::Duration};

use super::{GuardError, claim};
use crate::{
    checkpointer::{Checkpointer, Claim, StoreError},
    id::{Position, StoreTime, ThreadId},
    limits::ValueLimits,
    pen::Draft,
    record::{Header, Kind, Role},
    row::{Row, Status},
    sheet::{self, Read, Sheet},
    value,
};

/// The thread that records it, and its workflow's name.
const THREAD: &str = "deedbook:guards";
const OFF: &str = "guards_off";
const ON: &str = "guards_on";

/// For how long the thread is held; this takes one append.
const LEASE: Duration = Duration::from_secs(30);

/// Guards are off: every call runs its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Off {
    /// Who turned them off.
    pub by: Arc<str>,
    /// Why.
    pub reason: String,
    /// When.
    pub since: StoreTime,
}

/// What is known of the switch, and how far its records were read.
#[derive(Debug, Clone, Default)]
pub struct Switch {
    next: Position,
    off: Option<Off>,
}

impl Switch {
    /// Looks at the switch, and reads no more than what is new.
    ///
    /// # Errors
    /// As [`Checkpointer::read`].
    pub async fn look(&mut self, home: &dyn Checkpointer) -> Result<Option<&Off>, StoreError> {
        let thread = thread()?;
        let mut from = Some(self.next);
        while let Some(n) = from {
            let page = match home.read(&thread, n, 1 << 20).await {
                Err(StoreError::NoSuchThread) => break,
                page => page?,
            };
            for (n, record) in &page.items {
                let header = Header::parse(&record.header).map_err(|error| {
                    let why = error.to_string().into();
                    StoreError::Damaged { thread: thread.clone(), n: *n, why }
                })?;
                let note = record.payload(Role::Note).map(|note| note.bytes.clone());
                self.pass(&header, note.as_deref());
            }
            from = page.next;
        }
        Ok(self.off.as_ref())
    }

    fn pass(&mut self, header: &Header, note: Option<&[u8]>) {
        self.next = header.n + 1;
        match header.why.as_deref().filter(|_| header.kind == Kind::Marker) {
            Some(OFF) => {
                let reason = note.and_then(|note| value::decode(note, &ValueLimits::new()).ok());
                self.off = Some(Off {
                    by: header.by.clone().unwrap_or_default(),
                    reason: reason.unwrap_or_default(),
                    since: header.time,
                });
            }
            Some(ON) => self.off = None,
            _ => {}
        }
    }
}

/// Turns guards off or on again, in the whole journal. While they are off every call runs its
/// body, under a key of its own, and is recorded as a step of its own.
///
/// # Errors
/// [`GuardError::Store`].
pub async fn switch(
    home: &dyn Checkpointer,
    on: bool,
    by: &str,
    reason: &str,
    seed: [u8; 32],
) -> Result<Position, GuardError> {
    let thread = thread()?;
    let create = Some(Row::new(THREAD, Status::Idle, home.now().await?));
    let which = Claim::Thread { id: thread.clone(), create };
    let leases = home.claim(which, by, LEASE).await?;
    let lease = leases.into_iter().next().ok_or(StoreError::NoSuchThread)?;
    let held = [(thread.clone(), lease.epoch)];
    let switched = async {
        let mut sheet = Sheet::open(home, &lease, Read::nothing(home, &thread), seed).await?;
        if lease.next == 0 {
            let start = Draft::new(&thread, Kind::ThreadStart);
            let start = start.with(|h| h.workflow = Some(THREAD.into()));
            sheet.write(start).map_err(|error| sheet::refused(&error))?;
        } else {
            claim::resume(&mut sheet, by)?;
        }
        let draft = Draft::new(&thread, Kind::Marker).with(|h| {
            h.why = Some(if on { ON } else { OFF }.into());
            h.by = Some(by.into());
        });
        let note = value::encode(reason, &ValueLimits::new())?;
        let position = sheet.write(draft.payload(Role::Note, note));
        let row = Row { status: Status::Idle, since: sheet.now, ..lease.row.clone() };
        sheet.submit(home, &lease, row).await?;
        Ok(position.map_err(|error| sheet::refused(&error))?)
    };
    let switched = switched.await;
    // A lease that cannot be released runs out by itself.
    let _ = home.renew(&held, Duration::ZERO).await;
    switched
}

fn thread() -> Result<ThreadId, StoreError> {
    ThreadId::any(THREAD).map_err(|error| StoreError::Refused { why: error.to_string().into() })
}
