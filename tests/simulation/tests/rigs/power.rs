use deedbook_simulation::{power::run, size::Size, work::Work};

use crate::{alone, crew, judge};

#[test]
fn nothing_acknowledged_is_lost_at_any_operation() {
    let _alone = alone();
    let size = Size::reduced();
    let seeds: Vec<u64> = (0..size.power_seeds).collect();
    let tally = run(&crew(), &seeds, size.power, None);
    judge(&tally);
    assert!(tally.of("crash points") >= 2000, "{:?}", tally.counts);
}

#[test]
fn a_seed_does_the_same_twice() {
    let _alone = alone();
    for seed in 0..3 {
        let once = Work::done(seed, 40).unwrap().disk.journal();
        let again = Work::done(seed, 40).unwrap().disk.journal();
        let differ = once.iter().zip(&again).position(|(a, b)| a != b);
        assert_eq!(
            (differ, once.len()),
            (None, again.len()),
            "seed {seed}: {:?}",
            differ.map(|k| (&once[k], &again[k]))
        );
    }
}
