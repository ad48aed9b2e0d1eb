//! memable: the defaults. Ids are drawn by the engine, so a restart goes on with what it finds.

use std::time::Duration;

use memable::{Context, Engine, EngineError, WorkflowState};
use peer_protocol::{Peer, Result, Stage, drive, stage};
use tokio::{runtime::Runtime, time::sleep};

async fn work(ctx: Context) -> std::result::Result<(), EngineError> {
    let steps = ctx.input::<u32>()?.unwrap_or_default();
    for number in 0..steps {
        let key = format!("charge-{number}:v1");
        let _: String = ctx.step(&key).run(async move || Ok(stage().body(number).await)).await?;
        stage().finished(number);
    }
    Ok(())
}

struct Program {
    runtime: Runtime,
    engine: Engine,
    is_resuming: bool,
}

impl Peer for Program {
    fn open(stage: &'static Stage) -> Result<Self> {
        let runtime = Runtime::new()?;
        let mut engine = Engine::builder().open(stage.folder.join("memable.redb"))?.build();
        engine.register("work", work);
        let is_resuming = !engine.list_instances("work")?.is_empty();
        runtime.block_on(engine.start())?;
        Ok(Self { runtime, engine, is_resuming })
    }

    fn run(&self, ids: &[String], steps: u32) -> Result<()> {
        self.runtime.block_on(async {
            if self.is_resuming {
                return self.ended().await;
            }
            let mut all = Vec::new();
            for _ in ids {
                all.push(self.engine.invoke("work").input(steps).await?);
            }
            for one in all {
                match one.wait().await {
                    WorkflowState::Completed(_) => {}
                    other => return Err(format!("a workflow ended as {other}").into()),
                }
            }
            Ok(())
        })
    }
}

impl Program {
    /// Waits for the end of all that the engine resumed when it started.
    async fn ended(&self) -> Result<()> {
        loop {
            let all = self.engine.list_instances("work")?;
            if all.iter().all(|(_, about)| about.status().is_terminal()) {
                return Ok(());
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

fn main() {
    drive::<Program>();
}
