//! Who woke whom: the wakers through which the workflow's future, the bodies in it, and the rest
//! of the world reach the executor.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
};

use deedbook_journal::turn::Sorted;
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
    bodies: Mutex<Sorted<u64>>,
    /// The executor waits and is to be told of wakes. Otherwise it is about to look by itself:
    /// most wakes come from its own offers.
    waits: AtomicBool,
}

impl Wakeups {
    /// The executor begins to wait, or ends it.
    pub(crate) fn set_waits(&self, waits: bool) {
        // Whoever wakes first says so and then looks at this; the executor first says this and
        // then looks whether somebody woke. In one order of all of it, one sees the other.
        self.waits.store(waits, Ordering::SeqCst);
    }

    /// Whether there is anything to poll, be it a body or the workflow itself; asked once the
    /// executor waits.
    pub(crate) fn take_any(&self) -> bool {
        self.root.swap(false, Ordering::SeqCst) || !self.bodies().is_empty()
    }

    fn woken(&self) {
        if self.waits.load(Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    fn bodies(&self) -> MutexGuard<'_, Sorted<u64>> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the workflow's future was woken since this was last asked.
    pub(crate) fn take_root(&self) -> bool {
        self.root.swap(false, Ordering::AcqRel)
    }

    /// Whether the workflow's future was woken.
    pub(crate) fn peek_root(&self) -> bool {
        self.root.load(Ordering::Acquire)
    }

    /// The calls whose bodies were woken since this was last asked.
    pub(crate) fn take_bodies(&self) -> Sorted<u64> {
        std::mem::take(&mut *self.bodies())
    }
}

/// The waker of the workflow's future.
impl Wake for Wakeups {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.root.store(true, Ordering::SeqCst);
        self.woken();
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
        self.wakeups.bodies().insert(self.call);
        self.wakeups.woken();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
        thread,
    };

    use super::*;

    fn told(wakeups: &Wakeups) -> bool {
        let told = pin!(wakeups.changed.notified());
        told.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn the_executor_is_told_while_it_waits_and_looks_by_itself_before() {
        let wakeups = Arc::new(Wakeups::default());
        let body = Arc::new(BodyWaker { wakeups: wakeups.clone(), call: 7 });
        wakeups.wake_by_ref();
        body.wake_by_ref();
        assert!(!told(&wakeups) && wakeups.peek_root());
        assert!(wakeups.take_any() && !wakeups.peek_root());
        assert!(wakeups.take_any(), "the body");
        assert_eq!(wakeups.take_bodies().pop_first(), Some(7));
        assert!(!wakeups.take_any());
        wakeups.set_waits(true);
        for wake in [|w: &Arc<BodyWaker>| w.wakeups.wake_by_ref(), Wake::wake_by_ref] {
            wake(&body);
            assert!(told(&wakeups));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "wakes come from other threads")]
    fn no_wake_is_lost_between_the_last_look_and_the_wait() {
        let wakeups = Arc::new(Wakeups::default());
        for round in 0..2_000 {
            let body = Arc::new(BodyWaker { wakeups: wakeups.clone(), call: 1 });
            let others = thread::spawn(move || match round % 2 {
                0 => body.wakeups.wake_by_ref(),
                _ => body.wake_by_ref(),
            });
            wakeups.set_waits(true);
            while !told(&wakeups) && !wakeups.take_any() {
                thread::yield_now();
            }
            wakeups.set_waits(false);
            others.join().unwrap();
            // What was told and looked at both, as the next turn looks at it.
            told(&wakeups);
            wakeups.take_root();
            wakeups.take_bodies();
        }
    }
}
