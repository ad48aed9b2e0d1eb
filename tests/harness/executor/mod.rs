//! Many threads in several processes, in a hostile world, on a clock that a seed turns.
//!
//! A *life* is what becomes of one seed: one or two journals, each with a few threads that run
//! random workflows, and one or two processes at a time that share a journal. The seed decides
//! what happens next: which bodies and which commits come back, and in which order; what people
//! say, and when; when time passes; which process dies, is cut off from its journal until another
//! one has taken its threads over, fails at an append, starts or stops. After a while nothing bad
//! happens any more, and every thread must come to its end.
//!
//! What must hold is a [`Check`] each; what of it shows in the records is checked in
//! `records`, and what shows when they are replayed in `again`.

mod again;
mod life;
mod people;
mod process;
mod records;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use deedbook::planted::draw_from;

use crate::{check::Check, random::Random};
use life::Life;

/// What became of a seed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lived {
    /// How often what was checked.
    pub checks: BTreeMap<Check, u64>,
    /// How often what was done.
    pub counts: BTreeMap<&'static str, u64>,
    /// What does not hold.
    pub wrongs: Vec<String>,
    /// A hash of every record of every thread: equal for equal lives.
    pub print: u64,
}

/// Lives the life of a seed. One that makes no end in `rounds_max` rounds once nothing bad happens
/// any more is stuck.
#[must_use]
pub fn live(seed: u64, rounds_max: u64) -> Lived {
    draw_from(Some(seed));
    let lived = catch_unwind(AssertUnwindSafe(|| alive(seed, rounds_max)));
    draw_from(None);
    lived.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let why = format!("{}: {}", Check::Panic.name(), text.unwrap_or_default());
        Lived { wrongs: vec![why], ..Lived::default() }
    })
}

fn alive(seed: u64, rounds_max: u64) -> Lived {
    let runtime = tokio::runtime::Builder::new_current_thread()
        // One yield of the driver then lasts until nothing else can run.
        .event_interval(1 << 24)
        .build()
        .expect("a runtime");
    let mut life = Life::new(seed);
    runtime.block_on(life.drive(rounds_max));
    life.end();
    if life.all_ended() {
        records::check(&mut life);
        let mut random = Random::new(seed ^ 0xA6A1);
        runtime.block_on(again::check(&mut life, &mut random));
    }
    drop(runtime);
    life.lived()
}
