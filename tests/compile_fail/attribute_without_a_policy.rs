//! No policy: the message names the four.
//~ this step has no policy: say what may happen to it after a crash
//~ `read`
//~ `idempotent`
//~ `reconcile`
//~ `at_most_once`

use deedbook::{CallError, Deedbook, step};

#[step("charge", timeout = "10s")] //~ here
async fn charge(book: &Deedbook, order: String) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
