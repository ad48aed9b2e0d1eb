//! The agent's hands: what it does to the world goes through these two, so that a test can put a
//! world of its own in their place.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use crate::bank::{Bank, BankError, Receipt};
use crate::requests::Refund;

use super::outbox::{Outbox, OutboxError};

/// An answer on its way.
pub type Answer<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Somebody who pays refunds.
pub trait Payments: Debug + Send + Sync {
    /// Orders a refund: see [`Bank::refund`].
    fn refund<'a>(
        &'a self,
        refund: &'a Refund,
        key: &'a str,
        reference: &'a str,
    ) -> Answer<'a, Receipt, BankError>;

    /// Looks a refund up: see [`Bank::find`].
    fn find<'a>(&'a self, reference: &'a str) -> Answer<'a, Option<Receipt>, BankError>;
}

impl Payments for Bank {
    fn refund<'a>(
        &'a self,
        refund: &'a Refund,
        key: &'a str,
        reference: &'a str,
    ) -> Answer<'a, Receipt, BankError> {
        Box::pin(self.refund(refund, key, reference))
    }

    fn find<'a>(&'a self, reference: &'a str) -> Answer<'a, Option<Receipt>, BankError> {
        Box::pin(self.find(reference))
    }
}

/// Somebody who sends letters, and sends two if asked twice.
pub trait Letters: Debug + Send + Sync {
    /// Sends a letter: see [`Outbox::write`].
    fn write<'a>(
        &'a self,
        key: &'a str,
        thread: &'a str,
        text: &'a str,
    ) -> Answer<'a, (), OutboxError>;

    /// Whether a letter with this key was sent: see [`Outbox::holds`].
    fn holds<'a>(&'a self, key: &'a str) -> Answer<'a, bool, OutboxError>;
}

impl Letters for Outbox {
    fn write<'a>(
        &'a self,
        key: &'a str,
        thread: &'a str,
        text: &'a str,
    ) -> Answer<'a, (), OutboxError> {
        Box::pin(self.write(key, thread, text))
    }

    fn holds<'a>(&'a self, key: &'a str) -> Answer<'a, bool, OutboxError> {
        Box::pin(self.holds(key))
    }
}
