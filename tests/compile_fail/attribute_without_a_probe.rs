//! `reconcile` has to know whom to ask.
//~ `reconcile` asks the other side whether it happened: say how

use deedbook::{CallError, Deedbook, step};

#[step("charge", reconcile)] //~ here
async fn charge(book: &Deedbook, order: String) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
