//! A body that changes what it captures: it is cloned for each attempt, and so cannot.
//~ the trait bound `&mut u64: Clone` is not satisfied in

use deedbook::{Context, Result};

pub async fn workflow(ctx: Context) -> Result<u64> {
    let mut count = 0_u64;
    let step = ctx.step("count").read();
    step.run(&1, async |_| { //~ here
        count += 1;
        Ok(count)
    })
    .await
}

fn main() {}
