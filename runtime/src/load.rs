//! Loading: what a thread's records add up to, when it is taken hold of.

use std::{future::poll_fn, task::Poll};

use deedbook_journal::{
    checkpointer::{BoxFuture, Checkpointer, Lease, RecordPage, StoreError},
    history::History,
    id::Position,
    pen::Pen,
    record::{Header, Record},
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
    let mut pen = Pen::new(identity.log_id, thread.clone(), lease.epoch, lease.next, lease.head);
    if lease.next == 0 {
        return Ok((history, pen));
    }
    let mut reading = Some(Reading::begin(store.read(thread, 0, READ_BYTES)).await);
    while let Some(read) = reading {
        let page = read.page().await?;
        reading = match page.next {
            Some(n) => Some(Reading::begin(store.read(thread, n, READ_BYTES)).await),
            None => None,
        };
        for (n, record) in &page.items {
            fold(&mut history, &mut pen, *n, record)?;
        }
    }
    Ok((history, pen))
}

fn fold(
    history: &mut History,
    pen: &mut Pen,
    n: Position,
    record: &Record,
) -> Result<(), StoreError> {
    let thread = history.thread().clone();
    let damaged = |why: String| StoreError::Damaged { thread, n, why: why.into() };
    let header = match Header::parse(&record.header) {
        Ok(header) => header,
        Err(error) => return Err(damaged(error.to_string())),
    };
    if let Err(error) = history.apply(&header, &record.payloads) {
        return Err(damaged(format!("as a {} it does not fit: {}", error.kind, error.why)));
    }
    pen.pass(&header, record.hash);
    Ok(())
}
