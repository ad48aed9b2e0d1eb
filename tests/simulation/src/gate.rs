//! Syncs fail in one process after the other, each leaving some of what it should have written,
//! and then power is lost.

use harness::{Loss, Random, SimDisk};

use crate::{
    crew::{Crew, Tally},
    fault::{Left, is_dead, reopened},
    look::{Wanted, Wrong, look, tried},
    work::Work,
};

/// Processes, one after the other, that meet a failing sync.
const ROUNDS: usize = 4;
/// Parts that each would do.
const PARTS: usize = 6;
/// A sync fails among about as many operations as a process does.
const OPERATIONS: u64 = 60;

/// Runs these seeds.
#[must_use]
pub fn run(crew: &Crew, seeds: &[u64]) -> Tally {
    crew.run("gate", seeds, |seed, tally| {
        let again = format!("deedbook-simulation gate --seed {seed}");
        tried(tally, "seeds", &again, |counts| one(*seed, counts));
    })
}

fn one(seed: u64, tally: &mut Tally) -> Result<(), Wrong> {
    let disk = SimDisk::default();
    let mut random = Random::new(seed ^ 0xFA11);
    let mut work = Work::begin(&disk, seed).map_err(|e| Wrong::Unopenable(e.to_string()))?;
    for _ in 0..ROUNDS {
        disk.fail_sync(disk.tried().len() + random.below(OPERATIONS) as usize, random.draw());
        let stopped = work.run(PARTS).err();
        if let Some(stopped) = &stopped {
            tally.count("syncs that failed");
            is_dead(&work, stopped, tally)?;
        }
        work.stop();
        disk.mend();
        disk.unlock();
        let left = Left { messages: work.messages, acknowledged: work.model, stopped };
        if random.once_in(3) {
            disk.evict();
        }
        work = reopened(&disk, &left, &mut random, tally)?;
    }
    let losses = [Loss::Everything, Loss::Pieces(512), Loss::Pieces(4096), Loss::Nothing];
    for loss in losses {
        let image = disk.after_power_loss(disk.operations(), loss, &mut random);
        let allowed = [&work.model];
        tally.count("images");
        look(&image, Wanted { allowed: &allowed, may_be_absent: false, close: false })?;
    }
    Ok(())
}
