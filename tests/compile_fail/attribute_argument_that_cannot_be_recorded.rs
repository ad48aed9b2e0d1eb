//! An argument that is no value: said where it stands.
//~ this argument cannot be recorded: `Socket` is not `Serialize`
//~ mark the parameter `#[hands]`

use deedbook::{CallError, Deedbook, step};

#[derive(Clone)]
struct Socket;

#[step("charge", idempotent)]
async fn charge(book: &Deedbook, socket: Socket) -> Result<(), CallError> { //~ here
    Ok(())
}

fn main() {}
