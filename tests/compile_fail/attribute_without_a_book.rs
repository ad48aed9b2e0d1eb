//! The first parameter says what the function becomes.
//~ a step's first parameter is `book: &Deedbook`
//~ `#[step("name", policy, guard)]`

use deedbook::{CallError, step};

#[step("charge", idempotent)]
async fn charge(order: String) -> Result<(), CallError> { //~ here
    Ok(())
}

fn main() {}
