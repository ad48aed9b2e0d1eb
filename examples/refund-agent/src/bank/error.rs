//! How a call to the bank can fail, sorted by what the caller may conclude.

use std::time::Duration;

/// A call to the bank that brought no receipt.
///
/// The variants answer the one question that matters to a caller: did the refund happen?
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BankError {
    /// No, and it will not: the bank refused for a reason that a retry does not change.
    #[error("the bank refused ({status} {code}): {detail}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The problem's code, such as `closed-order`.
        code: String,
        /// What the bank says about it.
        detail: String,
    },
    /// No: the bank was not reached, or says that it did nothing. A retry is safe.
    #[error("the refund was not applied: {cause}")]
    NotApplied {
        /// What stood in the way.
        cause: String,
        /// How long the bank asks to wait.
        retry_after: Option<Duration>,
    },
    /// Not by this call: an earlier call with the same key is still at work, and may yet succeed
    /// or fail. Ask again with the same key.
    #[error("an earlier call with the same key is still at work")]
    InFlight {
        /// How long the bank asks to wait.
        retry_after: Option<Duration>,
    },
    /// Nobody on this side knows: the request was sent, and no answer came that says.
    #[error("the refund may or may not have been applied: {cause}")]
    Ambiguous {
        /// What happened instead of an answer.
        cause: String,
    },
    /// No: this call cannot be put into an HTTP request, now or later.
    #[error("the call cannot be sent: {cause}")]
    Unsendable {
        /// What cannot be sent.
        cause: String,
    },
}

impl BankError {
    /// Whether the same call would fail the same way for ever, with nothing applied.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::Unsendable { .. })
    }

    /// Whether it is certain that this call applied nothing. For [`BankError::InFlight`] that is
    /// certain of this call only, not of the earlier one.
    #[must_use]
    pub fn is_not_applied(&self) -> bool {
        !matches!(self, Self::Ambiguous { .. })
    }

    /// How long the bank asks to wait before the next call.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotApplied { retry_after, .. } | Self::InFlight { retry_after } => *retry_after,
            _ => None,
        }
    }
}

/// The bank's address is not one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{address:?} is not the address of a bank: write it as http://127.0.0.1:8080")]
pub struct BadAddress {
    /// As given.
    pub address: String,
}
