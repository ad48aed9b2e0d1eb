//! A body that cannot move between OS threads: said on the step's own line.
//~ cannot be sent between threads safely
//~ Rc<u64>

use std::rc::Rc;

use deedbook::{Context, Result};

pub async fn workflow(ctx: Context) -> Result<u64> {
    let step = ctx.step("pay").idempotent();
    step.run(&1, async |_| { //~ here
        let local = Rc::new(2_u64);
        tokio::task::yield_now().await;
        Ok(*local)
    })
    .await
}

fn main() {}
