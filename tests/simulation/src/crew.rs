//! Runs cases side by side, tells how far they are, and sees that none hangs.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::Write as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Longer than any case takes: what takes longer is an endless loop.
const CASE_MAX: Duration = Duration::from_secs(120);
/// How often to look at the workers.
const GLANCE: Duration = Duration::from_millis(50);
/// How often to tell.
const TELL: Duration = Duration::from_secs(5);

/// Something that went wrong, and how to see it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The command that runs the case again.
    pub again: String,
    /// What is wrong.
    pub why: String,
}

/// What was tried, and what went wrong.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How often what.
    pub counts: BTreeMap<Cow<'static, str>, u64>,
    /// What went wrong.
    pub failures: Vec<Failure>,
    slot: Slot,
}

/// What a worker is at, and since when.
type Slot = Arc<Mutex<Option<(Instant, String)>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "an endless loop is told by real time")]
fn now() -> Instant {
    Instant::now()
}

impl Tally {
    /// Says which case comes next: `again` is the command for it.
    pub fn at(&self, again: &str) {
        *lock(&self.slot) = Some((now(), again.to_owned()));
    }

    /// Counts something.
    pub fn count(&mut self, what: impl Into<Cow<'static, str>>) {
        self.add(what, 1);
    }

    /// Counts something several times.
    pub fn add(&mut self, what: impl Into<Cow<'static, str>>, times: u64) {
        *self.counts.entry(what.into()).or_default() += times;
    }

    /// How often something was counted.
    #[must_use]
    pub fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Notes that a case went wrong.
    pub fn fail(&mut self, again: &str, why: impl std::fmt::Display) {
        self.failures.push(Failure { again: again.to_owned(), why: why.to_string() });
    }

    /// Adds what another one has.
    pub fn merge(&mut self, other: Self) {
        for (what, times) in other.counts {
            self.add(what, times);
        }
        self.failures.extend(other.failures);
    }
}

/// Some workers.
#[derive(Debug, Clone, Copy)]
pub struct Crew {
    /// How many.
    pub workers: usize,
    /// Whether to tell how far they are, on standard error.
    pub tells: bool,
    /// Whether the first failure is enough.
    pub stops: bool,
}

impl Crew {
    /// As many as there are processors.
    #[must_use]
    pub fn new(tells: bool) -> Self {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        Self { workers, tells, stops: false }
    }

    /// Runs every job, and adds up what they found.
    ///
    /// A job that hangs ends the process, having told how to see it again: no thread can be
    /// stopped from outside.
    pub fn run<J: Sync>(&self, of: &str, jobs: &[J], run: impl Fn(&J, &mut Tally) + Sync) -> Tally {
        let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let all = Mutex::new(Tally::default());
        let slots: Vec<Slot> = (0..self.workers).map(|_| Slot::default()).collect();
        thread::scope(|scope| {
            let workers: Vec<_> = slots
                .iter()
                .map(|slot| {
                    let (next, over, all, run) = (&next, &over, &all, &run);
                    scope.spawn(move || {
                        while !over.load(Ordering::Relaxed)
                            && let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
                        {
                            let mut tally = Tally { slot: Arc::clone(slot), ..Tally::default() };
                            run(job, &mut tally);
                            if self.stops && !tally.failures.is_empty() {
                                over.store(true, Ordering::Relaxed);
                            }
                            lock(all).merge(tally);
                        }
                        *lock(slot) = None;
                    })
                })
                .collect();
            let mut told = now();
            while workers.iter().any(|worker| !worker.is_finished()) {
                pause();
                slots.iter().for_each(watch);
                if self.tells && told.elapsed() > TELL {
                    told = now();
                    let done = next.load(Ordering::Relaxed).min(jobs.len());
                    tell(&format!("{of}: {done} of {}", jobs.len()));
                }
            }
        });
        let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.failures.sort();
        all
    }
}

#[expect(clippy::disallowed_methods, reason = "it watches in real time")]
fn pause() {
    thread::sleep(GLANCE);
}

fn watch(slot: &Slot) {
    if let Some((since, again)) = &*lock(slot)
        && since.elapsed() > CASE_MAX
    {
        tell(&format!("no end after {} s: {again}", CASE_MAX.as_secs()));
        std::process::exit(3);
    }
}

fn tell(line: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "{line}");
}
