//! One random workflow crashed at every append, or cancelled: it ends as it does uncrashed, every
//! step is settled once, and effects happen as often as their policy says.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use deedbook::{Deedbook, Doubt, ErrorKind, PolicyKind};
use deedbook_journal::{
    history::{Answer, AttemptEnd, CallKind, History},
    record::{Header, Kind},
};
use deedbook_memory::LastAppend;
use futures::FutureExt;

use super::{Interpreter, Maker, Program, in_a_race, line_of, signals, value_of};
use crate::{
    durable::Durable,
    random::Random,
    simulation::{Crash, Ran, Simulation, THREAD, Visitor},
};

/// What a sweep came upon.
#[derive(Debug, Clone, Copy, Default)]
pub struct Swept {
    /// Crashes.
    pub crashes: u64,
    /// Words of people that the code could not read.
    pub unread: u64,
}

/// Sends every signal once and decides every other request, when nothing else moves.
fn visitor(program: &Program, durable: Arc<Mutex<Durable>>) -> Visitor {
    let mut unsent = Vec::new();
    for (number, count) in signals(program) {
        unsent.extend((0..count).rev().map(|nth| (number, nth)));
    }
    Box::new(move |book: &Deedbook| {
        let next = unsent.pop();
        let open = {
            let durable = durable.lock().unwrap();
            let calls = durable.history.calls().iter();
            let mut open = calls.filter(|c| {
                let asked = c.kind == CallKind::Approval && c.outcome.is_none();
                asked && !c.id.name.as_str().starts_with("unanswered")
            });
            open.next().map(|c| c.id.to_string())
        };
        async move {
            if let Some((number, nth)) = next {
                let name = format!("signal{number}");
                return book.signal(THREAD, &name, &value_of(number, nth)).await.is_ok();
            }
            match open {
                Some(request) => {
                    let granted = request.len() % 2 == 0;
                    let decided = book.decide(THREAD, &request, granted, "user:ada", "looks right");
                    decided.await.is_ok()
                }
                None => false,
            }
        }
        .boxed()
    })
}

/// The life of one thread with this program, in a hostile world.
pub fn simulation(seed: u64, program: &Program) -> Simulation<Interpreter> {
    let code = program.clone();
    let mut simulation = Simulation::new(seed, seed, move |world| {
        let code = code.clone();
        Interpreter::of(world, move |_| code.clone())
    });
    simulation.settles_doubts = true;
    simulation.misspeaks = true;
    simulation.gated = !seed.is_multiple_of(3);
    let visitor = visitor(program, simulation.durable.clone());
    simulation.visitor(visitor)
}

/// Steps that may not run again by themselves, and were under way when the process died.
fn left_in_the_window(history: &History) -> BTreeSet<String> {
    let calls = history.calls().iter();
    let left = calls.filter(|call| {
        call.terms.is_some_and(|t| t.policy == PolicyKind::AtMostOnce)
            && call.outcome.is_none()
            && call.attempts.last().is_some_and(|a| a.end == AttemptEnd::Open)
    });
    left.map(|call| call.id.to_string()).collect()
}

/// Checks what holds for every thread that has ended. `may_be_left` says of which lines something
/// may be left undone.
fn check(simulation: &Simulation<Interpreter>, may_be_left: impl Fn(u64) -> bool, what: &str) {
    let wrongs = simulation.world.wrongs();
    assert!(wrongs.is_empty(), "{what}: {wrongs:#?}");
    let durable = simulation.durable.lock().unwrap();
    let left = |name: &str| line_of(name).is_some_and(&may_be_left);
    for call in durable.history.calls() {
        let settled = call.outcome.is_some();
        let name = call.id.name.as_str();
        let ignored = call.kind == CallKind::Approval && name.starts_with("unanswered");
        assert!(settled || ignored || left(name), "{what}: {} was not settled", call.id);
        let (Some(key), Some(terms)) = (&call.key, &call.terms) else {
            continue;
        };
        let landed = simulation.world.landed(key);
        match terms.policy {
            PolicyKind::Idempotent | PolicyKind::Read => {}
            _ => assert!(landed <= 1, "{what}: {} happened {landed} times", call.id),
        }
        let value = matches!(call.outcome.as_ref().map(|o| &o.answer), Some(Answer::Value(_)));
        // A person said that it happened, and nobody needed to be told again how.
        let last = call.attempts.last().map(|a| a.end.clone());
        let said = matches!(last, Some(AttemptEnd::Ambiguous(Doubt::Unreadable, _)));
        assert_eq!(value || said, landed > 0, "{what}: {} happened {landed} times", call.id);
    }
    for (step, doubt) in &simulation.settled {
        let call = durable.history.find(CallKind::Step, step).unwrap();
        let policy = call.terms.unwrap().policy;
        assert!(
            policy == PolicyKind::AtMostOnce || left(call.id.name.as_str()),
            "{what}: {step} was in doubt ({doubt})"
        );
    }
    for record in simulation.records() {
        let header = Header::parse(&record.header).unwrap();
        if header.kind == Kind::TimerFired {
            let timer = durable.history.opened_at(header.call.unwrap()).unwrap();
            assert!(header.time >= timer.due.unwrap(), "{what}: {} fired early", timer.id);
        }
    }
}

fn ended(ran: Ran<u64>, what: &str) -> u64 {
    match ran {
        Ran::Ended(Ok(result)) => result,
        Ran::Ended(Err(error)) => panic!("{what}: {error}"),
        Ran::Crashed => panic!("{what}: it crashed"),
    }
}

/// Runs one program uncrashed and crashed at every append.
///
/// # Panics
/// Something does not hold.
pub fn crash_everywhere(seed: u64) -> Swept {
    let program = Maker::program(seed);
    let mut uncrashed = simulation(seed, &program);
    let what = format!("program {seed}, uncrashed");
    let result = ended(uncrashed.incarnation(Crash::Never), &what);
    let races = in_a_race(&program);
    let raced = |number| races.contains(&number);
    check(&uncrashed, raced, &what);
    let mut swept = Swept::default();
    for at in 0..uncrashed.appends() {
        for last in [LastAppend::Applied, LastAppend::Lost] {
            let what = format!("program {seed}, crashed at append {at} ({last:?})");
            let mut crashed = simulation(seed, &program);
            if let Ran::Ended(ended) = crashed.incarnation(Crash::AtAppend(at, last)) {
                assert_eq!(ended.unwrap(), result, "{what}");
                continue;
            }
            swept.crashes += 1;
            let window = left_in_the_window(&crashed.durable.lock().unwrap().history);
            let before = crashed.settled.len();
            let again = ended(crashed.incarnation(Crash::Never), &what);
            assert_eq!(again, result, "{what}: {program:#?}");
            check(&crashed, raced, &what);
            let unreadable = crashed.settled.iter().filter(|(_, d)| *d == Doubt::Unreadable);
            swept.unread += unreadable.count() as u64;
            let died = crashed.settled.iter().skip(before).filter(|(_, d)| *d == Doubt::Crash);
            let died: BTreeSet<_> = died.map(|(step, _)| step.clone()).collect();
            // What a race leaves undone may be settled by its loser's doubt, or need not be.
            let counts = |steps: BTreeSet<String>| -> BTreeSet<String> {
                let durable = crashed.durable.lock().unwrap();
                let raced = |step: &String| {
                    let call = durable.history.find(CallKind::Step, step).unwrap();
                    line_of(call.id.name.as_str()).is_some_and(raced)
                };
                steps.into_iter().filter(|step| !raced(step)).collect()
            };
            let (died, window) = (counts(died), counts(window));
            assert_eq!(died, window, "{what}: in doubt exactly where the crash was");
        }
    }
    let what = format!("program {seed}, crashed many times");
    let mut crashed = simulation(seed, &program);
    // A third crash in one body would park it as poison.
    let many = crashed.chain(2).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(many, result, "{what}");
    check(&crashed, raced, &what);
    swept
}

/// Runs one program that is cancelled, crashed somewhere or not. Says whether it was, and how many
/// doubts were settled.
///
/// # Panics
/// Something does not hold.
pub fn cancel_somewhere(seed: u64) -> (bool, usize) {
    let program = Maker::program(seed);
    let mut random = Random::new(!seed);
    let mut simulation = simulation(seed, &program);
    simulation.cancels_at = Some(random.below(12));
    let what = format!("program {seed}, cancelled");
    if random.once_in(2) {
        simulation.incarnation(Crash::AtAppend(random.below(6), LastAppend::Applied));
    }
    let cancelled = match simulation.incarnation(Crash::Never) {
        Ran::Ended(Ok(_)) => false,
        Ran::Ended(Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{what}: {error}");
            true
        }
        Ran::Crashed => panic!("{what}: it crashed"),
    };
    let row = simulation.row().unwrap();
    assert_eq!((row.status.is_ended(), row.open_doubts), (true, 0), "{what}");
    check(&simulation, |_| true, &what);
    (cancelled, simulation.settled.len())
}
