//! A name is recorded, so it is said, and not taken from the function.
//~ a step needs a name, in quotes and first

use deedbook::{CallError, Deedbook, step};

#[step(idempotent)] //~ here
async fn charge(book: &Deedbook, order: String) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
