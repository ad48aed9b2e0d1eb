//! A durable call inside a body: the context cannot be borrowed there.
//~ `Cell<()>` cannot be shared between threads safely
//~ within `deedbook::Context`, the trait `Sync` is not implemented for `Cell<()>`

use deedbook::{Context, Result};

pub async fn workflow(ctx: Context) -> Result<u64> {
    let step = ctx.step("outer").idempotent();
    step.run(&1, async |_| { //~ here
        let inner = ctx.step("inner").read().run(&2, async |_| Ok(3_u64));
        Ok(inner.await.unwrap())
    })
    .await
}

fn main() {}
