//! What the program says.

use std::{fmt::Display, io::Write};

use deedbook::CallError;

use crate::bank::{Bank, Receipt};

/// A line.
pub(crate) fn say(line: impl Display) {
    // Whoever closed the pipe does not read it.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A call, and what the bank had to do with it.
pub(crate) async fn told(
    what: &str,
    bank: &Bank,
    call: impl Future<Output = Result<Receipt, CallError>>,
) {
    let (count, asked) = (bank.count(), bank.asked());
    // Held once: a parameter that is awaited takes its room twice.
    let ended = Box::pin(call).await;
    let how = match (bank.count() > count, bank.asked() > asked) {
        (true, _) => "ran",
        // The body ran, and the bank knew the key.
        (false, true) => "known",
        (false, false) => "recorded",
    };
    match ended {
        Ok(receipt) => say(format!("   {what:<38} {how:<9} receipt {}", receipt.number)),
        Err(error) => say(format!("   {what:<38} {}", short(&error))),
    }
}

/// An error in a few words, the same on every run.
pub(crate) fn short(error: &CallError) -> String {
    match error {
        CallError::InFlight(flight) => format!("refused   {} is at it", flight.owner),
        CallError::Conflict(conflict) => {
            format!("refused   other arguments, at {}", conflict.fields.join(", "))
        }
        CallError::InDoubt { doubt, .. } => format!("in doubt  {}", doubt.doubt),
        CallError::NoResult { failure, .. } => format!("happened  no value: {failure}"),
        CallError::Lost { kept: true } => "lost      its receipt is kept as evidence".to_owned(),
        CallError::Invalid { .. } => "refused   the call is not well declared".to_owned(),
        other => format!("failed    {other}"),
    }
}
