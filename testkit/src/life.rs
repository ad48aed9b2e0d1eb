//! One run of the program under test: from its start to its end, or to a crash.

use std::{
    fmt::{Debug, Display},
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use tokio::{runtime::Builder, sync::Notify};

use crate::world::World;

/// A run in which time has passed so often with nothing to show for it goes nowhere.
const WAITS_MAX: u32 = 5_000;

/// What became of a run.
#[derive(Debug)]
pub(crate) enum Lived {
    /// The program came to its end, with this.
    Ended(Result<String, String>),
    /// It crashed where it was told to.
    Crashed,
    /// It panicked.
    Panicked(String),
    /// It waits for something that never comes.
    Stuck,
}

/// Runs the program on what is durable, until it ends or crashes. Everything of it is gone then.
pub(crate) fn live<F, Fut, T, E>(world: &World, program: &F) -> std::io::Result<Lived>
where
    F: Fn(World) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    T: Debug,
    E: Display,
{
    let home = world.begin();
    let idle = Arc::new(Notify::new());
    let parks = Arc::clone(&idle);
    // With one thread, "about to park" is exactly "nothing can go on".
    let runtime =
        Builder::new_current_thread().on_thread_park(move || parks.notify_one()).build()?;
    let run = || runtime.block_on(drive(world, &idle, program(world.clone())));
    let lived = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Lived::Panicked(text.unwrap_or("something that is no text").to_owned())
    });
    drop(runtime);
    let stopped = home.has_stopped();
    world.end();
    // A program that hears of the crash from its journal may end before anybody sees it.
    Ok(if stopped { Lived::Crashed } else { lived })
}

async fn drive<T, E>(
    world: &World,
    idle: &Notify,
    program: impl Future<Output = Result<T, E>>,
) -> Lived
where
    T: Debug,
    E: Display,
{
    let mut program = pin!(program);
    let mut waits = 0;
    loop {
        let mut nothing = pin!(idle.notified());
        let ended = poll_fn(|cx| {
            if let Poll::Ready(ended) = program.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            nothing.as_mut().poll(cx).map(|()| None)
        });
        if let Some(ended) = ended.await {
            let ended = ended.map(|value| format!("{value:?}")).map_err(|e| e.to_string());
            return Lived::Ended(ended);
        }
        if world.is_crashing() {
            return Lived::Crashed;
        }
        if world.step() {
            waits = 0;
            continue;
        }
        waits += 1;
        if waits > WAITS_MAX || !world.pass() {
            return Lived::Stuck;
        }
    }
}
