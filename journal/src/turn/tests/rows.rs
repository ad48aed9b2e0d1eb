//! What a row says of a thread that waits, in a status and in words.

use super::*;

#[test]
fn the_status_says_first_what_needs_a_person_most_and_then_what_comes_first() {
    let signal = Blocked::Signal("s".into());
    let approval = Blocked::Approval(id("q"));
    let late = Blocked::Timer(id("t"), at(200));
    let soon = Blocked::Retry(id("r"), at(150));
    let quiet = Blocked::Quiet(id("c"), at(160));
    let doubt = Blocked::Doubt(id("m"), Doubt::Crash);
    let all = [late, quiet, soon, signal, approval, doubt];
    let wanted = [
        (Status::Sleeping, "timer t#0"),
        (Status::Sleeping, "the probe of step c#0"),
        (Status::Sleeping, "next attempt of step r#0"),
        (Status::Waiting, "signal s"),
        (Status::Waiting, "approval q#0"),
        (Status::InDoubt, "step m#0: the process died while the body ran"),
    ];
    for (n, (status, words)) in wanted.into_iter().enumerate() {
        let (found, detail) = Blocked::status(&all[..=n]);
        assert_eq!(found, status, "{n}");
        assert!(detail.starts_with(words), "{detail}");
        assert_eq!(detail.contains("more)"), n > 0);
        let mut turned = all[..=n].to_vec();
        turned.reverse();
        assert_eq!(Blocked::status(&turned), (found, detail));
    }
    assert_eq!(Blocked::status(&[]), (Status::Running, String::new()));
}

fn row_of(blocked: &[Blocked]) -> crate::row::Row {
    let (status, detail) = Blocked::status(blocked);
    let times = blocked.iter().filter_map(|b| match b {
        Blocked::Timer(_, at) | Blocked::Retry(_, at) | Blocked::Quiet(_, at) => Some(*at),
        _ => None,
    });
    crate::row::Row {
        wake_at: times.min(),
        detail: Some(detail.into()),
        ..crate::row::Row::new("w", status, at(1))
    }
}

/// Names that look like what is written around them.
fn name() -> impl Strategy<Value = String> {
    let parts = [
        "a",
        "pay",
        " (and 3 more)",
        " until ",
        " at ",
        ": ",
        "step ",
        "signal ",
        "approval ",
        "the body panicked",
        "(",
        ")",
        " ",
        "#0",
        ": what a person said to have happened is no value of the type that the code expects (",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 1..5).prop_map(|p| p.concat())
}

proptest! {
    #[test]
    fn what_a_row_says_in_words_is_read_back(
        names in prop::collection::vec((name(), 0..7u8, 100..200u64), 1..4),
    ) {
        let blocked: Vec<Blocked> = names
            .iter()
            .map(|(name, kind, secs)| match kind {
                0 => Blocked::Signal(name.as_str().into()),
                1 => Blocked::Approval(id(name)),
                2 => Blocked::Timer(id(name), at(*secs)),
                3 => Blocked::Retry(id(name), at(*secs)),
                4 => Blocked::Quiet(id(name), at(*secs)),
                5 => Blocked::Doubt(id(name), Doubt::Panic),
                // Ids that hold the very sentence are beyond what can be told apart.
                _ => Blocked::Misread(id("pay"), name.as_str().into()),
            })
            .collect();
        let shown = |id: &StepId| Arc::<str>::from(id.to_string());
        let row = row_of(&blocked);
        let waits = row.waits_for().expect("it waits");
        let found = blocked.iter().any(|b| waits == match b {
            Blocked::Signal(name) => Waits::Signal { name: name.clone() },
            Blocked::Approval(id) => Waits::Approval { request: shown(id) },
            Blocked::Timer(id, until) => Waits::Timer { timer: shown(id), until: *until },
            Blocked::Retry(id, at) => Waits::Retry { step: shown(id), at: *at },
            Blocked::Quiet(id, at) => Waits::Probe { step: shown(id), at: *at },
            Blocked::Doubt(id, doubt) => Waits::Doubt { step: shown(id), doubt: *doubt },
            Blocked::Misread(id, _) => {
                Waits::Doubt { step: shown(id), doubt: Doubt::Unreadable }
            }
        });
        prop_assert!(found, "{waits:?} in {row:?}");
    }
}

#[test]
fn a_row_that_waits_for_nothing_says_so() {
    let row = row_of(&[Blocked::Signal("s".into())]);
    for status in Status::ALL {
        let waits = crate::row::Row { status, ..row.clone() }.waits_for();
        assert_eq!(waits.is_some(), status == Status::Waiting, "{status}");
    }
    assert_eq!(crate::row::Row { detail: None, ..row }.waits_for(), None);
}
