//! A body is run anew for each attempt, and cannot hold what it changes.
//~ a body cannot capture `&mut`
//~ `&Mutex<..>`

use deedbook::{CallError, Deedbook, step};

#[step("charge", idempotent)]
async fn charge(book: &Deedbook, #[hands] log: &mut Vec<u8>) -> Result<(), CallError> { //~ here
    Ok(())
}

fn main() {}
