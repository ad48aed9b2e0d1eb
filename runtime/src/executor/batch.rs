//! Batches: what a turn appended goes to the store as one.

use std::{collections::HashSet, future::poll_fn, mem::replace, sync::Arc, task::Poll};

use deedbook_journal::{
    checkpointer::{Append, Message, StoreError},
    id::{MessageId, Position, StoreTime},
    message,
    record::{Header, Kind, Record, Role},
    row::{Row, Status},
    turn::Waits,
    value,
};

use super::{Inflight, Run, running_row, same_state};
use crate::{
    notice::Notice,
    planted::{Broken, planted},
    wake::Wakeups,
};

impl Run {
    /// Submits what is pending, unless a batch is on its way: one batch a turn, and what comes
    /// meanwhile goes with the next, as does what is more than a batch.
    pub(super) fn submit(&mut self, row: Option<Row>) {
        if self.inflight.is_some() {
            return;
        }
        let mut desk = self.shared.lock();
        let row = row.unwrap_or_else(|| running_row(&self.row, &desk));
        // A thread that runs tells nothing but what it waits for elsewhere, and that this is over.
        let told = self.row.status == Status::Running && self.row.detail.is_some();
        let tells = row.status != Status::Running || row.detail.is_some() || told;
        let says_new = tells && !same_state(&row, &self.row);
        if desk.pending.is_empty() && !says_new {
            return;
        }
        let (at, records, consumes) = desk.take_batch();
        // That the thread rests, and for whom it waits, is said with the last of what led there.
        let last = desk.pending.is_empty();
        let row = if last { row } else { running_row(&self.row, &desk) };
        let (mut notices, doubtful) = if last { desk.take_told() } else { Default::default() };
        drop(desk);
        if last {
            notices.extend(self.new_doubts(&row, doubtful));
        }
        let notices = self.notices(notices);
        let kept = records.clone();
        let append = Append {
            thread: self.thread.clone(),
            epoch: self.epoch,
            at,
            records,
            consumes,
            row: row.clone(),
        };
        self.row = row;
        let store = self.house.store.clone();
        let result = Box::pin(async move {
            let results = store.append(vec![append]).await;
            results.into_iter().next().unwrap_or_else(|| {
                Err(StoreError::Failed { why: "the store gave no result".into() })
            })
        });
        self.inflight = Some(Inflight { result, records: kept, notices });
    }

    /// The doubts that nobody was told of. They come with a record, or with time, which a row
    /// tells of.
    fn new_doubts(&mut self, row: &Row, recorded: bool) -> Vec<Waits> {
        if !recorded && same_state(row, &self.row) {
            return Vec::new();
        }
        let desk = self.shared.lock();
        let mut open = HashSet::new();
        let mut new = Vec::new();
        for (call, doubt) in desk.history.doubts(desk.now) {
            let told = (call.id.clone(), doubt);
            if !self.told.contains(&told) {
                new.push(Waits::Doubt { step: call.id.to_string().into(), doubt });
            }
            open.insert(told);
        }
        self.told = open;
        new
    }

    fn notices(&self, waits: Vec<Waits>) -> Vec<Notice> {
        let since = self.shared.lock().now;
        let thread = &self.thread;
        let notice = |waits| Notice { thread: thread.clone(), waits, since };
        waits.into_iter().map(notice).collect()
    }

    /// Makes what is a batch durable before more comes, and lets others have their turn.
    pub(super) async fn hand_over(&mut self) -> Result<(), StoreError> {
        let behind = self.shared.lock().has_a_batch();
        if behind {
            self.submit(None);
            if let Some(inflight) = &mut self.inflight {
                let result = inflight.result.as_mut().await;
                self.committed(result).await?;
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Submits everything and waits until it is durable.
    pub(super) async fn flush(&mut self, row: Option<&Row>) -> Result<(), StoreError> {
        loop {
            if self.inflight.is_none() {
                self.submit(row.cloned());
            }
            let Some(inflight) = &mut self.inflight else {
                return Ok(());
            };
            let result = inflight.result.as_mut().await;
            self.committed(result).await?;
        }
    }

    /// A batch has its result.
    pub(super) async fn committed(
        &mut self,
        result: Result<Position, StoreError>,
    ) -> Result<(), StoreError> {
        let inflight = self.inflight.take();
        let result = match result {
            Err(StoreError::Fenced { .. } | StoreError::Moved { .. })
                if planted(Broken::IgnoreFence) =>
            {
                Ok(Position::MAX)
            }
            result => result,
        };
        match result {
            Ok(durable) => {
                self.shared.lock().made_durable(durable);
                self.control.durable.send_if_modified(|durable| !replace(durable, true));
                for notice in inflight.map(|i| i.notices).unwrap_or_default() {
                    // Nobody needs to watch.
                    let _ = self.house.notices.send(Some(notice));
                }
                Ok(())
            }
            Err(error @ (StoreError::Fenced { .. } | StoreError::Moved { .. })) => {
                self.testify(&inflight.map(|i| i.records).unwrap_or_default()).await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Posts outcomes that came after a takeover to the thread's inbox: evidence, not outcomes.
    pub(super) async fn testify(&mut self, records: &[Record]) {
        let late: Vec<_> = records.iter().filter_map(|r| self.late_message(r)).collect();
        for message in late {
            // The hold is lost either way; the takeover has its own view of the attempt.
            let _ = self.house.store.post(&self.thread, message).await;
        }
    }

    pub(super) fn late_message(&self, record: &Record) -> Option<Message> {
        let header = Header::parse(&record.header).ok()?;
        if !matches!(header.kind, Kind::StepDone | Kind::StepFail | Kind::StepUnknown) {
            return None;
        }
        let desk = self.shared.lock();
        let call = desk.history.opened_at(header.call?)?;
        let outcome = match (record.payload(Role::Result), record.payload(Role::Error)) {
            (Some(result), _) => Ok(message::Bytes(result.bytes.to_vec())),
            (None, Some(error)) => {
                Err(value::decode(&error.bytes, &self.house.options.values).ok()?)
            }
            (None, None) => return None,
        };
        let late = message::Late { attempt: header.attempt?, outcome };
        let body = value::encode(&late, &self.house.options.values).ok()?;
        let mut id = [0; 16];
        id.copy_from_slice(record.hash.0.get(..16)?);
        Some(Message {
            id: MessageId(id),
            kind: message::LATE,
            name: call.id.to_string().into(),
            by: self.house.options.holder.clone(),
            body: body.into(),
        })
    }

    /// Waits for a wake-up, the batch on its way, or a time.
    pub(super) async fn wait(&mut self, until: Option<StoreTime>) -> Result<(), StoreError> {
        let wakeups: Arc<Wakeups> = self.shared.wakeups.clone();
        let now = self.shared.lock().now;
        let mut sleep = until.map(|until| self.house.clock.sleep(now, until));
        let changed = wakeups.changed.notified();
        let mut changed = std::pin::pin!(changed);
        let inflight = &mut self.inflight;
        wakeups.set_waits(true);
        let committed = poll_fn(|cx| {
            if let Some(inflight) = inflight
                && let Poll::Ready(result) = inflight.result.as_mut().poll(cx)
            {
                return Poll::Ready(Some(result));
            }
            if changed.as_mut().poll(cx).is_ready() || wakeups.take_any() {
                return Poll::Ready(None);
            }
            match &mut sleep {
                Some(sleep) => sleep.as_mut().poll(cx).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await;
        wakeups.set_waits(false);
        match committed {
            Some(result) => self.committed(result).await,
            None => Ok(()),
        }
    }
}
