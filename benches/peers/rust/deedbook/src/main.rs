//! Deedbook itself: `idempotent` steps in the embedded home, with the defaults.

use deedbook::{Context, Deedbook, Workflow};
use peer_protocol::{Peer, Result, Stage, arguments, drive};
use tokio::{runtime::Runtime, task::JoinSet};

struct Work(&'static Stage);

impl Workflow for Work {
    const NAME: &'static str = "work";
    type Input = u32;
    type Output = ();

    async fn run(&self, ctx: Context, steps: &u32) -> deedbook::Result<()> {
        for number in 0..*steps {
            let step = ctx.step("charge").idempotent();
            step.run(&arguments(number), async |_| Ok(self.0.body(number).await)).await?;
            self.0.finished(number);
        }
        Ok(())
    }
}

struct Program {
    runtime: Runtime,
    book: Deedbook,
}

impl Peer for Program {
    fn open(stage: &'static Stage) -> Result<Self> {
        let runtime = Runtime::new()?;
        let path = stage.folder.join("journal.redb");
        let book = Deedbook::open_or_create(path).host(Work(stage)).start();
        let book = runtime.block_on(book)?;
        Ok(Self { runtime, book })
    }

    fn run(&self, ids: &[String], steps: u32) -> Result<()> {
        self.runtime.block_on(async {
            let mut all = JoinSet::new();
            for id in ids.iter().cloned() {
                let book = self.book.clone();
                all.spawn(async move { book.run::<Work>(id, steps).await });
            }
            while let Some(done) = all.join_next().await {
                done??;
            }
            Ok(())
        })
    }
}

fn main() {
    drive::<Program>();
}
