//! Panics, and whose they are.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook},
    sync::{Mutex, Once, PoisonError},
};

use crate::Broken;

/// The first panic of ours since it was last asked for, in any thread.
static OURS: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    /// The last panic of this thread.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs something whose panics are findings, also those that are caught somewhere inside: the
/// storage library may panic over damage, our own code may not.
///
/// # Errors
/// What it says, or where it panicked.
pub fn none_of_ours(run: impl FnOnce() -> Result<(), Broken>) -> Result<(), Broken> {
    static ONCE: Once = Once::new();
    ONCE.call_once(listen);
    let ran = catch_unwind(AssertUnwindSafe(run));
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (ran, ours) {
        (_, Some(ours)) => Err(ours),
        (Err(_), None) => {
            let last = LAST.take().unwrap_or_else(|| "without a word".into());
            Err(format!("a panic that nobody caught: {last}"))
        }
        (Ok(result), None) => result,
    }
}

/// Hears of every panic from now on, and prints none. The engine would end at any.
pub fn listen() {
    set_hook(Box::new(hear));
}

fn hear(panic: &PanicHookInfo<'_>) {
    let told = panic.to_string();
    LAST.set(Some(told.clone()));
    let foreign = panic.location().is_some_and(|place| {
        // Crates of others lie in cargo's home, the standard library has a path of its makers.
        let file = place.file();
        file.contains("/registry/src/") || file.starts_with("/rustc/")
    });
    if !foreign {
        let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
        ours.get_or_insert(told);
    }
}
