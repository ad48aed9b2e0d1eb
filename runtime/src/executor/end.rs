//! How a hold comes to rest: parked, ended, cancelled, blocked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use deedbook_journal::{
    checkpointer::StoreError,
    failure::Failure,
    history::{CallKind, Doubt},
    id::StoreTime,
    pen::Draft,
    record::{Kind, Role},
    row::{Row, Status},
    turn::{Blocked, Waits},
};

use super::{PARK_BEYOND, Report, Run, earlier, ended_early, open_doubts, parked_row, same_state};
use crate::{
    desk::Trouble,
    error::{Error, ErrorKind},
    planted::{Broken, planted},
};

impl Run {
    /// Waits: submits what is pending, and parks the thread if nothing runs.
    pub(super) async fn rest(
        &mut self,
        until: Option<StoreTime>,
        row: Option<Row>,
    ) -> Result<Option<Report>, StoreError> {
        let now = self.shared.lock().now;
        let far = until.is_none_or(|t| t.since(now) > PARK_BEYOND);
        let late = self.shared.lock().late_until();
        let parks = row.is_some() && far && late.is_none();
        self.submit(row.clone());
        if let (true, Some(row), None) = (parks, row, &self.inflight) {
            let pending = self.shared.lock().pending.len();
            if pending == 0 && same_state(&row, &self.row) && !self.control.is_nudged() {
                return Ok(Some(self.parked(row)));
            }
        }
        self.wait(earlier(until, late)).await?;
        Ok(None)
    }

    pub(super) fn parked(&self, row: Row) -> Report {
        if row.status == Status::InDoubt {
            let error = Error::new(ErrorKind::InDoubt, self.doubt(&row)).thread(&self.thread);
            return Report::Blocked(row, error);
        }
        Report::Parked(row)
    }

    /// What a person is asked: which step, the key to look for on the other side, what is not
    /// known, and what to do.
    fn doubt(&self, row: &Row) -> String {
        let detail = row.detail.as_deref().unwrap_or_default();
        let mut what_to_do = "find out what happened and settle it with `deedbook resolve`";
        let Some(Waits::Doubt { step, doubt }) = row.waits_for() else {
            return format!("{detail}; {what_to_do}");
        };
        if doubt == Doubt::Unreadable {
            what_to_do = "settle it again with `deedbook resolve` and a value of that type, or \
                          cancel the thread";
        }
        let why = detail.strip_prefix(&format!("step {step}: ")).unwrap_or(detail);
        let desk = self.shared.lock();
        let key = desk.history.find(CallKind::Step, &step).and_then(|call| call.key.as_deref());
        let key = key.map_or_else(String::new, |key| format!(" (operation key {key})"));
        format!("step {step} is in doubt{key}: {why}; {what_to_do}")
    }

    /// Ends the thread with the workflow's result, if no doubt keeps it open.
    pub(super) async fn finish(&mut self) -> Result<Option<Report>, StoreError> {
        let unmade = self.shared.lock().first_unmade();
        if let Some(unmade) = unmade {
            let divergence = ended_early(&self.shared.lock(), unmade);
            return self.block(Trouble::Diverged(divergence)).await.map(Some);
        }
        if let Some(row) = self.doubtful_row() {
            return self.rest(None, Some(row)).await;
        }
        let (status, word) = match &self.finished {
            Some(Ok(_)) => (Status::Done, "done"),
            _ => (Status::Failed, "failed"),
        };
        let finished = self.finished.take();
        self.end(status, word, finished).await.map(Some)
    }

    /// Ends a cancelled thread, if no doubt keeps it open.
    pub(super) async fn cancel(&mut self) -> Result<Option<Report>, StoreError> {
        self.tear_down();
        if let Some(row) = self.doubtful_row() {
            return self.rest(None, Some(row)).await;
        }
        self.end(Status::Cancelled, "cancelled", None).await.map(Some)
    }

    /// The row of a thread that would end but for its doubts.
    pub(super) fn doubtful_row(&self) -> Option<Row> {
        let desk = self.shared.lock();
        let doubts = desk.doubts();
        let blocked: Vec<_> = doubts.into_iter().map(|(id, d)| Blocked::Doubt(id, d)).collect();
        (!blocked.is_empty()).then(|| parked_row(&self.row, Blocked::status(&blocked), None, &desk))
    }

    pub(super) async fn end(
        &mut self,
        status: Status,
        word: &str,
        finished: Option<Result<Vec<u8>, Failure>>,
    ) -> Result<Report, StoreError> {
        let row = {
            let mut desk = self.shared.lock();
            let doubts = open_doubts(&desk);
            let draft = Draft::new(&self.thread, Kind::ThreadEnd).with(|h| {
                h.verdict = Some(word.into());
                h.doubts = Some(doubts);
            });
            match finished {
                Some(Ok(result)) => {
                    desk.append(draft.payload(Role::Result, result));
                }
                Some(Err(failure)) => {
                    desk.append_with(draft, Role::Error, &failure);
                }
                None => {
                    desk.append(draft);
                }
            }
            Row {
                status,
                since: desk.now,
                wake_at: None,
                detail: None,
                open_doubts: doubts,
                ..self.row.clone()
            }
        };
        if !planted(Broken::TellEndEarly) {
            self.flush(Some(&row)).await?;
        }
        let end = self.shared.lock().history.end().cloned();
        end.map(Report::Ended).ok_or(StoreError::Failed { why: "the end was not recorded".into() })
    }

    /// The run cannot go on.
    pub(super) async fn block(&mut self, trouble: Trouble) -> Result<Report, StoreError> {
        match trouble {
            Trouble::Diverged(divergence) => {
                let row = self.stopped_row(Status::Diverged, &divergence.to_string());
                self.tear_down();
                self.flush(Some(&row)).await?;
                Ok(Report::Blocked(row, Error::diverged(&self.thread, divergence)))
            }
            Trouble::Misused(why) => self.stop_with(Status::Stalled, ErrorKind::Stalled, why).await,
        }
    }

    pub(super) async fn stop_with(
        &mut self,
        status: Status,
        kind: ErrorKind,
        why: String,
    ) -> Result<Report, StoreError> {
        self.tear_down();
        let row = self.stopped_row(status, &why);
        self.flush(Some(&row)).await?;
        Ok(Report::Blocked(row, Error::new(kind, why).thread(&self.thread)))
    }

    pub(super) fn stopped_row(&self, status: Status, why: &str) -> Row {
        let desk = self.shared.lock();
        let detail = Some(why.into());
        let open_doubts = open_doubts(&desk);
        Row { status, since: desk.now, wake_at: None, detail, open_doubts, ..self.row.clone() }
    }

    /// Drops the workflow's future; what it drops is no decision of the program.
    pub(super) fn tear_down(&mut self) {
        {
            let mut desk = self.shared.lock();
            if !desk.torn_down {
                desk.give_back();
                desk.torn_down = true;
            }
        }
        let root = self.root.take();
        // A drop of the user's values may panic; the thread is over either way.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(root)));
    }
}
