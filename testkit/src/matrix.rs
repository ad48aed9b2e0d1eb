//! The crash matrix: one run without a crash, and one for every place where there can be one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug, Display},
    future::Future,
    sync::Arc,
    time::Duration,
};

use crate::{
    judge,
    life::{Lived, live},
    place::Place,
    report::{Cell, Matrix, Order, Row},
    world::{Point, Times, World},
};

/// A program that crashes at most once is at its end after this many runs, or never.
const RUNS_MAX: u32 = 10;

/// Orders in which answers come, unless set.
const ORDERS: u64 = 4;

/// How long a request may be on its way whose sender is gone, unless set: a third of the least
/// *quiet* that a step has by default.
const ON_ITS_WAY: Duration = Duration::from_secs(20);

/// Clocks have an end; no outage is so long.
const AWAY_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The row of the run that is the measure of the others.
const CALM: &str = "nothing crashes";

/// Runs `program` once, and then again with a crash at every write of the journal and at every
/// request to a downstream; resumes each; and checks that every operation was done as its policy
/// promises. Four orders are tried in which answers come that are awaited at the same time.
///
/// `program` is what the process under test does when it starts: make a [`World::book`], host
/// workflows, start it, and wait for results. It is called again after each crash.
///
/// ```
/// use deedbook::{Context, Result, Workflow};
/// use deedbook_testkit::{World, crash_matrix};
///
/// struct Refund { world: World }
///
/// impl Workflow for Refund {
///     const NAME: &'static str = "refund";
///     type Input = u32;
///     type Output = String;
///
///     async fn run(&self, ctx: Context, amount: &u32) -> Result<String> {
///         let bank = self.world.downstream("bank");
///         let pay = ctx.step("pay").idempotent();
///         pay.run(amount, async |op| Ok(bank.perform(op.key(), "paid".to_owned()).await?)).await
///     }
/// }
///
/// crash_matrix(async |world| {
///     let book = world.book().host(Refund { world: world.clone() }).start().await?;
///     book.run::<Refund>("order-4821", 4200).await
/// });
/// ```
///
/// # Panics
/// With the matrix, if anything went wrong.
#[track_caller]
pub fn crash_matrix<F, Fut, T, E>(program: F)
where
    F: Fn(World) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    T: Debug,
    E: Display,
{
    CrashMatrix::new().run(program);
}

/// A crash matrix with settings: see [`crash_matrix`].
#[derive(Clone)]
#[must_use]
pub struct CrashMatrix {
    orders: u64,
    pub(crate) times: Times,
    doubtful: BTreeSet<String>,
    pub(crate) prepare: Arc<dyn Fn(&World) + Send + Sync>,
}

impl Debug for CrashMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashMatrix").field("orders", &self.orders).finish_non_exhaustive()
    }
}

impl Default for CrashMatrix {
    fn default() -> Self {
        Self::new()
    }
}

impl CrashMatrix {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            orders: ORDERS,
            times: Times { on_its_way: ON_ITS_WAY, away: Duration::ZERO },
            doubtful: BTreeSet::new(),
            prepare: Arc::new(|_| {}),
        }
    }

    /// How many orders of answers are tried. More find rarer races.
    pub fn orders(mut self, orders: u64) -> Self {
        self.orders = orders.max(1);
        self
    }

    /// How long a request may be on its way whose sender is gone: 20 s, unless set. A step under
    /// `reconcile` that asks before that ([`quiet`](deedbook::Step::quiet)) is found out.
    pub fn on_its_way(mut self, time: Duration) -> Self {
        self.times.on_its_way = time;
        self
    }

    /// How long a process that crashed is away before the next one begins: no time, unless set. A
    /// window that ends meanwhile, and a timer that is long due, show only so. At most ten years.
    pub fn back_after(mut self, time: Duration) -> Self {
        self.times.away = time.min(AWAY_MAX);
        self
    }

    /// A step of this name may be in doubt, with and without a crash: one whose window can end, or
    /// whose downstream may keep silent. Unless it is said, only an `at_most_once` step may be, and
    /// only where a run crashed or an answer was lost.
    pub fn may_doubt(mut self, step: &str) -> Self {
        self.doubtful.insert(step.to_owned());
        self
    }

    /// Sets each world up before its first run: which downstreams ignore keys, refuse, or keep
    /// silent.
    pub fn prepare(mut self, prepare: impl Fn(&World) + Send + Sync + 'static) -> Self {
        self.prepare = Arc::new(prepare);
        self
    }

    /// Explores, and ends the test if anything went wrong.
    ///
    /// # Panics
    /// With the matrix, if anything went wrong.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn run<F, Fut, T, E>(self, program: F)
    where
        F: Fn(World) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Debug,
        E: Display,
    {
        let matrix = self.explore(program);
        if !matrix.is_fine() {
            panic!("{matrix}");
        }
    }

    /// Explores, and says what was found.
    pub fn explore<F, Fut, T, E>(self, program: F) -> Matrix
    where
        F: Fn(World) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Debug,
        E: Display,
    {
        let mut matrix = Matrix::default();
        for seed in 0..self.orders {
            let order = self.order(seed, &program);
            matrix.orders.push(order);
        }
        // Where the order decides the result, another result is no fault.
        let mut results = matrix.orders.iter().filter(|order| order.is_calm()).map(|o| &o.result);
        let first = results.next();
        matrix.races = results.any(|result| Some(result) != first);
        matrix
    }

    /// One run without a crash in the order of this seed, and then one for each point of it.
    fn order<F, Fut, T, E>(&self, seed: u64, program: &F) -> Order
    where
        F: Fn(World) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Debug,
        E: Display,
    {
        let calm = self.at(seed, Point::Nowhere, program, &BTreeMap::new());
        Order::of(seed, &calm, |point| self.at(seed, point, program, &calm.effects))
    }

    /// Runs the program in a world of its own until it ends, with this point in its way.
    pub(crate) fn at<F, Fut, T, E>(
        &self,
        seed: u64,
        point: Point,
        program: &F,
        usual: &BTreeMap<String, u32>,
    ) -> Run
    where
        F: Fn(World) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Debug,
        E: Display,
    {
        if tokio::runtime::Handle::try_current().is_ok() {
            let why = "the matrix has async runtimes of its own: call it in a plain `#[test]`, not \
                       in `#[tokio::test]`";
            return Run::gone_wrong(why.to_owned());
        }
        let world = World::new(seed, point, self.times, Place::memory());
        (self.prepare)(&world);
        let mut run = Run::default();
        let mut ended = None;
        for _ in 0..RUNS_MAX {
            let lived = live(&world, program);
            if run.writes.is_empty() {
                run.writes = world.writes();
            }
            match lived {
                Ok(Lived::Crashed) => {
                    run.wrongs.extend(book(&world).wrongs(&world, &BTreeMap::new()));
                    continue;
                }
                Ok(Lived::Ended(result)) => ended = Some(result),
                Ok(Lived::Panicked(why)) => run.wrongs.push(format!("it panicked: {why}")),
                Ok(Lived::Stuck) => {
                    let open = book(&world).open.join("; ");
                    run.wrongs.push(format!("it goes nowhere: {open}"));
                }
                Err(why) => run.wrongs.push(why),
            }
            break;
        }
        // What was still on its way comes, too late to be of use and early enough to harm.
        while world.expects() && world.pass() {}
        run.judge(&world, ended, usual);
        self.judge_doubts(&mut run, point);
        if point == Point::Nowhere && run.result.starts_with(AN_ERROR) {
            let more = match world.now() > World::born() {
                true => " (a thread that sleeps is let go of and executed again when it wakes)",
                false => "",
            };
            run.wrongs.push(format!("it fails without a crash: {}{more}", run.result));
        }
        run
    }

    /// Doubts that no policy promises are wrong.
    pub(crate) fn judge_doubts(&self, run: &mut Run, point: Point) {
        for (step, why, at_most_once) in std::mem::take(&mut run.doubts) {
            let last = step.rsplit('/').next().unwrap_or_default();
            let name = last.split(['#', '=', '~']).next().unwrap_or_default();
            if self.doubtful.contains(name) || (at_most_once && point != Point::Nowhere) {
                continue;
            }
            let when = if point == Point::Nowhere { " without a crash" } else { "" };
            run.wrongs.push(format!(
                "it ends in doubt{when}: {why} (if that is as it should be: `may_doubt({name:?})`)"
            ));
        }
    }
}

/// What a divergence means where the code is the same each time.
const NOT_THE_CODE: &str = " (the code is the same in all runs: it decides by something that is \
                            not in the journal, such as a clock, chance, the order of a HashMap, \
                            or a value that outlives a run)";

/// What a result that is an error begins with.
const AN_ERROR: &str = "an error: ";

/// What came of a program and the world it ran in.
#[derive(Debug, Default, Clone)]
pub(crate) struct Run {
    result: String,
    doubt: bool,
    /// Steps in doubt, why, and whether they are `at_most_once`.
    doubts: Vec<(String, String, bool)>,
    pub(crate) wrongs: Vec<String>,
    writes: Vec<String>,
    requests: Vec<String>,
    pub(crate) effects: BTreeMap<String, u32>,
}

impl Run {
    /// One of which only this is known.
    pub(crate) fn gone_wrong(why: String) -> Self {
        Self { wrongs: vec![why], ..Self::default() }
    }

    pub(crate) fn judge(
        &mut self,
        world: &World,
        ended: Option<Result<String, String>>,
        usual: &BTreeMap<String, u32>,
    ) {
        let book = book(world);
        self.wrongs.extend(book.wrongs(world, usual));
        self.wrongs.dedup();
        match ended {
            Some(Ok(value)) => self.result = value,
            Some(Err(_)) if !book.doubts.is_empty() => {
                self.doubt = true;
                self.result = "in doubt".to_owned();
            }
            Some(Err(error)) => {
                let hint = if book.diverged { NOT_THE_CODE } else { "" };
                self.result = format!("{AN_ERROR}{error}{hint}");
            }
            None => {}
        }
        let doubts = book.doubts.iter().map(|doubt| {
            (doubt.step.clone(), doubt.why.clone(), book.is_at_most_once(&doubt.step))
        });
        self.doubts = doubts.collect();
        let named = |request: String| match request.rsplit_once(' ') {
            Some((service, key)) => match book.name(key) {
                Some(step) => format!("{service} {step}"),
                None => request,
            },
            None => request,
        };
        self.requests = world.state().kept.requests.clone().into_iter().map(named).collect();
        self.effects = judge::effects(world);
    }

    /// What the matrix says of it, beside a run without a crash that ends with `usual`.
    fn cell(self, usual: &str) -> Cell {
        match self {
            Self { wrongs, .. } if !wrongs.is_empty() => Cell::Wrong(wrongs),
            Self { doubt: true, .. } => Cell::Doubt,
            Self { result, .. } if result != usual => Cell::Differs(result),
            _ => Cell::Fine,
        }
    }
}

impl Order {
    /// What `run` makes of each point of a run without a crash.
    pub(crate) fn of(seed: u64, calm: &Run, mut run: impl FnMut(Point) -> Run) -> Self {
        let result = calm.result.clone();
        let cells = vec![("", calm.clone().cell(&result))];
        let mut rows = vec![Row { what: CALM.into(), cells }];
        if !calm.wrongs.is_empty() {
            // Nothing to measure the others by.
            return Self { seed, result, rows };
        }
        let mut row = |what: String, points: &[(&'static str, Point)]| {
            let mut cell = |point| run(point).cell(&result);
            let cells = points.iter().map(|(name, point)| (*name, cell(*point))).collect();
            rows.push(Row { what, cells });
        };
        for (at, what) in (0..).zip(&calm.writes) {
            let points =
                [("lost", Point::WriteLost(at)), ("kept, unheard", Point::WriteUnheard(at))];
            row(format!("write {at}: {what}"), &points);
        }
        for (at, what) in (0..).zip(&calm.requests) {
            let points = [
                ("before it", Point::BeforeEffect(at)),
                ("on its way", Point::OnItsWay(at)),
                ("after it", Point::AfterEffect(at)),
                ("answer lost", Point::AnswerLost(at)),
            ];
            row(format!("request {at}: {what}"), &points);
        }
        Self { seed, result, rows }
    }
}

/// What the journal of a world says in which nothing runs.
pub(crate) fn book(world: &World) -> judge::Book {
    judge::read(world).unwrap_or_default()
}
