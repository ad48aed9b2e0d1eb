//! What must not grow, counted rather than timed.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use deedbook_journal::embedded::{Embedded, OpenOptions};
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    disk::CountingDisk,
    stage::Stage,
    steps::count,
    work::{Plan, Then, Work},
};

const STEPS: u32 = 100;

fn stage(folder: &tempfile::TempDir) -> Stage {
    let path = folder.path().join("guard.redb");
    let stage = Stage::create(&path, &CountingDisk::durable(), Work::default()).unwrap();
    count(&stage, 0, 1, &Plan::effects(1)).unwrap();
    stage
}

#[test]
fn a_hundred_effects_cost_a_hundred_and_one_commits() {
    let folder = tempfile::tempdir().unwrap();
    let stage = stage(&folder);
    let cost = count(&stage, 1, 1, &Plan::effects(STEPS)).unwrap();
    assert_eq!(cost.store.appends, u64::from(STEPS) + 1, "{cost:?}");
    // One sync each; the keeper fills the log ahead, and marks it if this thread was held up.
    let syncs = cost.store.appends..=cost.store.appends + 4;
    assert!(syncs.contains(&cost.disk.syncs), "{cost:?}");
    assert_eq!(cost.disk.resizes, 0, "{cost:?}");
    assert_eq!(cost.store.records, 2 * u64::from(STEPS) + 2);
    // Whether there is such a thread, a claim, a look into the inbox, the release.
    assert!(cost.store.others <= 6, "{cost:?}");
    stage.close().unwrap();
}

#[test]
fn the_code_is_polled_a_few_times_for_each_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guard.redb");
    let (hung, mut told) = unbounded_channel();
    let work = Work::telling(hung);
    let stage = Stage::create(&path, &CountingDisk::hasty(), work).unwrap();
    let plan = Plan::effects(STEPS).then(Then::Hang);
    let all = 2 + 2 * u64::from(STEPS);
    let thread = [("crashed".to_owned(), plan)];
    stage.begin_all(thread, |info| info.next >= all).unwrap();
    stage.wait(told.recv()).unwrap();
    let first = stage.work.polls.load(Relaxed);
    assert_eq!(stage.work.bodies.load(Relaxed), u64::from(STEPS));
    stage.crash();
    // Made, begun, offered: and one more where the body's wake comes in between.
    assert!(first <= u64::from(STEPS) * 4 + 8, "{first} polls");

    let home = Arc::new(Embedded::open(&path, OpenOptions::new()).unwrap());
    let (hung, mut told) = unbounded_channel();
    let stage = Stage::on(home, &CountingDisk::hasty(), Work::telling(hung)).unwrap();
    stage.wait(told.recv()).unwrap();
    let replayed = stage.work.polls.load(Relaxed);
    let asked = stage.store.asked();
    assert_eq!(stage.work.bodies.load(Relaxed), 0);
    stage.crash();
    // One poll for each outcome, which also makes the next call; and those around the new call.
    assert!(replayed <= u64::from(STEPS) + 8, "{replayed} polls");
    assert!(asked.others <= 12, "{asked:?}");
}
