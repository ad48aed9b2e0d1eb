//! A corpus of recorded histories: what earlier builds have written must replay on this one, and
//! code that was changed behind it must be told so.

mod file;
pub mod mutate;
pub mod plan;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deedbook::{Deedbook, Error, ThreadId, ValueLimits, VirtualClock, checkpointer::StoreIdentity};
use deedbook_journal::{
    history::{CallKind, History},
    record::{Header, Kind, Record, RecordHash, Role},
    value::decode,
};
use deedbook_memory::MemoryHome;
use futures::FutureExt;

use self::plan::{Hands, Maker, Plan, Planned, signals};
use crate::{
    durable::Durable,
    replay,
    simulation::{Simulation, THREAD, Visitor},
};

/// Histories of a corpus.
const HISTORIES: u64 = 240;

/// A thread that ended, and the code that it ran.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The input of the thread.
    pub seed: u64,
    /// The code.
    pub plan: Plan,
    /// The identity of the journal.
    pub identity: StoreIdentity,
    /// Every record.
    pub records: Vec<Record>,
}

/// What a replay came to.
#[derive(Debug)]
pub struct Replayed {
    /// The end.
    pub result: Result<u64, Error>,
    /// How many bodies and probes ran.
    pub done: u64,
    /// How many records there are now.
    pub records: usize,
}

/// Sends the plan's signals and answers requests, when nothing else moves.
fn visitor(plan: &Plan, durable: Arc<Mutex<Durable>>) -> Visitor {
    let mut unsent = signals(plan);
    unsent.reverse();
    Box::new(move |book: &Deedbook| {
        let next = unsent.pop();
        let open = {
            let durable = durable.lock().unwrap();
            let mut calls = durable.history.calls().iter();
            let asked = calls.find(|c| c.kind == CallKind::Approval && c.outcome.is_none());
            asked.map(|call| call.id.to_string())
        };
        async move {
            if let Some(name) = next {
                return book.signal(THREAD, &name, &(name.len() as u64)).await.is_ok();
            }
            match open {
                Some(request) => {
                    let decided = book.decide(THREAD, &request, true, "user:ada", "looks right");
                    decided.await.is_ok()
                }
                None => false,
            }
        }
        .boxed()
    })
}

impl Recorded {
    /// Runs a plan in a hostile world, crashes it now and then, and takes what was recorded.
    ///
    /// # Panics
    /// It does not come to its end.
    #[must_use]
    pub fn of(seed: u64, plan: &Plan) -> Self {
        let code = plan.clone();
        let mut simulation = Simulation::new(seed, seed, move |world| Planned {
            plan: code.clone(),
            hands: Hands::World(world),
        });
        simulation.settles_doubts = true;
        let visitor = visitor(plan, simulation.durable.clone());
        let mut simulation = simulation.visitor(visitor);
        simulation.chain(2).unwrap_or_else(|error| panic!("plan {seed}: {error}"));
        let identity = simulation.identity().clone();
        Self { seed, plan: plan.clone(), identity, records: simulation.records() }
    }

    /// A corpus: every other plan does one thing after the other.
    #[must_use]
    pub fn corpus() -> Vec<Self> {
        let one = |seed: u64| Self::of(seed, &Maker::plan(seed, seed.is_multiple_of(2)));
        (0..HISTORIES).map(one).collect()
    }

    /// What the thread ended with.
    ///
    /// # Panics
    /// It has not ended.
    #[must_use]
    pub fn result(&self) -> u64 {
        let end = self.records.iter().rev().find(|record| kind(record) == Kind::ThreadEnd);
        let result = end.and_then(|record| record.payload(Role::Result));
        decode(&result.expect("an end").bytes, &ValueLimits::new()).unwrap()
    }

    /// Its records, folded.
    ///
    /// # Panics
    /// They do not fit.
    #[must_use]
    pub fn history(&self) -> History {
        let mut history = History::new(ThreadId::new(THREAD).unwrap(), self.identity.secret);
        self.records.iter().for_each(|record| history.replay(record).unwrap());
        history
    }

    /// The kinds of its records; every record is checked against its hash.
    ///
    /// # Panics
    /// One is not what its hash says.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        let mut prev = RecordHash::ZERO;
        let checked = self.records.iter().map(|record| {
            let header = record.verify(&self.identity.log_id, &prev).unwrap();
            prev = record.hash;
            header.kind
        });
        checked.collect()
    }

    /// Runs code on everything that was recorded but the end.
    ///
    /// # Panics
    /// It comes to no end.
    #[must_use]
    pub fn replay(&self, plan: &Plan) -> Replayed {
        let thread = ThreadId::new(THREAD).unwrap();
        let copy = replay::without_end("planned", &self.identity, &thread, &self.records);
        let home = Arc::new(MemoryHome::from_snapshot(copy, None));
        let done = Arc::new(AtomicU64::new(0));
        let planned = Planned { plan: plan.clone(), hands: Hands::Idle(done.clone()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let result = runtime.block_on(async {
            let book = Deedbook::on(home.clone()).clock(VirtualClock::new()).host(planned);
            let book = book.start().await?;
            let run = book.run::<Planned>(THREAD, self.seed);
            tokio::time::timeout(Duration::from_secs(60), run).await.expect("an end")
        });
        drop(runtime);
        let records = replay::records(&home, &thread, 0).len();
        Replayed { result, done: done.load(Ordering::Relaxed), records }
    }
}

fn kind(record: &Record) -> Kind {
    Header::parse(&record.header).unwrap().kind
}
