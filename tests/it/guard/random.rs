//! Callers, crashes and failures by chance: whatever comes, the promises hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use deedbook::{Builder, CallError, Deedbook, Duplicates, Probe, Retry, StepError, VirtualClock};
use harness::{Random, outside::Life};

const KEYS: usize = 3;
const SEEDS: u64 = 400;
const POLICIES: [&str; 4] = ["read", "idempotent", "reconcile", "at_most_once"];

/// What the world outside knows of one key.
#[derive(Debug, Default, Clone)]
struct Ledger {
    /// How often it was changed, by operation key.
    effects: BTreeMap<String, u32>,
    /// Bodies that began.
    bodies: u32,
    /// What callers were told, and how many bodies had begun by then.
    told: Option<(u64, u32)>,
}

#[derive(Debug, Clone, Default)]
struct World(Arc<Mutex<Vec<Ledger>>>);

impl World {
    fn change<T>(&self, key: usize, change: impl FnOnce(&mut Ledger) -> T) -> T {
        change(&mut self.0.lock().unwrap()[key])
    }
}

/// What a body does: where it rests, whether it has its effect, and how it ends.
async fn body(
    world: &World,
    key: usize,
    operation: Option<String>,
    mut random: Random,
) -> Result<u64, StepError> {
    world.change(key, |ledger| ledger.bodies += 1);
    let rest = |count: u64| async move {
        for _ in 0..count {
            tokio::task::yield_now().await;
        }
    };
    rest(random.below(6)).await;
    match random.below(8) {
        0 => return Err(StepError::new("refused").not_applied()),
        1 => return Err(StepError::new("lost, and not sent")),
        _ => {}
    }
    let effects = world.change(key, |ledger| {
        let effects = ledger.effects.entry(operation.unwrap_or_default()).or_insert(0);
        *effects += 1;
        u64::from(*effects)
    });
    rest(random.below(6)).await;
    match random.below(8) {
        0 => Err(StepError::new("the answer was lost")),
        1 => panic!("behind its effect"),
        2 => std::future::pending().await,
        _ => Ok(100 * key as u64 + effects),
    }
}

/// One call, and what it is checked against.
async fn call(book: &Deedbook, world: &World, key: usize, policy: &str, mut random: Random) {
    let guard = book.guard("pay").key(format!("k{key}")).timeout(Duration::from_secs(20));
    let guard = guard.retry(Retry::attempts(1 + random.below(3) as u32).first(Duration::ZERO));
    let guard = match random.below(3) {
        0 => guard.duplicates(Duplicates::Wait(Duration::from_secs(random.below(60)))),
        _ => guard,
    };
    let chance = random.clone();
    let keyed = {
        let (world, chance) = (world.clone(), chance.clone());
        async move |op: deedbook::Operation| {
            body(&world, key, Some(op.key().to_owned()), chance).await
        }
    };
    let asks = {
        let world = world.clone();
        async move |op: deedbook::Operation| {
            let effects = world.change(key, |ledger| ledger.effects.get(op.key()).copied());
            Ok(match effects {
                Some(effects) => Probe::Happened(100 * key as u64 + u64::from(effects)),
                None => Probe::DidNotHappen,
            })
        }
    };
    let called = match policy {
        "read" => {
            let world = world.clone();
            let read = async move |_| body(&world, key, None, chance).await;
            guard.read().call(&key, read).await
        }
        "idempotent" => guard.idempotent().call(&key, keyed).await,
        "reconcile" => guard.reconcile(asks).call(&key, keyed).await,
        _ => guard.at_most_once().call(&key, keyed).await,
    };
    match called {
        Ok(value) => world.change(key, |ledger| {
            let bodies = ledger.bodies;
            let (first, begun) = *ledger.told.get_or_insert((value, bodies));
            assert_eq!(value, first, "all are told the same");
            assert_eq!(bodies, begun, "nothing begins once somebody was told");
        }),
        Err(CallError::Conflict(_) | CallError::Invalid { .. } | CallError::Unreadable { .. }) => {
            panic!("nothing differs")
        }
        Err(_) => {}
    }
}

async fn lives(seed: u64) {
    let mut random = Random::new(seed);
    let world = World(Arc::new(Mutex::new(vec![Ledger::default(); KEYS])));
    let policies: Vec<_> = (0..KEYS).map(|_| POLICIES[random.index(4)]).collect();
    let clock = VirtualClock::new();
    let lease = |book: Builder| book;
    let mut life = Life::first(&clock, lease).await;
    for _ in 0..1 + random.below(5) {
        let tasks: Vec<_> = (0..1 + random.below(6))
            .map(|_| {
                let (book, world) = (life.book.clone(), world.clone());
                let key = random.index(KEYS);
                let (policy, chance) = (policies[key], Random::new(random.draw()));
                spawn(async move { call(&book, &world, key, policy, chance).await })
            })
            .collect();
        for _ in 0..random.below(120) {
            tokio::task::yield_now().await;
            if random.once_in(8) {
                clock.advance(Duration::from_secs(random.below(30)));
            }
        }
        // The process dies: nothing that a dropped call would still say is heard.
        let crash = life.home.snapshot();
        for task in tasks {
            task.abort();
            if let Err(error) = task.await {
                assert!(!error.is_panic(), "seed {seed}: {error}");
            }
        }
        clock.advance(Duration::from_secs(random.below(200)));
        life = Life::after(crash, &clock, lease).await;
    }
    for (key, policy) in policies.iter().enumerate() {
        let ledger = world.change(key, |ledger| ledger.clone());
        let effects: u32 = ledger.effects.values().sum();
        let keys: BTreeSet<_> = ledger.effects.keys().collect();
        match *policy {
            "read" => {}
            "at_most_once" => assert!(effects <= 1, "seed {seed}: {ledger:?}"),
            "reconcile" => assert!(effects <= 1, "seed {seed}: {ledger:?}"),
            _ => assert!(keys.len() <= 1, "seed {seed}: {ledger:?}"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "callers beside each other, as in a program")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(task)
}

#[tokio::test]
async fn whatever_comes_the_promises_hold() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Bodies panic on purpose.
        if panic.payload().downcast_ref::<&str>() != Some(&"behind its effect") {
            quiet(panic);
        }
    }));
    for seed in 0..SEEDS {
        lives(seed).await;
    }
}
