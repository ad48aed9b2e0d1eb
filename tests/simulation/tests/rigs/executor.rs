use deedbook::planted::Broken;
use deedbook_simulation::{executor, size::Size};
use harness::Check;

use crate::{alone, crew, judge};

#[test]
fn threads_in_several_processes_keep_every_promise_and_end() {
    let _alone = alone();
    let tally = executor::run(&crew(), 0, Size::reduced().executor_seeds);
    judge(&tally);
    for check in Check::ALL {
        // A panic is counted where it comes out.
        let times = tally.of(check.name());
        assert!(times > 0 || check == Check::Panic, "{}: never", check.name());
    }
    let seeds = tally.of("seeds");
    for what in ["processes killed", "processes cut off", "journals that fail", "doubts settled"] {
        assert!(tally.of(what) * 4 > seeds, "{what}: {:?}", tally.counts);
    }
}

#[test]
fn every_broken_rule_of_the_runtime_is_noticed() {
    let _alone = alone();
    for fault in Broken::ALL {
        assert!(executor::notices(&crew(), fault), "{fault:?} is not noticed");
    }
}

/// Lives in which something was wrong once.
#[test]
fn lives_that_found_something_are_right() {
    let _alone = alone();
    for (seed, found) in [
        (491, "a run that was cut off and did not know of a takeover read again"),
        (4638, "a shutdown with a body under way began and gave back attempts for ever"),
    ] {
        let tally = executor::run(&crew(), seed, 1);
        assert!(tally.failures.is_empty(), "{found}: {:#?}", tally.failures);
    }
}
