//! A gate for bodies, so that threads which go on for long can be measured in windows.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::{Notify, watch};

/// Every body waits here until its number is let through. Between two windows all threads stand at
/// the gate, equally far, each with the intent of its step durable and nothing on its way.
#[derive(Debug)]
pub struct Gate {
    threads: u64,
    /// Bodies with a lower number are let through.
    open: watch::Sender<u32>,
    /// How many came to the gate so far.
    came: AtomicU64,
    /// At how many to tell.
    goal: AtomicU64,
    reached: Notify,
}

impl Gate {
    /// A closed gate that `threads` threads will come to.
    #[must_use]
    pub fn of(threads: u64) -> Self {
        Self {
            threads,
            open: watch::Sender::new(0),
            came: AtomicU64::new(0),
            goal: AtomicU64::new(threads),
            reached: Notify::new(),
        }
    }

    /// How many threads come to it.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.threads
    }

    /// Comes to the gate as the body of step `number` of a thread, and waits to be let through.
    pub async fn pass(&self, number: u32) {
        if self.came.fetch_add(1, SeqCst) + 1 == self.goal.load(SeqCst) {
            self.reached.notify_one();
        }
        // The gate is there as long as somebody waits at it.
        let _ = self.open.subscribe().wait_for(|open| number < *open).await;
    }

    /// Lets every thread make this many steps more, and waits until all stand here again.
    pub async fn advance(&self, steps: u32) {
        self.goal.fetch_add(self.threads * u64::from(steps), SeqCst);
        self.open.send_modify(|open| *open = open.saturating_add(steps));
        self.all_here().await;
    }

    /// Waits until all threads stand at the gate.
    pub async fn all_here(&self) {
        while self.came.load(SeqCst) < self.goal.load(SeqCst) {
            self.reached.notified().await;
        }
    }

    /// Lets everybody through from now on.
    pub fn leave_open(&self) {
        self.open.send_replace(u32::MAX);
    }
}
