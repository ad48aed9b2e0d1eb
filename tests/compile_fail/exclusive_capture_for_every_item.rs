//! A closure for every item that changes what it captures: the items run side by side.
//~ async closure does not implement `Fn` because it captures state from its environment

use deedbook::{Context, Result};

pub async fn workflow(ctx: Context) -> Result<u64> {
    let mut sum = 0_u64;
    let each = ctx.map("items", [1_u64, 2], async |_ctx, item| { //~ here
        sum += item;
        Ok(())
    });
    each.await?;
    Ok(sum)
}

fn main() {}
