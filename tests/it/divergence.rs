//! G5: code that disagrees with the records is told so, field by field, before anything is
//! executed; the right code goes on afterwards; and a change behind `patched` is no disagreement.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use deedbook::{
    Context, Divergence, DivergenceKind, Error, ErrorKind, Instead, Result, Status, Workflow,
};
use futures::FutureExt;
use harness::{Crash, Fate, Ran, Simulation, THREAD, World};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Payment {
    amount: u64,
    card: String,
}

/// Versions of one workflow's code.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Code {
    Original,
    Renamed,
    Inserted,
    Removed,
    /// As `Removed`, and says so.
    Retired,
    Swapped,
    OtherAmount,
    OtherCard,
    ByKey,
    ByArguments,
    EndsEarly,
    /// Waits for a channel before `pay`.
    WaitsOutside,
    OtherWhole,
    /// `item` so often, then `total`.
    Items(u64),
}

struct Shop {
    world: World,
    code: Code,
}

impl Shop {
    async fn step(&self, ctx: Context, name: &str) -> Result<u64> {
        let step = ctx.step(name).idempotent();
        let args = if self.code == Code::OtherWhole { "everything" } else { name };
        step.run(&args, async move |op| self.world.effect(&op, name, Fate::Happens).await).await
    }

    async fn pay(&self, ctx: Context, name: &str) -> Result<u64> {
        let payment = Payment {
            amount: if self.code == Code::OtherAmount { 4300 } else { 4200 },
            card: if self.code == Code::OtherCard { "4000-0002" } else { "4000-0001" }.into(),
        };
        let step = ctx.step(name).redact("/card").idempotent();
        let step = match self.code {
            Code::ByKey => step.key("refund:4821"),
            Code::ByArguments => step.by_arguments(),
            _ => step,
        };
        let args = format!("{payment:?}");
        step.run(&payment, async move |op| self.world.effect(&op, &args, Fate::Happens).await).await
    }

    async fn items(&self, ctx: Context, count: u64) -> Result<u64> {
        for _ in 0..count {
            self.step(ctx.clone(), "item").await?;
        }
        self.step(ctx.clone(), "total").await
    }
}

impl Workflow for Shop {
    const NAME: &'static str = "shop";
    type Input = ();
    type Output = u64;

    async fn run(&self, ctx: Context, (): &()) -> Result<u64> {
        match self.code {
            Code::Items(count) => {
                self.items(ctx.clone(), count).await?;
            }
            Code::Swapped => {
                self.pay(ctx.clone(), "pay").await?;
                self.step(ctx.clone(), "reserve").await?;
                self.step(ctx.clone(), "mail").await?;
            }
            code => {
                self.step(ctx.clone(), "reserve").await?;
                match code {
                    Code::EndsEarly => return Ok(0),
                    Code::Removed => {}
                    Code::Retired => ctx.retired("pay"),
                    Code::WaitsOutside => std::future::pending().await,
                    Code::Renamed => {
                        self.pay(ctx.clone(), "pay_v2").await?;
                    }
                    _ => {
                        if code == Code::Inserted {
                            self.step(ctx.clone(), "audit").await?;
                        }
                        self.pay(ctx.clone(), "pay").await?;
                    }
                }
                self.step(ctx.clone(), "mail").await?;
            }
        }
        ctx.signal("go").await
    }
}

/// A thread that has done everything and waits for its signal, then lost its process.
fn recorded(code: Code) -> (Simulation<Shop>, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(false));
    let may = open.clone();
    let shop = move |world| Shop { world, code };
    let mut simulation = Simulation::new(1, (), shop).visitor(Box::new(move |book| {
        let send = may.swap(false, Ordering::SeqCst);
        async move {
            if send {
                book.signal(THREAD, "go", &7_u64).await.unwrap();
            }
            send
        }
        .boxed()
    }));
    assert!(matches!(simulation.incarnation(Crash::AtRound(60)), Ran::Crashed));
    (simulation, open)
}

/// Deploys other code on a recorded thread: it must diverge, and execute nothing; and the right
/// code must be able to go on.
fn diverges(original: Code, other: Code) -> (Error, Divergence) {
    let (mut simulation, open) = recorded(original);
    let (before, records) = (simulation.world.executions(), simulation.records().len());
    assert!(before > 2, "the thread was to be recorded");
    simulation.deploy(move |world| Shop { world, code: other });
    for _ in 0..2 {
        let Ran::Ended(Err(error)) = simulation.incarnation(Crash::Never) else {
            panic!("{other:?} did not diverge");
        };
        assert_eq!(error.kind(), ErrorKind::Diverged, "{other:?}: {error}");
        assert_eq!(simulation.status(), Some(Status::Diverged));
        assert_eq!(simulation.world.executions(), before, "{other:?} executed something");
        assert_eq!(simulation.records().len(), records, "{other:?} recorded something");
        let divergence = error.divergence().unwrap().clone();
        assert_eq!(error.to_string(), format!("thread \"{THREAD}\": {divergence}"));
        if original != other {
            simulation.deploy(move |world| Shop { world, code: original });
            open.store(true, Ordering::SeqCst);
            let Ran::Ended(result) = simulation.incarnation(Crash::Never) else {
                panic!("it crashed");
            };
            assert_eq!(result.unwrap(), 7, "the right code goes on after {other:?}");
            assert!(simulation.world.wrongs().is_empty(), "{:?}", simulation.world.wrongs());
            return (error, divergence);
        }
    }
    unreachable!("the codes differ")
}

fn not_made(other: Code, call: &str, instead: &Instead) {
    let (error, divergence) = diverges(Code::Original, other);
    let kind = DivergenceKind::NotMade { instead: instead.clone() };
    assert_eq!(divergence.kind, kind, "{other:?}");
    assert_eq!(divergence.call, call, "{other:?}");
    let error = error.to_string();
    let named = match instead {
        Instead::New(call) | Instead::Behind(call) => call,
        _ => "not in the journal",
    };
    for part in ["ctx.patched", "ctx.retired", call, named] {
        assert!(error.contains(part), "{part} in {error}");
    }
    // What may be a wait outside of the journal is said to be one, and nothing else is.
    let foreign = !matches!(instead, Instead::New(_));
    assert_eq!(error.contains("waits for something that is not in the journal"), foreign);
}

fn new(call: &str) -> Instead {
    Instead::New(call.to_owned())
}

fn behind(call: &str) -> Instead {
    Instead::Behind(call.to_owned())
}

#[test]
fn b19_a_renamed_step_does_not_run_again() {
    not_made(Code::Renamed, "pay#0", &new("pay_v2#0"));
}

#[test]
fn b19_an_inserted_step_does_not_run() {
    not_made(Code::Inserted, "pay#0", &new("audit#0"));
}

#[test]
fn b19_a_removed_step_is_missed() {
    not_made(Code::Removed, "pay#0", &behind("mail#0"));
}

#[test]
fn a_removed_step_that_is_said_to_be_retired_is_not_missed() {
    let (mut simulation, open) = recorded(Code::Original);
    let before = simulation.world.executions();
    simulation.deploy(|world| Shop { world, code: Code::Retired });
    open.store(true, Ordering::SeqCst);
    let Ran::Ended(result) = simulation.incarnation(Crash::Never) else {
        panic!("it crashed");
    };
    assert_eq!(result.unwrap(), 7);
    assert_eq!(simulation.world.executions(), before);
}

#[test]
fn b19_swapped_steps_are_told_apart() {
    not_made(Code::Swapped, "reserve#0", &behind("pay#0"));
}

#[test]
fn s28_other_arguments_are_shown_field_by_field() {
    let (error, divergence) = diverges(Code::Original, Code::OtherAmount);
    assert_eq!(divergence.call, "pay#0");
    assert!(matches!(&divergence.kind, DivergenceKind::Arguments(d) if d.len() == 1));
    let error = error.to_string();
    for part in ["pay#0", "/amount", "4200", "4300"] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn s28_another_whole_value_is_shown_as_the_arguments() {
    let (error, _) = diverges(Code::Original, Code::OtherWhole);
    let error = error.to_string();
    let wanted = "reserve#0: arguments: recorded \"reserve\", now \"everything\"; ";
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn a_wait_outside_of_the_journal_before_a_recorded_call_is_said_to_be_possible() {
    not_made(Code::WaitsOutside, "pay#0", &Instead::Nothing);
}

#[test]
fn s28_hidden_fields_are_named_and_not_shown() {
    let (error, _) = diverges(Code::Original, Code::OtherCard);
    let error = error.to_string();
    assert!(error.contains("/card"), "{error}");
    assert!(!error.contains("4000"), "{error}");
}

#[test]
fn b19_another_kind_of_identity_is_a_divergence() {
    for other in [Code::ByKey, Code::ByArguments] {
        let (_, divergence) = diverges(Code::Original, other);
        assert!(matches!(divergence.kind, DivergenceKind::Identity { .. }), "{divergence}");
        assert!(divergence.call.contains("pay"), "{divergence}");
    }
}

#[test]
fn s29_a_loop_that_runs_less_often_stops_at_the_missing_call() {
    let (_, divergence) = diverges(Code::Items(3), Code::Items(2));
    let kind = DivergenceKind::NotMade { instead: behind("total#0") };
    assert_eq!((divergence.call.as_str(), divergence.kind), ("item#2", kind));
}

#[test]
fn s29_a_loop_that_runs_more_often_stops_before_the_new_call() {
    let (_, divergence) = diverges(Code::Items(3), Code::Items(4));
    let kind = DivergenceKind::NotMade { instead: new("item#3") };
    assert_eq!((divergence.call.as_str(), divergence.kind), ("total#0", kind));
}

#[test]
fn s30_code_that_ends_before_its_records_do_does_not_end_the_thread() {
    let (_, divergence) = diverges(Code::Original, Code::EndsEarly);
    assert_eq!(divergence.kind, DivergenceKind::EndedEarly);
    assert_eq!(divergence.call, "pay#0");
}

/// Code before and after a deliberate change.
struct Changed {
    world: World,
    changed: bool,
}

impl Changed {
    async fn step(&self, ctx: Context, name: &'static str, args: u64) -> Result<u64> {
        let step = ctx.step(name).idempotent();
        let paid =
            step.run(&args, async move |op| self.world.effect(&op, args, Fate::Happens).await);
        Ok(paid.await? % 1000)
    }

    /// Two branches: the change is in the middle of the left one, and between the two and the end.
    async fn left(&self, ctx: Context) -> Result<u64> {
        let look = ctx.step("look").read();
        let seen: u64 =
            look.run(&(), async move |_| Ok(self.world.read("left/look#0", 9).await)).await?;
        if self.changed && ctx.patched("audit") {
            self.world.note("audited");
            self.step(ctx.clone(), "audit", seen).await?;
            return self.step(ctx, "pay_v2", seen + 1).await;
        }
        self.step(ctx, "pay", seen).await
    }

    async fn right(&self, ctx: Context) -> Result<u64> {
        let mut total = 0;
        for n in 0..3 {
            total += self.step(ctx.clone(), "charge", n).await?;
        }
        Ok(total)
    }
}

impl Workflow for Changed {
    const NAME: &'static str = "changed";
    type Input = ();
    type Output = u64;

    async fn run(&self, ctx: Context, (): &()) -> Result<u64> {
        self.world.started();
        let (left, right) = (ctx.branch("left"), ctx.branch("right"));
        let (left, right) = tokio::join!(self.left(left), self.right(right));
        let total = left? + right?;
        if self.changed && ctx.patched("thrice") {
            self.world.note("thrice");
            return self.step(ctx, "close_v2", total * 3).await;
        }
        self.step(ctx, "close", total).await
    }
}

#[test]
fn a_patched_change_never_diverges_wherever_the_crash_was() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..600 {
        let code = |changed| move |world| Changed { world, changed };
        let mut simulation = Simulation::new(seed, (), code(false));
        simulation.settles_doubts = true;
        let round = simulation.random.below(30);
        if let Ran::Ended(result) = simulation.incarnation(Crash::AtRound(round)) {
            result.unwrap();
            continue;
        }
        simulation.deploy(code(true));
        let result = simulation.chain(4);
        let result = result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let trace = simulation.world.trace();
        let (replayed, again) = simulation.replay();
        assert_eq!(replayed.unwrap(), result, "seed {seed}");
        assert_eq!(again, trace, "seed {seed}");
        let wrongs = simulation.world.wrongs();
        assert!(wrongs.is_empty(), "seed {seed}: {wrongs:#?}");
        let durable = simulation.durable.lock().unwrap();
        let made = |step| durable.history.find(deedbook_journal::history::CallKind::Step, step);
        // One way or the other, and never both.
        let ways = [("left/pay#0", "left/pay_v2#0"), ("close#0", "close_v2#0")];
        for (one, other) in ways {
            assert_ne!(made(one).is_some(), made(other).is_some(), "seed {seed}: {one}");
            if made(one).is_some() { old += 1 } else { new += 1 }
        }
        assert_eq!(made("left/audit#0").is_some(), made("left/pay_v2#0").is_some());
    }
    assert!(old > 50 && new > 50, "both ways were to be taken: {old} old, {new} new");
}

#[test]
fn a_new_thread_takes_the_new_way_wherever_it_crashes_until_the_answer_is_durable() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(seed, (), |world| Changed { world, changed: true });
        let Ran::Ended(result) = simulation.incarnation(Crash::Never) else {
            panic!("it crashed");
        };
        result.unwrap();
        assert_eq!(simulation.world.trace(), ["audited", "thrice"], "seed {seed}");
        // And a thread that crashed ends all the same, and replays.
        let mut simulation = Simulation::new(seed, (), |world| Changed { world, changed: true });
        simulation.settles_doubts = true;
        let result = simulation.chain(6).unwrap();
        let (replayed, _) = simulation.replay();
        assert_eq!(replayed.unwrap(), result, "seed {seed}");
        assert!(simulation.world.wrongs().is_empty(), "seed {seed}");
    }
}

#[test]
fn a_book_says_that_a_thread_diverged() {
    let (mut simulation, _) = recorded(Code::Original);
    simulation.deploy(|world| Shop { world, code: Code::Renamed });
    simulation.incarnation(Crash::Never);
    let row = simulation.row().unwrap();
    assert_eq!(row.status, Status::Diverged);
    let detail = row.detail.unwrap();
    assert!(detail.contains("pay#0") && !detail.contains("4000"), "{detail}");
}
