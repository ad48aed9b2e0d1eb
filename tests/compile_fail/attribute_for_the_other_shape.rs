//! What only guards know, said of a workflow's step.
//~ this is for guards: a workflow's step is settled once

use deedbook::{Context, Result, step};

#[step("charge", idempotent, duplicates = wait("30s"))] //~ here
async fn charge(ctx: &Context, order: String) -> Result<()> {
    Ok(())
}

fn main() {}
