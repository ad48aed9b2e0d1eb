//! Four tools, one of each kind.

use deedbook::StepError;
use deedbook_agent::{Call, tool};

use crate::billing::{Billing, Receipt};

/// Looks an order up.
#[tool(read)]
pub async fn look_up_order(order: String) -> Result<String, StepError> {
    Ok(format!("{order}: paid 120.00"))
}

/// Refunds an order.
#[tool(idempotent)]
pub async fn issue_refund(
    call: Call,
    #[hand] billing: Billing,
    order: String,
    amount: f64,
    #[default = "damaged"] reason: String,
) -> Result<Receipt, StepError> {
    let _ = reason;
    Ok(billing.refund(&order, amount, call.key()).await)
}

/// Pages whoever is on call.
#[tool(at_most_once)]
pub async fn page_oncall(
    #[hand] billing: Billing,
    case: String,
    summary: String,
) -> Result<usize, StepError> {
    Ok(billing.page(&format!("{case}: {summary}")))
}

/// Makes a new case id.
#[tool(mint)]
pub async fn mint_case_id(#[hand] billing: Billing) -> Result<String, StepError> {
    Ok(format!("C-{}", billing.page("a new case")))
}
