//! L7: histories that were recorded by earlier builds replay on this one, and code that has
//! changed behind them is legal or is told so, by the right step and the right field.
//!
//! The corpus is `tests/fixtures/histories/v1.bin`: threads of the frozen record format with the
//! plans that they ran, recorded in a hostile world with crashes by
//! `deedbook-simulation histories --to FILE`. It is never written again; what later builds record
//! goes into a file beside it.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::LazyLock};

use deedbook::ErrorKind;
use deedbook_journal::record::Kind;
use harness::{
    Random,
    corpus::{
        Recorded,
        mutate::{Change, Wanted, changed, wanted},
        plan::{Line, Maker},
    },
};

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/histories/v1.bin")
}

fn corpus() -> &'static [Recorded] {
    static CORPUS: LazyLock<Vec<Recorded>> =
        LazyLock::new(|| Recorded::from_file(&fs::read(path()).unwrap()));
    &CORPUS
}

/// Whether it does one thing after the other.
fn is_sequential(recorded: &Recorded) -> bool {
    fn at_once(line: &Line) -> bool {
        match line {
            Line::Both(..) => true,
            Line::Scope(_, inner) => inner.iter().any(at_once),
            _ => false,
        }
    }
    !recorded.plan.iter().any(at_once)
}

#[test]
fn recorded_histories_replay_on_this_build() {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for recorded in corpus() {
        for kind in recorded.kinds() {
            *kinds.entry(kind.as_str().to_owned()).or_default() += 1;
        }
        let replayed = recorded.replay(&recorded.plan);
        let what = format!("history {}", recorded.seed);
        assert_eq!(replayed.result.as_ref().ok(), Some(&recorded.result()), "{what}: {replayed:?}");
        assert_eq!(replayed.done, 0, "{what} did something again");
    }
    println!("{} histories, {kinds:?}", corpus().len());
    assert!(corpus().len() >= 200, "{}", corpus().len());
    for kind in [
        Kind::ThreadResume,
        Kind::StepDone,
        Kind::StepFail,
        Kind::StepUnknown,
        Kind::StepResolve,
        Kind::TimerFired,
        Kind::ApprovalDecide,
        Kind::Signal,
        Kind::Clock,
    ] {
        assert!(kinds.get(kind.as_str()).is_some_and(|count| *count > 10), "{kind:?}: {kinds:?}");
    }
}

#[test]
fn a_corpus_is_written_as_it_is_read() {
    let all = Recorded::to_file(corpus());
    assert!(all == fs::read(path()).unwrap(), "a corpus that is read and written is another one");
    let plan = Maker::plan(1, false);
    let again = Recorded::from_file(&Recorded::to_file(&[Recorded::of(1, &plan)]));
    assert_eq!(again[0].replay(&plan).result.unwrap(), again[0].result());
}

#[test]
fn changed_code_is_legal_or_told_by_step_and_field() {
    let mut random = Random::new(7);
    let mut counts: BTreeMap<(Change, &str), usize> = BTreeMap::new();
    for recorded in corpus().iter().filter(|recorded| is_sequential(recorded)) {
        let history = recorded.history();
        for change in Change::ALL {
            let Some(now) = changed(&recorded.plan, change, &mut random) else {
                continue;
            };
            let wanted = wanted(&recorded.plan, &now, &history);
            let what = format!("history {}, {change:?}: {now:#?}\n{wanted:?}", recorded.seed);
            let replayed = recorded.replay(&now);
            let came = match (&wanted, replayed.result) {
                (Wanted::Legal(new), Ok(_)) => {
                    assert_eq!(replayed.done, *new, "{what}: so many bodies ran");
                    "legal"
                }
                (Wanted::Told(..), Err(error)) if error.kind() == ErrorKind::Diverged => {
                    let divergence = error.divergence().unwrap();
                    assert!(wanted.is(divergence), "{what}: {divergence:?}");
                    assert_eq!(replayed.done, 0, "{what}: something was done");
                    "told"
                }
                (_, result) => panic!("{what}: {result:?}"),
            };
            *counts.entry((change, came)).or_default() += 1;
        }
    }
    println!("{counts:?}");
    assert!(counts.values().sum::<usize>() >= 500, "{counts:?}");
    for change in Change::ALL {
        let told = if change == Change::Policy { "legal" } else { "told" };
        assert!(counts.get(&(change, told)).is_some_and(|count| *count >= 10), "{counts:?}");
    }
}
