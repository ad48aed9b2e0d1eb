//! Loading: what a thread's records add up to, when it is taken hold of.

use std::{future::poll_fn, task::Poll};

use deedbook_journal::{
    checkpointer::{BoxFuture, Checkpointer, Lease, RecordPage, StoreError},
    history::{History, ReplayError},
    pen::Pen,
};

/// How much of a history is read at once: small enough to stay in a processor's cache between
/// its reader and its folding.
const READ_BYTES: usize = 512 << 10;

type Page = Result<RecordPage, StoreError>;

/// A read that has begun.
enum Reading<'a> {
    Done(Page),
    UnderWay(BoxFuture<'a, Page>),
}

impl<'a> Reading<'a> {
    /// Begins a read. Homes do their work elsewhere, so it goes on while something else is done.
    async fn begin(mut read: BoxFuture<'a, Page>) -> Self {
        match poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
            Poll::Ready(page) => Self::Done(page),
            Poll::Pending => Self::UnderWay(read),
        }
    }

    async fn page(self) -> Page {
        match self {
            Self::Done(page) => page,
            Self::UnderWay(read) => read.await,
        }
    }
}

/// Reads a thread from its beginning. While one page is folded the next one is read.
///
/// # Errors
/// What the home says, and [`StoreError::Damaged`] where a record does not fit the ones before.
pub(crate) async fn load(
    store: &dyn Checkpointer,
    lease: &Lease,
) -> Result<(History, Pen), StoreError> {
    let (identity, thread) = (store.identity(), &lease.thread);
    let mut history = History::new(thread.clone(), identity.secret);
    history.expect(lease.next);
    let mut head = lease.head;
    let mut reading = match lease.next {
        0 => None,
        _ => Some(Reading::begin(store.read(thread, 0, READ_BYTES)).await),
    };
    while let Some(read) = reading {
        let page = read.page().await?;
        reading = match page.next {
            Some(n) => Some(Reading::begin(store.read(thread, n, READ_BYTES)).await),
            None => None,
        };
        for (n, record) in &page.items {
            history.replay(record).map_err(|error| StoreError::Damaged {
                thread: thread.clone(),
                n: *n,
                why: why(&error).into(),
            })?;
            head = record.hash;
        }
    }
    if history.next() < lease.next {
        return Err(StoreError::Damaged {
            thread: thread.clone(),
            n: history.next(),
            why: format!("the thread has {} records and this one is missing", lease.next).into(),
        });
    }
    let pen = Pen::behind(identity.log_id, lease.epoch, &history, head);
    Ok((history, pen))
}

/// What is wrong with a record whose place the error names already.
fn why(error: &ReplayError) -> String {
    match error {
        ReplayError::Header(error) => error.to_string(),
        ReplayError::History(error) => {
            format!("as a {} it does not fit: {}", error.kind, error.why)
        }
    }
}
