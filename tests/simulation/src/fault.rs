//! Every operation fails once, in each of the ways in which it can, and then life goes on: the
//! process ends, another one opens what is there, goes on, and power is lost.

use deedbook_journal::checkpointer::{Checkpointer, StoreError};
use harness::{Change, Fault, Loss, Random, SimDisk};

use crate::{
    book::{Model, everything, pen, wait, write},
    crew::{Crew, Tally},
    look::{Wanted, Wrong, look, tried},
    work::{Interrupted, Trouble, Work},
};

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The work's.
    pub seed: u64,
    /// The operation that fails.
    pub at: usize,
    /// How.
    pub fault: Fault,
    /// Whether everything behind it fails too.
    pub and_later: bool,
}

/// Parts of a work.
const PARTS: usize = 14;
/// Parts of what the next process does.
const PARTS_AFTER: usize = 4;
/// At how many operations of the next process power is lost, in each run.
const LOSSES: usize = 4;
/// Every other time it is lost within so many: then what was found is brought in order.
const FIRST: usize = 24;

impl Case {
    /// The command that runs it again.
    #[must_use]
    pub fn again(&self) -> String {
        let Self { seed, at, fault, and_later } = self;
        let way = format!("{fault:?}").to_lowercase();
        let later = if *and_later { " --and-later" } else { "" };
        format!("deedbook-simulation fault --seed {seed} --at {at} --way {way}{later}")
    }
}

/// Every run of a seed: every operation, in every way in which one of its kind can fail.
///
/// # Panics
/// The work fails without a fault.
#[must_use]
pub fn cases(seed: u64) -> Vec<Case> {
    let disk = SimDisk::default();
    let whole = begun(&disk, seed).and_then(|mut work| {
        work.run(PARTS)?;
        work.close()
    });
    whole.unwrap();
    let ways = |change| -> &[(Fault, bool)] {
        use Fault::{Device, Full, Short};
        match change {
            Change::Write => &[(Device, false), (Short, false), (Full, false), (Full, true)],
            Change::Sync => &[(Device, false), (Full, false), (Device, true)],
            Change::Length | Change::Name => &[(Device, false), (Full, false)],
            Change::SyncNames => &[(Device, false), (Device, true)],
        }
    };
    let of = |(at, change): (usize, &Change)| {
        let case = move |(fault, and_later): &(Fault, bool)| {
            let (fault, and_later) = (*fault, *and_later);
            Case { seed, at, fault, and_later }
        };
        ways(*change).iter().map(case).collect::<Vec<_>>()
    };
    disk.tried().iter().enumerate().flat_map(of).collect()
}

/// Runs these cases.
#[must_use]
pub fn run(crew: &Crew, cases: &[Case]) -> Tally {
    crew.run("fault", cases, |case, tally| {
        tried(tally, "runs", &case.again(), |counts| one(case, counts));
    })
}

fn begun(disk: &SimDisk, seed: u64) -> Result<Work, Interrupted> {
    Work::begin(disk, seed).map_err(|error| Interrupted {
        trouble: Trouble::Create(error),
        in_flight: Model::default(),
    })
}

fn one(case: &Case, tally: &mut Tally) -> Result<(), Wrong> {
    let disk = SimDisk::default();
    let mut random = Random::new(case.seed << 20 | case.at as u64);
    disk.fail(case.at, case.fault, case.and_later, random.draw());
    let left = match begun(&disk, case.seed) {
        Ok(mut work) => {
            let stopped = work.run(PARTS).and_then(|()| work.close()).err();
            if let Some(stopped) = &stopped {
                is_dead(&work, stopped, tally)?;
            }
            let messages = work.messages;
            work.stop();
            Left { acknowledged: work.model, stopped, messages }
        }
        Err(stopped) => {
            Left { acknowledged: Model::default(), stopped: Some(stopped), messages: 0 }
        }
    };
    if disk.mend() == 0 {
        return Err(Wrong::Other("the fault did not strike".into()));
    }
    disk.unlock();
    if random.once_in(3) {
        disk.evict();
    }
    left.is_clear(tally)?;
    goes_on(&disk, &left, &mut random, tally)
}

/// What a process left that met a fault.
pub(crate) struct Left {
    pub(crate) acknowledged: Model,
    pub(crate) stopped: Option<Interrupted>,
    pub(crate) messages: u8,
}

impl Left {
    /// What may be there when the journal is opened again.
    pub(crate) fn allowed(&self) -> Vec<&Model> {
        let mut allowed = vec![&self.acknowledged];
        if let Some(Interrupted { trouble, in_flight }) = &self.stopped
            && !matches!(trouble, Trouble::Store(StoreError::Failed { .. }))
        {
            allowed.push(in_flight);
        }
        allowed
    }

    /// Whether making the journal failed, so that it was never said to be there.
    fn is_unmade(&self) -> bool {
        matches!(&self.stopped, Some(Interrupted { trouble: Trouble::Create(_), .. }))
    }

    /// The error says what the system said.
    fn is_clear(&self, tally: &mut Tally) -> Result<(), Wrong> {
        let Some(stopped) = &self.stopped else {
            tally.count("without an error");
            return Ok(());
        };
        tally.count(match &stopped.trouble {
            Trouble::Create(_) => "not made",
            Trouble::Open(_) => "not opened",
            Trouble::Store(StoreError::Unknown { .. }) => "unknown",
            Trouble::Store(StoreError::Failed { .. }) => "failed",
            Trouble::Store(error) => return Err(unclear(error)),
            Trouble::Backup(_) => "not backed up",
            Trouble::Compact(_) => "not compacted",
            Trouble::Unfenced => return Err(unclear(&stopped.trouble)),
        });
        let text = stopped.trouble.to_string();
        let said = text.contains("os error 5") || text.contains("os error 28");
        if said { Ok(()) } else { Err(unclear(&text)) }
    }
}

fn unclear(error: &dyn std::fmt::Display) -> Wrong {
    Wrong::Other(format!("the error does not say what happened: {error}"))
}

/// Whatever comes now is refused and changes nothing, though the disk works again.
pub(crate) fn is_dead(work: &Work, stopped: &Interrupted, tally: &mut Tally) -> Result<(), Wrong> {
    let (Trouble::Store(error), Some(book)) = (&stopped.trouble, &work.book) else {
        return Ok(());
    };
    work.disk.mend();
    let before = work.disk.operations();
    let alive = wait(async {
        let claimed = match pen(book, "other").await {
            Ok((mut pen, mut append)) => {
                write(&mut pen, &mut append, b"more");
                book.append(vec![append]).await.remove(0).is_ok()
            }
            Err(_) => false,
        };
        claimed || everything(book).await.is_ok()
    });
    if alive || work.disk.operations() != before {
        return Err(Wrong::Other(format!("the handle lives on after {error}")));
    }
    tally.count("dead handles");
    Ok(())
}

/// Another process opens what is there; it is what was acknowledged, and from then on it stays,
/// wherever power is lost.
fn goes_on(
    disk: &SimDisk,
    left: &Left,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), Wrong> {
    let from = disk.operations();
    if !Work::is_there(disk) {
        if !left.acknowledged.0.is_empty() {
            return Err(Wrong::Unopenable("the journal has lost its name".into()));
        }
        let made = Work::begin(disk, random.draw());
        return made.map(drop).map_err(|error| Wrong::Unopenable(error.to_string()));
    }
    let mut work = reopened(disk, left, random, tally)?;
    // Now and then nothing is written: what was read must be durable all the same.
    let parts = if random.once_in(3) { 0 } else { PARTS_AFTER };
    let ran = work.run(parts);
    ran.map_err(|stopped| Wrong::Unopenable(format!("later: {}", stopped.trouble)))?;
    work.stop();
    let behind = disk.operations();
    for k in 0..LOSSES {
        let span = behind - from + 1;
        let at = from + random.index(if k % 2 == 0 { span } else { span.min(FIRST) });
        lose_power(&work, left, at, random, tally)?;
    }
    lose_power(&work, left, behind, random, tally)
}

/// Opens what is there, and sees that it may be there.
pub(crate) fn reopened(
    disk: &SimDisk,
    left: &Left,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<Work, Wrong> {
    let work = Work::go_on(disk, random.draw(), left.messages)
        .map_err(|trouble| Wrong::Unopenable(format!("again: {trouble}")))?;
    let found = &work.model;
    if !left.allowed().contains(&found) {
        let (there, wanted) = (found.records(), left.acknowledged.records());
        let why = format!("{there} records after reopening, {wanted} acknowledged");
        return Err(Wrong::Other(why));
    }
    if *found != left.acknowledged {
        tally.count("unknown and kept");
    }
    Ok(work)
}

fn lose_power(
    work: &Work,
    left: &Left,
    at: usize,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), Wrong> {
    tally.count("images");
    let losses = [
        Loss::Everything,
        Loss::Pieces(512),
        Loss::Nothing,
        Loss::Pieces(4096),
        Loss::Prefix(512),
        Loss::AllButOne,
    ];
    let loss = losses[random.index(losses.len())];
    let image = work.disk.after_power_loss(at, loss, random);
    let opened = work.parts[0].done;
    let allowed = if at < opened { left.allowed() } else { work.allowed(at) };
    // A journal whose making failed may be seen, and gone before anything is written to it.
    let may_be_absent = left.is_unmade() && allowed.iter().any(|model| model.0.is_empty());
    let wanted = Wanted { allowed: &allowed, may_be_absent, close: false };
    look(&image, wanted).map(drop).map_err(|wrong| match wrong {
        Wrong::Unopenable(why) => Wrong::Unopenable(lost(at, opened, loss, &why)),
        Wrong::Other(why) => Wrong::Other(lost(at, opened, loss, &why)),
        panic => panic,
    })
}

fn lost(at: usize, opened: usize, loss: Loss, why: &str) -> String {
    let when = if at < opened { "while it was opened again" } else { "after it was opened again" };
    format!("power lost at operation {at} ({loss:?}), {when}: {why}")
}
