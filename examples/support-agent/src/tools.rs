//! What the agent may do.

use std::time::Duration;

use deedbook::{Probe, StepError};
use deedbook_agent::{Call, DynTool, Normalise, Tool, Toolbox, tool};
use serde::{Deserialize, Serialize};

use crate::{holds::Holds, ledger::Ledger};

/// What the tools work with.
#[derive(Debug, Clone)]
pub struct Desk {
    /// Where effects are counted.
    pub ledger: Ledger,
    /// Where the process is killed.
    pub holds: Holds,
}

/// An order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Its id.
    pub order: String,
    /// What was paid.
    pub paid: f64,
}

/// Looks an order up.
#[tool(read)]
pub async fn look_up_order(#[hand] desk: Desk, order: String) -> Result<Order, StepError> {
    desk.holds.reach("in look_up_order").await;
    let paid = if order == "ORD-4821" { 120.0 } else { 15.5 };
    Ok(Order { order, paid })
}

/// Refunds an order. Refunds of more than 100 need a person.
#[tool(
    idempotent,
    identity(order),
    honoured_for = Duration::from_secs(24 * 3600),
    timeout = Duration::from_secs(10)
)]
pub async fn refund(
    call: Call,
    #[hand] desk: Desk,
    /// The order, such as ORD-4821.
    order: String,
    amount: f64,
) -> Result<String, std::io::Error> {
    desk.holds.reach("before refund").await;
    let what = format!("{amount:.2} for {order}");
    let number = desk.ledger.execute_once("refund", call.key(), &what)?;
    desk.holds.reach("after refund").await;
    Ok(format!("receipt {number}: {what}"))
}

/// Pages whoever is on call.
#[tool(reconcile = was_paged, timeout = Duration::from_secs(10))]
pub async fn page_oncall(
    call: Call,
    #[hand] desk: Desk,
    case: String,
    summary: String,
) -> Result<usize, std::io::Error> {
    let number = desk.ledger.execute("page", call.key(), &format!("{case}: {summary}"))?;
    desk.holds.reach("after page_oncall").await;
    Ok(number)
}

/// The pager knows no keys, but it can be asked.
async fn was_paged(call: Call, desk: Desk) -> Result<Probe<usize>, std::io::Error> {
    let found = desk.ledger.find(call.key())?;
    Ok(found.map_or(Probe::DidNotHappen, Probe::Happened))
}

/// Opens a case: each time a new one.
#[tool(mint)]
pub async fn open_case(
    call: Call,
    #[hand] desk: Desk,
    title: String,
) -> Result<String, std::io::Error> {
    Ok(format!("C-{}", desk.ledger.execute("case", call.key(), &title)?))
}

/// All of them.
#[must_use]
pub fn toolbox(desk: &Desk) -> Toolbox {
    Toolbox::new()
        .with_dyn(with_order_ids(look_up_order(desk.clone())))
        .with_dyn(with_order_ids(refund(desk.clone())))
        // The pager is a file on this machine: what was on its way is there after a moment.
        .with_dyn(DynTool::of(page_oncall(desk.clone())).quiet(Duration::from_millis(300)))
        .with(open_case(desk.clone()))
        .with_ask()
}

/// Models write order ids in any way.
fn with_order_ids(tool: impl Tool) -> DynTool {
    DynTool::of(tool).normalise("order", Normalise::Trim).normalise("order", Normalise::Upper)
}
