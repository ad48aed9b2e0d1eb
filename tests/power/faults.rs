//! Rules broken on purpose: the sweep must notice each.

use deedbook_journal::embedded::planted::{Broken, plant};

use crate::{
    alone,
    loss::{Tally, sweep},
    work::Work,
};

/// Sweeps with the fault planted, in the work or only in what looks at the images.
fn with(fault: Broken, in_work: bool, seeds: std::ops::Range<u64>) -> Tally {
    let mut all = Tally::default();
    for seed in seeds {
        if in_work {
            plant(Some(fault));
        }
        let work = Work::done(seed, 40);
        plant(Some(fault));
        let tally = sweep(&work, seed, 3);
        plant(None);
        all.points += tally.points;
        all.unopenable.extend(tally.unopenable);
        all.wrong.extend(tally.wrong);
        if all.faults() > 0 {
            break;
        }
    }
    println!(
        "{fault:?}: {} points, {} unopenable, {} wrong",
        all.points,
        all.unopenable.len(),
        all.wrong.len()
    );
    all
}

#[test]
fn a_frame_that_is_not_synced_is_noticed() {
    let _alone = alone();
    assert!(with(Broken::SkipSync, true, 0..3).faults() > 0);
}

#[test]
fn an_answer_before_the_frame_is_noticed() {
    let _alone = alone();
    assert!(!with(Broken::TellEarly, true, 0..3).wrong.is_empty());
}

#[test]
fn a_drain_ahead_of_the_log_is_noticed() {
    let _alone = alone();
    // The tables have what the log does not: such a journal is refused.
    assert!(!with(Broken::DrainUnsynced, true, 0..6).unopenable.is_empty());
}

#[test]
fn a_drain_that_does_not_say_how_far_it_went_is_noticed() {
    let _alone = alone();
    assert!(with(Broken::DrainWithoutSettled, true, 0..3).faults() > 0);
}

#[test]
fn a_generation_that_is_used_again_is_noticed() {
    let _alone = alone();
    assert!(with(Broken::StaleGeneration, true, 0..8).faults() > 0);
}

#[test]
fn a_name_that_is_not_durable_is_noticed() {
    let _alone = alone();
    assert!(with(Broken::SkipFolderSync, true, 0..4).faults() > 0);
}
