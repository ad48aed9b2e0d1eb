//! A group being put together: what is checked against memory and not yet durable.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    core::Core,
    entry::{Appended, Entry, Place},
    planted::{Broken, planted},
    state::Thread,
    tables::POSTED,
};
use crate::{
    admit::{self, Tail},
    checkpointer::{Append, Message, Posted, StoreError},
    id::{Epoch, MessageId, Position, ThreadId},
    row::Row,
};

type Result<T> = std::result::Result<T, StoreError>;

/// An element of an append, perhaps already checked against the tail that its caller saw.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) append: Append,
    pub(super) checked: Option<(Tail, Tail)>,
}

/// A thread as it will be when the group is durable.
#[derive(Debug)]
struct View {
    exists: bool,
    /// Its number, if it was there before the group.
    no: Option<u64>,
    epoch: Epoch,
    tail: Tail,
    row: Row,
    inbox: HashSet<MessageId>,
    /// Ids that the table of them does not have yet.
    posted: HashSet<MessageId>,
}

impl View {
    fn of(thread: &Thread) -> Self {
        Self {
            exists: thread.exists,
            no: thread.exists.then_some(thread.no),
            epoch: thread.epoch,
            tail: thread.tail,
            row: thread.row.clone(),
            inbox: thread.inbox.iter().map(|w| w.id).collect(),
            posted: thread.posted.iter().copied().collect(),
        }
    }
}

/// A group.
#[derive(Debug)]
pub(super) struct Group<'c> {
    core: &'c Core,
    views: HashMap<ThreadId, View>,
    /// The place of the first entry.
    pub(super) first: Place,
    pub(super) entries: Vec<Entry>,
    pub(super) bytes: usize,
}

impl<'c> Group<'c> {
    /// A group behind everything that is known. Only who has the right to write makes one.
    pub(super) fn new(core: &'c Core) -> Self {
        let first = {
            let mut state = core.state();
            state.retire();
            state.next
        };
        Self { core, views: HashMap::new(), first, entries: Vec::new(), bytes: 0 }
    }

    /// The thread as it will be; `None` if there is none.
    fn view(&mut self, id: &ThreadId) -> Result<Option<&mut View>> {
        if !self.views.contains_key(id) {
            let Some(view) = self.viewed(id)? else {
                return Ok(None);
            };
            self.views.insert(id.clone(), view);
        }
        Ok(self.views.get_mut(id))
    }

    /// The thread as it is.
    fn viewed(&self, id: &ThreadId) -> Result<Option<View>> {
        let in_memory = || self.core.state().threads.get(id).map(View::of);
        // Nearly every thread that is written to is in memory.
        if let Some(view) = in_memory() {
            return Ok(Some(view));
        }
        Ok(if self.core.load(id)? { in_memory() } else { None })
    }

    /// Takes an element in, or refuses it.
    pub(super) fn append(&mut self, element: Element) -> Result<Position> {
        let Element { append, checked } = element;
        let (log_id, clock) = (self.core.identity.log_id, &self.core.clock);
        let view = self.view(&append.thread)?.ok_or(StoreError::NoSuchThread)?;
        if view.epoch != append.epoch && !planted(Broken::SkipFence) {
            return Err(StoreError::Fenced { held: view.epoch });
        }
        let after = match checked {
            Some((before, after)) if before == view.tail => after,
            _ => admit::admit(&log_id, &view.tail, &append)?,
        };
        admit::not_ahead(&after, |time| clock.has_reached(time))?;
        let moved = StoreError::Moved { next: view.tail.next };
        let mut consumed = HashSet::new();
        if !append.consumes.iter().all(|id| view.inbox.contains(id) && consumed.insert(*id)) {
            return Err(moved);
        }
        view.inbox.retain(|id| !consumed.contains(id));
        let row = (!view.exists || view.row != append.row).then(|| append.row.clone());
        let appended = Appended::of(append, view.tail.head, &after, row.clone());
        view.exists = true;
        view.tail = after;
        if let Some(row) = row {
            view.row = row;
        }
        self.push(Entry::Appended(Arc::new(appended)));
        Ok(after.next)
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes = self.bytes.saturating_add(entry.size());
        self.entries.push(entry);
    }

    /// Takes a message in, unless it was posted before.
    pub(super) fn post(&mut self, to: &ThreadId, message: Message) -> Result<Posted> {
        admit::admit_message(&message)?;
        let Some(view) = self.view(to)?.filter(|v| v.exists) else {
            return Ok(Posted::NoSuchThread);
        };
        let (no, ended) = (view.no, view.row.status.is_ended());
        if view.inbox.contains(&message.id) || view.posted.contains(&message.id) {
            return Ok(Posted::AlreadyThere);
        }
        if let Some(no) = no
            && self.was_posted(to, no, message.id)?
        {
            return Ok(Posted::AlreadyThere);
        }
        if ended {
            return Ok(Posted::ThreadEnded);
        }
        if let Some(view) = self.views.get_mut(to) {
            view.inbox.insert(message.id);
            view.posted.insert(message.id);
        }
        self.push(Entry::Message(to.clone(), Arc::new(message)));
        Ok(Posted::Stored)
    }

    fn was_posted(&self, to: &ThreadId, no: u64, id: MessageId) -> Result<bool> {
        self.core.reading(to, |transaction| {
            let posted = transaction.open_table(POSTED)?;
            Ok(Ok(posted.get((no, id.0))?.is_some()))
        })
    }
}
