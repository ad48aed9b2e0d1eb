//! Verifying a journal, also while others write to it.
//!
//! What is listed, and what is erased, may be newer than what was read of the log before. Then it
//! stands further on in the log, which is followed until everything has been met.

use std::collections::{HashMap, HashSet};

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, StoreError, thread_info},
    id::{LogIndex, Position, ThreadId},
    record::RecordHash,
};

use super::{Findings, Threads};
use crate::{
    failure::Failure,
    read::{self, List, Log, Records},
    rules::{Thread, What},
    text::safe,
};

/// How often what was written meanwhile is read. Each time there is less of it.
const PASSES_MAX: usize = 100;

const OTHER_END: &str = "the thread's end is not its last record";

pub(super) async fn one(home: &dyn Checkpointer, id: ThreadId) -> Result<Findings, Failure> {
    let mut findings = Findings::new(What::Thread);
    let info = read::info(home, &id).await?;
    let log_id = home.identity().log_id;
    let mut thread = Thread::new(id.clone());
    for _ in 0..PASSES_MAX {
        let before = thread.next;
        let mut records = Records::from(home, id.clone(), before);
        loop {
            let checked = match records.next().await {
                Ok(Some((_, record))) => thread.take(&log_id, &record).map(|h| (h, record)),
                Ok(None) => break,
                Err(StoreError::Damaged { n, why, .. }) => {
                    findings.record(&id, n, &why);
                    return Ok(findings);
                }
                Err(other) => return Err(read::about(&id, other)),
            };
            match checked {
                Ok((header, record)) => findings.totals.add(&header, &record),
                Err(why) => {
                    findings.record(&id, thread.next, &why);
                    return Ok(findings);
                }
            }
            if thread.next == info.next && thread.head != info.head {
                findings.record(&id, thread.next, OTHER_END);
            }
        }
        // What was erased meanwhile is told further on.
        if thread.next == before || thread.vanished().next().is_none() {
            break;
        }
    }
    if thread.next < info.next {
        findings.record(&id, thread.next, OTHER_END);
    }
    findings.vanished(&id, &thread);
    kept(home, &id, &thread, &mut findings).await?;
    Ok(findings)
}

pub(super) async fn all(home: &dyn Checkpointer) -> Result<Findings, Failure> {
    let mut live = Live {
        home,
        log: Log::new(home),
        place: 0,
        threads: Threads::new(true),
        ends: HashMap::new(),
        findings: Findings::new(What::Journal),
    };
    if live.follow().await? {
        let unlisted = live.list().await?;
        let mut whole = true;
        for _ in 0..PASSES_MAX {
            let before = live.place;
            if !live.is_open() {
                break;
            }
            whole = live.follow().await?;
            if !whole || live.place == before {
                break;
            }
        }
        if whole {
            live.close(unlisted).await?;
        }
    }
    Ok(live.findings)
}

/// A journal on the way.
struct Live<'a> {
    home: &'a dyn Checkpointer,
    log: Log<'a>,
    /// The place in the log that comes next.
    place: LogIndex,
    threads: Threads,
    /// The listed ends of threads that were not met in the log yet.
    ends: HashMap<ThreadId, (Position, RecordHash)>,
    findings: Findings,
}

impl Live<'_> {
    /// Reads the log on to its end; says whether it got there.
    async fn follow(&mut self) -> Result<bool, Failure> {
        let log_id = self.home.identity().log_id;
        loop {
            let (entry, record) = match self.log.next().await {
                Ok(Some(next)) => next,
                Ok(None) => {
                    self.log.go_on(self.place);
                    return Ok(true);
                }
                Err(StoreError::Damaged { thread, n, why }) => {
                    self.findings.record(&thread, n, &why);
                    let place = self.place;
                    let said = format!("the log ends at place {place}, where it is damaged");
                    self.findings.problem(said);
                    return Ok(false);
                }
                Err(other) => return Err(other.into()),
            };
            let place = self.place;
            if entry.index != place {
                let index = entry.index;
                let said = format!("place {place} of the log is missing; {index} follows");
                self.findings.problem(said);
            }
            self.place = entry.index + 1;
            let checked = match record {
                Ok(record) if record.hash == entry.hash => Ok(record),
                Ok(_) => Err(format!("place {} of the log has another hash", entry.index)),
                Err(StoreError::Damaged { n, why, .. }) => {
                    // The record itself, or another one that it is stored with.
                    self.threads.give_up(&entry.thread, n, &why, &mut self.findings);
                    continue;
                }
                Err(other) => return Err(other.into()),
            };
            self.threads.take(&log_id, &entry.thread, entry.n, checked, &mut self.findings);
            self.met(&entry.thread);
        }
    }

    /// Compares a thread with its listed end, once it has come there.
    fn met(&mut self, id: &ThreadId) {
        let Some((next, head)) = self.ends.get(id) else { return };
        let there = match self.threads.all.get(id) {
            Some(Some(thread)) if thread.next == *next => thread.head == *head,
            // A problem of it is told already.
            Some(None) => true,
            _ => return,
        };
        let next = *next;
        self.ends.remove(id);
        if !there {
            self.threads.give_up(id, next, OTHER_END, &mut self.findings);
        }
    }

    /// Compares the list with what was read; says which threads of the log are not in it.
    async fn list(&mut self) -> Result<HashSet<ThreadId>, Failure> {
        let mut unlisted: HashSet<ThreadId> = self.threads.all.keys().cloned().collect();
        let filter = Filter { reserved: true, ..Filter::default() };
        let mut list = List::new(self.home, filter);
        while let Some(info) = list.next().await? {
            unlisted.remove(&info.id);
            self.ends.insert(info.id.clone(), (info.next, info.head));
            self.met(&info.id);
            // Records are never taken away, so that a list which is behind is wrong.
            let known = self.threads.all.get(&info.id).and_then(Option::as_ref);
            if known.is_some_and(|thread| thread.next > info.next) {
                self.ends.remove(&info.id);
                self.threads.give_up(&info.id, info.next, OTHER_END, &mut self.findings);
            }
        }
        Ok(unlisted)
    }

    /// Whether something is still to be met further on.
    fn is_open(&self) -> bool {
        let mut threads = self.threads.all.values().flatten();
        !self.ends.is_empty() || threads.any(|thread| thread.vanished().next().is_some())
    }

    /// Tells what was not met.
    async fn close(&mut self, unlisted: HashSet<ThreadId>) -> Result<(), Failure> {
        for id in std::mem::take(&mut self.ends).into_keys() {
            match self.threads.all.get(&id) {
                Some(Some(thread)) => self.findings.record(&id, thread.next, OTHER_END),
                Some(None) => {}
                None => {
                    let id = safe(id.as_str());
                    self.findings.problem(format!("thread {id} has no record in the log"));
                }
            }
        }
        for id in unlisted {
            // One that was made after the list had passed it by.
            if thread_info(self.home, &id).await?.is_none() {
                let id = safe(id.as_str());
                let said = format!("the log has records of thread {id}, which is not listed");
                self.findings.problem(said);
            }
        }
        for (id, thread) in &self.threads.all {
            let Some(thread) = thread else { continue };
            self.findings.vanished(id, thread);
            kept(self.home, id, thread, &mut self.findings).await?;
        }
        Ok(())
    }
}

/// Looks again at payloads that were there when they were read, and were erased then.
async fn kept(
    home: &dyn Checkpointer,
    id: &ThreadId,
    thread: &Thread,
    findings: &mut Findings,
) -> Result<(), Failure> {
    for (n, role) in thread.kept() {
        let page = home.read(id, *n, 0).await.map_err(|e| read::about(id, e))?;
        if page.items.first().is_some_and(|(_, record)| record.payload(*role).is_some()) {
            let role = role.as_str();
            let why = format!("its payload {role} is there, and a record says that it was erased");
            findings.record(id, *n, &why);
        }
    }
    Ok(())
}
