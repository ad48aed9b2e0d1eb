//! Branches side by side: `ctx.map`.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context as Cx, Poll, Wake, Waker},
};

use crate::workflow::Result;

/// Runs futures side by side and gathers their results in order; the first error wins and drops
/// the others. Each future has a waker of its own, so that a wake of one costs no poll of the
/// others.
pub(crate) struct Gather<F, R> {
    slots: Vec<Slot<F, R>>,
    open: usize,
    woken: Arc<Woken>,
}

enum Slot<F, R> {
    Open(Pin<Box<F>>, Waker),
    Done(Option<R>),
}

/// Which futures want to be polled.
#[derive(Debug, Default)]
struct Woken(Mutex<Queued>);

#[derive(Debug, Default)]
struct Queued {
    slots: VecDeque<usize>,
    /// Whoever polls the whole.
    whole: Option<Waker>,
}

impl Woken {
    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of one future.
struct SlotWaker {
    slot: usize,
    woken: Arc<Woken>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let whole = {
            let mut queued = self.woken.queued();
            queued.slots.push_back(self.slot);
            queued.whole.clone()
        };
        if let Some(whole) = whole {
            whole.wake();
        }
    }
}

impl<F, R> Gather<F, R> {
    pub(crate) fn new(futures: impl Iterator<Item = F>) -> Self {
        let woken = Arc::new(Woken::default());
        let slots: Vec<_> = (0..)
            .zip(futures)
            .map(|(slot, future)| {
                let waker = Waker::from(Arc::new(SlotWaker { slot, woken: woken.clone() }));
                Slot::Open(Box::pin(future), waker)
            })
            .collect();
        // Each is polled once before any is woken.
        woken.queued().slots.extend(0..slots.len());
        Self { open: slots.len(), slots, woken }
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
        // What is woken during this poll wakes the whole, and has its turn then.
        let woken = {
            let mut queued = this.woken.queued();
            match &mut queued.whole {
                Some(whole) => whole.clone_from(cx.waker()),
                whole => *whole = Some(cx.waker().clone()),
            }
            std::mem::take(&mut queued.slots)
        };
        for number in woken {
            let Some(slot) = this.slots.get_mut(number) else {
                continue;
            };
            if let Slot::Open(future, waker) = slot
                && let Poll::Ready(result) = future.as_mut().poll(&mut Cx::from_waker(waker))
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
            Slot::Open(..) => None,
        };
        Poll::Ready(Ok(this.slots.iter_mut().filter_map(take).collect()))
    }
}
