//! Arguments are recorded under their names.
//~ give the parameter a name: arguments are recorded under their names

use deedbook::{CallError, Deedbook, step};

#[step("charge", idempotent)]
async fn charge(book: &Deedbook, (order, cents): (u8, u8)) -> Result<(), CallError> { //~ here
    Ok(())
}

fn main() {}
