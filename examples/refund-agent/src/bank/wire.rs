//! What goes over the wire, and into the ledger.

use serde::{Deserialize, Serialize};

/// Carries the operation key, as a structured-header String.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// `true` on an answer that repeats an earlier one.
pub(super) const IDEMPOTENT_REPLAYED: &str = "idempotent-replayed";
/// `no` on an answer that says nothing was done.
pub(super) const REFUND_APPLIED: &str = "refund-applied";
/// The media type of [`Problem`].
pub(super) const PROBLEM_JSON: &str = "application/problem+json";
/// The code of the 409 of a key whose first call is still at work.
pub(super) const IN_FLIGHT: &str = "idempotency-in-flight";

/// The order to refund, as the bank gets it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instruction {
    /// The order that is refunded.
    pub order: String,
    /// The customer's name.
    pub customer: String,
    /// The amount in minor units.
    pub amount_minor: u64,
    /// The currency's code: the bank has its own opinion on which exist.
    pub currency: String,
    /// Why.
    pub reason: String,
    /// The client's own name for this refund, by which it can be looked up in mode `lookup`, and
    /// by which the ledger counts duplicates.
    pub reference: String,
}

/// The bank's word that a refund was executed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The bank's id of the refund.
    pub id: String,
    /// The client's own name for it.
    pub reference: String,
    /// The order that was refunded.
    pub order: String,
    /// The amount in minor units.
    pub amount_minor: u64,
    /// The currency's code.
    pub currency: String,
    /// When, in milliseconds since 1970, by the bank's clock.
    pub at_ms: u64,
}

/// What went wrong, as RFC 9457 tells it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Problem {
    /// `urn:refund-bank:` and a code that programs can compare.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for people; equal for all problems of a kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What it was this time, and what to do about it.
    pub detail: String,
}

const KIND_PREFIX: &str = "urn:refund-bank:";

impl Problem {
    pub(super) fn new(status: u16, code: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("{KIND_PREFIX}{code}"),
            title: title.into(),
            status,
            detail: detail.into(),
        }
    }

    /// The code, such as `closed-order`.
    #[must_use]
    pub fn code(&self) -> &str {
        self.kind.strip_prefix(KIND_PREFIX).unwrap_or(&self.kind)
    }
}

/// What `GET /refunds?reference=R` answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// Every refund with this reference, first executed first.
    pub(super) refunds: Vec<Receipt>,
}
