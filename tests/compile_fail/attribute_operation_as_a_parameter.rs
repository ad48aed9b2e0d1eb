//! The journal gives the operation, not the caller.
//~ the operation is given by the journal and not by the caller, so it is no parameter

use deedbook::{CallError, Deedbook, Operation, step};

#[step("charge", idempotent, operation = op)] //~ here
async fn charge(book: &Deedbook, op: Operation) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
