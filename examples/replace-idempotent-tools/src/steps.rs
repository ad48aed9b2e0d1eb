//! The functions that must not happen twice.

use deedbook::{CallError, Deedbook, step};

use crate::bank::{Bank, Receipt};

/// Identified by its arguments.
#[step("charge_card", idempotent, operation = op)]
pub(crate) async fn charge_card(
    book: &Deedbook,
    order: &str,
    cents: u64,
    #[hands] bank: &Bank,
) -> Result<Receipt, CallError> {
    Ok(bank.charge(&format!("card, {order}"), cents, op.key())?)
}

/// Identified by a key that the caller brings.
#[step("charge_by_key", idempotent, key = key, operation = op)]
pub(crate) async fn charge_by_key(
    book: &Deedbook,
    cents: u64,
    #[hands] key: &str,
    #[hands] bank: &Bank,
) -> Result<Receipt, CallError> {
    Ok(bank.charge(&format!("by key, {key}"), cents, op.key())?)
}

/// Another step: the same key means something else here.
#[step("refund_by_key", idempotent, key = key, operation = op)]
pub(crate) async fn refund_by_key(
    book: &Deedbook,
    cents: u64,
    #[hands] key: &str,
    #[hands] bank: &Bank,
) -> Result<Receipt, CallError> {
    Ok(bank.charge(&format!("refund, {key}"), cents, op.key())?)
}

/// Identified by what a function makes of its arguments; the spelling of the first call counts.
#[step("ship", idempotent, key = plain_order(order), any_content, operation = op)]
pub(crate) async fn ship(
    book: &Deedbook,
    order: &str,
    #[hands] bank: &Bank,
) -> Result<Receipt, CallError> {
    Ok(bank.charge(&format!("parcel, {order}"), 400, op.key())?)
}

/// `" ord-42"` and `"ORD-42"` are one order.
fn plain_order(order: &str) -> String {
    order.trim().to_uppercase()
}

/// Once in each conversation.
#[step("send_payment", idempotent, within = conversation, operation = op)]
pub(crate) async fn send_payment(
    book: &Deedbook,
    to: &str,
    cents: u64,
    #[hands] conversation: &str,
    #[hands] bank: &Bank,
) -> Result<Receipt, CallError> {
    Ok(bank.charge(&format!("payment in {conversation}, {to}"), cents, op.key())?)
}
