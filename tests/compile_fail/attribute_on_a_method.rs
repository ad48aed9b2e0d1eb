//! `self` would be neither recorded nor compared.
//~ a step is a free function: `self` would be neither recorded nor compared
//~ #[hands]

use deedbook::{CallError, Deedbook, step};

struct Shop;

impl Shop {
    #[step("charge", idempotent)]
    async fn charge(&self, book: &Deedbook) -> Result<(), CallError> { //~ here
        Ok(())
    }
}

fn main() {}
