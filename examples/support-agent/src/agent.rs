//! The agent.

use deedbook::{Context, Result, StepError, Workflow};
use deedbook_agent::{Agent, BuildError, Decision, Ended, Hook, Model, Opening, Wanted};

use crate::tools::{Desk, toolbox};

/// What the model is told first.
const INSTRUCTIONS: &str = "You are the support agent of a shop. Look before you refund, refund \
    what was paid, page whoever is on call when a parcel arrived broken, and ask the customer when \
    you do not know which order is meant.";

/// Refunds of more than this need a person.
const ALONE_MAX: f64 = 100.0;

/// The workflow: its name is recorded.
#[derive(Debug, Clone)]
pub struct Support(pub Agent);

impl Workflow for Support {
    const NAME: &'static str = "support";
    type Input = Opening;
    type Output = Ended;

    async fn run(&self, ctx: Context, opening: &Opening) -> Result<Ended> {
        self.0.converse(ctx, opening).await
    }
}

/// The rule of the house.
#[derive(Debug)]
struct LargeRefunds;

impl Hook for LargeRefunds {
    async fn before(&self, wanted: &mut Wanted) -> Result<Decision, StepError> {
        let amount = wanted.arguments.get("amount").and_then(serde_json::Value::as_f64);
        Ok(match amount {
            Some(amount) if wanted.tool() == "refund" && amount > ALONE_MAX => {
                Decision::Ask(format!("more than {ALONE_MAX:.2}"))
            }
            _ => Decision::Proceed,
        })
    }
}

/// The agent of this model at this desk.
///
/// # Errors
/// The tools do not fit together.
pub fn support(model: impl Model, desk: &Desk) -> std::result::Result<Support, BuildError> {
    let agent = Agent::builder(model)
        .instructions(INSTRUCTIONS)
        .tools(toolbox(desk))
        .hook(LargeRefunds)
        .build()?;
    Ok(Support(agent))
}
