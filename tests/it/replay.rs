//! G5: replay gives every outcome in the order in which it was first given, so that concurrent
//! code ends as its records imply, wherever and however often it crashed.

use std::{collections::BTreeMap, future::poll_fn, pin::pin, sync::Mutex, task::Poll};

use deedbook::{Context, Result, Workflow};
use deedbook_journal::{
    history::{Answer, Call, CallKind, History},
    limits::ValueLimits,
    value,
};
use futures::{StreamExt, stream::FuturesUnordered};
use harness::{Fate, Simulation, World};

/// How many seeds each workflow is run under.
const SEEDS: u64 = 1_500;

/// How often a thread crashes at most.
const CRASHES_MAX: u64 = 12;

/// Runs a workflow under every seed, on two cores, and checks what holds for all of them.
fn under_every_seed<W>(workflow: fn(World) -> W, expected: fn(&History) -> u64)
where
    W: Workflow<Input = (), Output = u64>,
{
    let half = |first: u64| {
        let seeds = (first..SEEDS).step_by(2);
        seeds.map(|seed| under(seed, workflow, expected)).sum::<u64>()
    };
    let executions = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        half(0) + other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert!(executions > SEEDS, "nothing was executed");
}

/// Runs a workflow under a seed, and says how many bodies it took.
fn under<W>(seed: u64, workflow: fn(World) -> W, expected: fn(&History) -> u64) -> u64
where
    W: Workflow<Input = (), Output = u64>,
{
    let mut simulation = Simulation::new(seed, (), workflow);
    simulation.settles_doubts = true;
    let result = simulation.chain(CRASHES_MAX);
    let result = result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let seen = simulation.world.trace();
    let executions = simulation.world.executions();
    let implied = expected(&simulation.durable.lock().unwrap().history);
    assert_eq!(result, implied, "seed {seed}: the result and the records");
    let (replayed, trace) = simulation.replay();
    let replayed = replayed.unwrap_or_else(|e| panic!("seed {seed}, replayed: {e}"));
    assert_eq!(replayed, result, "seed {seed}: the result of a full replay");
    assert_eq!(trace, seen, "seed {seed}: what a full replay sees");
    let wrongs = simulation.world.wrongs();
    assert!(wrongs.is_empty(), "seed {seed}: {wrongs:#?}");
    executions
}

/// The position and the value of a step's outcome.
fn outcome(history: &History, step: &str) -> Option<(u64, u64)> {
    let call: &Call = history.find(CallKind::Step, step)?;
    let outcome = call.outcome.as_ref()?;
    match &outcome.answer {
        Answer::Value(bytes) => {
            let value = value::decode(bytes, &ValueLimits::new()).unwrap();
            Some((outcome.position, value))
        }
        _ => None,
    }
}

/// The argument of a step.
fn argument(history: &History, step: &str) -> u64 {
    let call = history.find(CallKind::Step, step).unwrap();
    value::decode(call.args.as_ref().unwrap(), &ValueLimits::new()).unwrap()
}

struct OutOfOrder(World);

impl OutOfOrder {
    fn effect(
        &self,
        ctx: &Context,
        name: &str,
        n: u64,
    ) -> impl Future<Output = Result<u64>> + Send + use<'_> {
        let step = ctx.step(name).idempotent().abandon();
        step.run(&n, async move |op| self.0.effect(&op, n, Fate::Happens).await)
    }
}

impl Workflow for OutOfOrder {
    const NAME: &'static str = "out-of-order";
    type Input = ();
    type Output = u64;

    async fn run(&self, ctx: Context, (): &()) -> Result<u64> {
        self.0.started();
        let mut first = pin!(self.effect(&ctx, "first", 1));
        let mut second = pin!(self.effect(&ctx, "second", 2));
        // Both begin, and nobody waits for them yet.
        poll_fn(|cx| {
            let begun =
                first.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending();
            assert!(begun, "an outcome in the poll that made the call");
            Poll::Ready(())
        })
        .await;
        for n in 0..3 {
            let between = self.effect(&ctx, "between", 10 + n).await?;
            self.0.note(format!("between {between}"));
        }
        let winner = tokio::select! {
            first = &mut first => { self.0.note(format!("first {}", first?)); 1 }
            second = &mut second => { self.0.note(format!("second {}", second?)); 2 }
        };
        let after = self.effect(&ctx, "after", winner).await?;
        let last = if winner == 1 { second.await? } else { first.await? };
        Ok(after.wrapping_add(last).wrapping_add(winner))
    }
}

#[test]
fn steps_awaited_out_of_order_before_an_unbiased_select() {
    under_every_seed(OutOfOrder, |history| {
        let (first, one) = outcome(history, "first#0").unwrap();
        let (second, two) = outcome(history, "second#0").unwrap();
        let (winner, last) = if first < second { (1, two) } else { (2, one) };
        assert_eq!(argument(history, "after#0"), winner, "who came first won");
        let (_, after) = outcome(history, "after#0").unwrap();
        after.wrapping_add(last).wrapping_add(winner)
    });
}

struct SharedMemory(World);

impl SharedMemory {
    async fn read(&self, ctx: Context, step: String) -> Result<u64> {
        let look = ctx.step("look").read();
        look.run(&(), async move |_| Ok(self.0.read(&step, 4).await)).await
    }

    async fn effect(&self, ctx: Context, name: &str, n: u64) -> Result<u64> {
        let step = ctx.step(name).idempotent();
        let answer = step.run(&n, async move |op| self.0.effect(&op, n, Fate::Happens).await);
        Ok(answer.await? % 1000)
    }
}

impl Workflow for SharedMemory {
    const NAME: &'static str = "shared-memory";
    type Input = ();
    type Output = u64;

    async fn run(&self, ctx: Context, (): &()) -> Result<u64> {
        self.0.started();
        let memory = &Mutex::new(0);
        let (left, right) = (ctx.branch("left"), ctx.branch("right"));
        let left = async move {
            let mut total = 0;
            for n in 0..2 {
                let seen = self.read(left.clone(), format!("left/look#{n}")).await?;
                *memory.lock().unwrap() = seen;
                self.0.note(format!("left saw {seen}"));
                // Which way is taken hangs on a reading that may not be durable.
                let name = if seen > 1 { "pay" } else { "skip" };
                total += self.effect(left.clone(), name, seen).await?;
            }
            Ok::<_, deedbook::WorkflowError>(total)
        };
        let right = async move {
            let mut total = 0;
            for n in 0..3 {
                let seen = self.read(right.clone(), format!("right/look#{n}")).await?;
                let args = seen * 10 + *memory.lock().unwrap();
                self.0.note(format!("right charges {args}"));
                total += self.effect(right.clone(), "charge", args).await?;
            }
            Ok::<_, deedbook::WorkflowError>(total)
        };
        let (left, right) = tokio::join!(left, right);
        self.effect(ctx, "close", left? + right?).await
    }
}

#[test]
fn join_whose_branches_share_memory_and_where_undurable_reads_decide_the_path() {
    under_every_seed(SharedMemory, |history| {
        let mut total = 0;
        let (mut pay, mut skip) = (0, 0);
        // What the left branch saw, and from which position on the right one saw it.
        let mut shared = Vec::new();
        for n in 0..2 {
            let (position, seen) = outcome(history, &format!("left/look#{n}")).unwrap();
            shared.push((position, seen));
            let (name, count) = if seen > 1 { ("pay", &mut pay) } else { ("skip", &mut skip) };
            let step = format!("left/{name}#{count}");
            *count += 1;
            assert_eq!(argument(history, &step), seen);
            total += outcome(history, &step).unwrap().1 % 1000;
        }
        for n in 0..3 {
            let (position, seen) = outcome(history, &format!("right/look#{n}")).unwrap();
            let memory = shared.iter().rev().find(|(p, _)| *p < position).map_or(0, |s| s.1);
            let step = format!("right/charge#{n}");
            assert_eq!(argument(history, &step), seen * 10 + memory, "charge {n}");
            total += outcome(history, &step).unwrap().1 % 1000;
        }
        assert_eq!(argument(history, "close#0"), total);
        outcome(history, "close#0").unwrap().1 % 1000
    });
}

struct Forty(World);

impl Forty {
    async fn branch(&self, ctx: Context, n: u64) -> Result<(u64, u64)> {
        let look = ctx.step("look").read();
        let seen: u64 = look
            .run(&n, async move |_| Ok(self.0.read(&format!("{n}/look#0"), 1000).await))
            .await?;
        let effect = ctx.step("pay").idempotent();
        let paid = effect.run(&seen, async move |op| self.0.effect(&op, seen, Fate::Happens).await);
        Ok((n, paid.await?))
    }
}

fn mix(hash: u64, (n, paid): (u64, u64)) -> u64 {
    hash.wrapping_mul(31).wrapping_add(n).wrapping_mul(31).wrapping_add(paid)
}

impl Workflow for Forty {
    const NAME: &'static str = "forty";
    type Input = ();
    type Output = u64;

    async fn run(&self, ctx: Context, (): &()) -> Result<u64> {
        self.0.started();
        let mut branches: FuturesUnordered<_> =
            (0..40).map(|n| self.branch(ctx.branch(&n.to_string()), n)).collect();
        let mut hash = 0;
        while let Some(branch) = branches.next().await {
            let branch = branch?;
            self.0.note(format!("{branch:?}"));
            hash = mix(hash, branch);
        }
        let sum = ctx.step("sum").idempotent();
        sum.run(&hash, async move |op| self.0.effect(&op, hash, Fate::Happens).await).await?;
        Ok(hash)
    }
}

#[test]
fn futures_unordered_of_40_branches_with_a_read_then_an_effect() {
    under_every_seed(Forty, |history| {
        let paid = (0..40).map(|n| {
            let (_, seen) = outcome(history, &format!("{n}/look#0")).unwrap();
            assert_eq!(argument(history, &format!("{n}/pay#0")), seen);
            let (position, paid) = outcome(history, &format!("{n}/pay#0")).unwrap();
            (position, (n, paid))
        });
        let in_order: BTreeMap<u64, (u64, u64)> = paid.collect();
        assert_eq!(in_order.len(), 40);
        in_order.into_values().fold(0, mix)
    });
}

struct Race(World);

impl Race {
    async fn effect(&self, ctx: Context, name: &str, n: u64) -> Result<u64> {
        let step = ctx.step(name).idempotent().abandon();
        step.run(&n, async move |op| self.0.effect(&op, n, Fate::Happens).await).await
    }

    async fn read(&self, ctx: Context, name: &str, n: u64, shown: String) -> Result<u64> {
        let step = ctx.step(name).read();
        step.run(&n, async move |_| Ok(self.0.read(&shown, 5).await)).await
    }
}

impl Workflow for Race {
    const NAME: &'static str = "race";
    type Input = ();
    type Output = u64;

    async fn run(&self, ctx: Context, (): &()) -> Result<u64> {
        self.0.started();
        let mut total = 0;
        for n in 0..4 {
            let (left, right) = (ctx.branch("left"), ctx.branch("right"));
            let two = async move {
                let first = self.read(left.clone(), "one", 0, format!("left/one#{n}")).await?;
                // How often the second read was reached is not known here: it is made anew each
                // time.
                let second = left.branch(&n.to_string());
                self.read(second, "two", first, format!("left/{n}/two#0")).await
            };
            let won = tokio::select! {
                paid = self.effect(ctx.clone(), "pay", 7 + n) => paid? % 1000,
                read = two => 1 + read?,
                read = self.read(right.clone(), "three", n, format!("right/three#{n}")) => 50 + read?,
            };
            self.0.note(format!("round {n} won {won}"));
            total = total * 7 + won;
            self.effect(ctx.branch("used"), "use", total).await?;
        }
        Ok(total)
    }
}

#[test]
fn select_in_a_loop_with_losers_dropped() {
    under_every_seed(Race, |history| {
        let mut total = 0;
        for n in 0..4 {
            let (used, _) = outcome(history, &format!("used/use#{n}")).unwrap();
            let pay = outcome(history, &format!("pay#{n}")).map(|(p, v)| (p, v % 1000));
            let two = outcome(history, &format!("left/{n}/two#0")).map(|(p, v)| (p, 1 + v));
            let three = outcome(history, &format!("right/three#{n}")).map(|(p, v)| (p, 50 + v));
            let first = [pay, two, three].into_iter().flatten().min().unwrap();
            assert!(first.0 < used);
            total = total * 7 + first.1;
            assert_eq!(argument(history, &format!("used/use#{n}")), total);
        }
        total
    });
}
