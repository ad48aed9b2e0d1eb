//! durare on SQLite: as it connects by itself (`synchronous=NORMAL`), or with `PEER_FULL` set on a
//! pool of ours that differs in `synchronous=FULL` only.

use std::{env, str::FromStr as _, sync::Arc, time::Duration};

use durare::{DurableContext, DurableEngine, Error, SqliteProvider, WorkflowOptions};
use peer_protocol::{Peer, Result, Stage, drive, stage};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::runtime::Runtime;

#[durare::workflow]
async fn work(ctx: DurableContext, steps: u32) -> durare::Result<()> {
    for number in 0..steps {
        ctx.step("charge", || async move { Ok::<_, Error>(stage().body(number).await) }).await?;
        stage().finished(number);
    }
    Ok(())
}

struct Program {
    runtime: Runtime,
    engine: DurableEngine,
}

impl Peer for Program {
    fn open(stage: &'static Stage) -> Result<Self> {
        let runtime = Runtime::new()?;
        let engine = runtime.block_on(engine(&stage.place("durare.sqlite")))?;
        Ok(Self { runtime, engine })
    }

    fn run(&self, ids: &[String], steps: u32) -> Result<()> {
        self.runtime.block_on(async {
            let mut all = Vec::new();
            for id in ids {
                let options = WorkflowOptions::with_id(id.as_str());
                all.push(self.engine.start_with(Work, steps, options).await?);
            }
            for one in all {
                one.await?;
            }
            Ok(())
        })
    }
}

async fn engine(path: &str) -> Result<DurableEngine> {
    let url = format!("sqlite://{path}?mode=rwc");
    let provider = if env::var_os("PEER_FULL").is_some() {
        let options = SqliteConnectOptions::from_str(&url)?
            .create_if_missing(true)
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().max_connections(5).connect_with(options).await?;
        SqliteProvider::from_pool(pool)
    } else {
        SqliteProvider::connect(&url).await?
    };
    let engine = DurableEngine::new(Arc::new(provider)).await?;
    engine.recover().await?;
    Ok(engine)
}

fn main() {
    drive::<Program>();
}
