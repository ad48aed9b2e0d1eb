//! agentplane on its redb store, with the defaults: a mutating effect whose provider honours an
//! idempotency key, and runs begun under an admission key. Where it is killed the lease of the
//! dead process lasts two seconds instead of 30.

use std::{sync::Arc, time::Duration};

use agentplane::{
    core::{Effect, EffectDescriptor, EffectError, Recovery, Trust},
    prelude::*,
};
use peer_protocol::{Peer, Result, Stage, arguments, drive};
use serde_json::{Value, json};
use tokio::task::JoinSet;

struct Charge {
    number: u32,
    arguments: Value,
    stage: &'static Stage,
}

#[async_trait::async_trait]
impl Effect for Charge {
    type Output = String;

    fn descriptor(&self) -> EffectDescriptor {
        EffectDescriptor::new("peer.charge", self.arguments.clone())
    }

    fn trust(&self) -> Trust {
        Trust::Trusted
    }

    fn sink_arguments(&self) -> Option<&Value> {
        Some(&self.arguments)
    }

    fn recovery(&self) -> Recovery {
        Recovery::Idempotent { key: format!("charge-{}", self.number) }
    }

    async fn perform(&self) -> std::result::Result<String, EffectError> {
        Ok(self.stage.body(self.number).await)
    }
}

#[derive(Debug)]
struct Work(&'static Stage);

#[async_trait::async_trait]
impl Skill for Work {
    fn descriptor(&self) -> SkillDescriptor {
        SkillDescriptor::new("work")
    }

    async fn invoke(
        &self,
        cx: &mut StepCtx<'_>,
        input: Tainted<Value>,
    ) -> std::result::Result<Outcome, SkillError> {
        let steps = input.peek().as_u64().unwrap_or_default();
        for number in 0..steps as u32 {
            let arguments = Tainted::trusted(json!(arguments(number)));
            let (arguments, stage) = (&arguments, self.0);
            let charge = |arguments| Charge { number, arguments, stage };
            cx.sink_with(arguments, charge).await?;
            stage.finished(number);
        }
        Ok(Outcome::done(input))
    }
}

struct Program {
    tokio: tokio::runtime::Runtime,
    plane: Arc<Runtime>,
}

impl Peer for Program {
    fn open(stage: &'static Stage) -> Result<Self> {
        let store: Arc<dyn JournalStore> =
            Arc::new(RedbStore::open(stage.folder.join("agentplane.redb"))?);
        let mut plane = Runtime::builder(store).skill(Work(stage));
        if stage.is_killed() {
            plane = plane.lease_ttl(Duration::from_secs(2));
        }
        let tokio = tokio::runtime::Runtime::new()?;
        let entered = tokio.enter();
        let plane = plane.build();
        drop(entered);
        Ok(Self { tokio, plane })
    }

    fn run(&self, ids: &[String], steps: u32) -> Result<()> {
        self.tokio.block_on(async {
            let mut all = JoinSet::new();
            for id in ids.iter().cloned() {
                let plane = Arc::clone(&self.plane);
                all.spawn(async move {
                    let input = Tainted::trusted(json!(steps));
                    plane.start("work", input).once(id).settle().await
                });
            }
            while let Some(done) = all.join_next().await {
                let outcome = done??;
                if outcome.status != RunStatus::Succeeded {
                    return Err(format!("a run ended as {}", outcome.status.as_str()).into());
                }
            }
            Ok(())
        })
    }
}

fn main() {
    drive::<Program>();
}
