use deedbook::{PolicyKind, planted::Broken};
use deedbook_simulation::{
    kill::{Plan, run},
    planted::{Rig, notices},
    size::Size,
};

use crate::{PROGRAM, alone, crew, judge};

#[test]
fn effects_happen_as_their_policy_says_wherever_a_process_is_killed() {
    let _alone = alone();
    let tally = run(&crew(), PROGRAM.as_ref(), &Plan::of(Size::reduced().kill));
    judge(&tally);
    for (what, least) in [
        ("kills", 80),
        ("kills while recovering", 20),
        ("points", 30),
        ("records unknown and kept", 1),
        ("records unknown and lost", 1),
        ("steps in doubt", 1),
    ] {
        assert!(tally.of(what) >= least, "{what}: {:?}", tally.counts);
    }
    // What a drain does depends on the moment in which it begins.
    assert!(tally.of("points not come to") * 10 < tally.of("chains"), "{:?}", tally.counts);
}

/// A window is where a kill leaves a doubt: just there, and not a point beside it.
#[test]
fn a_step_is_in_doubt_exactly_in_the_window() {
    let _alone = alone();
    let in_doubt = |point: &str| {
        let points = Some(vec![point.to_owned()]);
        let policies = vec![PolicyKind::AtMostOnce];
        let plan = Plan { points, policies, seeds: vec![0], ..Plan::of(Size::reduced().kill) };
        let tally = run(&crew(), PROGRAM.as_ref(), &plan);
        judge(&tally);
        assert_eq!(tally.of("kills"), 1, "{point}");
        tally.of("steps in doubt")
    };
    // From where its intent is durable to where its outcome is about to be.
    for within in ["after append 2", "before effect pay 1", "after effect pay 1", "before append 3"]
    {
        assert_eq!(in_doubt(within), 1, "{within}");
    }
    // Both of two that are under way at once.
    for both in ["after append 3", "before effect ship 1", "before append 4"] {
        assert_eq!(in_doubt(both), 2, "{both}");
    }
    for without in ["open 1", "before append 2", "waiting 1", "sleeping 1", "answer 1", "closed 1"]
    {
        assert_eq!(in_doubt(without), 0, "{without}");
    }
}

#[test]
fn a_body_before_its_intent_and_one_that_runs_again_in_doubt_are_noticed_by_kills() {
    let _alone = alone();
    for fault in [Broken::BodyBeforeIntent, Broken::RerunInDoubt] {
        let noticed = notices(&crew(), PROGRAM.as_ref(), Rig::Kill, fault).unwrap();
        assert!(noticed, "{fault:?}");
    }
}

/// What a rig that was itself killed has left is no longer in the way of memory.
#[test]
fn folders_of_processes_that_are_gone_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let left = folder.path().join(format!("deedbook-kill-{}-abcdef", child.id()));
    let other = folder.path().join(format!("deedbook-kill-{}-abcdef", std::process::id()));
    for path in [&left, &other] {
        std::fs::create_dir(path).unwrap();
    }
    let plan = Plan {
        folder: folder.path().into(),
        points: Some(vec!["nope".into()]),
        seeds: vec![1],
        policies: vec![PolicyKind::Read],
        ..Plan::of(Size::reduced().kill)
    };
    let _ran = run(&crew(), PROGRAM.as_ref(), &plan);
    assert!(!left.exists() && other.exists());
}
