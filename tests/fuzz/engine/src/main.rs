//! Gives a target what libFuzzer thinks of. `DEEDBOOK_FUZZ` names the target.

#![no_main]

use std::sync::LazyLock;

use deedbook_fuzz::{Target, panics};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("DEEDBOOK_FUZZ").unwrap_or_default();
    Target::of(&name).unwrap_or_else(|| {
        eprintln!("DEEDBOOK_FUZZ names no target: {name:?}");
        std::process::exit(2);
    })
});

fuzz_target!(
    init: {
        // In place of the engine's own: it would end at panics of the storage library, which are
        // caught.
        panics::listen();
    },
    |input: &[u8]| {
        if let Err(broken) = TARGET.attempt(input) {
            eprintln!("BROKEN: {broken}");
            std::process::abort();
        }
    }
);
