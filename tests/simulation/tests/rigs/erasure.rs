//! An erasure that was recorded and not carried out when power was lost.

use std::path::Path;

use deedbook_journal::{
    checkpointer::{Checkpointer, StoreError},
    id::ThreadId,
    record::Role,
};
use deedbook_simulation::book::{
    BOOK, Model, create, everything, one_more, open, pen, wait, write,
};
use harness::{Loss, Random, SimDisk};

use crate::alone;

const SECRET: &[u8] = b"what must go";

/// A disk on which a payload was drained, and then erased.
fn erased() -> SimDisk {
    let disk = SimDisk::default();
    let book = create(&disk).unwrap();
    wait(async {
        let (mut own, mut append) = pen(&book, "t").await.unwrap();
        write(&mut own, &mut append, SECRET);
        book.append(vec![append]).await.remove(0).unwrap();
        book.close().await.unwrap();
    });
    drop(book);
    disk.unlock();
    let book = open(&disk).unwrap();
    wait(async {
        let (mut own, mut note) = pen(&book, "t").await.unwrap();
        write(&mut own, &mut note, b"erased");
        book.erase(&note.thread.clone(), 0, Role::Value, note).await.unwrap();
    });
    disk
}

/// The disk behind so many operations, and where the secret still stands in the tables of a
/// journal that does not give it out any more.
fn recorded_and_not_carried_out(disk: &SimDisk) -> (usize, usize) {
    let mut all = 0..=disk.operations();
    let found = all.find_map(|at| {
        let image = disk.after_power_loss(at, Loss::Everything, &mut Random::new(1));
        let tables = image.read(Path::new(BOOK))?;
        let place = tables.windows(SECRET.len()).position(|bytes| bytes == SECRET)?;
        let model = wait(everything(&open(&image).ok()?)).unwrap();
        let payload = model.0.get("t")?.payloads.first()?;
        payload.is_none().then_some((at, place))
    });
    found.unwrap()
}

#[test]
fn it_is_carried_out_by_the_next_process() {
    let _alone = alone();
    let disk = erased();
    let (at, _) = recorded_and_not_carried_out(&disk);
    let image = disk.after_power_loss(at, Loss::Everything, &mut Random::new(1));
    let book = open(&image).unwrap();
    wait(async {
        one_more(&book, &mut Model::default()).await.unwrap();
        book.close().await.unwrap();
    });
    drop(book);
    image.unlock();
    let model = wait(everything(&open(&image).unwrap())).unwrap();
    assert_eq!(model.0["t"].payloads, [None, Some((*b"erased").into())]);
}

#[test]
fn damage_where_it_was_does_not_hold_up_the_rest() {
    let _alone = alone();
    let disk = erased();
    let (at, place) = recorded_and_not_carried_out(&disk);
    let image = disk.after_power_loss(at, Loss::Everything, &mut Random::new(1));
    image.edit(Path::new(BOOK), |bytes| bytes[place] ^= 1);
    let book = open(&image).unwrap();
    let t = ThreadId::new("t").unwrap();
    wait(async {
        one_more(&book, &mut Model::default()).await.unwrap();
        let error = book.read(&t, 0, 100).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        book.close().await.unwrap();
    });
    drop(book);
    image.unlock();
    let book = open(&image).unwrap();
    let last = ThreadId::new("last").unwrap();
    assert_eq!(wait(book.read(&last, 0, 100)).unwrap().items.len(), 1);
}
