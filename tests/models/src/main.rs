//! Tries schedules of the embedded home's threads.
//!
//! The journal is the real one, built with shuttle's locks, channels and threads in place of the
//! system's; the disk is the simulated one of the tests. A schedule decides at every point who goes
//! on, and with it what happens in a [`life`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a model that cannot go on stops its run"
)]

mod life;
// The disk and the dice of the tests: the crate that they are in is built without the model.
#[path = "../../harness/random.rs"]
#[allow(dead_code, unreachable_pub, reason = "used by others in its own crate")]
mod random;
#[path = "../../harness/sim_disk/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "used by others in its own crate")]
mod sim_disk;
mod watch;

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Parser;
use deedbook_journal::embedded::planted::{self, Broken};
use shuttle::{
    Config, FailurePersistence, Runner,
    scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler},
};

/// How many schedules have one seed.
const BATCH: u64 = 250;
/// How many changes of the first order a schedule of PCT makes.
const DEPTH: usize = 4;

/// Tries schedules of the embedded home's threads.
#[derive(Debug, Parser)]
struct Args {
    /// How many schedules: half of them by chance, half by PCT
    #[arg(long, default_value_t = 100_000)]
    schedules: u64,
    /// The seed of the first 250; those behind them have the next ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many at a time
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Break a rule on purpose, and say whether that is noticed
    #[arg(long)]
    planted: Option<String>,
    /// Try the schedule again that this file has
    #[arg(long)]
    replay: Option<std::path::PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(name) = &args.planted {
        let found = Broken::OF_WAITING.into_iter().find(|fault| format!("{fault:?}") == *name);
        let Some(fault) = found else {
            eprintln!("no rule {name}; there are {:?}", Broken::OF_WAITING);
            return ExitCode::from(2);
        };
        planted::plant(Some(fault));
    }
    // What all lives begin with is no part of a schedule.
    Runner::new(RandomScheduler::new_from_seed(0, 1), config()).run(life::begin);
    if let Some(file) = &args.replay {
        let scheduler = ReplayScheduler::new_from_file(file).expect("a file with a schedule");
        Runner::new(scheduler, config()).run(life::live);
        println!("nothing is wrong with it");
        return ExitCode::SUCCESS;
    }
    let begun = Instant::now();
    let tried = many(&args);
    let took = begun.elapsed().as_secs_f64();
    match tried {
        Ok(tried) => {
            println!("{tried} schedules in {took:.0} s, nothing is wrong");
            ExitCode::SUCCESS
        }
        Err(seed) => {
            let plant = args.planted.map_or(String::new(), |name| format!(" --planted {name}"));
            println!(
                "WRONG after {took:.1} s; again: tests/models/run --seed {seed} \
                 --schedules {BATCH} --jobs 1{plant}"
            );
            ExitCode::FAILURE
        }
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::File(Some(std::env::temp_dir()));
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

/// All of them, several at a time: how many, or the seed of those among which one is wrong.
fn many(args: &Args) -> Result<u64, u64> {
    let batches = args.schedules.div_ceil(BATCH);
    let next = Arc::new(AtomicU64::new(0));
    let wrong = Arc::new(AtomicU64::new(u64::MAX));
    let over = AtomicBool::new(false);
    let first = args.seed;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs)
            .map(|_| {
                scope.spawn(|| {
                    while wrong.load(Ordering::SeqCst) == u64::MAX {
                        let batch = next.fetch_add(1, Ordering::SeqCst);
                        if batch >= batches {
                            return;
                        }
                        let seed = first + batch;
                        if std::panic::catch_unwind(|| some(seed)).is_err() {
                            wrong.fetch_min(seed, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| progress(&next, batches, &over));
        for worker in workers {
            worker.join().expect("a worker catches what goes wrong");
        }
        over.store(true, Ordering::SeqCst);
    });
    match wrong.load(Ordering::SeqCst) {
        u64::MAX => Ok(batches * BATCH),
        seed => Err(seed),
    }
}

fn progress(next: &AtomicU64, batches: u64, over: &AtomicBool) {
    let mut said = 0;
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(200));
        let tenth = next.load(Ordering::SeqCst).min(batches) * 10 / batches;
        if tenth > said {
            said = tenth;
            println!("{} of {} schedules", batches * tenth / 10 * BATCH, batches * BATCH);
        }
    }
}

/// The schedules of one seed.
fn some(seed: u64) {
    let count = BATCH as usize;
    if seed % 2 == 0 {
        run(PctScheduler::new_from_seed(seed, DEPTH, count));
    } else {
        run(RandomScheduler::new_from_seed(seed, count));
    }
}

fn run(scheduler: impl Scheduler + 'static) {
    Runner::new(scheduler, config()).run(life::live);
}
