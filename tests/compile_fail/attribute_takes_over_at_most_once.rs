//! What an owner may have done could not be told.
//~ a step under `at_most_once` cannot be taken over

use deedbook::{CallError, Deedbook, step};

#[step("charge", at_most_once, duplicates = take_over)] //~ here
async fn charge(book: &Deedbook, order: String) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
