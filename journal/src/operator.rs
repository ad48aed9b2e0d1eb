//! Acts of a person on a thread: a signal, a decision, a settlement, a cancellation.
//!
//! On a thread that no run holds all of them go one way, signals too: claim the thread, admit what
//! waits in its inbox (which was said earlier, and comes first), admit the act, write everything in
//! one append, let go. A post to the inbox would be enough for a signal, but nobody would learn
//! before the program's next start whether the thread took it; this way the answer is durable when
//! the person reads it. What would be refused is found out before anything is written.
//!
//! [`prepare`] decides and writes nothing; [`act`] carries it out on any
//! [`Checkpointer`]. A thread that a run holds is its to write: [`post`] puts the act into the
//! inbox, and [`admitted`] tells what became of it.

use std::{sync::Arc, time::Duration};

use crate::{
    checkpointer::{Append, Checkpointer, Claim, Lease, Message, StoreError, thread_info},
    guard,
    history::{AttemptEnd, Call, Doubt, History, HistoryError},
    id::{Epoch, MessageId, Position, StoreTime, ThreadId},
    message::admit,
    pen::{Draft, Pen},
    record::{Header, Kind, RecordHash, Records},
    row::{Row, Status},
    sheet::Sheet,
    turn::Blocked,
};

mod post;
mod say;

pub use post::{Admitted, Post, admitted, post};
pub use say::{cancel, decide, resolve, signal};

/// How many bytes of records are read at once.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// For how long a thread is held; the act itself takes one append.
const LEASE: Duration = Duration::from_secs(30);

/// A thread as its records tell it, for somebody who does not run it.
#[derive(Debug, Clone)]
pub struct Found {
    /// What its records add up to. Attempts that are still open died with their process, but for
    /// those of the run that holds the thread.
    pub history: History,
    /// The epoch of the run that holds it, if one does.
    held: Option<Epoch>,
    log_id: [u8; 16],
    last: Option<(Header, RecordHash)>,
}

/// Why an act was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// The thread does not take it. Nothing was written.
    #[error("refused: {why}")]
    Refused {
        /// Why not.
        why: String,
    },
    /// The thread's records cannot be understood. Nothing was written.
    #[error("{0}")]
    History(#[from] HistoryError),
    /// The journal did not do as asked.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// What an act on a thread writes.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The records, chained from the thread's head.
    pub records: Records,
    /// The messages of the inbox that they give a position to.
    pub consumes: Vec<MessageId>,
    /// The thread's row after them.
    pub row: Row,
    /// The position of the act's own record.
    pub position: Position,
}

/// What an act has done.
#[derive(Debug, Clone)]
pub struct Acted {
    /// The position of its record.
    pub position: Position,
    /// The thread's row after it.
    pub row: Row,
    /// How many messages that waited in the inbox were admitted before it.
    pub admitted_before: usize,
}

impl Found {
    /// Reads a thread, and believes its row where that says more. Cancel-safe: it only reads.
    ///
    /// # Errors
    /// [`OperatorError::Store`] as [`Checkpointer::read`]; [`OperatorError::History`] for records
    /// that this build cannot replay.
    pub async fn load(home: &dyn Checkpointer, thread: &ThreadId) -> Result<Self, OperatorError> {
        let info = thread_info(home, thread).await?;
        let mut found = Self {
            history: History::new(thread.clone(), home.identity().secret),
            held: info.as_ref().filter(|info| info.holder.is_some()).map(|info| info.epoch),
            log_id: home.identity().log_id,
            last: None,
        };
        found.catch_up(home).await?;
        if let Some(info) = info {
            found.history.believe(&info.row, home.now().await?);
        }
        Ok(found)
    }

    async fn catch_up(&mut self, home: &dyn Checkpointer) -> Result<(), OperatorError> {
        let thread = self.history.thread().clone();
        // That was believed of the records as they were; the row under which these are held says.
        self.history.set_code_is_over(false);
        let mut next = Some(self.history.next());
        while let Some(from) = next {
            let page = home.read(&thread, from, READ_BYTES).await?;
            for (n, record) in &page.items {
                let header = Header::parse(&record.header).map_err(|e| StoreError::Damaged {
                    thread: thread.clone(),
                    n: *n,
                    why: e.to_string().into(),
                })?;
                let earlier = self.last.as_ref().map(|(last, _)| last.epoch);
                if self.held == Some(header.epoch) && earlier != self.held {
                    // What earlier runs left open died with them; what follows is under way.
                    self.history.loaded();
                }
                self.history.apply(&header, &record.payloads)?;
                self.last = Some((header, record.hash));
            }
            next = page.next;
        }
        if self.held.is_none() || self.last.as_ref().map(|(last, _)| last.epoch) < self.held {
            self.history.loaded();
        }
        Ok(())
    }
}

/// Makes the records of an act: a `thread.resume` of `holder`, what waits in the inbox, the act,
/// and what follows from it for a cancelled thread. Pure: the time is passed in, and so is the seed
/// of the payloads' salts, 32 fresh random bytes that are kept nowhere.
///
/// # Errors
/// [`OperatorError::Refused`] with the reason if the thread does not take it.
pub fn prepare(
    found: &Found,
    lease: &Lease,
    waiting: &[Message],
    message: &Message,
    holder: &str,
    now: StoreTime,
    seed: [u8; 32],
) -> Result<Prepared, OperatorError> {
    let thread = found.history.thread().clone();
    let mut pen = Pen::new(found.log_id, thread.clone(), lease.epoch, lease.next, lease.head);
    if let Some((header, hash)) = &found.last {
        pen.pass(header, *hash);
    }
    let mut sheet = Sheet::new(found.history.clone(), pen, now, seed);
    sheet.history.believe(&lease.row, sheet.now);
    sheet.write(Draft::new(&thread, Kind::ThreadResume).with(|h| h.by = Some(holder.into())))?;
    for waits in waiting {
        let draft = admit(&sheet.history, waits, sheet.now);
        sheet.write(draft)?;
    }
    let draft = admit(&sheet.history, message, sheet.now);
    if draft.header.kind == Kind::MessageRefused {
        let why = draft.header.why.as_deref().unwrap_or("no reason is given");
        return Err(OperatorError::Refused { why: why.into() });
    }
    let position = sheet.write(draft)?;
    wind_down(&mut sheet, &message.by)?;
    let row = row_after(&sheet.history, &lease.row, sheet.now);
    Ok(Prepared {
        records: sheet.records,
        consumes: waiting.iter().map(|m| m.id).collect(),
        row,
        position,
    })
}

/// Carries out an act on a thread that nobody holds, as `holder` (for instance `cli:4711`). `seed`
/// is 32 fresh random bytes, from which the payloads' salts come.
///
/// Cancel safety: dropped before it resolves, the act may or may not have happened, whole or not
/// at all; read the thread to learn it.
///
/// # Errors
/// [`OperatorError::Refused`] with nothing written; [`StoreError::Held`] while a run holds the
/// thread; and as [`Checkpointer::append`].
pub async fn act(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    message: &Message,
    holder: &str,
    seed: [u8; 32],
) -> Result<Acted, OperatorError> {
    let mut found = Found::load(home, thread).await?;
    let waiting = home.inbox(thread).await?;
    let now = home.now().await?;
    // A refusal must not even raise the thread's epoch, so it is found out before the claim.
    let trial = found.as_lease(thread);
    prepare(&found, &trial, &waiting, message, holder, now, [0; 32])?;
    let which = Claim::Thread { id: thread.clone(), create: None };
    let leases = home.claim(which, holder, LEASE).await?;
    let lease = leases.into_iter().next().ok_or(StoreError::NoSuchThread)?;
    let held = [(thread.clone(), lease.epoch)];
    // A run that had it has let go.
    found.held = None;
    let acted = async {
        found.catch_up(home).await?;
        let waiting = home.inbox(thread).await?;
        let now = home.now().await?;
        let done = prepare(&found, &lease, &waiting, message, holder, now, seed)?;
        let (position, row) = (done.position, done.row.clone());
        let admitted_before = done.consumes.len();
        let append = Append {
            thread: thread.clone(),
            epoch: lease.epoch,
            at: lease.next,
            records: done.records,
            consumes: done.consumes,
            row: done.row,
        };
        let stored = home.append(vec![append]).await.into_iter().next();
        stored.unwrap_or(Err(StoreError::Closed))?;
        Ok(Acted { position, row, admitted_before })
    }
    .await;
    // A lease that cannot be released runs out by itself.
    let _ = home.renew(&held, Duration::ZERO).await;
    acted
}

/// The row of a thread after an act: its program takes it up at its next start.
#[must_use]
pub fn row_after(history: &History, row: &Row, now: StoreTime) -> Row {
    let open_doubts = u32::try_from(history.doubts(now).count()).unwrap_or(u32::MAX);
    if let Some(end) = history.end() {
        return Row {
            status: end.status,
            since: now,
            wake_at: None,
            detail: None,
            open_doubts,
            ..row.clone()
        };
    }
    if guard::is_guarded(history) {
        return guard::row_at_rest(history, row, now);
    }
    let blocked = blocking(history, now);
    let (status, detail): (Status, Option<Arc<str>>) = if blocked.is_empty() {
        (Status::Running, None)
    } else {
        let (status, detail) = Blocked::status(&blocked);
        (status, Some(detail.into()))
    };
    let same = (row.status, &row.detail) == (status, &detail);
    Row {
        status,
        since: if same { row.since } else { now },
        wake_at: Some(StoreTime(0)),
        detail,
        open_doubts,
        ..row.clone()
    }
}

/// The doubts that keep a thread from ending.
#[must_use]
pub fn blocking(history: &History, now: StoreTime) -> Vec<Blocked> {
    history
        .doubts(now)
        .filter(|(call, _)| !call.terms.is_some_and(|t| t.abandon))
        .map(|(call, doubt)| Blocked::Doubt(call.id.clone(), doubt))
        .collect()
}

/// Whether a step may have had an effect that nobody has accounted for.
#[must_use]
pub fn is_loose(call: &Call) -> bool {
    let effect = call.terms.is_none_or(|t| t.policy.has_effect() && !t.abandon);
    let uncleared = call.attempts.iter().rev();
    let mut uncleared = uncleared.take_while(|a| !matches!(a.end, AttemptEnd::Cleared { .. }));
    let loose = |end: &AttemptEnd| match end {
        // A person has said what became of it; only the code could not read it.
        AttemptEnd::Ambiguous(why, _) => *why != Doubt::Unreadable,
        end => *end == AttemptEnd::Open,
    };
    effect && call.outcome.is_none() && uncleared.any(|a| loose(&a.end))
}

impl Found {
    /// A hold as if the thread had been claimed: enough to see what would be written.
    fn as_lease(&self, thread: &ThreadId) -> Lease {
        let start = self.history.start();
        let (epoch, head) =
            self.last.as_ref().map(|(h, r)| (Epoch(h.epoch.0 + 1), *r)).unwrap_or_default();
        Lease {
            thread: thread.clone(),
            epoch,
            until: StoreTime(u64::MAX),
            next: self.history.next(),
            head,
            row: Row {
                since: self.history.time(),
                ..Row::new(
                    start.map_or_else(|| "".into(), |s| s.workflow.clone()),
                    Status::Running,
                    start.map_or(StoreTime(0), |s| s.time),
                )
            },
        }
    }
}

/// What follows from an act on a thread that is to be cancelled: without loose ends it has
/// ended. With one, its program or the settlement of the doubt ends it.
fn wind_down(sheet: &mut Sheet, by: &Arc<str>) -> Result<(), OperatorError> {
    if !sheet.history.cancelled() || sheet.history.end().is_some() {
        return Ok(());
    }
    if sheet.history.calls().iter().any(is_loose) {
        return Ok(());
    }
    let doubts = sheet.history.doubts(sheet.now).count();
    let draft = Draft::new(sheet.history.thread(), Kind::ThreadEnd).with(|h| {
        h.verdict = Some("cancelled".into());
        h.doubts = Some(u32::try_from(doubts).unwrap_or(u32::MAX));
        h.by = Some(by.clone());
    });
    sheet.write(draft)?;
    Ok(())
}

#[cfg(test)]
mod tests;
