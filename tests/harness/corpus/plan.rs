//! Workflows as data that a file can hold, and that can be changed line by line.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deedbook::{Context, Operation, PolicyKind, Probe, Result, Retry, StepError, Workflow};
use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};

use crate::{
    random::Random,
    world::{Fate, World},
};

/// A workflow, line by line.
pub type Plan = Vec<Line>;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// A step.
    Step(Call),
    /// The same step so often, each one by itself.
    Times(u64, Call),
    /// A timer, of so many seconds.
    Sleep(String, u64),
    /// A reading of the clock.
    Now,
    /// A question to a person.
    Approval(String),
    /// A wait for a signal.
    Signal(String),
    /// Lines in a branch of their own.
    Scope(String, Plan),
    /// Two at once, each in a branch of its own.
    Both(Plan, Plan),
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// The word of its policy.
    pub policy: String,
    /// By what it is known.
    pub identity: Identity,
    /// Its arguments.
    pub args: Args,
    /// What becomes of its first requests, when it is recorded.
    pub fates: Vec<u8>,
}

/// By what a step is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// Its place.
    Place,
    /// Its arguments.
    Arguments,
    /// A key.
    Key(String),
}

/// Arguments with something in them to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Args {
    /// A number.
    pub amount: u64,
    /// A text.
    pub card: String,
    /// A list.
    pub items: Vec<u64>,
}

const FATES: [Fate; 6] = [
    Fate::Happens,
    Fate::HappensUnlabelled,
    Fate::FailsUnlabelled,
    Fate::NotApplied,
    Fate::Panics,
    Fate::Hangs,
];

/// Who carries out what the lines say.
#[derive(Debug, Clone)]
pub enum Hands {
    /// The world of a simulation.
    World(World),
    /// Nobody; what would be done is counted.
    Idle(Arc<AtomicU64>),
}

/// Runs a plan. A thread's input is the seed of its plan.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Who carries it out.
    pub hands: Hands,
}

impl Workflow for Planned {
    const NAME: &'static str = "planned";
    type Input = u64;
    type Output = u64;

    async fn run(&self, ctx: Context, seed: &u64) -> Result<u64> {
        if let Hands::World(world) = &self.hands {
            world.started();
        }
        self.block(ctx, &self.plan, *seed).await
    }
}

impl Planned {
    fn block<'a>(&'a self, ctx: Context, plan: &'a [Line], sum: u64) -> BoxFuture<'a, Result<u64>> {
        async move {
            let mut sum = sum;
            for line in plan {
                sum = mix(sum, self.line(ctx.clone(), line).await?);
            }
            Ok(sum)
        }
        .boxed()
    }

    async fn line(&self, ctx: Context, line: &Line) -> Result<u64> {
        match line {
            Line::Step(call) => self.step(ctx, call).await,
            Line::Times(times, call) => {
                let mut all = 0;
                for _ in 0..*times {
                    all = mix(all, self.step(ctx.clone(), call).await?);
                }
                Ok(all)
            }
            Line::Sleep(name, seconds) => {
                ctx.sleep(name, Duration::from_secs(*seconds)).await.map(|()| 1)
            }
            Line::Now => ctx.now().await.map(|now| now.0),
            Line::Approval(name) => Ok(u64::from(ctx.approval(name, &"shown").await?.granted)),
            Line::Signal(name) => ctx.signal(name).await,
            Line::Scope(name, plan) => self.block(ctx.branch(name), plan, 0).await,
            Line::Both(left, right) => {
                let left = self.block(ctx.branch("left"), left, 1);
                let right = self.block(ctx.branch("right"), right, 2);
                let (left, right) = tokio::join!(left, right);
                Ok(mix(left?, right?))
            }
        }
    }

    async fn step(&self, ctx: Context, call: &Call) -> Result<u64> {
        let retry = Retry::attempts(10).first(Duration::from_secs(1));
        let step = ctx.step(&call.name).timeout(Duration::from_secs(30)).retry(retry);
        let step = match &call.identity {
            Identity::Place => step,
            Identity::Arguments => step.by_arguments(),
            Identity::Key(key) => step.key(key.as_str()),
        };
        let body = async move |op: Operation| self.effect(call, &op).await;
        match PolicyKind::from_word(&call.policy).unwrap() {
            PolicyKind::Read => {
                step.read().run(&call.args, async move |_| self.look(call).await).await
            }
            PolicyKind::Idempotent => step.idempotent().run(&call.args, body).await,
            PolicyKind::AtMostOnce => step.at_most_once().run(&call.args, body).await,
            PolicyKind::Reconcile => {
                let probe = async move |op: Operation| self.probe(call, &op);
                step.reconcile(probe).run(&call.args, body).await
            }
        }
    }

    async fn look(&self, call: &Call) -> Result<u64, StepError> {
        match &self.hands {
            Hands::World(world) => {
                world.looked(&call.name);
                world.gate().await;
            }
            Hands::Idle(done) => drop(done.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(call.args.amount)
    }

    async fn effect(&self, call: &Call, op: &Operation) -> Result<u64, StepError> {
        match &self.hands {
            Hands::World(world) => {
                let nth = usize::try_from(op.attempt()).unwrap_or(1) - 1;
                let fate = call.fates.get(nth).map_or(Fate::Happens, |k| FATES[usize::from(*k)]);
                world.effect(op, &call.args, fate).await
            }
            Hands::Idle(done) => Ok(done.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn probe(&self, call: &Call, op: &Operation) -> Result<Probe<u64>, StepError> {
        Ok(match &self.hands {
            Hands::World(world) => {
                let found = world.find(op.key(), &call.args);
                found.map_or(Probe::DidNotHappen, Probe::Happened)
            }
            Hands::Idle(done) => {
                done.fetch_add(1, Ordering::Relaxed);
                Probe::DidNotHappen
            }
        })
    }
}

fn mix(a: u64, b: u64) -> u64 {
    (a.rotate_left(9) ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8
}

/// The signals that a plan waits for, in its order.
#[must_use]
pub fn signals(plan: &[Line]) -> Vec<String> {
    let of = |line: &Line| match line {
        Line::Signal(name) => vec![name.clone()],
        Line::Scope(_, inner) => signals(inner),
        Line::Both(left, right) => [signals(left), signals(right)].concat(),
        _ => Vec::new(),
    };
    plan.iter().flat_map(of).collect()
}

/// Makes plans.
#[derive(Debug)]
pub struct Maker {
    random: Random,
    lines: u64,
    sequential: bool,
}

impl Maker {
    /// The plan of this seed; in `sequential` ones no two lines are under way at once.
    #[must_use]
    pub fn plan(seed: u64, sequential: bool) -> Plan {
        let mut maker = Self { random: Random::new(seed ^ 0xb00c), lines: 0, sequential };
        let length = 3 + maker.random.below(3);
        (0..length).map(|_| maker.line(1)).collect()
    }

    fn line(&mut self, depth: u64) -> Line {
        self.lines += 1;
        let number = self.lines;
        match self.random.below(if depth == 0 { 9 } else { 11 }) {
            0..=3 => Line::Step(self.call(number)),
            4 => {
                let call = Call { identity: Identity::Place, ..self.call(number) };
                Line::Times(2 + self.random.below(2), call)
            }
            5 => Line::Sleep(format!("timer{number}"), 1 + self.random.below(90)),
            6 => Line::Now,
            7 => Line::Approval(format!("ask{number}")),
            8 => Line::Signal(format!("word{number}")),
            9 if !self.sequential => Line::Both(self.block(depth), self.block(depth)),
            _ => Line::Scope(format!("scope{number}"), self.block(depth)),
        }
    }

    fn block(&mut self, depth: u64) -> Plan {
        let length = 1 + self.random.below(2);
        (0..length).map(|_| self.line(depth - 1)).collect()
    }

    fn call(&mut self, number: u64) -> Call {
        let policies = ["read", "idempotent", "reconcile", "at_most_once"];
        let policy = policies[self.random.index(policies.len())].to_owned();
        let identity = match self.random.below(6) {
            0 if policy != "read" => Identity::Arguments,
            1 if policy != "read" => Identity::Key(format!("order:{number}")),
            _ => Identity::Place,
        };
        let args = Args {
            amount: self.random.below(10_000),
            card: format!("4000-{:04}", self.random.below(10_000)),
            items: (0..1 + self.random.below(2)).map(|_| self.random.below(100)).collect(),
        };
        let fates = (0..self.random.below(2)).map(|_| self.random.below(6) as u8).collect();
        Call { name: format!("step{number}"), policy, identity, args, fates }
    }
}

/// A call that a sequential plan makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// How it is shown; of one that is known by its arguments up to their fingerprint.
    pub shown: String,
    /// By which the same call of another plan is found.
    pub id: String,
    /// The step, if it is one.
    pub call: Option<Call>,
    /// `timer` and the like; empty for a step.
    pub kind: &'static str,
}

/// What a sequential plan asks for in its order; signals included.
#[must_use]
pub fn made(plan: &[Line]) -> Vec<Made> {
    let (mut all, mut counts) = (Vec::new(), Counts::new());
    walk(plan, "", &mut counts, &mut all);
    all
}

fn walk(plan: &[Line], branch: &str, counts: &mut Counts, all: &mut Vec<Made>) {
    for line in plan {
        let mut add = |kind, name: &str, call| {
            all.push(one(branch, counts, kind, name, call));
        };
        match line {
            Line::Step(call) => add("", &call.name, Some(call)),
            Line::Times(times, call) => {
                (0..*times).for_each(|_| add("", &call.name, Some(call)));
            }
            Line::Sleep(name, _) => add("timer", name, None),
            Line::Now => add("clock reading", "now", None),
            Line::Approval(name) => add("approval", name, None),
            Line::Signal(name) => add("signal", name, None),
            Line::Scope(name, inner) => walk(inner, &format!("{branch}{name}/"), counts, all),
            Line::Both(..) => panic!("two lines of a sequential plan are under way at once"),
        }
    }
}

/// How often each call was made.
type Counts = BTreeMap<String, u64>;

fn one(
    branch: &str,
    counts: &mut Counts,
    kind: &'static str,
    name: &str,
    call: Option<&Call>,
) -> Made {
    // A key and arguments are known in the whole thread, in whichever branch.
    let everywhere = call.is_some_and(|call| call.identity != Identity::Place);
    let place = if everywhere { name.to_owned() } else { format!("{branch}{name}") };
    let count = counts.entry(format!("{kind} {place}")).or_insert(0);
    let occurrence = std::mem::replace(count, *count + 1);
    let shown = match call.map(|call| &call.identity) {
        Some(Identity::Key(key)) => format!("{place}={key}"),
        Some(Identity::Arguments) => format!("{place}~"),
        Some(Identity::Place) | None => format!("{place}#{occurrence}"),
    };
    let by_arguments = call.filter(|call| call.identity == Identity::Arguments);
    let arguments = by_arguments.map(|call| format!("{:?}", call.args)).unwrap_or_default();
    let id = format!("{kind} {shown} {arguments}");
    Made { shown, id, call: call.cloned(), kind }
}
