//! A body is async.
//~ a step is an `async fn`
//~ call_blocking

use deedbook::{CallError, Deedbook, step};

#[step("charge", idempotent)]
fn charge(book: &Deedbook, order: String) -> Result<(), CallError> { //~ here
    Ok(())
}

fn main() {}
