//! G4: what may happen to a step after each kind of end, under each policy; live, and after a
//! crash behind the record of that end.

mod cancelling;
mod doubts;
mod identity;
mod probes;
mod retries;
mod secrets;
mod table;
mod unstorable;
mod windows;

use std::time::Duration;

use deedbook::{
    Builder, Context, Deedbook, PolicyKind, Result, Retry, Status, VirtualClock, Workflow,
};
use deedbook_memory::MemorySnapshot;
use harness::outside::{Life, Outside};
use serde::{Deserialize, Serialize};

/// The thread of most tests.
const T: &str = "t-1";

/// How the step of [`Once`] is declared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Plan {
    policy: String,
    timeout: Duration,
    window: Option<Duration>,
    quiet: Option<Duration>,
    attempts: u32,
    abandon: bool,
    /// The workflow drops the step after this time.
    drops_after: Option<Duration>,
}

fn plan(policy: PolicyKind) -> Plan {
    Plan {
        policy: policy.as_str().to_owned(),
        timeout: Duration::from_secs(10),
        window: None,
        quiet: None,
        attempts: 3,
        abandon: false,
        drops_after: None,
    }
}

/// A workflow of one step, `pay`.
#[derive(Debug, Clone)]
struct Once {
    outside: Outside,
    /// What the code declares, whatever was recorded.
    redeclared: Option<PolicyKind>,
}

impl Once {
    async fn pay(&self, ctx: Context, plan: &Plan) -> Result<u32> {
        let policy = PolicyKind::from_word(&plan.policy);
        let step = ctx.step("pay").timeout(plan.timeout);
        let step = step.retry(Retry::attempts(plan.attempts).first(Duration::from_secs(5)));
        let step = if plan.abandon { step.abandon() } else { step };
        let send = async |op| self.outside.send(op).await;
        match self.redeclared.or(policy).expect("a policy") {
            PolicyKind::Read => step.read().run(&1, async |a| self.outside.look(a).await).await,
            PolicyKind::AtMostOnce => step.at_most_once().run(&1, send).await,
            PolicyKind::Idempotent => match plan.window {
                Some(window) => step.idempotent().honoured_for(window).run(&1, send).await,
                None => step.idempotent().run(&1, send).await,
            },
            PolicyKind::Reconcile => {
                let step = step.reconcile(async |op| self.outside.ask(op).await);
                let step = match plan.quiet {
                    Some(quiet) => step.quiet(quiet),
                    None => step,
                };
                step.run(&1, send).await
            }
        }
    }
}

impl Workflow for Once {
    const NAME: &'static str = "once";
    type Input = Plan;
    type Output = u32;

    async fn run(&self, ctx: Context, plan: &Plan) -> Result<u32> {
        match plan.drops_after {
            None => self.pay(ctx, plan).await,
            Some(time) => tokio::select! {
                paid = self.pay(ctx.clone(), plan) => paid,
                slept = ctx.sleep("patience", time) => { slept?; Ok(0) }
            },
        }
    }
}

/// The crash of one life and the beginning of the next, in the same world.
struct Rig {
    outside: Outside,
    clock: VirtualClock,
    life: Option<Life>,
    redeclared: Option<PolicyKind>,
}

impl Rig {
    async fn new(outside: Outside) -> Self {
        let clock = VirtualClock::new();
        let mut rig = Self { outside, clock, life: None, redeclared: None };
        rig.life = Some(Life::first(&rig.clock, rig.host()).await);
        rig
    }

    fn host(&self) -> impl FnOnce(Builder) -> Builder + use<> {
        let once = Once { outside: self.outside.clone(), redeclared: self.redeclared };
        move |builder| builder.host(once)
    }

    fn life(&self) -> &Life {
        self.life.as_ref().expect("a life")
    }

    fn book(&self) -> &Deedbook {
        &self.life().book
    }

    /// Begins the thread and lets it go on as far as it can without time passing.
    async fn begin(&self, plan: &Plan) {
        self.book().spawn::<Once>(T, plan.clone()).await.unwrap();
        self.life().settle().await;
    }

    fn stop(&mut self) -> MemorySnapshot {
        self.life.take().expect("a life").crash()
    }

    /// Dies and lives again, this much later.
    async fn crash(&mut self, later: Duration) {
        let left = self.stop();
        self.clock.advance(later);
        self.life = Some(Life::after(left, &self.clock, self.host()).await);
        self.life().settle().await;
    }

    async fn until(&self, status: Status) -> deedbook::Row {
        self.life().until(T, status).await
    }

    /// The thread's result.
    async fn result(&self) -> u32 {
        self.until(Status::Done).await;
        self.book().wait::<Once>(T).await.unwrap()
    }
}
