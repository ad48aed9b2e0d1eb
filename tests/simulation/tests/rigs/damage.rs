use deedbook_simulation::{
    damage::{Fixture, Which, apart},
    size::Size,
};

use crate::{PROGRAM, alone, crew, judge};

#[test]
fn damage_is_told_or_harmless_and_what_is_whole_stays_readable() {
    let _alone = alone();
    let stride = Size::reduced().damage;
    let tally = apart::run(&crew(), PROGRAM.as_ref(), &Which::ALL, stride, None).unwrap();
    judge(&tally);
    let (cases, aborted) = (tally.of("cases"), tally.of(apart::ABORTED));
    assert!(cases > 2000, "{:?}", tally.counts);
    assert!(aborted * 1000 < cases, "{:?}", tally.counts);
    for what in ["harmless", "refused when opened", "reported when read", "written to"] {
        assert!(tally.of(what) > 100, "{what}: {:?}", tally.counts);
    }
    let (readable, damaged) =
        (tally.of("threads readable beside damage"), tally.of("threads damaged"));
    assert!(readable > damaged, "{readable} readable, {damaged} damaged");
}

#[test]
fn a_case_is_the_same_bytes_again() {
    let _alone = alone();
    for which in [Which::Closed, Which::Unmarked] {
        let bytes = || {
            let disk = Fixture::new(which).unwrap().disk;
            disk.names().iter().map(|name| disk.read(name).unwrap()).collect::<Vec<_>>()
        };
        assert!(bytes() == bytes(), "{which:?}");
    }
}
