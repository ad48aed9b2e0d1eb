//! Refund requests, as customers send them: one JSON object a line.
//!
//! ```json
//! {"id":"r-001","order":"A-1001","customer":"Zoë","amount_minor":4990,"currency":"EUR","reason":"broken zip"}
//! ```
//!
//! Every line becomes one [`Entry`]: a request, a repeat of one, or a refusal that says what is
//! wrong and how to mend it. No input makes the reader panic, guess, or stop early.

mod line;
mod reader;
mod refusal;

use serde::{Deserialize, Serialize};

pub use line::{AMOUNT_MINOR_MAX, TEXT_BYTES_MAX};
pub use reader::{Entry, LINE_BYTES_MAX, REQUESTS_MAX, Request, Requests, read};
pub use refusal::{Cause, Refusal};

use crate::money::{Currency, Money};

/// One refund that somebody asked for, checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refund {
    /// The request's own id: the same id is the same request, however often it is sent.
    pub id: String,
    /// The order that is refunded.
    pub order: String,
    /// The customer's name, in any script.
    pub customer: String,
    /// The amount in minor units: cents, fils, whole yen.
    pub amount_minor: u64,
    /// The currency of the amount.
    pub currency: Currency,
    /// Why, in the customer's words.
    pub reason: String,
}

impl Refund {
    /// The amount with its currency.
    #[must_use]
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }
}
