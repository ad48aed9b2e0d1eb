//! A step without a policy: the message names the four choices.
//~ this step has no policy: say what may happen to it after a crash
//~ `.read()`
//~ `.idempotent()`
//~ `.reconcile(probe)`
//~ `.at_most_once()`

use deedbook::{Context, Result};

pub async fn workflow(ctx: Context) -> Result<u64> {
    ctx.step("pay").run(&1, async |_| Ok(2)).await //~ here
}

fn main() {}
