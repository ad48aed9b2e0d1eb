//! What a body receives.

use deedbook_journal::{id::StoreTime, key::OperationKey};

/// What the body of a step with an effect receives: the key to send downstream.
///
/// The key is equal on every attempt, after every restart, and on every machine.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(crate) key: OperationKey,
    pub(crate) attempt: u32,
    pub(crate) first_started_at: StoreTime,
}

impl Operation {
    /// The operation key: printable ASCII, at most 64 characters.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the first attempt that may have had its effect began, by the store's clock.
    #[must_use]
    pub fn first_started_at(&self) -> StoreTime {
        self.first_started_at
    }

    /// The value of an `Idempotency-Key` header: the key as a structured-header string, which is
    /// the form that the IETF draft asks for.
    #[must_use]
    pub fn header(&self) -> String {
        format!("\"{}\"", self.key.as_str())
    }

    /// The key as a UUID (version 8), for a downstream that takes nothing else.
    #[must_use]
    pub fn uuid(&self) -> uuid::Uuid {
        self.key.to_uuid()
    }
}

/// What the body of a `read` step receives: no key, for there is no effect to identify.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub(crate) number: u32,
}

impl Attempt {
    /// Which attempt this is, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
}
