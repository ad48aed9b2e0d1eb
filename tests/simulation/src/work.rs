//! A seed's life of a journal, and what must be there after each part of it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Checkpointer, Message, StoreError},
    embedded::{BackupError, CompactError, CreateError, Embedded, OpenError},
    id::{MessageId, ThreadId},
    record::Role,
};
use harness::{Random, SimDisk};

use crate::book::{self, BOOK, Model, create, end, everything, open, open_copy, pen, wait, write};
use crate::look::Wrong;

/// Longer than it takes an idle log to be marked.
const REST: Duration = Duration::from_millis(350);

/// For so many operations a backup counts as being made.
const JUST_MADE: usize = 20;

/// A part of a work that was acknowledged.
#[derive(Debug, Clone)]
pub struct Part {
    /// The number of operations when it was begun.
    pub begun: usize,
    /// The number of operations when it was acknowledged.
    pub done: usize,
    /// What must be there from then on.
    pub model: Model,
}

/// Why something did not go on.
#[derive(Debug)]
pub enum Trouble {
    /// The journal could not be made.
    Create(CreateError),
    /// It could not be opened again.
    Open(OpenError),
    /// A call failed.
    Store(StoreError),
    /// A backup could not be made.
    Backup(BackupError),
    /// It could not be compacted.
    Compact(CompactError),
    /// Who had lost the right to write could write.
    Unfenced,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Create(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Backup(error) => error.fmt(f),
            Self::Compact(error) => error.fmt(f),
            Self::Unfenced => f.write_str("a record of an owner that lost its thread was taken"),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A backup that was made.
#[derive(Debug, Clone)]
pub struct Copied {
    /// Where it is.
    pub path: PathBuf,
    /// The number of operations when it was begun.
    pub begun: usize,
    /// The number of operations when it was acknowledged.
    pub done: usize,
    /// What must be in it.
    pub model: Model,
}

/// A part that failed.
#[derive(Debug)]
pub struct Interrupted {
    /// How.
    pub trouble: Trouble,
    /// What would be there if it had not.
    pub in_flight: Model,
}

/// A journal on a disk, what was done with it, and when.
#[derive(Debug)]
pub struct Work {
    /// The disk.
    pub disk: SimDisk,
    /// The journal, while it is open.
    pub book: Option<Embedded>,
    /// What was acknowledged.
    pub model: Model,
    /// The parts, one behind the other.
    pub parts: Vec<Part>,
    /// The backups.
    pub copies: Vec<Copied>,
    /// How many messages were sent.
    pub messages: u8,
    random: Random,
    /// Whether anything was written since it was opened.
    wrote: bool,
}

impl Work {
    /// Makes a journal.
    ///
    /// # Errors
    /// As [`create`].
    pub fn begin(disk: &SimDisk, seed: u64) -> Result<Self, CreateError> {
        let book = create(disk)?;
        Ok(Self::with(disk, book, 0, seed, Model::default(), 0))
    }

    /// Opens a journal and reads what is there, for more to be done. `messages` were sent before.
    ///
    /// # Errors
    /// As [`open`] and [`everything`].
    pub fn go_on(disk: &SimDisk, seed: u64, messages: u8) -> Result<Self, Trouble> {
        let begun = disk.operations();
        let book = open(disk).map_err(Trouble::Open)?;
        let model = wait(everything(&book))?;
        Ok(Self::with(disk, book, begun, seed, model, messages))
    }

    fn with(
        disk: &SimDisk,
        book: Embedded,
        begun: usize,
        seed: u64,
        model: Model,
        messages: u8,
    ) -> Self {
        Self {
            disk: disk.clone(),
            book: Some(book),
            parts: vec![Part { begun, done: disk.operations(), model: model.clone() }],
            model,
            copies: Vec::new(),
            messages,
            random: Random::new(seed),
            wrote: false,
        }
    }

    /// Does so many things in the seed's order on a new disk, and closes.
    ///
    /// # Errors
    /// The first thing that failed.
    pub fn done(seed: u64, parts: usize) -> Result<Self, Interrupted> {
        let begun = Self::begin(&SimDisk::default(), seed);
        let mut work = begun.map_err(|error| Interrupted {
            trouble: Trouble::Create(error),
            in_flight: Model::default(),
        })?;
        work.run(parts)?;
        work.close()?;
        Ok(work)
    }

    /// Does so many things in the seed's order.
    ///
    /// # Errors
    /// The first thing that failed.
    pub fn run(&mut self, parts: usize) -> Result<(), Interrupted> {
        (0..parts).try_for_each(|_| self.part())
    }

    /// Does one thing.
    ///
    /// # Errors
    /// It failed.
    pub fn part(&mut self) -> Result<(), Interrupted> {
        let begun = self.disk.operations();
        let mut next = self.model.clone();
        let done = match self.random.below(40) {
            0..=3 => self.reopen(),
            4..=5 => self.erase(&mut next),
            6..=12 => self.post(&mut next),
            13 => self.back_up(),
            14 => self.compact(),
            15..=17 => self.is_fenced(),
            _ => self.append(&mut next),
        };
        self.ended(begun, next, done)
    }

    /// Waits until the log is marked.
    ///
    /// # Errors
    /// None: what fails then is heard by the next part.
    #[expect(clippy::disallowed_methods, reason = "an idle log is marked in real time")]
    pub fn rest(&mut self) -> Result<(), Interrupted> {
        let begun = self.disk.operations();
        std::thread::sleep(REST);
        self.ended(begun, self.model.clone(), Ok(()))
    }

    /// Closes the journal.
    ///
    /// # Errors
    /// It failed.
    pub fn close(&mut self) -> Result<(), Interrupted> {
        let begun = self.disk.operations();
        let done = wait(self.book().close()).map_err(Trouble::Store);
        self.wrote = false;
        self.ended(begun, self.model.clone(), done)
    }

    fn ended(
        &mut self,
        begun: usize,
        next: Model,
        done: Result<(), Trouble>,
    ) -> Result<(), Interrupted> {
        if let Err(trouble) = done {
            return Err(Interrupted { trouble, in_flight: next });
        }
        let acknowledged = self.disk.operations();
        self.model = next;
        self.settle();
        self.parts.push(Part { begun, done: acknowledged, model: self.model.clone() });
        Ok(())
    }

    /// Waits until the keeper has done what the part left to it, so that operations come in the
    /// seed's order.
    fn settle(&self) {
        if !self.wrote {
            return;
        }
        let book = self.book();
        // An erasure that is refused goes through the keeper, and changes nothing. The second one
        // is answered behind everything that the keeper did after the first.
        wait(async {
            for _ in 0..2 {
                let Ok((_, note)) = pen(book, "nobody").await else {
                    return;
                };
                let _ = book.erase(&note.thread.clone(), 0, Role::Value, note).await;
            }
        });
    }

    fn book(&self) -> &Embedded {
        self.book.as_ref().unwrap()
    }

    fn some_thread(&mut self) -> String {
        format!("thread-{}", self.random.below(5))
    }

    /// A group over some threads; each may consume what was said to it, and may end.
    fn append(&mut self, next: &mut Model) -> Result<(), Trouble> {
        let mut ids = vec![self.some_thread(), self.some_thread()];
        ids.sort();
        ids.dedup();
        let mut group = Vec::new();
        for id in ids {
            let (mut pen, mut append) = wait(pen(self.book(), &id))?;
            let thread = next.thread(&id);
            for _ in 0..=self.random.below(3) {
                let length = if self.random.once_in(8) { 6000 } else { 400 };
                let byte = self.random.draw() as u8;
                let payload = vec![byte; self.random.index(length)];
                write(&mut pen, &mut append, &payload);
                thread.payloads.push(Some(payload.into()));
            }
            if !thread.inbox.is_empty() && self.random.once_in(2) {
                let gone = thread.inbox.remove(self.random.index(thread.inbox.len()));
                append.consumes.push(MessageId([gone; 16]));
            }
            thread.ended = self.random.once_in(8);
            if thread.ended {
                end(&mut append);
            }
            group.push(append);
        }
        self.wrote = true;
        for result in wait(self.book().append(group)) {
            result?;
        }
        Ok(())
    }

    fn post(&mut self, next: &mut Model) -> Result<(), Trouble> {
        let open: Vec<_> = next.0.iter_mut().filter(|(_, thread)| !thread.ended).collect();
        let at = self.random.index(open.len());
        let Some((id, thread)) = open.into_iter().nth(at) else {
            return Ok(());
        };
        self.messages += 1;
        let message = Message {
            id: MessageId([self.messages; 16]),
            kind: 1,
            name: "go".into(),
            by: "user:kim".into(),
            body: vec![1; self.random.index(300)].into(),
        };
        thread.inbox.push(self.messages);
        self.wrote = true;
        let id = ThreadId::new(id.as_str()).unwrap();
        wait(self.book().post(&id, message))?;
        Ok(())
    }

    fn erase(&mut self, next: &mut Model) -> Result<(), Trouble> {
        let id = self.some_thread();
        let Some(thread) = next.0.get_mut(&id) else {
            return Ok(());
        };
        let n = self.random.index(thread.payloads.len());
        if thread.payloads.get(n).is_none_or(Option::is_none) {
            return Ok(());
        }
        thread.payloads[n] = None;
        thread.payloads.push(Some((*b"erased").into()));
        thread.ended = false;
        self.wrote = true;
        wait(async {
            let (mut pen, mut note) = pen(self.book(), &id).await?;
            write(&mut pen, &mut note, b"erased");
            self.book().erase(&note.thread.clone(), n as u64, Role::Value, note).await
        })?;
        Ok(())
    }

    /// A copy under a new name. Of a journal that is clean, so that one thread does all operations
    /// and they come in the seed's order.
    fn back_up(&mut self) -> Result<(), Trouble> {
        self.reopen_closed()?;
        let begun = self.disk.operations();
        // No other process of this disk has made one of this name.
        let path = PathBuf::from(format!("/sim/copy{begun}.redb"));
        book::backup(self.book(), &path).map_err(Trouble::Backup)?;
        let (done, model) = (self.disk.operations(), self.model.clone());
        self.copies.push(Copied { path, begun, done, model });
        Ok(())
    }

    fn compact(&mut self) -> Result<(), Trouble> {
        wait(self.book().close())?;
        self.stop();
        book::compact(&self.disk).map_err(Trouble::Compact)?;
        self.disk.unlock();
        self.book = Some(open(&self.disk).map_err(Trouble::Open)?);
        Ok(())
    }

    /// Somebody else takes a thread, and who had it is refused.
    fn is_fenced(&mut self) -> Result<(), Trouble> {
        let id = self.some_thread();
        if !self.model.0.contains_key(&id) {
            return Ok(());
        }
        let (mut lost, mut append) = wait(pen(self.book(), &id))?;
        let _taken = wait(pen(self.book(), &id))?;
        write(&mut lost, &mut append, b"late");
        self.wrote = true;
        match wait(self.book().append(vec![append])).remove(0) {
            Err(StoreError::Fenced { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(Trouble::Unfenced),
        }
    }

    fn reopen_closed(&mut self) -> Result<(), Trouble> {
        wait(self.book().close())?;
        self.stop();
        self.book = Some(open(&self.disk).map_err(Trouble::Open)?);
        Ok(())
    }

    /// The process ends, with or without a close, and another one goes on.
    fn reopen(&mut self) -> Result<(), Trouble> {
        if self.random.once_in(2) {
            return self.reopen_closed();
        }
        self.stop();
        self.book = Some(open(&self.disk).map_err(Trouble::Open)?);
        Ok(())
    }

    /// The process ends without a close. The lock goes with it.
    pub fn stop(&mut self) {
        self.book = None;
        self.wrote = false;
        self.disk.unlock();
    }

    /// What may be there behind so many operations: what was acknowledged, or one part more.
    #[must_use]
    pub fn allowed(&self, operations: usize) -> Vec<&Model> {
        let acknowledged = self.parts.iter().take_while(|part| part.done <= operations).count();
        let first = acknowledged.saturating_sub(1);
        self.parts.iter().skip(first).take(2).map(|part| &part.model).collect()
    }

    /// Whether each backup that is on a disk behind so many operations is whole, and each that was
    /// acknowledged is there: how many are. All of them, or only
    /// those that are being made: an old one is not touched any more.
    ///
    /// # Errors
    /// What is wrong.
    pub fn copies(&self, image: &SimDisk, operations: usize, all: bool) -> Result<u64, Wrong> {
        let begun = self.copies.iter().filter(|copy| copy.begun <= operations);
        let begun = begun.filter(|copy| all || operations <= copy.done + JUST_MADE);
        let mut whole = 0;
        for Copied { path, done, model, .. } in begun {
            let of = path.display();
            if !image.names().contains(path) {
                if *done <= operations {
                    return Err(Wrong::Unopenable(format!("{of} has lost its name")));
                }
                continue;
            }
            let failed = |why: String| Wrong::Unopenable(format!("{of}: {why}"));
            let copy = open_copy(image, path).map_err(|error| failed(error.to_string()))?;
            let found = wait(everything(&copy)).map_err(|error| failed(error.to_string()))?;
            if found != *model {
                let (there, wanted) = (found.records(), model.records());
                return Err(Wrong::Other(format!("{of} has {there} records of {wanted}")));
            }
            whole += 1;
        }
        Ok(whole)
    }

    /// The number of operations behind which the journal was there.
    #[must_use]
    pub fn created(&self) -> usize {
        self.parts[0].done
    }

    /// Whether the journal has its name.
    #[must_use]
    pub fn is_there(disk: &SimDisk) -> bool {
        disk.names().iter().any(|name| name == Path::new(BOOK))
    }
}
