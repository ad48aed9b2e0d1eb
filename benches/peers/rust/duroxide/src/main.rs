//! duroxide on its SQLite provider: with the defaults, or with `PEER_EAGER` set polling every
//! millisecond. Where it is killed the locks of the dead process
//! last a second instead of 5 and 30.

use std::{env, sync::Arc, time::Duration};

use duroxide::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
    providers::sqlite::SqliteProvider,
    runtime::{Runtime, RuntimeOptions, registry::ActivityRegistry},
};
use peer_protocol::{Peer, Result, Stage, arguments, drive};

struct Program {
    tokio: tokio::runtime::Runtime,
    // Dropping it would stop the dispatchers.
    _runtime: Arc<Runtime>,
    client: Client,
}

fn options(stage: &Stage) -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    // Each lost race for the lock of the database is a warning, written to standard output.
    options.observability.log_level = "error".into();
    if env::var_os("PEER_EAGER").is_some() {
        options.dispatcher_min_poll_interval = Duration::from_millis(1);
    }
    if stage.is_killed() {
        options.orchestrator_lock_timeout = Duration::from_secs(1);
        options.worker_lock_timeout = Duration::from_secs(1);
    }
    options
}

async fn work(
    ctx: OrchestrationContext,
    steps: String,
    stage: &'static Stage,
) -> std::result::Result<String, String> {
    let steps: u32 = steps.parse().map_err(|_| "not a number of steps")?;
    for number in 0..steps {
        ctx.schedule_activity("charge", arguments(number)).await?;
        stage.finished(number);
    }
    Ok(String::new())
}

/// The number is in the arguments: an activity has nothing else of the workflow.
fn number(arguments: &str) -> std::result::Result<u32, String> {
    let number = arguments.get(6..16).and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| "these are not the arguments of a step".into())
}

impl Peer for Program {
    fn open(stage: &'static Stage) -> Result<Self> {
        let tokio = tokio::runtime::Runtime::new()?;
        let url = format!("sqlite:{}?mode=rwc", stage.place("duroxide.sqlite"));
        let activities = ActivityRegistry::builder()
            .register("charge", move |_: ActivityContext, arguments: String| async move {
                Ok(stage.body(number(&arguments)?).await)
            })
            .build();
        let orchestrations = OrchestrationRegistry::builder()
            .register("work", move |ctx, steps| work(ctx, steps, stage))
            .build();
        let (runtime, client) = tokio.block_on(async {
            let store = Arc::new(SqliteProvider::new(&url, None).await?);
            let runtime = Runtime::start_with_options(
                store.clone(),
                activities,
                orchestrations,
                options(stage),
            );
            Ok::<_, peer_protocol::Failed>((runtime.await, Client::new(store)))
        })?;
        Ok(Self { tokio, _runtime: runtime, client })
    }

    fn run(&self, ids: &[String], steps: u32) -> Result<()> {
        self.tokio.block_on(async {
            for id in ids {
                let status = self.client.get_orchestration_status(id).await?;
                if matches!(status, OrchestrationStatus::NotFound) {
                    self.client.start_orchestration(id, "work", steps.to_string()).await?;
                }
            }
            for id in ids {
                let limit = Duration::from_secs(3_600);
                match self.client.wait_for_orchestration(id, limit).await? {
                    OrchestrationStatus::Completed { .. } => {}
                    other => return Err(format!("{id} ended as {other:?}").into()),
                }
            }
            Ok(())
        })
    }
}

fn main() {
    drive::<Program>();
}
