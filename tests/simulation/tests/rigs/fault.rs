use deedbook_simulation::{close, fault, gate, size::Size};

use crate::{alone, crew, judge};

#[test]
fn a_failing_operation_loses_nothing_and_its_outcome_is_settled_by_reopening() {
    let _alone = alone();
    let size = Size::reduced();
    let all = (0..size.fault_seeds).flat_map(fault::cases);
    let cases: Vec<_> = all.step_by(size.fault_every).collect();
    let tally = fault::run(&crew(), &cases);
    judge(&tally);
    // The set is not all of one kind.
    for what in ["unknown", "unknown and kept", "failed", "dead handles", "not made", "not opened"]
    {
        assert!(tally.of(what) > 0, "{what}: {:?}", tally.counts);
    }
}

#[test]
fn syncs_that_fail_one_after_the_other_lose_nothing() {
    let _alone = alone();
    let seeds: Vec<u64> = (0..Size::reduced().gate_seeds).collect();
    let tally = gate::run(&crew(), &seeds);
    judge(&tally);
    assert!(tally.of("syncs that failed") > seeds.len() as u64, "{:?}", tally.counts);
    assert!(tally.of("unknown and kept") > 0, "{:?}", tally.counts);
}

#[test]
fn a_close_that_failed_is_not_believed_before_it_is_durable() {
    let _alone = alone();
    let cases: Vec<_> = close::cases().into_iter().step_by(3).collect();
    let tally = close::run(&crew(), &cases);
    judge(&tally);
    assert!(tally.of("closes that failed") > 20, "{:?}", tally.counts);
}
