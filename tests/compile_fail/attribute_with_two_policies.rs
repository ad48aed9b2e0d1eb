//! Two policies are none.
//~ a step has one policy, and this is the second

use deedbook::{CallError, Deedbook, step};

#[step("charge", read, idempotent)] //~ here
async fn charge(book: &Deedbook, order: String) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
