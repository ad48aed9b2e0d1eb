//! Branches side by side: `ctx.map`.

use std::{
    future::Future,
    pin::Pin,
    task::{Context as Cx, Poll},
};

use crate::workflow::Result;

/// Runs futures side by side and gathers their results in order; the first error wins and drops
/// the others.
pub(crate) struct Gather<F, R> {
    slots: Vec<Slot<F, R>>,
    open: usize,
}

enum Slot<F, R> {
    Open(Pin<Box<F>>),
    Done(Option<R>),
}

impl<F, R> Gather<F, R> {
    pub(crate) fn new(futures: impl Iterator<Item = F>) -> Self {
        let slots: Vec<_> = futures.map(|f| Slot::Open(Box::pin(f))).collect();
        Self { open: slots.len(), slots }
    }
}

// Results are moved and never pinned; the futures are boxed.
impl<F, R> Unpin for Gather<F, R> {}

impl<F, R> Future for Gather<F, R>
where
    F: Future<Output = Result<R>>,
{
    type Output = Result<Vec<R>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<Vec<R>>> {
        let this = &mut *self;
        for slot in &mut this.slots {
            if let Slot::Open(future) = slot
                && let Poll::Ready(result) = future.as_mut().poll(cx)
            {
                match result {
                    Ok(value) => *slot = Slot::Done(Some(value)),
                    Err(error) => return Poll::Ready(Err(error)),
                }
                this.open -= 1;
            }
        }
        if this.open > 0 {
            return Poll::Pending;
        }
        let take = |slot: &mut Slot<F, R>| match slot {
            Slot::Done(value) => value.take(),
            Slot::Open(_) => None,
        };
        Poll::Ready(Ok(this.slots.iter_mut().filter_map(take).collect()))
    }
}
