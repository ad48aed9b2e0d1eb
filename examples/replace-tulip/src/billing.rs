//! The other side: it counts what was done, and honours keys where it is told to.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};

/// What a refund leaves behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Its number.
    pub number: usize,
    /// The order.
    pub order: String,
    /// How much.
    pub amount: f64,
}

/// A billing service. It outlives the processes that call it.
#[derive(Debug, Clone, Default)]
pub struct Billing {
    receipts: Arc<Mutex<BTreeMap<String, Receipt>>>,
    pages: Arc<Mutex<Vec<String>>>,
    loses_the_answer: Arc<AtomicBool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Billing {
    /// The next refund is made, and its caller never hears of it.
    pub fn lose_the_next_answer(&self) {
        self.loses_the_answer.store(true, Ordering::SeqCst);
    }

    /// Refunds, once for a key.
    pub async fn refund(&self, order: &str, amount: f64, key: &str) -> Receipt {
        let receipt = {
            let mut receipts = locked(&self.receipts);
            let number = receipts.len() + 1;
            let new = || Receipt { number, order: order.to_owned(), amount };
            receipts.entry(key.to_owned()).or_insert_with(new).clone()
        };
        if self.loses_the_answer.swap(false, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        receipt
    }

    /// Calls somebody: every time.
    pub fn page(&self, what: &str) -> usize {
        let mut pages = locked(&self.pages);
        pages.push(what.to_owned());
        pages.len()
    }

    /// How many refunds were made.
    #[must_use]
    pub fn refunds(&self) -> usize {
        locked(&self.receipts).len()
    }

    /// How many calls were made.
    #[must_use]
    pub fn pages(&self) -> usize {
        locked(&self.pages).len()
    }
}
