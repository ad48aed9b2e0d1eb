//! Power is lost while a backup is made, or a journal compacted.

use std::{path::Path, sync::Arc};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{Embedded, OpenOptions},
};
use deedbook_simulation::{
    book::{BOOK, Model, everything, one_more, open, wait},
    work::Work,
};
use harness::{Loss, Random};

use crate::alone;

const COPY: &str = "/sim/copy.redb";
const LOSSES: [Loss; 5] =
    [Loss::Pieces(512), Loss::Everything, Loss::Pieces(1), Loss::Nothing, Loss::Pieces(4096)];

#[test]
fn a_backup_that_has_its_name_is_whole_and_the_journal_is_as_it_was() {
    let _alone = alone();
    let (mut whole, mut points) = (0, 0);
    for seed in 0..1 {
        let mut random = Random::new(seed);
        let work = Work::done(seed, 25).unwrap();
        let disk = &work.disk;
        disk.unlock();
        let book = open(disk).unwrap();
        let mut model: Model = work.model.clone();
        wait(one_more(&book, &mut model)).unwrap();
        let begun = disk.operations();
        wait(book.backup(COPY, |_| {})).unwrap();
        let made = disk.operations();
        wait(book.close()).unwrap();
        assert!(made > begun + 20, "{begun} to {made}");
        for at in begun..=made {
            points += 1;
            let loss = LOSSES[random.index(LOSSES.len())];
            let image = disk.after_power_loss(at, loss, &mut random);
            let what = format!("seed {seed}, operation {at} of {begun} to {made}, {loss:?}");
            let book = open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(wait(everything(&book)).unwrap(), model, "{what}");
            let there = image.names().iter().any(|name| name == Path::new(COPY));
            assert!(there || at < made, "{what}: it was acknowledged");
            if there {
                whole += 1;
                let options = OpenOptions::new().disk(Arc::new(image.clone()));
                let copy = Embedded::open(COPY, options);
                let copy = copy.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(wait(everything(&copy)).unwrap(), model, "{what}");
            }
            // The next one takes away what is left of this one.
            image.lose(Path::new(COPY));
            image.unlock();
            wait(book.backup(COPY, |_| {})).unwrap();
            let left = image.names().into_iter().filter(|n| n.to_string_lossy().ends_with(".new"));
            assert_eq!(left.count(), 0, "{what}");
        }
    }
    println!("{points} crash points, {whole} whole copies");
    assert!(whole > 1);
}

#[test]
fn a_journal_that_is_compacted_is_whole_at_every_moment() {
    let _alone = alone();
    let mut points = 0;
    for seed in 0..1 {
        let mut random = Random::new(seed);
        let mut work = Work::begin(&harness::SimDisk::default(), seed).unwrap();
        work.run(25).unwrap();
        work.close().unwrap();
        work.book = None;
        let (disk, model) = (&work.disk, &work.model);
        disk.unlock();
        let options = OpenOptions::new().disk(Arc::new(disk.clone()));
        let begun = disk.operations();
        let done = Embedded::compact(BOOK, &options, |_| {}).unwrap();
        assert_eq!(done.records as usize, model.records());
        let end = disk.operations();
        assert!(end > begun + 20, "{begun} to {end}");
        for at in begun..=end {
            points += 1;
            let loss = LOSSES[random.index(LOSSES.len())];
            let image = disk.after_power_loss(at, loss, &mut random);
            let what = format!("seed {seed}, operation {at} of {begun} to {end}, {loss:?}");
            let book = open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(wait(everything(&book)).unwrap(), *model, "{what}");
            let mut more = model.clone();
            wait(one_more(&book, &mut more)).unwrap();
            wait(book.close()).unwrap();
            drop(book);
            image.unlock();
            let options = OpenOptions::new().disk(Arc::new(image.clone()));
            Embedded::compact(BOOK, &options, |_| {}).unwrap_or_else(|e| panic!("{what}: {e}"));
            image.unlock();
            assert_eq!(wait(everything(&open(&image).unwrap())).unwrap(), more, "{what}");
            let left = image.names().into_iter().filter(|n| n.to_string_lossy().ends_with(".new"));
            assert_eq!(left.count(), 0, "{what}");
        }
    }
    println!("{points} crash points");
}
