//! A result that cannot be recorded.
//~ Serialize` is not
//~ Receipt

use deedbook::{Context, Result};

pub struct Receipt;

pub async fn workflow(ctx: Context) -> Result<Receipt> {
    let step = ctx.step("pay").idempotent();
    step.run(&1, async |_| Ok(Receipt)) //~ here
        .await
}

fn main() {}
