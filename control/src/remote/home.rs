//! The contract, kept by asking.

use std::{sync::PoisonError, time::Duration};

use deedbook_journal::{
    checkpointer::{
        Append, BoxFuture, Checkpointer, Claim, Filter, Lease, LogEntry, Message, Page, Posted,
        RecordPage, StoreError, StoreIdentity, ThreadInfo,
    },
    id::{Epoch, LogIndex, Position, StoreTime, ThreadId},
    record::{Record, Role},
};

use super::Remote;
use crate::{
    limits::LINE_BYTES_MAX,
    wire::{self, AppendResult, AppendValue, Hex, HoldValue, RoleWord, Thread, Word, nanos},
};

type Result<T> = std::result::Result<T, StoreError>;

/// About how many bytes an element takes in a line.
fn size(append: &Append) -> usize {
    let records: usize = append.records.iter().map(|r| Record::size(r) + 200).sum();
    let row = &append.row;
    let texts = row.workflow.len() + row.detail.as_ref().map_or(0, |d| d.len());
    records / 3 * 4 + 2 * texts + 35 * append.consumes.len() + 1200
}

impl Remote {
    /// Appends what fits in one line.
    async fn append_line(&self, group: &[Append]) -> Vec<Result<Position>> {
        let values: Result<Vec<_>> = group.iter().map(AppendValue::try_from).collect();
        let asked = match values {
            Ok(group) => self.ask(&wire::Append { group }, true).await,
            Err(error) => Err(error),
        };
        let results = match asked {
            Ok(answer) if answer.results.len() == group.len() => answer.results,
            Ok(_) => {
                let why = "the answer is about other elements".into();
                return vec![Err(StoreError::Unknown { why }); group.len()];
            }
            Err(error) => return vec![Err(error); group.len()],
        };
        let result = |result| match result {
            AppendResult::Next(next) => Ok(next),
            AppendResult::Error(fault) => Err(StoreError::from(fault)),
        };
        results.into_iter().map(result).collect()
    }
}

impl Checkpointer for Remote {
    fn identity(&self) -> &StoreIdentity {
        &self.identity
    }

    fn now(&self) -> BoxFuture<'_, Result<StoreTime>> {
        Box::pin(async move { Ok(self.ask(&wire::Now {}, false).await?.now.0) })
    }

    /// Elements that together are longer than a line go one line after the other.
    fn append(&self, group: Vec<Append>) -> BoxFuture<'_, Vec<Result<Position>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(group.len());
            let mut rest = group.as_slice();
            while !rest.is_empty() {
                let mut bytes = 0;
                let fits = |append: &&Append| {
                    bytes += size(append);
                    bytes <= LINE_BYTES_MAX / 2
                };
                let fit = rest.iter().take_while(fits).count().max(1);
                let (now, later) = rest.split_at(fit);
                results.extend(self.append_line(now).await);
                rest = later;
            }
            results
        })
    }

    fn read<'a>(
        &'a self,
        thread: &'a ThreadId,
        from: Position,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<RecordPage>> {
        Box::pin(async move {
            let asked = wire::Read { thread: Thread(thread.clone()), from, bytes_max };
            let answer = self.ask(&asked, false).await?;
            let items = answer.records.into_iter().map(|(n, record)| (n, record.into()));
            Ok(Page { items: items.collect(), next: answer.next })
        })
    }

    fn post<'a>(&'a self, to: &'a ThreadId, message: Message) -> BoxFuture<'a, Result<Posted>> {
        Box::pin(async move {
            let asked = wire::Post { thread: Thread(to.clone()), message: (&message).into() };
            Ok(self.ask(&asked, true).await?.posted.0.0)
        })
    }

    fn inbox<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Message>>> {
        Box::pin(async move {
            let mut messages: Vec<Message> = Vec::new();
            loop {
                let after = messages.last().map(|message| Hex(message.id.0));
                let asked = wire::Inbox { thread: Thread(thread.clone()), after };
                let answer = self.ask(&asked, false).await?;
                if answer.again {
                    messages.clear();
                }
                messages.extend(answer.messages.into_iter().map(Into::into));
                if !answer.more {
                    return Ok(messages);
                }
            }
        })
    }

    fn claim<'a>(
        &'a self,
        which: Claim,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Lease>>> {
        Box::pin(async move {
            let which = (&which).into();
            let asked = wire::Claim { which, holder: holder.into(), ttl_ns: nanos(ttl) };
            let answer = self.ask(&asked, true).await?;
            Ok(answer.leases.into_iter().map(Into::into).collect())
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(ThreadId, Epoch)],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Option<StoreTime>>>> {
        Box::pin(async move {
            let hold = |(thread, epoch): &(ThreadId, Epoch)| HoldValue {
                thread: Thread(thread.clone()),
                epoch: epoch.0,
            };
            let leases = leases.iter().map(hold).collect();
            let answer = self.ask(&wire::Renew { leases, ttl_ns: nanos(ttl) }, true).await?;
            Ok(answer.until.into_iter().map(|until| until.map(|t| t.0)).collect())
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<&'a ThreadId>,
        max: usize,
    ) -> BoxFuture<'a, Result<Page<ThreadInfo, ThreadId>>> {
        Box::pin(async move {
            let after = after.cloned().map(Thread);
            let answer = self.ask(&wire::List { filter: filter.into(), after, max }, false).await?;
            let items = answer.threads.into_iter().map(Into::into).collect();
            Ok(Page { items, next: answer.next.map(|thread| thread.0) })
        })
    }

    fn log(&self, from: LogIndex, max: usize) -> BoxFuture<'_, Result<Page<LogEntry, LogIndex>>> {
        Box::pin(async move {
            let answer = self.ask(&wire::Log { from, max }, false).await?;
            let items = answer.entries.into_iter().map(Into::into).collect();
            Ok(Page { items, next: answer.next })
        })
    }

    fn erase<'a>(
        &'a self,
        thread: &'a ThreadId,
        n: Position,
        role: Role,
        note: Append,
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            let (thread, role) = (Thread(thread.clone()), Word(RoleWord(role)));
            let note = AppendValue::try_from(&note)?;
            Ok(self.ask(&wire::Erase { thread, n, role, note }, true).await?.next)
        })
    }

    /// Closes the connection; the journal stays open where it is.
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let link = self.link.lock().unwrap_or_else(PoisonError::into_inner).take();
            link.map(drop).ok_or(StoreError::Closed)
        })
    }
}
