//! Rules broken on purpose: the sweep must notice each.

use std::path::Path;

use deedbook_journal::embedded::{
    OpenError,
    planted::{Broken, plant},
};
use harness::{Loss, Random, SimDisk};

use crate::{
    alone,
    loss::{Tally, sweep},
    work::{Work, everything, open, wait},
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
    assert!(with(Broken::TellEarly, true, 0..3).faults() > 0);
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

const LOG: &str = "/sim/book.redb-log0";

/// A journal that was not closed, with several frames in its log, and how many records it has.
fn crashed() -> (SimDisk, usize) {
    let first = |seed| {
        let work = Work::done(seed, 8);
        let (_, at, model) = &work.parts[8];
        let image = work.disk.after_power_loss(*at, Loss::Nothing, &mut Random::new(1));
        (image, model.records())
    };
    // One that was neither reopened nor erased in.
    let whole = |(image, _): &(SimDisk, usize)| image.names().len() == 2;
    (0..50).map(first).find(whole).unwrap()
}

#[test]
fn a_damaged_frame_before_others_is_not_taken_for_a_torn_one() {
    let _alone = alone();
    let (image, records) = crashed();
    let log = Path::new(LOG);
    let bytes = image.read(log).unwrap();
    let frames: Vec<_> =
        (4096..bytes.len()).filter(|at| bytes[*at..].starts_with(b"DBWF")).collect();
    assert!(frames.len() > 3, "{frames:?}");
    image.flip(log, frames[frames.len() - 2] + 50);
    assert!(matches!(open(&image), Err(OpenError::Damaged { .. })));
    image.unlock();
    plant(Some(Broken::IgnoreDamagedFrame));
    let opened = open(&image);
    plant(None);
    let found = wait(everything(&opened.unwrap())).unwrap();
    assert!(found.records() < records, "the fault has no consequence, so nothing was tested");
}

#[test]
fn a_journal_without_its_log_is_not_opened() {
    let _alone = alone();
    let (image, records) = crashed();
    for name in image.names().iter().filter(|n| n.to_string_lossy().contains("-log")) {
        image.lose(name);
    }
    assert!(matches!(open(&image), Err(OpenError::LogMissing { .. })));
    image.unlock();
    plant(Some(Broken::OpenWithoutLog));
    let opened = open(&image);
    plant(None);
    let found = wait(everything(&opened.unwrap())).unwrap();
    assert!(found.records() < records, "the fault has no consequence, so nothing was tested");
}
