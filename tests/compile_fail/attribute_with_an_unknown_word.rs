//! A word that is misspelt is not passed over.
//~ `honored_for` is nothing that a step knows

use deedbook::{CallError, Deedbook, step};

#[step("charge", idempotent, honored_for = "24h")] //~ here
async fn charge(book: &Deedbook, order: String) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
