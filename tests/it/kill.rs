//! Real processes, really killed: a child runs a workflow on the embedded home against a ledger in
//! a file, dies by SIGKILL at a marked point, is started again until the workflow has ended, and
//! the ledger is counted.

mod child;
mod ledger;

use std::{
    path::Path,
    process::{Command, ExitStatus},
};

use deedbook::PolicyKind;
use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{Embedded, OpenOptions},
    record::{Header, Kind},
};

use ledger::Ledger;

/// The variables through which a child is told what to do.
const TOLD: [&str; 4] = [
    "DEEDBOOK_KILL_FOLDER",
    "DEEDBOOK_KILL_POLICY",
    "DEEDBOOK_KILL_POINT",
    "DEEDBOOK_KILL_RESOLVE",
];

/// A child that could not go on because a step is in doubt.
const IN_DOUBT: i32 = 40;

/// Groups that the workflow appends when nothing goes wrong: its points are marked by number.
const GROUPS: usize = 7;

/// Where the first life, and perhaps the second, is killed.
fn points(policy: PolicyKind) -> Vec<Vec<String>> {
    let mut points: Vec<Vec<String>> = Vec::new();
    for group in 1..=GROUPS {
        points.push(vec![format!("before append {group}")]);
        points.push(vec![format!("after append {group}")]);
    }
    let single = [
        "pay before effect",
        "pay after effect",
        "mail before effect",
        "mail after effect",
        "open",
        "claim 1",
        "post",
        "close",
        "closed",
        "answer",
        "waiting",
        "sleeping",
    ];
    points.extend(single.map(|p| vec![p.to_owned()]));
    // Again while the first crash is being recovered from.
    for second in ["open", "claim 1", "read 1", "before append 1", "after append 1"] {
        for first in ["pay after effect", "after append 2"] {
            points.push(vec![first.to_owned(), second.to_owned()]);
        }
    }
    if policy == PolicyKind::Reconcile {
        for probe in ["pay before probe", "pay after probe"] {
            points.push(vec!["pay after effect".to_owned(), probe.to_owned()]);
            points.push(vec!["pay before effect".to_owned(), probe.to_owned()]);
        }
    }
    if policy == PolicyKind::Idempotent {
        points.push(vec!["retry wait".to_owned()]);
        points.push(vec!["pay before effect".into(), "pay after effect".into()]);
    }
    points
}

fn life(folder: &Path, policy: PolicyKind, point: &str, resolve: bool) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "kill::child::lives", "--nocapture"]);
    let told = [folder.to_str().unwrap(), policy.as_str(), point, if resolve { "yes" } else { "" }];
    for (name, value) in TOLD.iter().zip(told) {
        child.env(name, value);
    }
    let output = child.output().unwrap();
    let (status, code) = (output.status, output.status.code());
    let died = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(
        died || matches!(code, Some(0 | IN_DOUBT)),
        "{policy:?} at {point}: {status}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    status
}

/// The steps whose effect may or may not have happened, as the journal's records tell.
fn open_attempts(folder: &Path) -> usize {
    let path = folder.join("journal.redb");
    if !path.exists() {
        return 0;
    }
    let home = Embedded::open(path, OpenOptions::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let id = deedbook::ThreadId::new(child::THREAD).unwrap();
    let page = runtime.block_on(home.read(&id, 0, usize::MAX));
    let Ok(page) = page else { return 0 };
    let headers: Vec<_> =
        page.items.iter().map(|(_, record)| Header::parse(&record.header).unwrap()).collect();
    let effect = |h: &&Header| h.kind == Kind::StepIntent && h.key.is_some();
    let ended = |h: &Header| {
        headers.iter().any(|e| {
            let ends = matches!(e.kind, Kind::StepDone | Kind::StepFail | Kind::StepUnknown);
            ends && e.call == Some(h.call.unwrap_or(h.n)) && e.attempt == h.attempt
        })
    };
    headers.iter().filter(effect).filter(|h| !ended(h)).count()
}

fn die_everywhere(policy: PolicyKind) {
    let mut killed = 0;
    for points in points(policy) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut doubts = 0;
        let mut lives = 0;
        let mut point = points.iter();
        loop {
            lives += 1;
            assert!(lives < 12, "{policy:?} at {points:?} does not come to an end");
            let next = point.next();
            let resolve = doubts > 0;
            let status = life(folder, policy, next.map_or("", String::as_str), resolve);
            killed += usize::from(status.code().is_none());
            match (status.code(), next) {
                (None, _) if policy == PolicyKind::AtMostOnce && !resolve => {
                    // In doubt exactly if killed between intent and outcome; what a person has
                    // said may wait in the inbox, and is not counted on here.
                    let open = open_attempts(folder);
                    let told = life(folder, policy, "", false).code();
                    assert_eq!(told == Some(IN_DOUBT), open > 0, "{points:?}: {told:?}");
                    doubts = open;
                    if told == Some(0) && point.len() == 0 {
                        break;
                    }
                }
                (None, _) => {}
                (Some(IN_DOUBT), _) => {
                    assert_eq!(policy, PolicyKind::AtMostOnce, "{points:?}");
                    doubts = open_attempts(folder);
                    assert!(doubts > 0, "{points:?}: in doubt without an open attempt");
                }
                (Some(_), None) => break,
                // This point does not come in this life; the next may.
                (Some(_), Some(_)) => {}
            }
        }
        let ledger = Ledger::in_folder(folder);
        for step in ["pay", "mail"] {
            let effects = ledger.effects(step);
            if policy == PolicyKind::Read {
                assert!(effects >= 1, "{points:?}: {step}");
            } else {
                // Once, and under at most once because a person says truthfully what happened.
                assert_eq!(effects, 1, "{policy:?} at {points:?}: {step}");
                assert_eq!(ledger.runs_twice(step), None, "{policy:?} at {points:?}");
            }
        }
    }
    assert!(killed >= 20, "only {killed} children were killed");
}

#[test]
fn idempotent_steps_happen_once_wherever_their_process_is_killed() {
    die_everywhere(PolicyKind::Idempotent);
}

#[test]
fn reconciled_steps_happen_once_wherever_their_process_is_killed() {
    die_everywhere(PolicyKind::Reconcile);
}

#[test]
fn at_most_once_steps_are_in_doubt_exactly_when_killed_in_the_window() {
    die_everywhere(PolicyKind::AtMostOnce);
}

#[test]
fn reads_may_repeat_and_their_results_stay() {
    die_everywhere(PolicyKind::Read);
}
