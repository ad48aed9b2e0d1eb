//! Who woke whom: the wakers through which the workflow's future, the bodies in it, and the rest
//! of the world reach the executor.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
};

use tokio::sync::Notify;

/// What the executor waits on.
///
/// Bodies wake through here rather than through the workflow's own waker, so that a wake of the
/// workflow that comes neither from a body nor from an offer is known to be a foreign one.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    /// Something is to be looked at.
    pub(crate) changed: Notify,
    /// The workflow's future wants to be polled again at once.
    root: AtomicBool,
    /// Calls whose bodies want to be polled.
    bodies: Mutex<BTreeSet<u64>>,
}

impl Wakeups {
    /// Whether the workflow's future was woken since this was last asked.
    pub(crate) fn take_root(&self) -> bool {
        self.root.swap(false, Ordering::AcqRel)
    }

    /// Whether the workflow's future was woken.
    pub(crate) fn peek_root(&self) -> bool {
        self.root.load(Ordering::Acquire)
    }

    /// The calls whose bodies were woken since this was last asked.
    pub(crate) fn take_bodies(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.bodies.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The waker of the workflow's future.
impl Wake for Wakeups {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.root.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

/// The waker of one body.
#[derive(Debug)]
pub(crate) struct BodyWaker {
    pub(crate) wakeups: Arc<Wakeups>,
    pub(crate) call: u64,
}

impl Wake for BodyWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut bodies = self.wakeups.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.insert(self.call);
        drop(bodies);
        self.wakeups.changed.notify_one();
    }
}
