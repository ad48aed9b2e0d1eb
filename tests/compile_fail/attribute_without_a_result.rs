//! A step can be refused and in doubt.
//~ a step returns a `Result`: it can be refused, fail, and be in doubt

use deedbook::{Deedbook, step};

#[step("charge", idempotent)]
async fn charge(book: &Deedbook, order: String) -> String { //~ here
    order
}

fn main() {}
