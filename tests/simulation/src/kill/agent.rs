//! The workflow that is killed, and how its downstreams behave.

use std::{sync::Arc, time::Duration};

use deedbook::{
    Attempt, Context, NoPolicy, Operation, PolicyKind, Probe, Result, Retry, Step, StepError,
    Workflow,
};
use harness::Random;

use super::{
    ledger::{Ledger, Line},
    marks::Marks,
};

/// The steps with an effect, in their order.
pub(super) const EFFECTS: [&str; 4] = ["pay", "ship", "tell", "mail"];
/// The step that only looks.
pub(super) const LOOK: &str = "assess";

/// One of how many seeds makes its journal: that has more points than all the rest of a life.
const MAKES_EVERY: u64 = 8;

/// How a downstream answers the first attempt of a step; every later one is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// With a receipt.
    Answers,
    /// It has the effect, and the answer is lost.
    Lost,
    /// The request is lost.
    Unreached,
    /// It says that it did nothing.
    Refuses,
}

/// What a seed decides. Seed 0 is the calm one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Whether the first life makes the journal; or finds one that was made and closed.
    pub makes: bool,
    /// How the downstream of each of [`EFFECTS`] answers at first.
    pub manners: [Manner; EFFECTS.len()],
    /// Whether two effects are under way at once.
    pub branches: bool,
    /// Whether a payload is large, so that the log turns and the tables follow.
    pub large: bool,
    /// Whether a thread of the home commits, and not the callers.
    pub by_thread: bool,
    /// Whether the signal is sent before the workflow waits for it.
    pub early: bool,
}

impl Shape {
    /// That of a seed.
    #[must_use]
    pub(super) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let all = [Manner::Answers, Manner::Lost, Manner::Unreached, Manner::Refuses];
        let manners = EFFECTS.map(|_| {
            let calm = seed == 0 || random.once_in(2);
            if calm { Manner::Answers } else { all[random.index(all.len())] }
        });
        Self {
            makes: seed.is_multiple_of(MAKES_EVERY),
            manners,
            branches: seed == 0 || !random.once_in(3),
            large: random.once_in(2),
            by_thread: seed > 0 && random.once_in(3),
            early: random.once_in(2),
        }
    }
}

/// The workflow.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    /// The points of this life.
    pub marks: Arc<Marks>,
    /// The downstream.
    pub ledger: Ledger,
    /// The policy of every effect.
    pub policy: PolicyKind,
    /// What the seed decides.
    pub shape: Shape,
}

impl Workflow for Agent {
    const NAME: &'static str = "agent";
    type Input = u32;
    type Output = Vec<(String, String)>;

    async fn run(&self, ctx: Context, amount: &u32) -> Result<Vec<(String, String)>> {
        let assess = ctx.step(LOOK).read();
        let seen = assess.run(amount, async |a| Ok(self.look(&a))).await?;
        let [pay, ship, tell, mail] = EFFECTS;
        let paid = self.effect(ctx.step(pay), pay, *amount).await?;
        let (left, right) = (ctx.branch("left"), ctx.branch("right"));
        let shipped = self.effect(left.step(ship), ship, *amount);
        let (shipped, told) = if self.shape.branches {
            let told = self.effect(right.step(tell), tell, *amount);
            let (shipped, told) = tokio::join!(shipped, told);
            (shipped?, told?)
        } else {
            (shipped.await?, self.effect(right.step(tell), tell, *amount).await?)
        };
        let () = ctx.signal("go").await?;
        ctx.sleep("settle", Duration::from_millis(5)).await?;
        let mailed = self.effect(ctx.step(mail), mail, *amount).await?;
        // What looks may be long; what is told of it is not.
        let seen = seen.trim_end_matches('.').to_owned();
        let all = [(LOOK, seen), (pay, paid), (ship, shipped), (tell, told), (mail, mailed)];
        Ok(all.map(|(step, receipt)| (step.to_owned(), receipt)).into())
    }
}

impl Agent {
    /// A step with an effect, under the policy of this life.
    async fn effect(&self, step: Step<NoPolicy>, name: &str, amount: u32) -> Result<String> {
        let retry = Retry::attempts(9).first(Duration::from_millis(5));
        let step = step.timeout(Duration::from_secs(5)).retry(retry);
        let body = async |op: Operation| self.body(name, op.key(), op.attempt());
        match self.policy {
            PolicyKind::Idempotent => step.idempotent().run(&amount, body).await,
            PolicyKind::AtMostOnce => step.at_most_once().run(&amount, body).await,
            PolicyKind::Reconcile => {
                let step = step.reconcile(async |op: Operation| self.probe(name, op.key()));
                step.quiet(Duration::from_millis(5)).run(&amount, body).await
            }
            PolicyKind::Read => {
                let body = async |a: Attempt| self.body(name, "none", a.number());
                step.read().run(&amount, body).await
            }
        }
    }

    fn look(&self, attempt: &Attempt) -> String {
        self.ledger.note(&Line::Runs(LOOK.to_owned(), attempt.number(), "none".to_owned()));
        self.marks.at("within look");
        let seen = format!("seen-by-{}", std::process::id());
        if self.shape.large { format!("{seen:.<60000}") } else { seen }
    }

    fn body(&self, name: &str, key: &str, attempt: u32) -> Result<String, StepError> {
        self.ledger.note(&Line::Runs(name.to_owned(), attempt, key.to_owned()));
        self.marks.at(&format!("before effect {name}"));
        let of = EFFECTS.iter().position(|effect| *effect == name);
        let manner = of.filter(|_| attempt == 1).map_or(Manner::Answers, |k| self.shape.manners[k]);
        match manner {
            Manner::Unreached => return Err(StepError::new("no connection")),
            Manner::Refuses => return Err(StepError::new("too busy").not_applied()),
            Manner::Answers | Manner::Lost => {}
        }
        let receipt = self.ledger.effect(name, key, self.policy);
        self.marks.at(&format!("after effect {name}"));
        if manner == Manner::Lost {
            return Err(StepError::new("connection reset"));
        }
        Ok(receipt)
    }

    fn probe(&self, name: &str, key: &str) -> Result<Probe<String>, StepError> {
        self.marks.at(&format!("before probe {name}"));
        let receipt = self.ledger.receipt(key);
        self.marks.at(&format!("after probe {name}"));
        Ok(receipt.map_or(Probe::DidNotHappen, Probe::Happened))
    }
}
