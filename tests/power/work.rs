//! A workload on a disk that remembers, and what must be there after each part of it.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, Filter, Message, StoreError},
    embedded::{CreateOptions, Embedded, OpenError, OpenOptions},
    id::{MessageId, StoreTime, ThreadId},
    pen::{Draft, Pen},
    record::{Kind, RecordHash, Role},
    row::{Row, Status},
};
use harness::{Random, SimDisk};

pub(crate) const BOOK: &str = "/sim/book.redb";
const LONG: Duration = Duration::from_secs(3600);
const SALT: [u8; 32] = [7; 32];

/// The payloads of a thread (`None` where one was erased), and the ids of the messages that nobody
/// has consumed.
type Thread = (Vec<Option<Vec<u8>>>, Vec<u8>);

/// What a journal holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model(pub(crate) BTreeMap<String, Thread>);

impl Model {
    pub(crate) fn records(&self) -> usize {
        self.0.values().map(|(records, _)| records.len()).sum()
    }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

pub(crate) fn options(disk: &SimDisk) -> OpenOptions {
    OpenOptions::new().disk(Arc::new(disk.clone())).log_bytes(64 << 10)
}

pub(crate) fn open(disk: &SimDisk) -> Result<Embedded, OpenError> {
    Embedded::open(Path::new(BOOK), options(disk))
}

fn row() -> Row {
    Row {
        workflow: "refund".into(),
        status: Status::Running,
        since: StoreTime(1),
        wake_at: None,
        detail: None,
        open_doubts: 0,
        created_at: StoreTime(1),
    }
}

pub(crate) async fn pen(book: &Embedded, id: &str) -> Result<(Pen, Append), StoreError> {
    let id = ThreadId::new(id).unwrap();
    let claim = Claim::Thread { id: id.clone(), create: Some(row()) };
    let lease = book.claim(claim, "test", LONG).await?.pop().unwrap();
    book.renew(&[(id.clone(), lease.epoch)], Duration::ZERO).await?;
    let pen = Pen::new(book.identity().log_id, id.clone(), lease.epoch, lease.next, lease.head);
    let append = Append {
        thread: id,
        epoch: lease.epoch,
        at: lease.next,
        records: Vec::new(),
        consumes: Vec::new(),
        row: row(),
    };
    Ok((pen, append))
}

pub(crate) fn write(pen: &mut Pen, append: &mut Append, payload: &[u8]) {
    let draft = Draft::new(&append.thread, Kind::Marker).payload(Role::Value, payload.to_vec());
    let (_, record) = pen.write(draft, StoreTime(1), &mut || SALT);
    append.records.push(record);
}

/// Everything that is in a journal, each record checked against the chain.
pub(crate) async fn everything(book: &Embedded) -> Result<Model, StoreError> {
    let mut model = Model::default();
    for thread in book.list(&Filter::default(), None, 1000).await?.items {
        let (mut payloads, mut prev, mut from) = (Vec::new(), RecordHash::ZERO, 0);
        loop {
            let page = book.read(&thread.id, from, 4096).await?;
            for (n, record) in &page.items {
                let damaged = |why: String| StoreError::Damaged {
                    thread: thread.id.clone(),
                    n: *n,
                    why: why.into(),
                };
                record.verify(&book.identity().log_id, &prev).map_err(damaged)?;
                prev = record.hash;
                payloads.push(record.payload(Role::Value).map(|p| p.bytes.to_vec()));
            }
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
        let inbox = book.inbox(&thread.id).await?.iter().map(|m| m.id.0[0]).collect();
        model.0.insert(thread.id.as_str().into(), (payloads, inbox));
    }
    let (mut leaves, mut from) = (0, 0);
    loop {
        let page = book.log(from, 50).await?;
        leaves += page.items.len();
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(leaves, model.records(), "the log does not have the records that the threads have");
    Ok(model)
}

/// One more record in a thread.
pub(crate) async fn one_more(book: &Embedded, model: &mut Model) -> Result<(), StoreError> {
    let (mut pen, mut append) = pen(book, "last").await?;
    write(&mut pen, &mut append, b"one more");
    book.append(vec![append]).await.remove(0)?;
    model.0.entry("last".into()).or_default().0.push(Some(b"one more".to_vec()));
    Ok(())
}

/// What was done on a disk, and when.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) disk: SimDisk,
    random: Random,
    messages: u8,
    model: Model,
    /// The number of operations when a part was begun and when it was acknowledged, and what must
    /// be there from then on.
    pub(crate) parts: Vec<(usize, usize, Model)>,
}

impl Work {
    /// Does so many things in the seed's order.
    pub(crate) fn done(seed: u64, parts: usize) -> Self {
        let disk = SimDisk::default();
        let create = CreateOptions::new().log_id([3; 16]).open(options(&disk));
        let mut book = Embedded::create(Path::new(BOOK), create).unwrap();
        let begun = (0, disk.operations(), Model::default());
        let mut work = Self {
            disk,
            random: Random::new(seed),
            messages: 0,
            model: Model::default(),
            parts: vec![begun],
        };
        for _ in 0..parts {
            let begun = work.disk.operations();
            let what = work.random.below(20);
            let done = wait(async {
                match what {
                    0 => work.reopen(&mut book).await,
                    1 => work.erase(&book).await,
                    2..=5 => work.post(&book).await,
                    _ => work.append(&book).await,
                }
            });
            done.unwrap();
            let part = (begun, work.disk.operations(), work.model.clone());
            work.parts.push(part);
        }
        wait(book.close()).unwrap();
        work
    }

    fn thread(&mut self) -> String {
        format!("thread-{}", self.random.below(5))
    }

    /// A group over some threads; each may consume what was said to it.
    async fn append(&mut self, book: &Embedded) -> Result<(), StoreError> {
        let mut group = Vec::new();
        let mut ids = vec![self.thread(), self.thread()];
        ids.sort();
        ids.dedup();
        for id in ids {
            let (mut pen, mut append) = pen(book, &id).await?;
            let (records, inbox) = self.model.0.entry(id).or_default();
            for _ in 0..=self.random.below(3) {
                let length = if self.random.once_in(8) { 6000 } else { 400 };
                let payload = vec![self.random.draw() as u8; self.random.index(length)];
                write(&mut pen, &mut append, &payload);
                records.push(Some(payload));
            }
            if !inbox.is_empty() && self.random.once_in(2) {
                let gone = inbox.remove(self.random.index(inbox.len()));
                append.consumes.push(MessageId([gone; 16]));
            }
            group.push(append);
        }
        for result in book.append(group).await {
            result?;
        }
        Ok(())
    }

    async fn post(&mut self, book: &Embedded) -> Result<(), StoreError> {
        let Some(id) = self.model.0.keys().nth(self.random.index(self.model.0.len())).cloned()
        else {
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
        book.post(&ThreadId::new(id.as_str()).unwrap(), message).await?;
        self.model.0.entry(id).or_default().1.push(self.messages);
        Ok(())
    }

    async fn erase(&mut self, book: &Embedded) -> Result<(), StoreError> {
        let id = self.thread();
        let records = self.model.0.get(&id).map_or(0, |(records, _)| records.len());
        let n = self.random.index(records);
        let there = records > 0 && self.model.0[&id].0[n].is_some();
        if !there {
            return Ok(());
        }
        let (mut pen, mut note) = pen(book, &id).await?;
        write(&mut pen, &mut note, b"erased");
        book.erase(&note.thread.clone(), n as u64, Role::Value, note).await?;
        let (records, _) = self.model.0.entry(id).or_default();
        records[n] = None;
        records.push(Some(b"erased".to_vec()));
        Ok(())
    }

    /// The process ends, with or without a close, and another one goes on.
    async fn reopen(&mut self, book: &mut Embedded) -> Result<(), StoreError> {
        if self.random.once_in(2) {
            book.close().await?;
        }
        // The lock goes with the process.
        let disk = self.disk.clone();
        let empty = SimDisk::default();
        let create = CreateOptions::new().open(options(&empty));
        drop(std::mem::replace(book, Embedded::create(Path::new(BOOK), create).unwrap()));
        disk.unlock();
        *book = open(&disk).unwrap();
        Ok(())
    }

    /// What may be there behind so many operations: what was acknowledged, or one part more.
    pub(crate) fn allowed(&self, operations: usize) -> Vec<&Model> {
        let acknowledged = self.parts.iter().take_while(|(_, end, _)| *end <= operations).count();
        let first = acknowledged.saturating_sub(1);
        self.parts.iter().skip(first).take(2).map(|(_, _, model)| model).collect()
    }

    /// The number of operations behind which the journal was there.
    pub(crate) fn created(&self) -> usize {
        self.parts[0].1
    }
}
