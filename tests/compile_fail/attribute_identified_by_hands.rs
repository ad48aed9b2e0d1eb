//! Hands are not recorded, and so identify nothing.
//~ `identified_by` names arguments of the function

use deedbook::{CallError, Deedbook, step};

#[step("charge", idempotent, identified_by(bank))] //~ here
async fn charge(book: &Deedbook, order: String, #[hands] bank: u8) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
