//! The sweep over every operation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use harness::{Loss, Random, SimDisk};

use crate::{
    alone,
    work::{Model, Work, everything, one_more, open, wait},
};

const LOSSES: [Loss; 5] =
    [Loss::Pieces(512), Loss::Everything, Loss::Pieces(1), Loss::Nothing, Loss::Pieces(4096)];

/// What a sweep found.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) points: usize,
    pub(crate) images: usize,
    pub(crate) doubles: usize,
    /// Images that could not be opened or read.
    pub(crate) unopenable: Vec<String>,
    /// Images that held something else than what was acknowledged.
    pub(crate) wrong: Vec<String>,
}

impl Tally {
    pub(crate) fn faults(&self) -> usize {
        self.unopenable.len() + self.wrong.len()
    }
}

/// Opens an image, compares, writes on and closes. What was found, if it was right.
fn look(image: &SimDisk, allowed: &[&Model], what: &str, tally: &mut Tally) -> Option<Model> {
    tally.images += 1;
    let looked = catch_unwind(AssertUnwindSafe(|| {
        let book = match open(image) {
            Ok(book) => book,
            Err(error) => return Err((true, error.to_string())),
        };
        wait(async {
            let failed =
                |error: deedbook_journal::checkpointer::StoreError| (true, error.to_string());
            let found = everything(&book).await.map_err(failed)?;
            if !allowed.contains(&&found) {
                let (there, wanted) = (found.records(), allowed[0].records());
                return Err((false, format!("{there} records, {wanted} acknowledged")));
            }
            let mut more = found.clone();
            one_more(&book, &mut more).await.map_err(failed)?;
            if everything(&book).await.map_err(failed)? != more {
                return Err((false, "one more record changed something else".into()));
            }
            Ok(found)
        })
    }));
    match looked.unwrap_or_else(|_| Err((true, "a panic".into()))) {
        Ok(found) => Some(found),
        Err((true, why)) => {
            tally.unopenable.push(format!("{what}: {why}"));
            None
        }
        Err((false, why)) => {
            tally.wrong.push(format!("{what}: {why}"));
            None
        }
    }
}

/// Loses power behind every `stride`th operation of a workload, and now and then again in what
/// follows.
pub(crate) fn sweep(work: &Work, seed: u64, stride: usize) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(seed ^ 0x5EED);
    for at in (work.created()..=work.disk.operations()).step_by(stride) {
        tally.points += 1;
        let loss = LOSSES[random.index(LOSSES.len())];
        let image = work.disk.after_power_loss(at, loss, &mut random);
        let what = format!("seed {seed}, operation {at}, {loss:?}");
        let allowed = work.allowed(at);
        let Some(found) = look(&image, &allowed, &what, &mut tally) else {
            continue;
        };
        // Again, somewhere in the recovery and in the record behind it.
        tally.doubles += 1;
        let mut more = found.clone();
        more.0.entry("last".into()).or_default().0.push(Some(b"one more".to_vec()));
        let again = random.index(image.operations() + 1);
        let loss = LOSSES[random.index(LOSSES.len())];
        let what = format!("{what}, then operation {again}, {loss:?}");
        let image = image.after_power_loss(again, loss, &mut random);
        look(&image, &[&found, &more], &what, &mut tally);
    }
    tally
}

/// How many seeds; `POWER_SEEDS` widens the search.
fn seeds() -> u64 {
    std::env::var("POWER_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4)
}

#[test]
fn nothing_acknowledged_is_lost_at_any_operation() {
    let _alone = alone();
    let (mut points, mut images, mut doubles) = (0, 0, 0);
    for seed in 0..seeds() {
        let work = Work::done(seed, 70);
        let tally = sweep(&work, seed, 1);
        assert_eq!(tally.faults(), 0, "{:#?} {:#?}", tally.unopenable, tally.wrong);
        points += tally.points;
        images += tally.images;
        doubles += tally.doubles;
    }
    println!("{points} crash points, {images} images, {doubles} of them crashed twice");
    assert!(points >= 2000, "{points}");
}
