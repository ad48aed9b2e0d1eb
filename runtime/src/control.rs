//! How the worker reaches a thread that is loaded.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use deedbook_journal::{
    checkpointer::Lease,
    id::{Epoch, StoreTime},
};
use tokio::sync::watch;

use crate::{desk::Shared, executor::Begin, wake::Wakeups};

/// The worker's hand on one loaded thread.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) wakeups: Arc<Wakeups>,
    /// What the thread was begun with, if it was begun here.
    pub(crate) begin: Option<Begin>,
    nudged: AtomicBool,
    stopping: AtomicBool,
    /// The latest epoch whose lease was lost; zero for none.
    lost: AtomicU64,
    /// A hold that the search for due threads took on it before its own task could.
    handed: Mutex<Option<Lease>>,
    /// Zero before the claim.
    epoch: AtomicU64,
    /// Until when the hold under way lasts, as far as the worker knows.
    until: AtomicU64,
    /// What the hold under way knows.
    desk: Mutex<Weak<Shared>>,
    /// Whether the thread's first record is durable.
    pub(crate) durable: watch::Sender<bool>,
}

impl Control {
    pub(crate) fn new(begin: Option<Begin>) -> Arc<Self> {
        Arc::new(Self {
            wakeups: Arc::new(Wakeups::default()),
            begin,
            nudged: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            handed: Mutex::new(None),
            epoch: AtomicU64::new(0),
            until: AtomicU64::new(0),
            desk: Mutex::default(),
            durable: watch::Sender::new(false),
        })
    }

    /// Hands over a hold, and says that there is something to do.
    pub(crate) fn hand(&self, lease: Lease) {
        *self.handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
        self.nudge();
    }

    /// The hold that was handed over, if one was.
    pub(crate) fn take_handed(&self) -> Option<Lease> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Something was said to the thread.
    pub(crate) fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.wakeups.changed.notify_one();
    }

    pub(crate) fn is_nudged(&self) -> bool {
        self.nudged.load(Ordering::Acquire)
    }

    pub(crate) fn take_nudge(&self) -> bool {
        self.nudged.swap(false, Ordering::AcqRel)
    }

    /// The book is shutting down.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wakeups.changed.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The lease of this epoch is lost. A later claim has an epoch and a lease of its own.
    pub(crate) fn lose(&self, epoch: Epoch) {
        self.lost.fetch_max(epoch.0, Ordering::AcqRel);
        self.wakeups.changed.notify_one();
    }

    /// Whether the lease of this epoch is lost.
    pub(crate) fn is_lost(&self, epoch: Epoch) -> bool {
        self.lost.load(Ordering::Acquire) >= epoch.0
    }

    /// A hold has read its thread.
    pub(crate) fn opened(&self, desk: &Arc<Shared>) {
        *self.desk.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(desk);
    }

    /// What the hold under way knows, if there is one.
    pub(crate) fn desk(&self) -> Option<Arc<Shared>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    pub(crate) fn held_under(&self, epoch: Epoch, until: StoreTime) {
        self.epoch.store(epoch.0, Ordering::Release);
        self.until.store(until.0, Ordering::Release);
    }

    /// The hold of this epoch was renewed.
    pub(crate) fn renewed(&self, epoch: Epoch, until: StoreTime) {
        if self.epoch() == Some(epoch) {
            self.until.fetch_max(until.0, Ordering::AcqRel);
        }
    }

    /// Whether somebody else may hold the thread by now.
    pub(crate) fn is_over(&self, now: StoreTime) -> bool {
        now.0 >= self.until.load(Ordering::Acquire)
    }

    /// The epoch under which the thread is held, if it is.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        Some(self.epoch.load(Ordering::Acquire)).filter(|e| *e > 0).map(Epoch)
    }
}
