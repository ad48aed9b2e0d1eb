//! Power is lost behind every operation, and again while the journal recovers.

use harness::{Loss, Random};

use crate::{
    book::Model,
    crew::{Crew, Tally},
    look::{Wanted, look, note, unpanicked},
    work::{Interrupted, Work},
};

/// What is lost, at each operation.
const LOSSES: [Loss; 15] = [
    Loss::Pieces(512),
    Loss::Everything,
    Loss::Nothing,
    Loss::Pieces(1),
    Loss::Pieces(4096),
    Loss::Header,
    Loss::AllButHeader,
    Loss::AllButOne,
    Loss::Prefix(512),
    Loss::Prefix(1),
    Loss::AllButOne,
    Loss::Prefix(4096),
    Loss::Pieces(512),
    Loss::Pieces(4096),
    Loss::Pieces(1),
];

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    /// Parts of each work.
    pub parts: usize,
    /// Every how many operations.
    pub stride: usize,
    /// How many losses at each.
    pub losses: usize,
    /// One of how many images is crashed again.
    pub again: u64,
    /// Whether the log gets a mark now and then, which takes a third of a second.
    pub rests: bool,
}

impl Sweep {
    /// Every operation with every loss.
    #[must_use]
    pub fn whole() -> Self {
        Self { parts: 70, stride: 1, losses: LOSSES.len(), again: 3, rests: true }
    }

    /// Every third operation with one loss.
    #[must_use]
    pub fn coarse() -> Self {
        Self { parts: 40, stride: 3, losses: 1, again: 1, rests: false }
    }
}

/// Sweeps the works of these seeds.
#[must_use]
pub fn run(crew: &Crew, seeds: &[u64], sweep: Sweep, only: Option<usize>) -> Tally {
    crew.run("power", seeds, |seed, tally| {
        tally.at(&again(*seed, 0));
        match done(*seed, sweep) {
            Ok(work) => Swept { work: &work, seed: *seed, sweep }.all(only, tally),
            Err(error) => tally.fail(&again(*seed, 0), error),
        }
    })
}

/// The command that runs a crash point again.
fn again(seed: u64, at: usize) -> String {
    format!("deedbook-simulation power --seed {seed} --at {at}")
}

fn done(seed: u64, sweep: Sweep) -> Result<Work, String> {
    let told = |broken: Interrupted| format!("the work itself fails: {}", broken.trouble);
    if !sweep.rests {
        return Work::done(seed, sweep.parts).map_err(told);
    }
    let begun = Work::begin(&harness::SimDisk::default(), seed);
    let mut work = begun.map_err(|error| error.to_string())?;
    let ran = work.run(sweep.parts / 2).and_then(|()| work.rest());
    ran.and_then(|()| work.run(sweep.parts / 2)).and_then(|()| work.close()).map_err(told)?;
    Ok(work)
}

struct Swept<'w> {
    work: &'w Work,
    seed: u64,
    sweep: Sweep,
}

impl Swept<'_> {
    fn all(&self, only: Option<usize>, tally: &mut Tally) {
        let mut tape = self.work.disk.tape();
        for at in (0..=self.work.disk.operations()).step_by(self.sweep.stride) {
            tape.forward(at);
            if only.is_some_and(|only| only != at) {
                continue;
            }
            tally.count("crash points");
            let mut random = Random::new(self.seed << 32 | at as u64);
            let first = random.index(LOSSES.len());
            let mut seen = Vec::new();
            for k in 0..self.sweep.losses {
                let loss = LOSSES[(first + k) % LOSSES.len()];
                let (image, kept) = tape.image(loss, &mut random);
                // The same pieces are there as under another loss.
                if seen.contains(&kept) {
                    continue;
                }
                seen.push(kept);
                self.image(at, loss, image, &mut random, tally);
            }
        }
    }

    fn image(
        &self,
        at: usize,
        loss: Loss,
        image: harness::SimDisk,
        random: &mut Random,
        tally: &mut Tally,
    ) {
        let command = again(self.seed, at);
        tally.at(&command);
        tally.count("images");
        let allowed = self.work.allowed(at);
        let may_be_absent = at < self.work.created();
        let wanted = Wanted { allowed: &allowed, may_be_absent, close: random.once_in(4) };
        let found = match look(&image, wanted) {
            Ok(found) => found,
            Err(wrong) => return note(tally, &command, &format!("{loss:?}"), &wrong),
        };
        match unpanicked(|| self.work.copies(&image, at, random.once_in(8))) {
            Ok(whole) => tally.add("whole backups", whole),
            Err(wrong) => return note(tally, &command, &format!("{loss:?}"), &wrong),
        }
        if !random.once_in(self.sweep.again) {
            return;
        }
        // Again, somewhere in the recovery and in the record behind it.
        tally.count("crashed twice");
        let mut more = found.clone();
        more.thread("last").payloads.push(Some((*b"one more").into()));
        let second = random.index(image.operations() + 1);
        let lost = LOSSES[random.index(LOSSES.len())];
        let image = image.after_power_loss(second, lost, random);
        let allowed: [&Model; 2] = [&found, &more];
        let wanted = Wanted { allowed: &allowed, may_be_absent, close: false };
        if let Err(wrong) = look(&image, wanted) {
            let how = format!("{loss:?}, then at operation {second} {lost:?}");
            note(tally, &command, &how, &wrong);
        }
    }
}
