//! A time is read when the program is compiled.
//~ a time is a text such as "90s"

use deedbook::{CallError, Deedbook, step};

#[step("charge", idempotent, timeout = "soon")] //~ here
async fn charge(book: &Deedbook, order: String) -> Result<(), CallError> {
    Ok(())
}

fn main() {}
