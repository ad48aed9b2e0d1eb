//! A step of the whole journal has no place.
//~ give it an identity, with `key = ..` or `by_arguments`

use deedbook::{Context, Result, step};

#[step("charge", idempotent, scope = journal)] //~ here
async fn charge(ctx: &Context, order: String) -> Result<()> {
    Ok(())
}

fn main() {}
