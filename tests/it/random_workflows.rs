//! G3 and G4 over random workflows: crashed at every append and resumed, they end as they do
//! uncrashed, every step is settled once, and effects happen as often as their policy says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deedbook::{
    Context, Deedbook, Doubt, ErrorKind, PolicyKind, Probe, Result, Retry, StepError, Workflow,
};
use deedbook_journal::{
    history::{AttemptEnd, CallKind, History},
    record::{Header, Kind},
};
use deedbook_memory::LastAppend;
use futures::{FutureExt, future::BoxFuture};
use harness::{Crash, Fate, Ran, Random, Simulation, THREAD, Visitor, World};

/// How many random workflows are run.
const PROGRAMS: u64 = 320;

/// One line of a random workflow. Every line has its own number, and its name is made of it.
#[derive(Debug, Clone)]
enum Line {
    Effect {
        number: u64,
        policy: PolicyKind,
        /// What becomes of the first, second, … request; the last one for all further ones.
        fates: Vec<Fate>,
        /// How often a probe cannot tell.
        inconclusive: u64,
    },
    Read {
        number: u64,
        fails: u64,
    },
    Sleep(u64, Duration),
    Signal(u64),
    Approval(u64),
    Now,
    Map(u64, Vec<Vec<Self>>),
    Join(u64, Vec<Self>, Vec<Self>),
    /// The two race, and what the loser did is left as it is.
    Select(u64, Vec<Self>, Vec<Self>),
    /// Three calls that are one by their arguments: two at once, and one later.
    Same(u64),
    Key(u64, PolicyKind),
}

/// The numbers of the lines of which a race may leave something undone.
fn in_a_race(lines: &[Line], races: bool, found: &mut BTreeSet<u64>) {
    for line in lines {
        match line {
            Line::Map(_, blocks) => blocks.iter().for_each(|b| in_a_race(b, races, found)),
            Line::Join(_, left, right) => {
                in_a_race(left, races, found);
                in_a_race(right, races, found);
            }
            Line::Select(_, left, right) => {
                in_a_race(left, true, found);
                in_a_race(right, true, found);
            }
            Line::Effect { number, .. }
            | Line::Read { number, .. }
            | Line::Sleep(number, _)
            | Line::Signal(number)
            | Line::Approval(number)
            | Line::Same(number)
            | Line::Key(number, _) => found.extend(Some(*number).filter(|_| races)),
            Line::Now => {}
        }
    }
}

/// The number of the line that made a call of this name (`read12`).
fn line_of(name: &str) -> Option<u64> {
    name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

type Program = Arc<Vec<Line>>;

/// Makes random workflows.
struct Maker {
    random: Random,
    lines: u64,
}

impl Maker {
    fn program(seed: u64) -> Vec<Line> {
        let mut maker = Self { random: Random::new(seed ^ 0x5eed), lines: 0 };
        let length = 2 + maker.random.below(4);
        (0..length).map(|_| maker.line(2)).collect()
    }

    fn line(&mut self, depth: u64) -> Line {
        self.lines += 1;
        let number = self.lines;
        match self.random.below(if depth == 0 { 10 } else { 13 }) {
            0..=3 => self.effect(number),
            4 => Line::Read { number, fails: self.random.below(3) },
            5 => Line::Sleep(number, Duration::from_secs(1 + self.random.below(100))),
            6 => {
                if self.random.once_in(2) {
                    Line::Signal(number)
                } else {
                    Line::Now
                }
            }
            7 => Line::Approval(number),
            8 => Line::Same(number),
            9 => {
                let policies = [PolicyKind::Idempotent, PolicyKind::AtMostOnce];
                Line::Key(number, policies[self.random.index(policies.len())])
            }
            10 => Line::Select(number, self.block(depth), self.block(depth)),
            11 => {
                let branches = 1 + self.random.below(3);
                Line::Map(number, (0..branches).map(|_| self.block(depth)).collect())
            }
            _ => Line::Join(number, self.block(depth), self.block(depth)),
        }
    }

    fn block(&mut self, depth: u64) -> Vec<Line> {
        let length = 1 + self.random.below(2);
        (0..length).map(|_| self.line(depth - 1)).collect()
    }

    fn effect(&mut self, number: u64) -> Line {
        let policies = [PolicyKind::Idempotent, PolicyKind::Reconcile, PolicyKind::AtMostOnce];
        let policy = policies[self.random.index(policies.len())];
        let mut fates = Vec::new();
        // What happened stays so: after it only the answer may still go astray.
        let mut happened = false;
        for _ in 0..self.random.below(3) {
            let fate = match self.random.below(if happened { 3 } else { 5 }) {
                0 => Fate::HappensUnlabelled,
                1 => Fate::Panics,
                2 => Fate::Hangs,
                3 => Fate::FailsUnlabelled,
                _ => Fate::NotApplied,
            };
            happened |= !matches!(fate, Fate::FailsUnlabelled | Fate::NotApplied);
            fates.push(fate);
        }
        let fails = !happened && self.random.once_in(5);
        fates.push(if fails { Fate::Terminal } else { Fate::Happens });
        Line::Effect { number, policy, fates, inconclusive: self.random.below(2) }
    }
}

/// Runs a random workflow.
struct Interpreter {
    world: World,
    program: Program,
    /// How often each probe was asked and each read failed, in all incarnations.
    counts: Arc<Mutex<BTreeMap<u64, u64>>>,
}

impl Interpreter {
    fn count(&self, number: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(number).or_insert(0);
        *count += 1;
        *count
    }

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
                let paid = self.effect(ctx, *number, *policy, fates, *inconclusive, sum).await;
                paid.or_else(|error| {
                    // A step that failed for good is an outcome like any other.
                    if error.code() == "closed" { Ok(13) } else { Err(error) }
                })
            }
            Line::Read { number, fails } => {
                let retry = Retry::attempts(10).first(Duration::from_secs(1));
                let step = ctx.step(&format!("read{number}")).read().retry(retry);
                step.run(&sum, async move |_| {
                    self.world.gate().await;
                    if self.count(*number) <= *fails {
                        return Err(StepError::new("no connection"));
                    }
                    Ok(mix(*number, sum))
                })
                .await
            }
            Line::Sleep(number, time) => {
                ctx.sleep(&format!("sleep{number}"), *time).await?;
                Ok(*number)
            }
            Line::Signal(number) => ctx.signal(&format!("signal{number}")).await,
            Line::Approval(number) => {
                let decided = ctx.approval(&format!("approval{number}"), &sum).await?;
                Ok(u64::from(decided.granted))
            }
            Line::Now => {
                // Times differ from run to run, and only what is recorded may be seen.
                ctx.now().await?;
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
            Line::Select(number, left, right) => {
                let branches =
                    (ctx.branch(&format!("one{number}")), ctx.branch(&format!("other{number}")));
                // Who wins is decided by the world, and nothing else may depend on it.
                tokio::select! {
                    one = self.block(branches.0, left, sum) => one?,
                    other = self.block(branches.1, right, sum) => other?,
                };
                Ok(*number)
            }
            Line::Same(number) => self.same(ctx, *number).await,
            Line::Key(number, policy) => {
                let step = ctx.step(&format!("key{number}")).key(format!("refund:{number}"));
                let body = async move |op: deedbook::Operation| {
                    self.world.effect(&op, sum, Fate::Happens).await
                };
                match policy {
                    PolicyKind::Idempotent => step.idempotent().run(&sum, body).await,
                    _ => step.at_most_once().run(&sum, body).await,
                }
            }
        }
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
        Ok(left)
    }

    async fn effect(
        &self,
        ctx: Context,
        number: u64,
        policy: PolicyKind,
        fates: &[Fate],
        inconclusive: u64,
        sum: u64,
    ) -> Result<u64> {
        let retry = Retry::attempts(10).first(Duration::from_secs(1));
        let name = format!("{}{number}", policy.as_str());
        let step = ctx.step(&name).timeout(Duration::from_secs(30)).retry(retry);
        let body = async move |op: deedbook::Operation| {
            let nth = usize::try_from(op.attempt()).unwrap_or(1) - 1;
            let fate = *fates.get(nth).or(fates.last()).unwrap();
            self.world.effect(&op, sum, fate).await
        };
        match policy {
            PolicyKind::Idempotent => step.idempotent().run(&sum, body).await,
            PolicyKind::AtMostOnce => step.at_most_once().run(&sum, body).await,
            _ => {
                let probe = async move |op: deedbook::Operation| {
                    if self.count(number) <= inconclusive {
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

impl Workflow for Interpreter {
    const NAME: &'static str = "interpreter";
    type Input = ();
    type Output = u64;

    async fn run(&self, ctx: Context, (): &()) -> Result<u64> {
        self.block(ctx, &self.program, 7).await
    }
}

fn mix(a: u64, b: u64) -> u64 {
    (a.rotate_left(9) ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8
}

/// Sends every signal once and grants every other approval, when nothing else moves.
fn visitor(program: &Program, history: Arc<Mutex<harness::Durable>>) -> Visitor {
    let mut unsent = Vec::new();
    signals(program, &mut unsent);
    Box::new(move |book: &Deedbook| {
        let next = unsent.pop();
        let open = {
            let durable = history.lock().unwrap();
            let calls = durable.history.calls().iter();
            let mut open = calls.filter(|c| c.kind == CallKind::Approval && c.outcome.is_none());
            open.next().map(|c| c.id.to_string())
        };
        async move {
            if let Some(number) = next {
                let name = format!("signal{number}");
                return book.signal(THREAD, &name, &mix(number, 3)).await.is_ok();
            }
            match open {
                Some(request) => {
                    let granted = request.len() % 2 == 0;
                    let decided = book.decide(THREAD, &request, granted, "user:ada", "looks right");
                    decided.await.is_ok()
                }
                None => false,
            }
        }
        .boxed()
    })
}

fn signals(lines: &[Line], found: &mut Vec<u64>) {
    for line in lines {
        match line {
            Line::Signal(number) => found.push(*number),
            Line::Map(_, blocks) => blocks.iter().for_each(|block| signals(block, found)),
            Line::Join(_, left, right) | Line::Select(_, left, right) => {
                signals(left, found);
                signals(right, found);
            }
            _ => {}
        }
    }
}

fn simulation(seed: u64, program: &Program) -> Simulation<Interpreter> {
    let counts = Arc::new(Mutex::new(BTreeMap::new()));
    let code = program.clone();
    let mut simulation = Simulation::new(seed, (), move |world| Interpreter {
        world,
        program: code.clone(),
        counts: counts.clone(),
    });
    simulation.settles_doubts = true;
    simulation.misspeaks = true;
    simulation.gated = !seed.is_multiple_of(3);
    let visitor = visitor(program, simulation.durable.clone());
    simulation.visitor(visitor)
}

/// Steps that may not run again by themselves, and were under way when the process died.
fn left_in_the_window(history: &History) -> BTreeSet<String> {
    let calls = history.calls().iter();
    let left = calls.filter(|call| {
        call.terms.is_some_and(|t| t.policy == PolicyKind::AtMostOnce)
            && call.outcome.is_none()
            && call.attempts.last().is_some_and(|a| a.end == AttemptEnd::Open)
    });
    left.map(|call| call.id.to_string()).collect()
}

/// Checks what holds for every thread that has ended. `may_be_left` says of which lines something
/// may be left undone.
fn check(simulation: &Simulation<Interpreter>, may_be_left: impl Fn(u64) -> bool, what: &str) {
    let wrongs = simulation.world.wrongs();
    assert!(wrongs.is_empty(), "{what}: {wrongs:#?}");
    let durable = simulation.durable.lock().unwrap();
    let left = |name: &str| line_of(name).is_some_and(&may_be_left);
    for call in durable.history.calls() {
        let settled = call.outcome.is_some();
        assert!(settled || left(call.id.name.as_str()), "{what}: {} was not settled", call.id);
        let (Some(key), Some(terms)) = (&call.key, &call.terms) else {
            continue;
        };
        let landed = simulation.world.landed(key);
        match terms.policy {
            PolicyKind::Idempotent | PolicyKind::Read => {}
            _ => assert!(landed <= 1, "{what}: {} happened {landed} times", call.id),
        }
        let value = matches!(
            call.outcome.as_ref().map(|o| &o.answer),
            Some(deedbook_journal::history::Answer::Value(_))
        );
        // A person said that it happened, and nobody needed to be told again how.
        let last = call.attempts.last().map(|a| a.end.clone());
        let said = matches!(last, Some(AttemptEnd::Ambiguous(Doubt::Unreadable, _)));
        assert_eq!(value || said, landed > 0, "{what}: {} happened {landed} times", call.id);
    }
    for (step, doubt) in &simulation.settled {
        let call = durable.history.find(CallKind::Step, step).unwrap();
        let policy = call.terms.unwrap().policy;
        assert!(
            policy == PolicyKind::AtMostOnce || left(call.id.name.as_str()),
            "{what}: {step} was in doubt ({doubt})"
        );
    }
    for record in simulation.records() {
        let header = Header::parse(&record.header).unwrap();
        if header.kind == Kind::TimerFired {
            let timer = durable.history.opened_at(header.call.unwrap()).unwrap();
            assert!(header.time >= timer.due.unwrap(), "{what}: {} fired early", timer.id);
        }
    }
}

fn ended(ran: Ran<u64>, what: &str) -> u64 {
    match ran {
        Ran::Ended(Ok(result)) => result,
        Ran::Ended(Err(error)) => panic!("{what}: {error}"),
        Ran::Crashed => panic!("{what}: it crashed"),
    }
}

/// Runs one program uncrashed and crashed at every append. Returns how many crashes that were, and
/// how many words of people the code could not read.
fn crash_everywhere(seed: u64) -> (u64, u64) {
    let program = Arc::new(Maker::program(seed));
    let mut uncrashed = simulation(seed, &program);
    let what = format!("program {seed}, uncrashed");
    let result = ended(uncrashed.incarnation(Crash::Never), &what);
    let mut races = BTreeSet::new();
    in_a_race(&program, false, &mut races);
    let raced = |number| races.contains(&number);
    check(&uncrashed, raced, &what);
    let (mut crashes, mut unread) = (0, 0);
    for at in 0..uncrashed.appends() {
        for last in [LastAppend::Applied, LastAppend::Lost] {
            let what = format!("program {seed}, crashed at append {at} ({last:?})");
            let mut crashed = simulation(seed, &program);
            if let Ran::Ended(ended) = crashed.incarnation(Crash::AtAppend(at, last)) {
                assert_eq!(ended.unwrap(), result, "{what}");
                continue;
            }
            crashes += 1;
            let window = left_in_the_window(&crashed.durable.lock().unwrap().history);
            let before = crashed.settled.len();
            let again = ended(crashed.incarnation(Crash::Never), &what);
            assert_eq!(again, result, "{what}: {program:#?}");
            check(&crashed, raced, &what);
            let unreadable = crashed.settled.iter().filter(|(_, d)| *d == Doubt::Unreadable);
            unread += unreadable.count() as u64;
            let died = crashed.settled.iter().skip(before).filter(|(_, d)| *d == Doubt::Crash);
            let died: BTreeSet<_> = died.map(|(step, _)| step.clone()).collect();
            // What a race leaves undone may be settled by its loser's doubt, or need not be.
            let counts = |steps: BTreeSet<String>| -> BTreeSet<String> {
                let durable = crashed.durable.lock().unwrap();
                let raced = |step: &String| {
                    let call = durable.history.find(CallKind::Step, step).unwrap();
                    line_of(call.id.name.as_str()).is_some_and(raced)
                };
                steps.into_iter().filter(|step| !raced(step)).collect()
            };
            let (died, window) = (counts(died), counts(window));
            assert_eq!(died, window, "{what}: in doubt exactly where the crash was");
        }
    }
    let what = format!("program {seed}, crashed many times");
    let mut crashed = simulation(seed, &program);
    // A third crash in one body would park it as poison.
    let many = crashed.chain(2).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(many, result, "{what}");
    check(&crashed, raced, &what);
    (crashes, unread)
}

/// Runs one program that is cancelled, crashed somewhere or not.
fn cancel_somewhere(seed: u64) -> (bool, usize) {
    let program = Arc::new(Maker::program(seed));
    let mut random = Random::new(!seed);
    let mut simulation = simulation(seed, &program);
    simulation.cancels_at = Some(random.below(12));
    let what = format!("program {seed}, cancelled");
    if random.once_in(2) {
        simulation.incarnation(Crash::AtAppend(random.below(6), LastAppend::Applied));
    }
    let cancelled = match simulation.incarnation(Crash::Never) {
        Ran::Ended(Ok(_)) => false,
        Ran::Ended(Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{what}: {error}");
            true
        }
        Ran::Crashed => panic!("{what}: it crashed"),
    };
    let row = simulation.row().unwrap();
    assert_eq!((row.status.is_ended(), row.open_doubts), (true, 0), "{what}");
    check(&simulation, |_| true, &what);
    (cancelled, simulation.settled.len())
}

#[test]
fn random_workflows_that_are_cancelled_end_and_account_for_every_effect() {
    let (mut cancelled, mut settled) = (0, 0);
    for seed in 0..PROGRAMS {
        let (was_cancelled, doubts) = cancel_somewhere(seed);
        cancelled += u64::from(was_cancelled);
        settled += if was_cancelled { doubts } else { 0 };
    }
    assert!(cancelled > PROGRAMS / 2, "only {cancelled} were cancelled");
    assert!(settled > 50, "only {settled} doubts were settled in them");
}

#[test]
fn random_workflows_crashed_at_every_append_end_as_they_do_uncrashed() {
    let (crashes, unread) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (crashes, unread) = (&crashes, &unread);
            scope.spawn(move || {
                for seed in (half..PROGRAMS).step_by(2) {
                    let (crashed, misread) = crash_everywhere(seed);
                    crashes.fetch_add(crashed, Ordering::Relaxed);
                    unread.fetch_add(misread, Ordering::Relaxed);
                }
            });
        }
    });
    let crashes = crashes.into_inner();
    assert!(crashes > PROGRAMS * 8, "only {crashes} crashes");
    let unread = unread.into_inner();
    assert!(unread > PROGRAMS, "only {unread} words that the code could not read");
}
