//! G3 and G4 over random workflows: crashed at every append and resumed, they end as they do
//! uncrashed, every step is settled once, and effects happen as often as their policy says.

use std::sync::atomic::{AtomicU64, Ordering};

use harness::program::sweep::{cancel_somewhere, crash_everywhere};

/// How many random workflows are run.
const PROGRAMS: u64 = 320;

#[test]
fn random_workflows_that_are_cancelled_end_and_account_for_every_effect() {
    let (mut cancelled, mut settled) = (0, 0);
    for seed in 0..PROGRAMS {
        let (was_cancelled, doubts) = cancel_somewhere(seed);
        cancelled += u64::from(was_cancelled);
        settled += if was_cancelled { doubts } else { 0 };
    }
    assert!(cancelled > PROGRAMS / 2, "only {cancelled} were cancelled");
    assert!(settled > 50, "only {settled} doubts were settled in them");
}

#[test]
fn random_workflows_crashed_at_every_append_end_as_they_do_uncrashed() {
    let (crashes, unread) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (crashes, unread) = (&crashes, &unread);
            scope.spawn(move || {
                for seed in (half..PROGRAMS).step_by(2) {
                    let swept = crash_everywhere(seed);
                    crashes.fetch_add(swept.crashes, Ordering::Relaxed);
                    unread.fetch_add(swept.unread, Ordering::Relaxed);
                }
            });
        }
    });
    let crashes = crashes.into_inner();
    assert!(crashes > PROGRAMS * 8, "only {crashes} crashes");
    let unread = unread.into_inner();
    assert!(unread > PROGRAMS, "only {unread} words that the code could not read");
}
