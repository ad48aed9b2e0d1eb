//! Runs a random workflow.

use std::{sync::Arc, time::Duration};

use deedbook::{
    Context, Operation, PolicyKind, Probe, Result, Retry, StepError, Workflow, WorkflowErrorKind,
};
use futures::{FutureExt, future::BoxFuture};

use super::{Line, Maker, Program};
use crate::world::{Fate, World};

/// The wait before the second attempt of a step: doubled before each further one.
pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(1);

/// What every random workflow counts from.
const BEGIN: u64 = 7;

/// Runs random workflows. A thread's input is the seed of its program.
#[expect(missing_debug_implementations, reason = "it holds a closure")]
pub struct Interpreter {
    world: World,
    programs: Arc<dyn Fn(u64) -> Program + Send + Sync>,
    begin: u64,
}

impl Interpreter {
    /// Runs the programs of [`Maker`] in this world.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self::of(world, Maker::program)
    }

    /// Runs the programs that `programs` has under their numbers.
    #[must_use]
    pub fn of(world: World, programs: impl Fn(u64) -> Program + Send + Sync + 'static) -> Self {
        Self { world, programs: Arc::new(programs), begin: BEGIN }
    }

    /// The same programs, changed so that every argument is another one.
    #[must_use]
    pub fn changed(mut self) -> Self {
        self.begin += 1;
        self
    }
}

impl Workflow for Interpreter {
    const NAME: &'static str = "interpreter";
    type Input = u64;
    type Output = u64;

    async fn run(&self, ctx: Context, seed: &u64) -> Result<u64> {
        let program = (self.programs)(*seed);
        let world = self.world.of(ctx.thread_id().as_str());
        world.started();
        Run { world }.block(ctx, &program, self.begin).await
    }
}

/// One execution.
struct Run {
    world: World,
}

impl Run {
    fn block<'a>(
        &'a self,
        ctx: Context,
        lines: &'a [Line],
        mut sum: u64,
    ) -> BoxFuture<'a, Result<u64>> {
        async move {
            for line in lines {
                sum = mix(sum, self.line(ctx.clone(), line, sum).await?);
            }
            Ok(sum)
        }
        .boxed()
    }

    async fn line(&self, ctx: Context, line: &Line, sum: u64) -> Result<u64> {
        match line {
            Line::Effect { number, policy, fates, inconclusive } => {
                let paid = self.effect(ctx, (*number, *policy), fates, *inconclusive, sum).await;
                let paid = paid.or_else(|error| {
                    // A step that failed for good is an outcome like any other.
                    if error.code() == "closed" { Ok(13) } else { Err(error) }
                })?;
                self.saw("effect", *number, paid);
                Ok(paid)
            }
            Line::Read { number, fails } => self.read(ctx, *number, *fails, sum).await,
            Line::Sleep(number, time) => {
                ctx.sleep(&format!("sleep{number}"), *time).await?;
                self.saw("sleep", *number, 0);
                Ok(*number)
            }
            Line::Signal(number) => self.signal(ctx.clone(), *number).await,
            Line::Signals(number, count) => {
                let mut all = 0;
                for _ in 0..*count {
                    all = mix(all, self.signal(ctx.clone(), *number).await?);
                }
                Ok(all)
            }
            Line::Approval(number) => {
                let decided = ctx.approval(&format!("approval{number}"), &sum).await?;
                self.saw("approval", *number, u64::from(decided.granted));
                Ok(u64::from(decided.granted))
            }
            Line::Unanswered(number, time) => {
                let name = format!("unanswered{number}");
                let decided = ctx.approval(&name, &sum).within(*time).await;
                let seen = match decided {
                    Ok(decided) => u64::from(decided.granted),
                    Err(error) if error.kind() == WorkflowErrorKind::TimedOut => 2,
                    Err(error) => return Err(error),
                };
                self.saw("unanswered", *number, seen);
                Ok(seen)
            }
            Line::Now => {
                // Times differ from run to run, and only what is recorded may be seen.
                let now = ctx.now().await?;
                self.world.note(format!("now {now}"));
                Ok(1)
            }
            Line::Map(number, blocks) => {
                let results = ctx
                    .map(&format!("map{number}"), blocks, |ctx, block| self.block(ctx, block, sum));
                Ok(results.await?.into_iter().fold(0, mix))
            }
            Line::Join(number, left, right) => {
                let branches =
                    (ctx.branch(&format!("left{number}")), ctx.branch(&format!("right{number}")));
                let left = self.block(branches.0, left, sum);
                let right = self.block(branches.1, right, sum);
                let (left, right) = tokio::join!(left, right);
                Ok(mix(left?, right?))
            }
            Line::Select(number, left, right) => self.race(ctx, *number, left, right, sum).await,
            Line::Same(number) => self.same(ctx, *number).await,
            Line::Repeat(number, times) => self.repeat(ctx, *number, *times).await,
            Line::Key(number, policy) => self.keyed(ctx, *number, *policy, sum).await,
        }
    }

    /// What the code sees of a line.
    fn saw(&self, what: &str, number: u64, value: u64) {
        self.world.note(format!("{what}{number} {value}"));
    }

    async fn signal(&self, ctx: Context, number: u64) -> Result<u64> {
        let value = ctx.signal(&format!("signal{number}")).await?;
        self.saw("signal", number, value);
        Ok(value)
    }

    /// Who wins is decided by the world, and nothing else may depend on it.
    async fn race(
        &self,
        ctx: Context,
        number: u64,
        left: &[Line],
        right: &[Line],
        sum: u64,
    ) -> Result<u64> {
        let one = self.block(ctx.branch(&format!("one{number}")), left, sum);
        let other = self.block(ctx.branch(&format!("other{number}")), right, sum);
        // The macro would draw by real chance who is polled first.
        let (first, second) = if number.is_multiple_of(2) { (one, other) } else { (other, one) };
        tokio::select! {
            biased;
            first = first => first?,
            second = second => second?,
        };
        self.saw("race", number, 0);
        Ok(number)
    }

    async fn read(&self, ctx: Context, number: u64, fails: u64, sum: u64) -> Result<u64> {
        let retry = Retry::attempts(10).first(FIRST_WAIT);
        let name = format!("read{number}");
        let step = ctx.step(&name).read().retry(retry);
        let looked = step.run(&sum, async move |_| {
            self.world.looked(&format!("read{number}"));
            self.world.gate().await;
            if self.world.count(&format!("read{number}")) <= fails {
                return Err(StepError::new("no connection"));
            }
            Ok(mix(number, sum))
        });
        let looked = looked.await?;
        self.saw("read", number, looked);
        Ok(looked)
    }

    /// Calls that share one outcome, whoever makes them.
    async fn same(&self, ctx: Context, number: u64) -> Result<u64> {
        let call = |ctx: &Context| {
            let step = ctx.step(&format!("same{number}")).by_arguments().idempotent();
            step.run(&number, async move |op| self.world.effect(&op, number, Fate::Happens).await)
        };
        let (left, right) = tokio::join!(call(&ctx.branch("left")), call(&ctx.branch("right")));
        let (left, right, later) = (left?, right?, call(&ctx).await?);
        if left != right || left != later {
            self.world.wrong(format!("same{number}: {left}, {right} and {later}"));
        }
        self.saw("same", number, left);
        Ok(left)
    }

    /// One name and one argument, several times: every call is a step of its own.
    async fn repeat(&self, ctx: Context, number: u64, times: u64) -> Result<u64> {
        let (mut all, mut seen) = (0, Vec::new());
        for _ in 0..times {
            let step = ctx.step(&format!("repeat{number}")).idempotent();
            let body = async move |op| self.world.effect(&op, number, Fate::Happens).await;
            let paid = step.run(&number, body).await?;
            if seen.contains(&paid) {
                self.world.wrong(format!("repeat{number}: two calls have the outcome {paid}"));
            }
            self.saw("repeat", number, paid);
            seen.push(paid);
            all = mix(all, paid);
        }
        Ok(all)
    }

    async fn keyed(&self, ctx: Context, number: u64, policy: PolicyKind, sum: u64) -> Result<u64> {
        let step = ctx.step(&format!("key{number}")).key(format!("refund:{number}"));
        let body = async move |op: Operation| self.world.effect(&op, sum, Fate::Happens).await;
        let paid = match policy {
            PolicyKind::Idempotent => step.idempotent().run(&sum, body).await?,
            _ => step.at_most_once().run(&sum, body).await?,
        };
        self.saw("key", number, paid);
        Ok(paid)
    }

    async fn effect(
        &self,
        ctx: Context,
        (number, policy): (u64, PolicyKind),
        fates: &[Fate],
        inconclusive: u64,
        sum: u64,
    ) -> Result<u64> {
        let retry = Retry::attempts(10).first(FIRST_WAIT);
        let name = format!("{}{number}", policy.as_str());
        let step = ctx.step(&name).timeout(Duration::from_secs(30)).retry(retry);
        let body = async move |op: Operation| {
            let nth = usize::try_from(op.attempt()).unwrap_or(1) - 1;
            let fate = *fates.get(nth).or(fates.last()).unwrap();
            self.world.effect(&op, sum, fate).await
        };
        match policy {
            PolicyKind::Idempotent => step.idempotent().run(&sum, body).await,
            PolicyKind::AtMostOnce => step.at_most_once().run(&sum, body).await,
            _ => {
                let probe = async move |op: Operation| {
                    if self.world.count(&format!("probe{number}")) <= inconclusive {
                        return Ok(Probe::Inconclusive);
                    }
                    Ok(match self.world.find(op.key(), sum) {
                        Some(answer) => Probe::Happened(answer),
                        None => Probe::DidNotHappen,
                    })
                };
                step.reconcile(probe).run(&sum, body).await
            }
        }
    }
}

fn mix(a: u64, b: u64) -> u64 {
    (a.rotate_left(9) ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8
}

/// The value of the k-th signal that is sent to this line.
#[must_use]
pub(crate) fn value_of(number: u64, nth: u64) -> u64 {
    mix(number, 3 + nth)
}
