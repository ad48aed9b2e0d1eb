//! One run of the program under test: from its start to its end, or to a crash.

use std::{
    fmt::{Debug, Display},
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
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
pub(crate) fn live<F, Fut, T, E>(world: &World, program: &F) -> Result<Lived, String>
where
    F: Fn(World) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    T: Debug,
    E: Display,
{
    let home = world.begin()?;
    let idle = Arc::new(Notify::new());
    let parks = Arc::clone(&idle);
    // With one thread, "about to park" is exactly "nothing can go on".
    let runtime = Builder::new_current_thread()
        .enable_time()
        .on_thread_park(move || parks.notify_one())
        .build()
        .map_err(|error| format!("no async runtime: {error}"))?;
    let run = || runtime.block_on(drive(world, &idle, program(world.clone())));
    let lived = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Lived::Panicked(text.unwrap_or("something that is no text").to_owned())
    });
    drop(runtime);
    drop(home);
    world.end();
    Ok(lived)
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
        // What was said while this slept is old: others may have been woken since.
        let _old = pin!(idle.notified()).poll(&mut Context::from_waker(Waker::noop()));
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
        if world.is_writing() {
            // The journal on disk has threads of its own: nothing else can go on until they have.
            rest().await;
            continue;
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

#[expect(clippy::disallowed_methods, reason = "real disks take real time")]
async fn rest() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
